"""Cleaning of one compacted log, over many turns between the requests. shell

The cleaner maps the keys of the dirty part to their last offsets. Then it rewrites the segments from the first on, a
group at a time. `compaction.py` decides which records stay, `swap.py` replaces a group. A cleaning does not block
appends, fetches or the deletion of segments: if segments of a group were deleted meanwhile, the group is not replaced.

Source: Kafka's `Cleaner` (4.3.1).
"""

import errno
from collections.abc import Generator, Sequence
from contextlib import closing
from logging import getLogger
from typing import Final, NamedTuple, TypeVar

from ottla.broker.costs import BATCH_US, COPY_BYTE_US, LOOKUP_US, ROW_US
from ottla.broker.log.batches import iter_file
from ottla.broker.log.cleaning.compaction import (
    CleanableOffsets,
    CleanedTransactionMetadata,
    OffsetMap,
    RecordFilter,
    SegmentSizes,
    control_type_of,
    group_segments_by_size,
)
from ottla.broker.log.file_deleter import FileDeleter, sync_in_background
from ottla.broker.log.long_work import LongWork
from ottla.broker.log.partition import Partition
from ottla.broker.log.segments.log_segment import LogSegment
from ottla.broker.log.segments.segment_index import SegmentIndex, time_of
from ottla.broker.log.swap import CLEANED, SUFFIXES, SWAP, add_deleted_suffix, change_file_suffixes
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.descriptors import Shortage
from ottla.broker.ports.disk import Disk
from ottla.broker.turns import Turns
from ottla.protocol.batch_header import BatchHeader, read_header
from ottla.protocol.errors import ProtocolError
from ottla.protocol.indexes import AbortedTxn, pack_aborted_txns
from ottla.protocol.record_frames import iter_frames, raw_steps
from ottla.protocol.steps import RECORD_US, Steps
from ottla.protocol.up_conversion import convert_if_old
from ottla.protocol.varints import Buffer

_log = getLogger(__name__)

_WRITE_BYTES: Final = 1 << 18
# The sync thread also acknowledges flushed appends, so one sync must not take long.
_SYNC_BYTES: Final = 8 << 20

T = TypeVar("T")


class LogCleaningAborted(Exception):
    """The log was deleted, or changed where it was being cleaned; or the disk has no space for the cleaned segment."""


class LogToClean(NamedTuple):
    """A log to clean, and the offsets of its cleanable part."""

    partition: Partition
    offsets: CleanableOffsets


