"""Uncompacted copies of compacted logs, and checks of the records that compaction has removed. pure

A copy follows its log batch by batch, and loses at a restart the batches that the log has lost. The names in this code
call it a ghost. The files, the answers to consumers, and the state of producers and coordinators are compared with it.
The state must be as if nothing had been compacted. Moreover:

- each record left in a log is in its copy, at the same offset;
- the last committed record of each key is left, unless retention has deleted it;
- a consumer with read_committed gets no record that was aborted or is not committed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from lab.simulation.history import History
from lab.simulation.reading import Visible
from ottla.broker.assembly import Assembly
from ottla.broker.log.partition import Partition
from ottla.protocol.batch_header import BatchHeader
from ottla.protocol.values import TopicPartition
from ottla.testkit.scanner import ABORTED, OPEN, ScannedPartition, ScannedRecord, scan_contents

Batches = list[tuple[BatchHeader, memoryview]]


class Seen(NamedTuple):
    """Records that a consumer got from a partition."""

    place: TopicPartition
    committed: bool
    from_offset: int
    visible: Visible


class UncompactedCopies:
    """The uncompacted copies of one world's logs, by partition name. `met` counts the records that compaction has
    removed."""

    def __init__(self, met: Counter[str]) -> None:
        self._met = met
        self._batches: dict[str, Batches] = {}
        self._starts: dict[str, int] = {}
        self._seen: list[Seen] = []

    def __contains__(self, name: str) -> bool:
        return name in self._batches

    # --- following ------------------------------------------------------------------------------------------------

    def follow(self, assembly: Assembly) -> None:
        """Copy the batches appended since the last call. None is compacted yet: the cleaner runs in a later turn."""
        for partition in assembly.broker.cluster.partitions():
            if partition.log.config.cleanup_compact and partition.offline is None:
                self._follow(partition)

    def began_life(self, assembly: Assembly) -> None:
        """Remove the batches that the logs have lost, and copy those appended just before the broker's last end."""
        for partition in assembly.broker.cluster.partitions():
            batches = self._batches.get(partition.name, [])
            while batches and batches[-1][0].next_offset > partition.log_end_offset:
                batches.pop()
        self.follow(assembly)

    def lost_power(self) -> None:
        """Forget the records that consumers got: the power loss may have removed them."""
        self._seen.clear()

    def saw(self, place: TopicPartition, committed: bool, from_offset: int, visible: Visible) -> None:
        """Remember the records that a consumer got."""
        self._seen.append(Seen(place, committed, from_offset, visible))

    def _follow(self, partition: Partition) -> None:
        batches = self._batches.setdefault(partition.name, [])
        self._starts[partition.name] = partition.log_start_offset
        end = batches[-1][0].next_offset if batches else 0
        if partition.log_end_offset > end:
            batches += (
                (header, memoryview(bytes(batch))) for header, batch in partition.scan(end) if header.base_offset >= end
            )

    # --- judging --------------------------------------------------------------------------------------------------

    def batches(self, partition: Partition) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Return the batches of a partition: those of its uncompacted copy if there is one."""
        found = self._batches.get(partition.name)
        return iter(found) if found is not None else partition.scan(0)

    def scan(self, name: str) -> ScannedPartition:
        """Read the uncompacted copy of a partition with the second scanner."""
        return scan_contents([(Path(name), b"".join(bytes(batch) for _, batch in self._batches[name]))])

    def add_to_history(self, history: History, places: Sequence[TopicPartition]) -> None:
        """Add to the history the records that readers of the whole uncompacted logs would have got, for the checker."""
        for place, committed in product(places, (True, False)):
            whole = self.scan(f"{place[0]}-{place[1]}")
            records = [
                (record.offset, (record.value or b"").decode())
                for record in whole.records("read_committed" if committed else "read_uncommitted")
            ]
            reader = "final-rc" if committed else "final-ru"
            op = history.invoke(reader, "poll", committed=committed, txn=None)
            mops = [["poll", f"{place[0]}/{place[1]}", 0, whole.log_end_offset, records]]
            history.ok(reader, "poll", op, committed=committed, mops=mops)

    def judge_all(self, logs: Iterable[tuple[str, ScannedPartition]]) -> Iterator[str]:
        """Check the files of all logs, given by partition name, and the records that consumers got."""
        for name, left in logs:
            if name in self:
                yield from self.judge(name, left)
        yield from self.judge_readers()

    def judge(self, name: str, left: ScannedPartition) -> Iterator[str]:
        """Check the files of a partition, which `left` holds, against its uncompacted copy."""
        whole = self.scan(name)
        known = {record.offset: record for record in whole.records()}
        found = {record.offset: record for record in left.records()}
        for offset, record in found.items():
            if _content(record) != _content(known.get(offset)):
                yield f"compaction: {name} holds {record} where {known.get(offset)} was"
            elif known[offset].fate != record.fate:
                yield f"compaction: {name} holds {record}, whose fate is {known[offset].fate}"
        start = self._starts[name]
        self._met["records compacted away"] += sum(offset >= start for offset in known.keys() - found.keys())
        self._met["records deleted by retention"] += sum(offset < start for offset in known)
        markers = [sum(batch.marker is not None for batch in each.batches) for each in (whole, left)]
        self._met["markers compacted away"] += markers[0] - markers[1]
        for offset, record in self._last(whole).items():
            if offset >= start and offset not in found and record.value is not None:
                yield f"compaction: {name} lost {record}, the last of its key"
        if left.last_stable_offset != whole.last_stable_offset and left.batches:
            yield (
                f"compaction: {name} has the last stable offset {left.last_stable_offset} "
                f"instead of {whole.last_stable_offset}"
            )

    def judge_readers(self) -> Iterator[str]:
        """Check the records that consumers got against the final logs."""
        wholes = {f"{topic}-{index}": self.scan(f"{topic}-{index}") for topic, index in {s.place for s in self._seen}}
        for name, whole in wholes.items():
            known = {record.offset: record for record in whole.records()}
            last, start = self._last(whole), self._starts[name]
            for seen in self._seen:
                if f"{seen.place[0]}-{seen.place[1]}" == name:
                    yield from _judge_reader(name, seen, known, last, start)

    def _last(self, whole: ScannedPartition) -> dict[int, ScannedRecord]:
        """Return the last committed record of each key, by offset."""
        by_key = {record.key: record for record in whole.records() if record.fate not in (ABORTED, OPEN)}
        return {record.offset: record for record in by_key.values()}


def _judge_reader(
    name: str, seen: Seen, known: dict[int, ScannedRecord], last: dict[int, ScannedRecord], start: int
) -> Iterator[str]:
    offset, visible = -1, dict(seen.visible.records)
    for offset, value in visible.items():
        record = known.get(offset)
        if record is None or (record.value or b"").decode() != value:
            yield f"compaction: {name} showed {value} at {offset} where {record} is"
        elif seen.committed and record.fate in (ABORTED, OPEN):
            yield f"compaction: {name} showed {record} to a read_committed consumer"
    for offset in last:
        if max(seen.from_offset, start) <= offset < seen.visible.next_offset and offset not in visible:
            yield f"compaction: {name} hid {last[offset]}, the last of its key, from a reader of {seen.from_offset} on"


def _content(record: ScannedRecord | None) -> object:
    if record is None:
        return None
    return record.timestamp, record.key, record.value, record.headers, record.producer_id, record.producer_epoch
