"""The final logs: position and fate of each value, and errors in the logs themselves. pure

Segments are read by `testkit/scanner.py`; the values of `__consumer_offsets` are read here. Neither shares code with
the broker.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from ottla.testkit.checks.operations import Anomaly, text_of, unique_name
from ottla.testkit.scanner import ScannedBatch, ScannedPartition

VISIBLE = frozenset({"plain", "committed"})


class Place(NamedTuple):
    """Position and fate of a value in a log."""

    key: str
    offset: int
    fate: str


class CommittedOffset(NamedTuple):
    """A committed offset in `__consumer_offsets`; `position` is the record's offset in that log."""

    group: str
    key: str
    offset: int
    position: int
    fate: str
    metadata: str


@dataclass(slots=True)
class Logs:
    """The content of the final logs.

    `partitions` are by key, "topic/index". Records with `repeated` values get names with their producer and sequence;
    records whose names are in `same` are left out. `places` are by value. `rows` are by key: [(offset, value, fate)] of
    data records; `at` has the same by offset.
    """

    partitions: dict[str, ScannedPartition]
    offsets_partitions: list[ScannedPartition]
    repeated: frozenset[str] = frozenset()
    same: frozenset[str] = frozenset()
    places: dict[str, list[Place]] = field(default_factory=dict)
    rows: dict[str, list[tuple[int, str, str]]] = field(default_factory=dict)
    at: dict[str, dict[int, tuple[str, str]]] = field(default_factory=dict)
    committed: list[CommittedOffset] = field(default_factory=list)

    def __post_init__(self) -> None:
        for key, partition in self.partitions.items():
            rows = self.rows[key] = []
            for record in partition.records():
                value = text_of(record.value)
                if value in self.repeated:
                    value = unique_name(value, key, record.producer_id, record.producer_epoch, record.sequence)
                    if value in self.same:
                        continue
                rows.append((record.offset, value, record.fate))
                self.places.setdefault(value, []).append(Place(key, record.offset, record.fate))
            self.at[key] = {offset: (value, fate) for offset, value, fate in rows}
        for partition in self.offsets_partitions:
            self.committed += _committed_offsets(partition)

    def value_at(self, key: str, offset: int) -> str | None:
        return self.at.get(key, {}).get(offset, (None, ""))[0]

    def between(self, key: str, start: int, end: int) -> Iterator[tuple[int, str, str]]:
        """Yield the rows with offsets from `start` to before `end`."""
        rows = self.rows.get(key, [])
        yield from rows[bisect_left(rows, start, key=itemgetter(0)) : bisect_left(rows, end, key=itemgetter(0))]

    def visible(self, value: str) -> list[Place]:
        return [place for place in self.places.get(value, ()) if place.fate in VISIBLE]


def check_logs(logs: Logs) -> Iterator[Anomaly]:
    """Find errors in the logs that do not depend on the history."""
    for key, partition in [
        *logs.partitions.items(),
        *(("__consumer_offsets", each) for each in logs.offsets_partitions),
    ]:
        for damage in partition.damages:
            yield Anomaly("broken-log", f"{damage.path} at {damage.position}: {damage.reason}")
        yield from _check_offsets(key, partition)
        yield from _check_producers(key, partition, sequences=key != "__consumer_offsets")


def _check_offsets(key: str, partition: ScannedPartition) -> Iterator[Anomaly]:
    expected = None
    for batch in partition.batches:
        if expected is not None and batch.base_offset != expected:
            yield Anomaly("offset-gap", f"{key}: offset {batch.base_offset} follows {expected - 1}")
        expected = batch.last_offset + 1
        offsets = [record.offset for record in batch.records()]
        if offsets != list(range(batch.base_offset, expected)):
            yield Anomaly("offset-gap", f"{key}: batch {batch.base_offset} holds offsets {offsets}")


def _check_producers(key: str, partition: ScannedPartition, sequences: bool) -> Iterator[Anomaly]:
    """Check that epochs and coordinator epochs never decrease, and sequences have no gap or repetition."""
    epochs: dict[int, int] = {}
    coordinators: dict[int, int] = {}
    following: dict[tuple[int, int], int] = {}
    for batch in partition.batches:
        pid, epoch = batch.producer_id, batch.producer_epoch
        if pid < 0:
            continue
        if epoch < epochs.get(pid, -1):
            yield Anomaly(
                "zombie-write",
                f"{key}: epoch {epoch} of producer {pid} at {batch.base_offset} after epoch {epochs[pid]}",
            )
        epochs[pid] = max(epoch, epochs.get(pid, -1))
        if batch.is_control:
            coordinator = batch.coordinator_epoch
            if coordinator is not None and coordinator < coordinators.get(pid, -1):
                yield Anomaly("coordinator-epoch", f"{key}: coordinator epoch {coordinator} at {batch.base_offset}")
            coordinators[pid] = max(coordinators.get(pid, -1), -1 if coordinator is None else coordinator)
        elif sequences:
            yield from _check_sequence(key, batch, following)


def _check_sequence(key: str, batch: ScannedBatch, following: dict[tuple[int, int], int]) -> Iterator[Anomaly]:
    producer = (batch.producer_id, batch.producer_epoch)
    expected = following.get(producer)
    if expected is not None and batch.base_sequence != expected:
        detail = f"{key}: sequence {batch.base_sequence} of {producer} at {batch.base_offset}, expected {expected}"
        yield Anomaly("sequence-gap", detail)
    following[producer] = (batch.base_sequence + batch.last_offset - batch.base_offset + 1) % 2**31


def _committed_offsets(partition: ScannedPartition) -> Iterator[CommittedOffset]:
    for batch, fate in zip(partition.batches, partition.fates, strict=True):
        if batch.is_control:
            continue
        for record in batch.records(fate):
            key, value = record.key or b"", record.value
            version = int.from_bytes(key[:2], "big")
            if version > 1 or value is None:
                continue
            group, rest = _string(key, 2)
            topic, rest = _string(key, rest)
            index = int.from_bytes(key[rest : rest + 4], "big")
            (offset,) = struct.unpack_from(">q", value, 2)
            yield CommittedOffset(group, f"{topic}/{index}", offset, record.offset, fate, _metadata(value))


def _metadata(value: bytes) -> str:
    """Return the metadata of an offset: after the offset, from version 3 after the leader epoch; compact from 4."""
    version = int.from_bytes(value[:2], "big")
    if version < 4:
        return _string(value, 14 if version == 3 else 10)[0]
    size = shift = 0
    position = 14
    while True:
        size |= (value[position] & 0x7F) << shift
        position += 1
        if not value[position - 1] & 0x80:
            break
        shift += 7
    return value[position : position + size - 1].decode()


def _string(data: bytes, position: int) -> tuple[str, int]:
    end = position + 2 + int.from_bytes(data[position : position + 2], "big")
    return data[position + 2 : end].decode(), end