class Cleaner:
    """Cleans one log at a time, and passes replaced segments to `deleter`."""

    def __init__(self, deleter: FileDeleter, disk: Disk, clock: Clock, turns: Turns, long_work: LongWork) -> None:
        self._deleter = deleter
        self._disk = disk
        self._clock = clock
        self._turns = turns
        self._long_work = long_work

    async def clean(self, log: LogToClean, keys_max: int) -> int:
        """Clean the cleanable part of a log, as far as `keys_max` keys reach; return the offset where that part ends.

        Raises LogCleaningAborted, Shortage, ProtocolError if the log is damaged, OSError.
        """
        (partition, offsets), settings = log, log.partition.log.config
        offset_map = OffsetMap(keys_max)
        aborted = await self._collect_aborted_txns(partition, offsets.first_uncleanable)
        await self._build_offset_map(log, offset_map, aborted)
        end_offset = offset_map.latest_offset + 1
        if end_offset <= offsets.first_dirty:
            raise LogCleaningAborted("its keys do not fit into the dedupe buffer (log.cleaner.dedupe.buffer.size)")
        now_ms = self._clock.now_ms()
        kept = RecordFilter(offset_map, aborted, partition.producer_of, now_ms, settings.delete_retention_ms)
        segments = [segment for segment in partition.log.segments.sealed_segments() if segment.base_offset < end_offset]
        sizes = [self._sizes(segment) for segment in segments]
        for group in group_segments_by_size(
            sizes, settings.segment_bytes, settings.segment_index_bytes, offsets.first_uncleanable
        ):
            await self._clean_segments(partition, [segments[at] for at in group], kept)
        _log.info(
            "%(topic)s-%(partition)d is compacted up to offset %(offset)d, %(keys)d keys",
            partition.about | {"offset": end_offset, "keys": len(offset_map)},
        )
        return end_offset

    async def _collect_aborted_txns(self, partition: Partition, upper: int) -> list[AbortedTxn]:
        """Return the aborted transactions that begin below `upper`; their markers may have offsets above it."""
        found: list[AbortedTxn] = []
        for segment in [*partition.log.segments.sealed_segments(), partition.log.segments.active]:
            if segment is not partition.log.segments.active:
                self._check_segments_exist(partition, [segment])
            entries = (await self._long_work.drive(segment.load_transaction_index())).entries
            found += (entry for entry in entries if entry.first_offset < upper)
            if any(entry.last_stable_offset >= upper for entry in entries):
                break
            await self._charge(partition, ROW_US + len(entries) * LOOKUP_US)
        return found

    async def _build_offset_map(self, log: LogToClean, offset_map: OffsetMap, aborted: list[AbortedTxn]) -> None:
        partition, (first, end, _, _) = log
        # The walk starts at `first`: a transaction whose marker is below it would never end.
        transactions = CleanedTransactionMetadata(entry for entry in aborted if entry.last_offset >= first)
        dirty = [segment for segment in partition.log.segments.segments_from(first) if segment.base_offset < end]
        for number, segment in enumerate(dirty):
            self._check_segments_exist(partition, [segment])
            position = segment.find(first) if segment.base_offset < first else 0
            with closing(self._batches(partition, segment, position)) as batches:
                for _, header, batch in batches:
                    if header.is_control:
                        transactions.on_control_batch(header, control_type_of(header, batch))
                    elif not transactions.on_batch(header):
                        readable, content = await self._drive(partition, convert_if_old(batch, header))
                        raw = await self._drive(partition, raw_steps(content, readable))
                        for frames in iter_frames(raw, readable.record_count):
                            if not offset_map.put(readable, frames, first):
                                return
                            await self._charge(partition, len(frames) * RECORD_US)
                    offset_map.update_latest_offset(header.last_offset)
                    await self._charge(partition, _batch_cost_us(header))
            offset_map.update_latest_offset((dirty[number + 1].base_offset if number + 1 < len(dirty) else end) - 1)

    async def _clean_segments(self, partition: Partition, group: list[LogSegment], kept: RecordFilter) -> None:
        interval_bytes = partition.log.config.index_interval_bytes
        output = _CleanedSegment(self._disk, partition.log.directory, group[0].base_offset, interval_bytes)
        last = max((segment.base_offset for segment in group if segment.size_bytes), default=-1)
        kept.transactions.cleaned_index = []
        try:
            for segment in group:
                with closing(self._batches(partition, segment, 0)) as batches:
                    for position, header, batch in batches:
                        ends = segment.base_offset == last and position + header.size_bytes == segment.size_bytes
                        left = await self._drive(partition, kept.filter_any(header, batch, ends))
                        if left is not None and output.add(left, header) >= _SYNC_BYTES:
                            await self._sync(partition, output.take_unsynced_paths())
                        await self._charge(partition, _batch_cost_us(header))
            self._check_segments_exist(partition, group)
            modified_ms = self._disk.modified_ms(group[-1].log_path)
            await self._sync(partition, output.finish(kept.transactions.cleaned_index, modified_ms))
            output.close()
            self._check_segments_exist(partition, group)
        except (LogCleaningAborted, ProtocolError):
            output.delete_files()
            raise
        except OSError as error:
            output.delete_files()
            if error.errno != errno.ENOSPC and not isinstance(error, Shortage):
                raise
            raise LogCleaningAborted(f"{error}") from error
        await self._replace_segments(partition, group, output)

    async def _drive(self, partition: Partition, steps: Steps[T]) -> T:
        result = await self._long_work.drive(steps)
        if partition.offline is not None:
            raise LogCleaningAborted(partition.offline)
        return result

    def _batches(
        self, partition: Partition, segment: LogSegment, position: int
    ) -> Generator[tuple[int, BatchHeader, memoryview], None, None]:
        """Yield the batches of a segment, read through a file of its own, which no other code closes meanwhile."""
        self._check_segments_exist(partition, [segment])
        file = self._disk.open(segment.log_path) if segment.size_bytes else None
        if file is not None:
            with closing(file):
                yield from iter_file(file, position, segment.size_bytes, check_crc=True)

    def _sizes(self, segment: LogSegment) -> SegmentSizes:
        base_path = segment.log_path.removesuffix(".log")
        sizes = [
            self._disk.size_bytes(path) if self._disk.exists(path) else 0
            for path in (f"{base_path}.index", f"{base_path}.timeindex")
        ]
        return SegmentSizes(segment.base_offset, segment.size_bytes, *sizes)

    # --- replacing ------------------------------------------------------------------------------------------------

    async def _replace_segments(self, partition: Partition, group: list[LogSegment], output: "_CleanedSegment") -> None:
        change_file_suffixes(self._disk, output.path, CLEANED, SWAP)
        try:
            await self._sync(partition, [partition.log.directory])
            self._check_segments_exist(partition, group)
        except LogCleaningAborted:
            if partition.offline is None:
                # The `.log` is first: with its `.cleaned` name the other files count as undecided.
                change_file_suffixes(self._disk, output.path, SWAP, CLEANED)
                output.delete_files()
            raise
        deleted: list[str] = []
        for segment in group:
            segment.close()
            # The first snapshot stays: the new segment starts with the same producer state as the group.
            path = segment.log_path.removesuffix(".log")
            deleted += add_deleted_suffix(self._disk, path, with_snapshot=segment is not group[0])
        # File systems may reorder renames, and a new segment next to an old one of the same records would do harm.
        try:
            self._disk.sync_dir(partition.log.directory)
        except Shortage as short:  # half of a swap must not be tried again
            raise OSError(errno.EIO, f"{short}", partition.log.directory) from short
        change_file_suffixes(self._disk, output.path, SWAP, "")
        partition.log.replace_segments(group, output.segment(partition, group[-1].created_ms))
        self._deleter.delete_later(deleted, partition.log.config.file_delete_delay_ms)

    def _check_segments_exist(self, partition: Partition, group: Sequence[LogSegment]) -> None:
        if partition.offline is not None or not partition.log.segments.holds(group):
            raise LogCleaningAborted("some of its segments were deleted meanwhile")

    async def _sync(self, partition: Partition, paths: list[str]) -> None:
        await sync_in_background(self._disk, self._clock, self._turns, paths)
        if partition.offline is not None:
            raise LogCleaningAborted(partition.offline)

    async def _charge(self, partition: Partition, cost_us: float) -> None:
        """Charge work; yield to other handlers when the turn budget is spent."""
        self._turns.charge(cost_us)
        if self._turns.is_spent:
            await self._turns.yield_if_due()
            if partition.offline is not None:
                raise LogCleaningAborted(partition.offline)


