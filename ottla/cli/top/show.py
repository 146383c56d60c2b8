"""Output of `ottla top --once`. shell"""

from typing import Final

from ottla.cli.output import Output
from ottla.cli.top.picture import Picture, places_text, sentence

TRANSACTIONS: Final = (
    "transactional_id",
    "state",
    "age_ms",
    "time_left_ms",
    "producer_id",
    "epoch",
    "coordinator",
    "partitions",
    "where",
)
HELD_BACK: Final = (
    "topic",
    "partition",
    "last_stable_offset",
    "high_watermark",
    "held_back",
    "age_ms",
    "standing",
    "transactional_id",
    "producer_id",
)
GROUPS: Final = ("group", "state", "coordinator", "partitions", "lag", "stable_lag")


def show(picture: Picture, output: Output) -> None:
    """Print the answer in a sentence, then the tables with the most harmful rows first."""
    output.line("answer", sentence(picture))
    output.table(
        "transactions",
        TRANSACTIONS,
        [
            (
                each.transactional_id,
                each.state,
                each.age_ms,
                each.time_left_ms,
                each.producer_id,
                each.epoch,
                each.coordinator,
                len(each.partitions),
                places_text(each.partitions),
            )
            for each in picture.transactions
        ],
    )
    output.table(
        "partitions",
        HELD_BACK,
        [
            (
                each.topic,
                each.partition,
                *each.ends,
                each.records,
                each.age_ms,
                str(each.standing),
                each.transactional_id,
                each.producer_id,
            )
            for each in picture.held_back
        ],
    )
    output.table("groups", GROUPS, [tuple(each) for each in picture.groups])
    if picture.left_out:
        output.table("left out", ("what", "looked_at", "of"), [tuple(each) for each in picture.left_out])
    if picture.gaps:
        output.table("not answered", ("reason",), [(reason,) for reason in dict.fromkeys(picture.gaps)])
    output.close()
