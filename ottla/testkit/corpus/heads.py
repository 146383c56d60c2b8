"""Cases of logs that do not start at their beginning. free"""

from ottla.testkit.corpus.case import Case
from ottla.testkit.corpus.case_run import CaseRun
from ottla.testkit.corpus.producer import V1, Producer


def _in_a_batch(run: CaseRun) -> None:
    run.topic()
    run.send("plain 1", "plain 2", "plain 3", "plain 4")
    run.send("plain 5")
    run.delete_records(before=2)


def _in_a_transaction(run: CaseRun) -> None:
    run.topic(partitions=2)
    orders = Producer(run, "orders", V1)
    for partition in (0, 1):
        orders.send("aborted 1", "aborted 2", partition=partition)
        run.send("plain 1", partition=partition)
        orders.send("aborted 3", partition=partition)
    orders.abort()
    for partition in (0, 1):
        orders.send("committed 1", partition=partition)
    orders.commit()
    run.delete_records(before=1)
    run.delete_records(before=4, partition=1)


def _in_two_transactions(run: CaseRun) -> None:
    run.topic()
    orders, billing = Producer(run, "orders", V1), Producer(run, "billing", V1)
    orders.send("aborted 1")
    billing.send("aborted 2")
    billing.send("aborted 3")
    orders.abort("aborted 4")
    billing.abort()
    orders.commit("committed 1")
    run.delete_records(before=2)


def _everything(run: CaseRun) -> None:
    run.topic()
    orders = Producer(run, "orders")
    orders.commit("committed 1")
    orders.abort("aborted 1")
    run.delete_records(before=4)


CASES = (
    Case(
        "log-starts-in-a-batch",
        "Records were deleted up to the middle of a batch.",
        "A fetch from the start of the log brings the whole batch. The consumer has to drop the records before the "
        "offset that it asked for.",
        ("https://github.com/apache/kafka/pull/5133", "https://github.com/thomhurst/Dekaf/issues/2074"),
        _in_a_batch,
    ),
    Case(
        "log-starts-in-an-aborted-transaction",
        "Records were deleted up to the middle of an aborted transaction, and in the other partition up to its marker.",
        "The first offset in the list of aborted transactions is below the start of the log. In the second partition "
        "the first thing that is read is an abort marker, for which nothing has been dropped.",
        ("https://github.com/platformatic/kafka/issues/391",),
        _in_a_transaction,
    ),
    Case(
        "log-starts-in-two-aborted-transactions",
        "Records were deleted up to the middle of two aborted transactions that overlap.",
        "Both entries of the list of aborted transactions apply from the first record on. A consumer that takes one "
        "entry for each record takes the second one too late.",
        (),
        _in_two_transactions,
    ),
    Case(
        "everything-deleted",
        "Every record was deleted: the log starts where it ends, at 4.",
        "The log is empty, and its offsets are not 0. There is nothing to wait for.",
        ("https://github.com/redpanda-data/redpanda/pull/3159",),
        _everything,
    ),
)
