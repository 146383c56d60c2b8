"""Cases of producers with new epochs, new ids or exhausted numbers. free"""

from ottla.protocol.batch_header import MAX_SEQUENCE
from ottla.testkit.corpus.case import Case
from ottla.testkit.corpus.case_run import CaseRun
from ottla.testkit.corpus.producer import LAST_EPOCH, V1, Producer


def _restart(run: CaseRun) -> None:
    run.topic(partitions=2)
    orders = Producer(run, "orders", V1)
    orders.commit("committed 1")
    orders.send("aborted 1", "aborted 2")
    orders.send("aborted 3", partition=1)
    orders.restart()
    orders.commit("committed 2")
    orders.restart()
    orders.commit("committed 3")


def _epochs_run_out(run: CaseRun) -> None:
    run.begin_late("orders", LAST_EPOCH - 2)
    run.topic()
    orders = Producer(run, "orders")
    orders.commit("committed 1")
    orders.abort("aborted 1")
    orders.commit("committed 2")
    orders.abort("aborted 2")


def _sequences_wrap(run: CaseRun) -> None:
    run.topic()
    gauge = Producer(run, None)
    gauge.sequences[run.name, 0] = MAX_SEQUENCE - 1
    gauge.send("plain 1", "plain 2", "plain 3")
    gauge.send("plain 4")


CASES = (
    Case(
        "epoch-bump",
        "A producer restarts in the middle of a transaction: the abort marker has the next epoch, its next transaction "
        "the one after that.",
        "A marker ends the transaction of its producer id, although its epoch is not that of the records.",
        (),
        _restart,
    ),
    Case(
        "epochs-run-out",
        "A transactional id near the end of its epochs: the last marker has 32767, and the next transaction another "
        "producer id with epoch 0.",
        "One transactional id has two producer ids, and a marker has an epoch that no producer ever has.",
        (
            "https://github.com/apache/kafka/pull/21469",
            "https://github.com/apache/kafka/pull/21506",
            "https://github.com/confluentinc/librdkafka/issues/3720",
            "https://github.com/IBM/sarama/pull/2178",
        ),
        _epochs_run_out,
    ),
    Case(
        "sequences-wrap",
        "An idempotent producer whose sequence numbers go from 2147483647 to 0 within a batch.",
        "The last sequence of the batch is lower than its first.",
        (
            "https://github.com/apache/kafka/pull/5990",
            "https://github.com/redpanda-data/redpanda/pull/27832",
            "https://github.com/redpanda-data/redpanda/issues/4854",
            "https://github.com/tulios/kafkajs/issues/1790",
        ),
        _sequences_wrap,
    ),
)