def _batch_cost_us(header: BatchHeader) -> float:
    """Return the cost of a batch, whose bytes are read, checked, and perhaps written."""
    return BATCH_US + header.size_bytes * (3 * COPY_BYTE_US)


class _CleanedSegment:
    """The segment that is being written, in `.cleaned` files; `path` is their path without suffixes."""

    def __init__(self, disk: Disk, directory: str, base_offset: int, interval_bytes: int) -> None:
        self.path = f"{directory}/{base_offset:020d}"
        self._disk = disk
        self._directory = directory
        self._interval_bytes = interval_bytes
        self._base_offset = base_offset
        self._index = SegmentIndex(base_offset, interval_bytes)
        self._buffers: list[Buffer] = []
        self._buffered_bytes = 0
        self._unsynced_bytes = 0
        self._size_bytes = 0
        self._has_txn_index = False
        self._remove()
        self._file = disk.open(f"{self.path}.log{CLEANED}", create=True)

    def add(self, batch: Buffer, header: BatchHeader) -> int:
        """Append the remaining records of the batch of `header`; return the bytes written since the last sync."""
        size_bytes = len(batch)
        self._index.account(self._size_bytes, size_bytes, header.last_offset, time_of(read_header(batch)))
        self._size_bytes += size_bytes
        self._buffers.append(batch)
        self._buffered_bytes += size_bytes
        if self._buffered_bytes >= _WRITE_BYTES:
            self._write()
        return self._unsynced_bytes

    def _write(self) -> None:
        if self._buffers:
            self._file.append(self._buffers)
        self._unsynced_bytes += self._buffered_bytes
        self._buffers = []
        self._buffered_bytes = 0

    def take_unsynced_paths(self) -> list[str]:
        """Return the file to sync, and count unsynced bytes from 0 again."""
        self._unsynced_bytes = 0
        return [f"{self.path}.log{CLEANED}"]

    def finish(self, aborted: list[AbortedTxn], modified_ms: int) -> list[str]:
        """Write the rest and the indexes; return the files that must be synced before `close`.

        The files get the modification time of the last replaced segment, because retention uses it where no
        record has a timestamp.
        """
        self._write()
        self._index.add_time_entry()
        contents = {"index": self._index.offset_file(), "timeindex": self._index.time_file()}
        if aborted:
            contents["txnindex"] = pack_aborted_txns(aborted)
        self._has_txn_index = bool(aborted)
        for suffix, content in contents.items():
            self._disk.write(f"{self.path}.{suffix}{CLEANED}", content)
        paths = [f"{self.path}.{suffix}{CLEANED}" for suffix in ("log", *contents)]
        for path in paths:
            self._disk.set_modified_ms(path, modified_ms)
        return [*paths, self._directory]

    def close(self) -> None:
        """Close the file, after everything was synced."""
        self._file.close()

    def delete_files(self) -> None:
        """Close and remove the written files."""
        self._file.close()
        self._remove()

    def _remove(self) -> None:
        for suffix in SUFFIXES:
            path = f"{self.path}.{suffix}{CLEANED}"
            if self._disk.exists(path):
                self._disk.remove(path)

    def segment(self, partition: Partition, created_ms: int) -> LogSegment:
        """Return the written segment, after its files got their final names."""
        return LogSegment(
            self._disk,
            self._directory,
            self._base_offset,
            self._interval_bytes,
            size_bytes=self._size_bytes,
            created_ms=created_ms,
            has_txn_index=self._has_txn_index,
        )
