"""Cases of compacted logs, cleaned by the broker's own cleaner; the scripts list the offsets to remove. free"""

from ottla.protocol.records import NewRecord
from ottla.testkit.corpus.case import Case
from ottla.testkit.corpus.case_run import CaseRun
from ottla.testkit.corpus.producer import V1, Producer
from ottla.testkit.corpus.several import ROLL_MS


def _make_topic(run: CaseRun) -> None:
    run.topic(
        cleanup_policy="compact", delete_retention_ms="1000", min_cleanable_dirty_ratio="0.01", segment_ms="60000"
    )


def _of(key: str, value: str | None) -> NewRecord:
    return NewRecord(key.encode(), None if value is None else value.encode())


def _records(run: CaseRun) -> None:
    _make_topic(run)
    gauge = Producer(run, None)
    run.send(_of("a", "plain 1"), _of("b", "plain 2"), _of("c", "plain 3"))
    run.send(_of("d", "plain 4"), _of("e", "plain 5"), _of("f", "plain 6"))
    gauge.send(_of("x", "plain 7"), _of("y", "plain 8"))
    run.tick(ROLL_MS)
    run.send(_of("a", "plain 9"), _of("e", None))
    run.send(_of("y", "plain 10"), _of("x", "plain 11"), _of("f", "plain 12"), _of("f", "plain 13"))
    run.tick(ROLL_MS)
    run.send(_of("c", "plain 14"))
    run.compact(removed=(0, 4, 5, 6, 7, 12))


def _transactions(run: CaseRun) -> None:
    _make_topic(run)
    orders, billing = Producer(run, "orders", V1), Producer(run, "billing", V1)
    orders.commit(_of("a", "committed 1"), _of("b", "committed 2"))
    billing.abort(_of("a", "aborted 1"))
    orders.commit(_of("c", "committed 3"))
    billing.commit(_of("c", "committed 4"))
    run.tick(ROLL_MS)
    orders.abort(_of("d", "aborted 2"))
    orders.commit(_of("a", "committed 5"))
    run.tick(ROLL_MS)
    run.send(_of("z", "plain 1"))
    run.compact(removed=(0, 3, 5, 9))


def _old_transactions(run: CaseRun) -> None:
    _make_topic(run)
    orders, refunds = Producer(run, "orders", V1), Producer(run, "refunds", V1)
    orders.commit(_of("a", "committed 1"))
    orders.abort(_of("b", "aborted 1"))
    refunds.abort(_of("c", "aborted 2"))
    orders.commit(_of("a", "committed 2"))
    run.tick(ROLL_MS)
    run.send(_of("x", "plain 1"))
    run.compact(removed=(0, 2, 4))
    run.send(_of("y", "plain 2"))
    run.tick(ROLL_MS)
    run.send(_of("y", "plain 3"))
    # No records of the transactions are left: the markers are removed later, and the index omits the transaction.
    run.compact(removed=(), forgotten=(2,))
    run.tick(ROLL_MS)
    run.send(_of("y", "plain 4"))
    run.compact(removed=(1, 3, 9))


CASES = (
    Case(
        "compacted-records",
        "A cleaned log: batches that have lost records at their beginning, in their middle and at their end, and one "
        "that has lost all of them and is kept for the sequence of its producer.",
        "The offsets of records are not consecutive, within batches and between them. A batch may have no record at "
        "all, and still a last offset, after which the next fetch must continue.",
        (
            "https://github.com/tulios/kafkajs/issues/562",
            "https://github.com/kafka4beam/brod/issues/263",
            "https://github.com/dpkp/kafka-python/issues/1701",
            "https://github.com/segmentio/kafka-go/pull/813",
            "https://github.com/zendesk/ruby-kafka/issues/555",
        ),
        _records,
    ),
    Case(
        "compacted-transactions",
        "A cleaned log of transactions: aborted records are removed, a committed transaction has only its marker.",
        "Some markers have no records. A list of aborted transactions may name one without any records.",
        ("https://github.com/kafka4beam/brod/pull/329",),
        _transactions,
    ),
    Case(
        "compacted-transactions-later",
        "A log that was cleaned several times: markers are removed as well, and an aborted transaction has only an "
        "empty batch, kept for its producer, and its marker.",
        "The log starts at 0 and its first batch at 4, which has no record. An abort marker and an entry in the list "
        "have no records to drop.",
        (),
        _old_transactions,
    ),
)
