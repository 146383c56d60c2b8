"""Cases of logs after a crash or a fault. free"""

from ottla.protocol.batch import MARKER_SIZE, build_batch
from ottla.protocol.batch_header import assign_offsets
from ottla.testkit.corpus.case import Case
from ottla.testkit.corpus.case_run import CaseRun
from ottla.testkit.corpus.producer import V1, Producer

FIRST_SEGMENT = "00000000000000000000.log"
_TORN_BYTES = 40


def _torn_end(run: CaseRun) -> None:
    run.topic()
    orders, billing = Producer(run, "orders"), Producer(run, "billing")
    orders.send("committed 1")
    billing.send("open 1")
    orders.commit()
    run.stopped_cleanly = False
    torn = build_batch(
        [(b"billing-1", b"torn 1"), (b"billing-2", b"torn 2")],
        timestamp_ms=run.now_ms,
        producer_id=billing.identity.producer_id,
        producer_epoch=billing.identity.epoch,
        base_sequence=1,
        transactional=True,
    )
    assign_offsets(torn, run.expected[run.name, 0].log_end_offset, 0)

    def tear(files: dict[str, bytes]) -> None:
        files[f"{run.name}-0/{FIRST_SEGMENT}"] += bytes(torn[:-_TORN_BYTES])

    run.edits.append(tear)


def _torn_transaction(run: CaseRun) -> None:
    run.topic(partitions=2)
    orders = Producer(run, "orders", V1)
    orders.send("committed 1")
    orders.send("open 1", partition=1)
    lost = run.name, 1
    orders.end(commit=True, lost=[lost])
    run.stopped_cleanly = False

    def lose(files: dict[str, bytes]) -> None:
        path = f"{run.name}-1/{FIRST_SEGMENT}"
        files[path] = files[path][:-MARKER_SIZE]

    run.edits.append(lose)


def _hanging(run: CaseRun) -> None:
    run.topic()
    orders = Producer(run, "orders", V1)
    orders.abort("aborted 1")
    orders.send_late("open 1")
    run.send("plain 1")


CASES = (
    Case(
        "torn-end",
        "The broker was killed while it appended a batch to an open transaction: the last batch is cut short.",
        "Readers ignore the incomplete batch. The next broker cuts it off, and other records get its offsets.",
        (),
        _torn_end,
    ),
    Case(
        "torn-transaction",
        "A transaction over two partitions was committed, and the marker of one of them was lost with the broker.",
        "The transaction is committed in one partition and open in the other. Its coordinator has the state "
        "CompleteCommit, so it never ends.",
        (),
        _torn_transaction,
    ),
    Case(
        "hanging-transaction",
        "A batch arrived after the abort of its transaction, and opened another one that the coordinator does not know "
        "(before KIP-890).",
        "The last stable offset never moves again. The coordinator does not list the transaction: only the leader of "
        "the partition does.",
        ("https://github.com/redpanda-data/redpanda/issues/3699", "https://github.com/twmb/franz-go/issues/581"),
        _hanging,
        {"transaction_partition_verification_enable": False},
    ),
)
