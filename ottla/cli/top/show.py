"""Output of `ottla top --once`. shell"""

from ottla.cli.output import Output, table_of
from ottla.cli.top.picture import GroupLag, LeftOut, Picture, places_text, sentence


def show(picture: Picture, output: Output) -> None:
    """Print the answer in a sentence, then the tables with the most harmful rows first."""
    output.line("answer", sentence(picture))
    transactions = [
        {
            "transactional_id": each.transactional_id,
            "state": each.state,
            "age_ms": each.age_ms,
            "time_left_ms": each.time_left_ms,
            "producer_id": each.producer_id,
            "epoch": each.epoch,
            "coordinator": each.coordinator,
            "partitions": len(each.partitions),
            "where": places_text(each.partitions),
        }
        for each in picture.transactions
    ]
    output.table("transactions", *table_of(transactions))
    held_back = [
        {
            "topic": each.topic,
            "partition": each.partition,
            **each.ends._asdict(),
            "held_back": each.records,
            "age_ms": each.age_ms,
            "standing": str(each.standing),
            "transactional_id": each.transactional_id,
            "producer_id": each.producer_id,
        }
        for each in picture.held_back
    ]
    output.table("partitions", *table_of(held_back))
    output.table("groups", ("group", *GroupLag._fields[1:]), picture.groups)
    if picture.left_out:
        output.table("left out", LeftOut._fields, picture.left_out)
    if picture.gaps:
        output.table("not answered", ("reason",), [(reason,) for reason in dict.fromkeys(picture.gaps)])
    output.close()
