"""Loading a partition directory, after a clean stop or a crash. shell

After a crash every segment from the recovery point on is read: each batch's CRC is checked, and its indexes, leader
epochs and producer state are rebuilt. A torn tail is cut off. Any other damage leaves the partition offline, with one
log line that names the file, the position and what to do.

Source: Kafka's `LogLoader`, `LogSegment.recover`, `ProducerStateManager`; `tail_kind.py` explains the differences.
"""

import re
from collections.abc import Collection, Container
from contextlib import closing, suppress
from heapq import merge
from itertools import islice
from logging import getLogger
from typing import Final, NamedTuple

from ottla.broker.costs import ROW_US
from ottla.broker.log.batches import BadBatch, Run, iter_file, iter_runs
from ottla.broker.log.leader_epoch_cache import LeaderEpochCache
from ottla.broker.log.loaded import LoadedLog
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.producer_state_manager import SNAPSHOT_SLICE, ProducerStateManager
from ottla.broker.log.replay import replay, replay_run
from ottla.broker.log.segments.log_segment import MAX_RELATIVE_OFFSET, LogSegment
from ottla.broker.log.segments.log_segments import LogSegments
from ottla.broker.log.segments.segment_index import time_of
from ottla.broker.log.swap import DELETED, complete_swap_operations
from ottla.broker.log.tail_kind import TailKind, classify_tail
from ottla.broker.ports.disk import Disk
from ottla.protocol import checkpoints
from ottla.protocol.batch_header import BatchHeader, is_legacy
from ottla.protocol.errors import ProtocolError
from ottla.protocol.legacy_records import SHALLOW_LIMIT_BYTES, deep_header
from ottla.protocol.snapshot import ENTRY_BYTES, HEAD_BYTES, SnapshotDecoder, encode_snapshot
from ottla.protocol.steps import BYTE_US, Steps, to_the_end

_log = getLogger(__name__)

_FILE: Final = re.compile(r"([0-9]{20})\.(log|index|timeindex|txnindex|snapshot)")
_INDEX_SUFFIXES: Final = ("index", "timeindex", "txnindex")
_SNAPSHOT_PART_BYTES: Final = SNAPSHOT_SLICE * ENTRY_BYTES


class Start(NamedTuple):
    """Inputs of loading a partition: its checkpointed offsets and the settings of the load."""

    recovery_point: int
    log_start_offset: int
    clean: bool
    truncate_damaged: bool
    now_ms: int


class Damaged(Exception):
    """The log is damaged and must not be used."""


def new_log(disk: Disk, directory: str, settings: LogConfig, start_offset: int, now_ms: int) -> LoadedLog:
    """Return an empty log in an existing directory; the first append creates its files."""
    segment = LogSegment(disk, directory, start_offset, settings.index_interval_bytes, created_ms=now_ms)
    segments = LogSegments(disk, directory, [segment], start_offset)
    return LoadedLog(directory, segments, ProducerStateManager(), LeaderEpochCache(), start_offset, start_offset)


def load_log(disk: Disk, directory: str, settings: LogConfig, start: Start) -> LoadedLog:
    """Load the log in `directory`. Failed IO raises OSError; damage is reported in the result."""
    return to_the_end(load_steps(disk, directory, settings, start))


def load_steps(disk: Disk, directory: str, settings: LogConfig, start: Start) -> Steps[LoadedLog]:
    """Do `load_log` in steps. Closing the steps during a recovery leaves the files as a crash at this point does."""
    loader = LogLoader(disk, directory, settings, start)
    try:
        return (yield from loader.load())
    except GeneratorExit:
        for segment in loader.segments:
            segment.close()
        raise
    except (Damaged, BadBatch, ProtocolError) as damage:
        name = directory.rpartition("/")[2]
        reason = f"{directory} is damaged: {damage}"
        topic, _, index = name.rpartition("-")
        _log.error(
            "%(topic)s-%(partition)s: %(why)s; --truncate-damaged %(topic)s-%(partition)s cuts the log there",
            {"topic": topic, "partition": int(index) if index.isdigit() else index, "why": reason},
        )
        for segment in loader.segments:
            segment.close()
        return new_log(disk, directory, settings, 0, start.now_ms)._replace(damage=reason)


