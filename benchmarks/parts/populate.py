"""Large data directories, written with the broker's own encoders because clients would take too long. free"""

import time
from collections.abc import Iterator
from pathlib import Path

from ottla.broker.txn.log import encode_change
from ottla.broker.txn.states import TransactionStatus
from ottla.broker.txn.values import NO_PARTITIONS, TransactionState
from ottla.protocol.batch import build_batch, build_marker
from ottla.protocol.batch_header import assign_offsets
from ottla.protocol.checkpoints import CLEAN_SHUTDOWN
from ottla.protocol.hashing import coordinator_partition
from ottla.protocol.snapshot import ProducerEntry, encode_snapshot
from parts import raw
from parts.processes import Broker

STATE_PARTITIONS = 50
PREPARED_WITHIN_S = 30
FIRST_PRODUCER_ID = 10_000_000
DAY_MS = 86_400_000
# Of a thousand ids 900 have committed, 90 have aborted, and 10 have had no transaction yet.
STATES = (
    [TransactionStatus.COMPLETE_COMMIT] * 900 + [TransactionStatus.COMPLETE_ABORT] * 90 + [TransactionStatus.EMPTY] * 10
)


def idle_id(number: int) -> str:
    return f"payments-processor-{number:07d}"


def prepare(broker: Broker, data_dir: Path) -> None:
    """Make `__transaction_state`, whose logs are then written while the broker is down."""
    with raw.open_connection(broker.bootstrap) as connection:
        raw.Transactional(connection, "first", "", v2=True)
    until = time.monotonic() + PREPARED_WITHIN_S
    while sum(1 for _ in data_dir.glob("__transaction_state-*/partition.metadata")) < STATE_PARTITIONS:
        if time.monotonic() > until:
            raise SystemExit("the broker does not create the partitions of __transaction_state")
        time.sleep(0.01)


def write_idle_ids(data_dir: Path, count: int) -> int:
    """Append `count` idle ids, one record each, as compaction would leave them; return the number of bytes."""
    logs: list[bytearray] = [bytearray() for _ in range(STATE_PARTITIONS)]
    paths = [data_dir / f"__transaction_state-{index}" / f"{0:020d}.log" for index in range(STATE_PARTITIONS)]
    offsets = [_next_offset(path) for path in paths]
    now_ms = time.time_ns() // 1_000_000
    for number, state in enumerate(_states(count, now_ms)):
        transactional_id = idle_id(number)
        index = coordinator_partition(transactional_id, STATE_PARTITIONS)
        batch = encode_change(transactional_id, state, 2, state.last_update_ms)
        assign_offsets(batch, offsets[index], 0)
        offsets[index] += 1
        logs[index] += batch
    for path, log in zip(paths, logs, strict=True):
        with path.open("ab") as file:
            file.write(log)
    (data_dir / CLEAN_SHUTDOWN).unlink()  # the indexes have to be rebuilt
    return sum(map(len, logs))


def _states(count: int, now_ms: int) -> Iterator[TransactionState]:
    for number in range(count):
        status = STATES[number % 1000]
        ended_ms = now_ms - DAY_MS + number % DAY_MS // 2
        began_ms = -1 if status is TransactionStatus.EMPTY else ended_ms - 50
        producer_id = FIRST_PRODUCER_ID + number
        yield TransactionState(
            producer_id, number % 1000, status, 60_000, NO_PARTITIONS, began_ms, ended_ms, producer_id, -1, 2
        )


def _next_offset(log: Path) -> int:
    """Return the next offset of a log of one-record batches: their number."""
    content, position, count = log.read_bytes() if log.exists() else b"", 0, 0
    while position < len(content):
        position += 12 + int.from_bytes(content[position + 8 : position + 12], "big")
        count += 1
    return count


def append_aborts(partition_dir: Path, count: int) -> None:
    """Append `count` aborted transactions of one record, as one producer after another sends them."""
    path = partition_dir / f"{0:020d}.log"
    offset = _next_offset(path)
    now_ms = time.time_ns() // 1_000_000
    with path.open("ab") as file:
        for number in range(count):
            producer_id = FIRST_PRODUCER_ID + number % 1_000
            sent = build_batch(
                [(None, b"value")],
                timestamp_ms=now_ms,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=number // 1_000,
                transactional=True,
            )
            for batch in (sent, build_marker(producer_id, 0, 0, False, now_ms)):
                assign_offsets(batch, offset, 0)
                offset += 1
                file.write(batch)


def write_producers(partition_dir: Path, count: int) -> None:
    """Replace the producer snapshot of a cleanly closed partition with one of `count` producers."""
    (path,) = partition_dir.glob("*.snapshot")
    now_ms = time.time_ns() // 1_000_000
    path.write_bytes(
        encode_snapshot(
            ProducerEntry(FIRST_PRODUCER_ID + number, 0, 0, 0, 0, now_ms, -1, -1) for number in range(count)
        )
    )
