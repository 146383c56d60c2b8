"""Cases of one producer: transactions one after the other, and where the log ends. free"""

from functools import partial

from ottla.testkit.corpus.case import Case
from ottla.testkit.corpus.case_run import CaseRun
from ottla.testkit.corpus.producer import V1, V2, Producer
from ottla.testkit.in_memory.wire import Generation


def _commit(run: CaseRun) -> None:
    run.topic()
    orders = Producer(run, "orders")
    orders.send("committed 1", "committed 2")
    orders.commit("committed 3")
    run.send("plain 1")


def _abort(run: CaseRun) -> None:
    run.topic()
    run.send("plain 1")
    orders = Producer(run, "orders")
    orders.send("aborted 1", "aborted 2")
    orders.abort("aborted 3")
    run.send("plain 2")


def _empty(run: CaseRun) -> None:
    run.topic()
    orders = Producer(run, "orders", V1)
    place = run.name, 0
    run.send("plain 1")
    orders.join(place)
    orders.abort()
    orders.commit("committed 1")
    orders.join(place)
    orders.commit()
    orders.join(place)
    orders.abort()
    orders.abort("aborted 1")
    orders.commit("committed 2")


def _reused_id(generation: Generation, run: CaseRun) -> None:
    run.topic()
    orders = Producer(run, "orders", generation)
    orders.commit("committed 1")
    orders.abort("aborted 1")
    orders.commit("committed 2")


def _trailing_commit(run: CaseRun) -> None:
    run.topic(partitions=2)
    orders = Producer(run, "orders")
    orders.send("committed 1", "committed 2")
    orders.send("committed 3", partition=1)
    orders.commit()


def _trailing_abort(run: CaseRun) -> None:
    run.topic(partitions=2)
    orders = Producer(run, "orders")
    orders.commit("committed 1")
    orders.send("aborted 1", "aborted 2")
    orders.send("aborted 3", partition=1)
    orders.abort()


def _open_head(run: CaseRun) -> None:
    run.topic()
    orders, billing = Producer(run, "orders"), Producer(run, "billing")
    billing.commit("committed 1")
    orders.send("open 1")
    run.send("plain 1")
    orders.send("open 2")


CASES = (
    Case(
        "one-committed-transaction",
        "Three records of one transaction in two batches, its commit marker, and a record outside of transactions.",
        "The marker takes an offset, so the records of the log are not as many as its offsets.",
        ("https://github.com/apache/spark/pull/21917", "https://github.com/apache/druid/issues/5404"),
        _commit,
    ),
    Case(
        "one-aborted-transaction",
        "Two batches of an aborted transaction between two records outside of transactions.",
        "A consumer of read_committed drops the records of the producer from the first offset in the list of aborted "
        "transactions to the abort marker, and one of read_uncommitted gets them.",
        (
            "https://github.com/segmentio/kafka-go/issues/1332",
            "https://github.com/streamnative/kop/issues/1283",
            "https://github.com/redpanda-data/redpanda/issues/6630",
        ),
        _abort,
    ),
    Case(
        "empty-transactions",
        "Transactions of one producer id in which nothing was sent, committed and aborted, before and after others.",
        "An abort marker without records is in no list of aborted transactions. A consumer that takes the next entry "
        "of the list for each abort marker shows records of the aborted transaction after it.",
        ("https://github.com/confluentinc/librdkafka/pull/3369",),
        _empty,
    ),
    Case(
        "reused-id-v1",
        "One producer id and epoch commits, aborts and commits again.",
        "The first marker after the beginning of a fetch is not the one that ends the aborted transaction. A consumer "
        "that stops dropping at the first marker of the producer shows aborted records, or drops committed ones.",
        ("https://github.com/kafka4beam/brod/pull/659",),
        partial(_reused_id, V1),
    ),
    Case(
        "reused-id-v2",
        "One producer id commits, aborts and commits again, in a new epoch each time (KIP-890).",
        "The marker has the epoch of the next transaction, not of the one that it ends. Markers and records belong "
        "together by the producer id alone.",
        ("https://github.com/kafka4beam/brod/pull/659",),
        partial(_reused_id, V2),
    ),
    Case(
        "trailing-commit-marker",
        "The last offset of each of two partitions is a commit marker.",
        "The end of the log is never reached by records: their last offset is two below it. A bounded read has to go "
        "by the position of the consumer.",
        (
            "https://github.com/risingwavelabs/risingwave/issues/24829",
            "https://github.com/apache/kafka/pull/11046",
            "https://github.com/apache/flink-connector-kafka/pull/100",
            "https://github.com/apache/seatunnel/issues/11471",
            "https://github.com/twmb/kcl/pull/64",
        ),
        _trailing_commit,
    ),
    Case(
        "trailing-aborted-transaction",
        "An aborted transaction is last in one partition, and all that there is in the other.",
        "A consumer of read_committed gets no record of the second partition, but its position must reach the end "
        "of the log.",
        ("https://github.com/apache/kafka/pull/11046",),
        _trailing_abort,
    ),
    Case(
        "open-transaction-at-the-end",
        "A transaction is open, with a record outside of transactions between its batches.",
        "The last stable offset is below the high watermark: a consumer of read_committed stops there, with a lag "
        "that does not go away. Records after it are held back, and waiting does not help.",
        (
            "https://github.com/spring-projects/spring-kafka/issues/1587",
            "https://github.com/redpanda-data/redpanda/pull/3036",
        ),
        _open_head,
    ),
)
