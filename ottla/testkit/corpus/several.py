"""Cases of several producers, segments and generations. free"""

from ottla.testkit.corpus.case import Case
from ottla.testkit.corpus.case_run import CaseRun
from ottla.testkit.corpus.producer import V1, V2, Producer

ROLL_MS = 61_000.0
_RUN = 40


def _interleave(run: CaseRun) -> None:
    run.topic(partitions=2)
    orders, billing, refunds = Producer(run, "orders"), Producer(run, "billing"), Producer(run, "refunds")
    orders.send("aborted 1")
    billing.send("committed 1")
    refunds.send("aborted 2", "aborted 3")
    orders.send("aborted 4", partition=1)
    run.send("plain 1")
    billing.send("committed 2", partition=1)
    refunds.abort()
    refunds.send("committed 3")
    orders.send("aborted 5")
    billing.commit()
    orders.abort()
    billing.send("aborted 6")
    refunds.commit()
    billing.abort()
    orders.send("committed 4", partition=1)
    orders.commit()


def _abort_many(run: CaseRun) -> None:
    run.topic()
    orders = Producer(run, "orders", V1)
    for number in range(_RUN):
        orders.abort(f"aborted {number}")
    orders.commit("committed 1")


def _across_segments(run: CaseRun) -> None:
    run.topic(segment_ms="60000")
    orders, billing = Producer(run, "orders"), Producer(run, "billing")
    orders.send("aborted 1")
    billing.send("committed 1")
    run.tick(ROLL_MS)
    orders.send("aborted 2")
    run.send("plain 1")
    run.tick(ROLL_MS)
    orders.abort()
    orders.abort("aborted 3")
    billing.send("committed 2")
    run.tick(ROLL_MS)
    billing.commit()


def _leave_open(run: CaseRun) -> None:
    run.topic(partitions=2)
    first, second = Producer(run, "sink-0-1"), Producer(run, "sink-0-2")
    second.commit("committed 1")
    first.send("open 1")
    second.send("committed 2", "committed 3")
    second.send("committed 4", partition=1)
    second.commit()
    second.abort("aborted 1")
    run.send("plain 1")


def _generations(run: CaseRun) -> None:
    run.topic()
    old, new = Producer(run, "old", V1), Producer(run, "new", V2)
    old.send("committed 1")
    new.send("aborted 1")
    old.commit()
    new.abort()
    old.abort("aborted 2")
    old.generation = V2
    old.send("committed 2")
    new.send("committed 3")
    old.commit()
    old.abort("aborted 3")
    new.commit()


CASES = (
    Case(
        "interleaved-transactions",
        "Three producers, whose transactions overlap in two partitions; the one that begins later is aborted earlier.",
        "Aborted transactions are listed in the order of their markers. A consumer that takes them one after the other "
        "has to sort them by their first offsets.",
        ("https://github.com/confluentinc/kafka/pull/145",),
        _interleave,
    ),
    Case(
        "long-run-of-aborted-transactions",
        f"{_RUN} aborted transactions of one producer id, and after them a committed one.",
        "A fetch may bring aborted records only: no record comes out, but the position must advance. Each "
        "marker belongs to another entry of the list.",
        ("https://github.com/confluentinc/librdkafka/issues/2993",),
        _abort_many,
    ),
    Case(
        "transactions-across-segments",
        "An aborted transaction begins in the first segment, goes on in the second, and its marker begins the third. A "
        "committed one reaches from the first to the fourth.",
        "The transaction index that names an aborted transaction is that of the segment with its marker. For records "
        "of an earlier segment the indexes of later segments must be read too.",
        ("https://github.com/AutoMQ/automq/issues/754",),
        _across_segments,
    ),
    Case(
        "open-transaction-below-committed-ones",
        "A transaction is left open, as by a sink that died between two checkpoints; its successors have committed and "
        "aborted after it.",
        "Consumers do not get committed records after the last stable offset. The other partition is not held back.",
        (
            "https://github.com/evolution-gaming/kafka-flow/pull/857",
            "https://github.com/redpanda-data/redpanda/pull/10671",
        ),
        _leave_open,
    ),
    Case(
        "both-generations",
        "Transactions of the protocol before and after KIP-890 in one log, and one id that moves from one to the "
        "other.",
        "Markers of the first generation have the epoch of their records, those of the second the next one.",
        (),
        _generations,
    ),
)
