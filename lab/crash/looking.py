"""Comparison of the broker's partitions with the results of the second scanner on their files. free"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lab.crash.life import Life
from lab.crash.log_directory import DIRECTORY
from lab.in_memory.disk import MemoryDisk
from lab.simulation.reading import visible
from ottla.broker.cluster.image import INTERNAL_TOPICS
from ottla.broker.log.partition import Partition
from ottla.broker.log.results import FetchIsolation
from ottla.broker.log.timestamps import offset_for_timestamp
from ottla.protocol.checkpoints import parse_directory_name
from ottla.protocol.errors import ErrorCode
from ottla.protocol.steps import to_the_end
from ottla.protocol.values import TopicPartition
from ottla.testkit.scanner import OPEN, ScannedPartition, scan_contents

Seen = dict[TopicPartition, str]
"""{(partition, offset): value}: the records that consumers with read_committed get."""

ENOUGH: Final = 1 << 20
TIMES: Final = 3


def scan(disk: MemoryDisk) -> dict[TopicPartition, ScannedPartition]:
    """Scan all log files. Return the result by topic and partition."""
    found: dict[TopicPartition, list[tuple[Path, bytes]]] = {}
    for path, content in sorted(disk.all_files().items()):
        name, _, file = path.removeprefix(f"{DIRECTORY}/").rpartition("/")
        key = parse_directory_name(name)
        if key is not None and file.endswith(".log"):
            found.setdefault(key, []).append((Path(path), content))
    return {key: scan_contents(segments) for key, segments in found.items()}


def seen(life: Life) -> Seen:
    """Read all partitions that are not internal, with read_committed."""
    found: Seen = {}
    for partition in life.partitions():
        if partition.topic not in INTERNAL_TOPICS and partition.offline is None:
            found.update({(partition.name, offset): value for offset, value in _records(partition)})
    return found


def _records(partition: Partition) -> Iterator[tuple[int, str]]:
    offset = partition.log_start_offset
    while offset < partition.last_stable_offset:
        answer = partition.read(offset, ENOUGH, isolation=FetchIsolation.TXN_COMMITTED)
        if answer.error != ErrorCode.NONE:
            return
        assert isinstance(answer.records, bytes)
        got = visible(answer.records, answer.aborted or [], offset)
        if got.next_offset == offset:
            return
        yield from got.records
        offset = got.next_offset


def differences(partition: Partition, scanned: ScannedPartition) -> Iterator[str]:
    """Return the differences between a partition without open transactions and its files."""
    name = partition.name
    for damage in scanned.damages:
        yield f"broken log: {damage}"
    ends = partition.log_end_offset, partition.high_watermark, partition.last_stable_offset
    end_offset = max(scanned.log_end_offset, partition.log_start_offset)
    if ends[:2] != (end_offset, end_offset):
        yield f"wrong end: {name} ends at {ends}, its files at {scanned.log_end_offset}"
    if ends[2] != ends[0]:
        yield f"hanging transaction in {name}"
    read = [*_records(partition)]
    held = [(record.offset, (record.value or b"").decode()) for record in scanned.records("read_committed")]
    if partition.offline is None and read != held:
        yield f"wrong records: {name} shows {_first_difference(read, held)}"
    for batch in scanned.batches:
        epoch = partition.log.epochs.epoch_for_offset(batch.base_offset)
        if epoch != batch.leader_epoch:
            yield f"wrong epoch: offset {batch.base_offset} of {name} is in {batch.leader_epoch}, not {epoch}"
            break
    yield from _producer_differences(partition, scanned)
    yield from _time_differences(partition, scanned)


def _first_difference(read: list[tuple[int, str]], held: list[tuple[int, str]]) -> str:
    for one, other in zip(read, held, strict=False):
        if one != other:
            return f"{one} where its files hold {other}"
    return f"{len(read)} records, its files hold {len(held)}"


def _producer_differences(partition: Partition, scanned: ScannedPartition) -> Iterator[str]:
    """Compare epoch, last sequence and open transaction of each producer with the batches."""
    expected: dict[int, tuple[int, int]] = {}
    for batch in scanned.batches:
        if batch.producer_id < 0:
            continue
        sequence = expected.get(batch.producer_id, (-1, -1))[1]
        if batch.is_control:
            same = batch.producer_epoch == expected.get(batch.producer_id, (-1, -1))[0]
            expected[batch.producer_id] = batch.producer_epoch, sequence if same else -1
        else:
            expected[batch.producer_id] = batch.producer_epoch, batch.base_sequence + batch.record_count - 1
    started = {txn.producer_id: txn.first_offset for txn in scanned.transactions if txn.fate == OPEN}
    known = {each.producer_id: (each.epoch, each.last_sequence) for each in partition.producers()}
    if known != expected:
        yield f"wrong producers: {partition.name} knows {known}, its files {expected}"
    running = {each.producer_id: each.current_txn_first_offset for each in partition.producers()}
    if {pid: start for pid, start in running.items() if start >= 0} != started:
        yield f"wrong transactions: {partition.name} has open {running}, its files {started}"


def _time_differences(partition: Partition, scanned: ScannedPartition) -> Iterator[str]:
    batches = [batch for batch in scanned.batches if batch.record_count]
    for batch in batches[:: max(1, len(batches) // TIMES)]:
        found = to_the_end(offset_for_timestamp(partition, batch.max_timestamp, FetchIsolation.LOG_END))
        expected = next(
            record.offset
            for each in scanned.batches
            for record in each.records()
            if record.timestamp >= batch.max_timestamp
        )
        if found is not None and found.offset != expected and partition.offline is None:
            yield f"wrong time: {batch.max_timestamp} of {partition.name} finds {found.offset}, not {expected}"
            return