class LogLoader:
    """The steps of one load, and their common state."""

    def __init__(self, disk: Disk, directory: str, settings: LogConfig, start: Start) -> None:
        self.disk = disk
        self.directory = directory
        self.settings = settings
        self.start = start
        self.producers = ProducerStateManager()
        self.epochs = LeaderEpochCache()
        self.segments: list[LogSegment] = []
        self.snapshots: list[int] = []
        self.end_offset = 0
        self.snapshot_offset = -1
        self.missing_before_last = 0
        self.deleted_files: list[str] = []
        self.skipped = 0

    def load(self) -> Steps[LoadedLog]:
        loaded = yield from self._load()
        end_offset = loaded.segments.end_offset
        _log.debug("%s: loaded, offsets %d to %d", self.directory, loaded.log_start_offset, end_offset)
        # These files show a recovery why offsets are missing. Its result is on the device now.
        for name in self.deleted_files:
            self.disk.remove(f"{self.directory}/{name}")
        return loaded

    def _load(self) -> Steps[LoadedLog]:
        self._find_files()
        if not self.segments:
            return new_log(
                self.disk, self.directory, self.settings, max(self.start.log_start_offset, 0), self.start.now_ms
            )
        log_start = max(self.start.log_start_offset, self.segments[0].base_offset)
        sound = yield from self._count_sound_segments()
        self._load_epochs(sound)
        yield from self._load_producers(log_start, sound)
        if sound < len(self.segments):
            yield from self._recover(sound)
        if self.skipped:
            sound, log_start = 0, max(log_start, self.segments[0].base_offset)
            _log.info("%s: begins at %d, after segments that were being deleted", self.directory, log_start)
        if self.end_offset < log_start:
            _log.warning(
                "%s: ends at %d, below the log start offset %d: starting an empty log there",
                self.directory,
                self.end_offset,
                log_start,
            )
            self._remove_segments(0)
            return new_log(self.disk, self.directory, self.settings, log_start, self.start.now_ms)
        self.epochs.truncate_from_end(self.end_offset)
        self.epochs.truncate_from_start(log_start)
        self._remove_stray_snapshots()
        segments = LogSegments(self.disk, self.directory, self.segments, self.end_offset)
        # The files that recovery rewrote are on the device after the next sync; until then the recovery point stays.
        unsynced = tuple(path for segment in self.segments[sound:] for path in segment.paths)
        if unsynced:
            # The found files count as written, so their names must be durable, and removed files must not come back.
            self.disk.sync_dir(self.directory)
            self.disk.sync_dir(self.directory.rpartition("/")[0])
        point = min(self.start.recovery_point, self.end_offset) if unsynced else self.end_offset
        return LoadedLog(
            self.directory, segments, self.producers, self.epochs, log_start, point, self.snapshot_offset, unsynced
        )

    # --- files ----------------------------------------------------------------------------------------------------

    def _find_files(self) -> None:
        names = self.disk.list(self.directory)
        if complete_swap_operations(self.disk, self.directory, names):
            names = self.disk.list(self.directory)
        for name in names:
            if name.endswith(".tmp"):
                self.disk.remove(f"{self.directory}/{name}")
        self.deleted_files = [name for name in names if name.endswith(DELETED)]
        files = [(int(found[1]), found[2]) for name in names if (found := _FILE.fullmatch(name))]
        bases = dict.fromkeys(base for base, suffix in files if suffix == "log")  # in order
        for base in [each for each in bases if each > checkpoints.LAST_BASE_OFFSET]:
            self._remove_impossible(base)
            del bases[base]
        for base, suffix in files:
            if suffix in _INDEX_SUFFIXES and base not in bases:
                self.disk.remove(f"{self.directory}/{base:020d}.{suffix}")
        aborted = {base for base, suffix in files if suffix == "txnindex"}
        for base in bases:
            path = f"{self.directory}/{base:020d}.log"
            self.segments.append(
                LogSegment(
                    self.disk,
                    self.directory,
                    base,
                    self.settings.index_interval_bytes,
                    size_bytes=self.disk.size_bytes(path),
                    created_ms=self.disk.modified_ms(path),
                    has_txn_index=base in aborted,
                )
            )
        self.snapshots = [base for base, suffix in files if suffix == "snapshot"]

    def _remove_impossible(self, base: int) -> None:
        """Remove a segment with an impossible offset as its name, if the operator gives up damaged data."""
        path = f"{self.directory}/{base:020d}.log"
        if not self.start.truncate_damaged:
            raise Damaged(f"{path}: {checkpoints.NO_SUCH_OFFSET}")
        _log.warning("%s: removed because of --truncate-damaged, %d bytes dropped", path, self.disk.size_bytes(path))
        self.disk.remove(path)

    def _load_epochs(self, sound: int) -> None:
        path = f"{self.directory}/{checkpoints.LEADER_EPOCHS}"
        try:
            content = self.disk.read(path)
            if not content.endswith(b"\n"):
                # It is renamed before it is synced, so a power loss may leave a part of it, or nothing.
                raise ProtocolError(f"{path} is cut short")
            self.epochs = LeaderEpochCache(checkpoints.decode_epochs(content))
        except (FileNotFoundError, ProtocolError):
            # Lost, or never written: restore it from the batches. Recovery adds the epochs of those that it reads.
            with suppress(BadBatch):
                for segment in self.segments[:sound]:
                    for _, header, _ in iter_file(segment.file, 0, segment.size_bytes):
                        self.epochs.assign(header.partition_leader_epoch, header.base_offset)

    # --- which segments are sound ---------------------------------------------------------------------------------

    def _count_sound_segments(self) -> Steps[int]:
        """Return how many segments, from the first on, need no recovery. Set the end offset if none needs it."""
        point = self.start.recovery_point
        last = self.segments[-1]
        if self.start.clean or point >= last.base_offset:
            end_offset = yield from self._walk_tail(last)
            # After a crash the log is sound if it ends at the recovery point: up to there it was synced.
            if end_offset is not None and (self.start.clean or end_offset == point):
                self.end_offset = end_offset
                return len(self.segments)
            if self.start.clean:
                return len(self.segments) - 1
        sound = 0
        while sound < len(self.segments) - 1 and self.segments[sound + 1].base_offset <= point:
            sound += 1
        return sound

    def _walk_tail(self, segment: LogSegment) -> Steps[int | None]:
        """Return the end offset by the index and the headers after its last entry; None if they do not match."""
        end_offset = segment.base_offset
        if segment.size_bytes == 0:
            return end_offset if (yield from segment.aborted_file_is_sound(end_offset)) else None
        index = segment.load_index_files()
        if index is None:
            return None
        try:
            position = index.boundary_before(segment.size_bytes)
            most = segment.base_offset + MAX_RELATIVE_OFFSET
            tail = iter_file(segment.file, position, segment.size_bytes, least_offset=end_offset, most_offset=most)
            for _, header, _ in tail:
                end_offset = header.next_offset
                if (timestamp_ms := time_of(header)) > index.max_timestamp_ms:
                    index.max_timestamp_ms = timestamp_ms
                    index.max_timestamp_offset = header.last_offset
        except BadBatch:
            return None
        # A crash may have kept entries of markers that were lost from the log, or have cut the last entry.
        return end_offset if (yield from segment.aborted_file_is_sound(end_offset)) else None

    # --- producers ------------------------------------------------------------------------------------------------

    def _load_producers(self, log_start: int, sound: int) -> Steps[None]:
        """Load the newest valid snapshot and replay the batches from it to the first segment to recover or the end."""
        upto = self.end_offset if sound == len(self.segments) else self.segments[sound].base_offset
        replay_from = log_start
        for offset in sorted(self.snapshots, reverse=True):
            if log_start < offset <= upto and (yield from self._load_snapshot(offset)):
                replay_from = offset
                break
        for position, segment in enumerate(self.segments[:sound]):
            next_base = self.segments[position + 1].base_offset if position + 1 < len(self.segments) else upto
            if next_base <= replay_from:
                continue
            for _, header, batch in iter_file(segment.file, segment.find(replay_from), segment.size_bytes):
                replay(self.producers, header, batch)
                yield ROW_US

    def _load_snapshot(self, offset: int) -> Steps[bool]:
        path = f"{self.directory}/{offset:020d}.snapshot"
        try:
            self.producers = yield from self._read_snapshot(path)
        except ProtocolError as broken:
            _log.warning("%s: %s; trying an older snapshot", path, broken)
            self.disk.remove(path)
            self.snapshots.remove(offset)
            return False
        self.snapshot_offset = offset
        return True

    def _read_snapshot(self, path: str) -> Steps[ProducerStateManager]:
        producers = ProducerStateManager()
        opened: list[list[tuple[int, int]]] = []
        now_ms, expiration_ms = self.start.now_ms, self.settings.producer_id_expiration_ms
        with closing(self.disk.open(path)) as file:
            decoder = SnapshotDecoder(file.pread(HEAD_BYTES, 0), file.size_bytes)
            for position in range(HEAD_BYTES, file.size_bytes, _SNAPSHOT_PART_BYTES):
                entries = decoder.decode(file.pread(_SNAPSHOT_PART_BYTES, position))
                opened.append(producers.load(entries, now_ms, expiration_ms))
                yield len(entries) * ROW_US
        decoder.finish()
        in_order = merge(*filter(None, opened))
        while some := list(islice(in_order, SNAPSHOT_SLICE)):
            producers.load_open(some)
            yield len(some) * ROW_US
        return producers

    def _save_snapshot(self, offset: int) -> None:
        content = encode_snapshot(self.producers.snapshot())
        self.disk.write(f"{self.directory}/{offset:020d}.snapshot", content)
        self.snapshot_offset = offset
        if offset not in self.snapshots:
            self.snapshots.append(offset)

    def _remove_stray_snapshots(self) -> None:
        """Keep the snapshots at base offsets of segments and the newest; remove others, and those above the log end."""
        bases = {segment.base_offset for segment in self.segments}
        for offset in stray_snapshots(self.snapshots, bases, self.end_offset):
            self.disk.remove(f"{self.directory}/{offset:020d}.snapshot")

    # --- recovery -------------------------------------------------------------------------------------------------

    def _recover(self, sound: int) -> Steps[None]:
        """Recover the segments from index `sound` on batch by batch; cut the log where it is torn."""
        self.end_offset = self.segments[sound].base_offset
        _log.info(
            "%s: recovering %d of %d segments, from offset %d on",
            *(self.directory, len(self.segments) - sound, len(self.segments), self.end_offset),
        )
        for at in range(sound, len(self.segments)):
            segment = self.segments[at]
            if at > sound:
                if self._is_deleted_before(segment):
                    self.skipped = at
                elif self._has_gap_before(segment):
                    self._remove_segments(at)
                    break
                self.end_offset = max(self.end_offset, segment.base_offset)
                self._save_snapshot(segment.base_offset)
            bad = yield from self._recover_segment(segment, self._most_offset(at))
            segment.save_indexes(final=True)
            if bad is not None:
                self._check_damage(bad, at)
                segment.truncate(bad.position)
                self._remove_segments(at + 1)
            self._sync_segment(segment)
            if bad is not None:
                break
        for segment in self.segments[: self.skipped]:
            segment.delete()
        del self.segments[: self.skipped]
        self._check_last_offset()
        self._check_recovery_point()
        if self.end_offset > max(self.snapshot_offset, 0):
            self._save_snapshot(self.end_offset)

    def _sync_segment(self, segment: LogSegment) -> None:
        """Put a recovered segment on the device: its records count as written, and clients will read them."""
        segment.file.sync()

    def _is_deleted_before(self, segment: LogSegment) -> bool:
        """Return whether the missing offsets before `segment` were being deleted.

        The oldest segments are deleted together. A power loss may keep the `.deleted` names of some and restore the old
        names of others; then these are deleted too.
        """
        if self.settings.cleanup_compact:
            return False
        logs = (name.removesuffix(f".log{DELETED}") for name in self.deleted_files)
        return any(name.isdecimal() and self.end_offset <= int(name) < segment.base_offset for name in logs)

    def _has_gap_before(self, segment: LogSegment) -> bool:
        """Return whether offsets are missing before `segment`, and the operator allows to cut the log there.

        Only compaction leaves gaps, and deletion of segments below `needed_from_offset`. Raises Damaged for a gap that
        may not be cut.
        """
        least_offset = max(self.end_offset, self.settings.needed_from_offset)
        if segment.base_offset <= least_offset or self.settings.cleanup_compact:
            return False
        where = f"offsets {self.end_offset} to {segment.base_offset - 1} are missing before {segment.log_path}"
        if not self.start.truncate_damaged:
            raise Damaged(where)
        _log.warning("%s: cut because of --truncate-damaged", where)
        return True

    def _check_last_offset(self) -> None:
        """Raise Damaged if offsets are missing before the last batch.

        No CRC covers the base offset. The next batch contradicts a damaged one, but the last batch has no next.
        """
        if self.missing_before_last <= 0 or self.settings.cleanup_compact or self.start.truncate_damaged:
            return
        raise Damaged(
            f"{self.missing_before_last} offsets are missing before the last batch, which ends at offset "
            f"{self.end_offset - 1} of {self.segments[-1].log_path}"
        )

    def _check_recovery_point(self) -> None:
        """Raise Damaged if the log ends below the recovery point: a file may lack whole batches and have no bad one."""
        point = self.start.recovery_point
        if self.end_offset >= point:
            return
        where = f"the log ends at {self.end_offset}, below the recovery point {point}"
        if not self.start.truncate_damaged:
            raise Damaged(where)
        _log.warning("%s: %s: accepted because of --truncate-damaged", self.directory, where)

    def _most_offset(self, at: int) -> int:
        """Return the largest possible offset in a segment, to check base offsets, which no CRC covers."""
        most = self.segments[at].base_offset + MAX_RELATIVE_OFFSET
        return most if at + 1 == len(self.segments) else min(most, self.segments[at + 1].base_offset - 1)

    def _recover_segment(self, segment: LogSegment, most_offset: int) -> Steps[BadBatch | None]:
        """Rebuild the indexes and the state of a segment; return the first bad batch, if there is one."""
        index = segment.reset_indexes()
        for run in iter_runs(segment.file, 0, segment.size_bytes, segment.base_offset, most_offset, check_crc=True):
            index.account_run(run.position, run.headers)
            self._replay_run(segment, run)
            if run.bad is not None:
                return run.bad
            yield len(run.data) * BYTE_US + len(run.headers) * ROW_US
        return None

    def _replay_run(self, segment: LogSegment, run: Run) -> None:
        """Apply valid batches to the epochs, the producers and the transaction index, and to the ends."""
        replay_run(run, segment, self.producers, self.epochs)
        if run.headers:
            if len(run.headers) > 1:
                self.end_offset = BatchHeader._make(run.headers[-2]).next_offset
            last = BatchHeader._make(run.headers[-1])
            self.missing_before_last = _first_offset(run, last) - self.end_offset
            self.end_offset = last.next_offset

    def _check_damage(self, bad: BadBatch, at: int) -> None:
        """Return if the log may be cut at `bad`; raise Damaged if it must be left as it is."""
        segment = self.segments[at]
        where = f"{segment.log_path}: {bad}"
        dropped = segment.size_bytes - bad.position + sum(later.size_bytes for later in self.segments[at + 1 :])
        if self.start.truncate_damaged:
            _log.warning("%s: cut because of --truncate-damaged, %d bytes dropped", where, dropped)
            return
        if self.end_offset < self.start.recovery_point:
            raise Damaged(f"{where}, below the recovery point {self.start.recovery_point}")
        tail = classify_tail(segment.file, bad, self.end_offset)
        if tail is TailKind.TORN and any(later.size_bytes for later in self.segments[at + 1 :]):
            tail = TailKind.DAMAGE
        if tail is TailKind.DAMAGE:
            raise Damaged(f"{where}, and sound batches from there on")
        _log.warning("%s: %s, %d bytes dropped", where, tail.value, dropped)

    def _remove_segments(self, at: int) -> None:
        for segment in self.segments[at:]:
            segment.delete()
        del self.segments[at:]


def stray_snapshots(snapshots: Collection[int], bases: Container[int], end_offset: int) -> list[int]:
    """Return the snapshots above the end, and those that are neither the newest nor at the base of a segment."""
    newest = max((offset for offset in snapshots if offset <= end_offset), default=-1)
    return [offset for offset in snapshots if offset > end_offset or (offset not in bases and offset != newest)]


def _first_offset(run: Run, last: BatchHeader) -> int:
    """Return the first offset of the last batch of a run; a wrapper of magic 0 or 1 has it in its payload alone."""
    if not (is_legacy(last.magic) and last.compression):
        return last.base_offset
    try:
        return deep_header(run.data, last, len(run.data) - last.size_bytes, SHALLOW_LIMIT_BYTES).base_offset
    except ProtocolError:
        return 0  # no record of it is known to be missing
