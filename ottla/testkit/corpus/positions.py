"""Cases of offsets that groups commit in transactions. free"""

from functools import partial

from ottla.testkit.corpus.case import Case
from ottla.testkit.corpus.case_run import CaseRun
from ottla.testkit.corpus.producer import V1, V2, Producer
from ottla.testkit.in_memory.wire import Generation

GROUP = "billing"


def _positions(generation: Generation, run: CaseRun) -> None:
    run.topic(partitions=3)
    run.send("plain 1", "plain 2", "plain 3")
    copier = Producer(run, "copier", generation)
    copier.send("committed 1", partition=2)
    copier.send_offset(GROUP, run.name, 0, 1)
    copier.commit()
    copier.send("aborted 1", partition=2)
    copier.send_offset(GROUP, run.name, 0, 3)
    copier.send_offset(GROUP, run.name, 1, 7)
    copier.abort()
    copier.send_offset(GROUP, run.name, 2, 2)
    copier.commit()


def _pending(run: CaseRun) -> None:
    run.topic(partitions=2)
    run.send("plain 1", "plain 2")
    copier = Producer(run, "copier")
    copier.send_offset(GROUP, run.name, 0, 1)
    copier.commit()
    copier.send_offset(GROUP, run.name, 0, 2)
    copier.send_offset(GROUP, run.name, 1, 9)


_WHAT = "A group's offsets in committed transactions and in an aborted one, one of them without any record"
_HARD = "Offsets of an aborted transaction are in __consumer_offsets like the others. They never count."

CASES = (
    Case(
        "group-offsets-in-transactions-v1",
        f"{_WHAT}, by AddOffsetsToTxn.",
        _HARD,
        ("https://github.com/nisshi-io/nisshi/pull/716",),
        partial(_positions, V1),
    ),
    Case(
        "group-offsets-in-transactions-v2",
        f"{_WHAT}, as since KIP-890.",
        _HARD,
        ("https://github.com/nisshi-io/nisshi/pull/716",),
        partial(_positions, V2),
    ),
    Case(
        "group-offsets-in-an-open-transaction",
        "Two offsets of a group wait for the end of a transaction; one of them has an older one that counts.",
        "A client that asks for stable offsets gets UNSTABLE_OFFSET_COMMIT, and must ask again. Another client gets "
        "the older offset, or none.",
        (
            "https://github.com/confluentinc/librdkafka/pull/3272",
            "https://github.com/twmb/franz-go/issues/581",
            "https://github.com/redpanda-data/redpanda/issues/6423",
        ),
        _pending,
    ),
)
