"""The copy of one partition: batches from its leader, as stored, appended to segment files. shell

A partition directory needs only its `.log` files: recovery of the broker's log cuts a torn tail, and rebuilds indexes,
`.txnindex`, snapshots and leader epochs. It runs before and after the new batches are written.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from ottla.broker.cluster.adoption_records import highest_producer_id
from ottla.broker.cluster.image import TRANSACTION_STATE_TOPIC
from ottla.broker.log.loaded import LoadedLog
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_loader import Start, load_log
from ottla.broker.log.segments.log_segment import MAX_RELATIVE_OFFSET
from ottla.broker.ports.disk import Disk, File
from ottla.cli.inspect.partition import silent_recovery
from ottla.protocol import checkpoints
from ottla.protocol.errors import ProtocolError
from ottla.scan import headers
from ottla.scan.chunks import Chunk
from ottla.scan.compiled.kernels import Longs
from ottla.scan.damage_log import REPORT, Damage, DamageLog
from ottla.scan.windows import OffsetWindow, WindowReader
from ottla.wire import Unanswered
from ottla.wire.partition_stream import RecordsGone

SEGMENT_BYTES: Final = 1024 * 1024 * 1024
"""The size of segments; `segment.bytes` of the topic lowers it."""
_CONTINUED_BYTES: Final = 64 * 1024 * 1024
"""A run continues a segment up to this size, because recovery reads the whole segment with the first new batch."""
# Compaction may have left gaps. The copy keeps each producer that the source remembers.
_SETTINGS: Final = LogConfig(cleanup_policy="compact", producer_id_expiration_ms=2**31 - 1)


class Refused(Exception):
    """A topic or partition cannot be copied into this directory. The text is one line with the reason."""


class Copied(NamedTuple):
    """The copy after a run: offsets [start, end), of which this run read `batches` with `size_bytes`.

    `failure`: the reason why the run ended before the end of the window. `damage`: offsets that the source cannot show
    and that no copied batch follows.
    """

    start: int
    end: int
    batches: int = 0
    size_bytes: int = 0
    leader_epoch: int = -1
    highest_producer_id: int = -1
    failure: str = ""
    damage: tuple[str, ...] = ()


class Calls(NamedTuple):
    """Questions to the source, and callbacks.

    `find_start` returns the log start at the source; it raises Refused if the topic is another one now.
    `find_epoch_end` returns the end of a leader epoch at the source, -1 if that is unknown. `on_start` gets a log start
    that has moved, and `on_damage` offsets that the source cannot show, before batches after them are written.
    `on_bytes` gets the size of each chunk.
    """

    find_start: Callable[[], int]
    find_epoch_end: Callable[[int], int]
    on_start: Callable[[int], None]
    on_damage: Callable[[Sequence[str]], None]
    on_bytes: Callable[[int], None]


class SegmentWriter:
    """Appends batches to the last segment, and begins a new one where it is full. `next_offset` follows the copy.

    Each write ends with a whole batch. A failed write leaves the file as it was. A segment is on the device before the
    next one begins, so a loss of power cuts only the last one.
    """

    def __init__(self, disk: Disk, directory: str, loaded: LoadedLog, segment_bytes: int) -> None:
        self._disk = disk
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._base_offset = loaded.segments.active.base_offset
        self._file: File | None = None
        self._least = 0
        self.next_offset = loaded.segments.end_offset
        self.batches = self.size_bytes = 0
        if disk.exists(loaded.segments.active.log_path):
            if loaded.segments.active.size_bytes < _CONTINUED_BYTES:
                self._open(self._base_offset)
            self._least = self.next_offset if loaded.segments.size_bytes else 0

    def write(self, chunk: Chunk) -> None:
        """Append a chunk. Raises Refused if it does not follow the batches in the files, OSError."""
        rows = chunk.rows
        first = int(rows[0, headers.BASE_OFFSET])
        if first < self._least:
            raise Refused(f"the copy ends at offset {self._least}, and a batch of the source begins at {first}")
        while len(rows):
            count = self._count_fitting(rows)
            if self._file is None or not count:
                self._open(int(rows[0, headers.BASE_OFFSET]))
                continue
            start = int(rows[0, headers.POSITION])
            end = int(rows[count - 1, headers.POSITION] + rows[count - 1, headers.SIZE])
            self._file.append((chunk.buffer[start:end].data,))
            self.size_bytes += end - start
            rows = rows[count:]
        self.batches += len(chunk.rows)
        self.next_offset = self._least = int(chunk.rows[-1, headers.LAST_OFFSET]) + 1

    def skip_to(self, offset: int) -> None:
        """Continue at a later offset, in a new segment: the offsets before it are gone at the source."""
        self.next_offset = offset
        self._open(offset)

    def finish(self) -> None:
        """Close the files. Without a segment, create an empty one, which shows where the log begins."""
        if self._file is None:
            self._open(self.next_offset)
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None

    def _open(self, base_offset: int) -> None:
        """Continue in another segment. If the open one has a later offset it is empty, and goes."""
        replaced = self._path(self._base_offset) if self._file is not None and base_offset < self._base_offset else ""
        if self._file is not None:
            self._file.sync()
        self.close()
        self._base_offset = base_offset
        self._file = self._disk.open(self._path(base_offset), create=True)
        if replaced:
            self._disk.remove(replaced)

    def _path(self, base_offset: int) -> str:
        return f"{self._directory}/{base_offset:020d}.log"

    def _count_fitting(self, rows: Longs) -> int:
        """Return the number of batches that fit into the open segment; at least one fits into an empty segment."""
        if self._file is None or rows[0, headers.BASE_OFFSET] < self._base_offset:
            return 0
        ends = rows[:, headers.POSITION] + rows[:, headers.SIZE] - rows[0, headers.POSITION]
        fits = self._file.size_bytes + ends <= self._segment_bytes
        fits &= rows[:, headers.LAST_OFFSET] - self._base_offset <= MAX_RELATIVE_OFFSET
        count = len(rows) if fits.all() else int(fits.argmin())
        return count or int(self._file.size_bytes == 0)


class PartitionCopy:
    """Copies a partition into a directory that exists."""

    def __init__(
        self, disk: Disk, directory: str, now_ms: int, calls: Calls, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._now_ms = now_ms
        self._calls = calls
        self._segment_bytes = min(segment_bytes, SEGMENT_BYTES)
        self._start = 0

    def run(self, window: OffsetWindow, start: int, known_end: int | None, *, has_new_leader: bool = False) -> Copied:
        """Copy what the directory lacks of the window. `start`: the log start of the copy.

        `known_end`: the end after the last run, None before its first. `has_new_leader`: the leader has changed since,
        so the log may have been cut. Raises Refused if the directory and the source do not fit, Unanswered, OSError.
        """
        loaded = self._load(start, known_end)
        end = loaded.segments.end_offset
        if end > window.end_offset:
            raise Refused(f"the copy ends at offset {end}, the source at {window.end_offset}: its log was cut")
        is_whole = end == window.end_offset and known_end == end
        if has_new_leader or not is_whole:
            self._check_epoch(loaded, end)
        if is_whole:
            return Copied(start, end)
        return self._copy(loaded, window, start, known_end)

    def _load(self, start: int, known_end: int | None) -> LoadedLog:
        return load_log_files(self._disk, self._directory, start, known_end or 0, self._now_ms)

    def _copy(self, loaded: LoadedLog, window: OffsetWindow, start: int, known_end: int | None) -> Copied:
        """Write the batches, then what recovery makes of them, also if the source failed meanwhile."""
        log = DamageLog(REPORT)
        writer = SegmentWriter(self._disk, self._directory, loaded, self._segment_bytes)
        self._start, failure = start, ""
        try:
            try:
                self._write(writer, log, window)
            except (Refused, Unanswered, ProtocolError) as error:
                failure = str(error)
            writer.finish()
        finally:
            writer.close()
        start = self._start
        loaded = self._load(start, known_end)
        save_log_files(self._disk, self._directory, loaded, known_end or 0)
        highest = max((entry.producer_id for entry in loaded.producer_state.snapshot()), default=-1)
        if window.topic == TRANSACTION_STATE_TOPIC:
            highest = max(highest, highest_producer_id(loaded.segments.scan(start)))
            loaded.segments.close()
        end = loaded.segments.end_offset
        return Copied(
            start,
            end,
            writer.batches,
            writer.size_bytes,
            loaded.epochs.latest_epoch,
            highest,
            failure,
            tuple(_describe(one) for one in log.found if one.position >= end),
        )

    def _check_epoch(self, loaded: LoadedLog, end: int) -> None:
        """Raise Refused if the source has cut its log below the end of the copy, and written other records since."""
        epoch = loaded.epochs.latest_epoch
        if loaded.segments.size_bytes and epoch >= 0 and 0 <= (at := self._calls.find_epoch_end(epoch)) < end:
            raise Refused(
                f"the copy ends at offset {end} in leader epoch {epoch}, which ends at {at} at the source: its log was "
                "cut; pull into a new directory"
            )

    def _write(self, writer: SegmentWriter, log: DamageLog, window: OffsetWindow) -> None:
        """Write the batches of the window from the end of the copy on.

        The log start moves if records are deleted before they are read.
        """
        reader = WindowReader(log, check_crc=True)
        first, reported = window.first_offset, 0
        while True:
            if first > writer.next_offset:
                self._start = first
                self._calls.on_start(first)
                writer.skip_to(first)
            try:
                for chunk in reader.chunks(window._replace(first_offset=writer.next_offset)):
                    if damage := log.found[reported:]:
                        self._calls.on_damage([_describe(one) for one in damage])
                        reported = len(log.found)
                    writer.write(chunk)
                    self._calls.on_bytes(int(chunk.rows[:, headers.SIZE].sum()))
                return
            except RecordsGone as gone:
                first = self._calls.find_start()
                if first <= writer.next_offset:
                    raise Refused(str(gone)) from None
                window = window._replace(end_offset=max(first, window.end_offset))


def _describe(damage: Damage) -> str:
    return f"offsets {damage.position} to {damage.end_position - 1}: {damage.reason}"


def load_log_files(disk: Disk, directory: str, start: int, recovery_point: int, now_ms: int) -> LoadedLog:
    """Recover a partition from `recovery_point` on. Raises Refused for damage, OSError."""
    with silent_recovery():
        begin = Start(recovery_point, start, clean=False, truncate_damaged=False, now_ms=now_ms)
        loaded = load_log(disk, directory, _SETTINGS, begin)
    loaded.segments.close()
    if loaded.damage is not None:
        raise Refused(f"{loaded.damage}; pull into a new directory")
    return loaded


def save_log_files(disk: Disk, directory: str, loaded: LoadedLog, recovery_point: int) -> None:
    """Write the leader epochs, and put everything that recovery wrote on the device."""
    path = f"{directory}/{checkpoints.LEADER_EPOCHS}"
    disk.write_atomically(path, checkpoints.encode_epochs(loaded.epochs.entries))
    snapshots = [name for name in disk.list(directory) if name.endswith(".snapshot")]
    new = [name for name in snapshots if int(name.removesuffix(".snapshot")) >= recovery_point]
    disk.sync([*loaded.unsynced, *(f"{directory}/{name}" for name in new)])
    disk.sync_dir(directory)


def make_directory(disk: Disk, directory: str, topic_id: bytes) -> None:
    """Make the directory of a partition with the id of its topic, if it is missing."""
    with suppress(FileExistsError):
        disk.make_dir(directory)
    path = f"{directory}/{checkpoints.PARTITION_METADATA}"
    if not disk.exists(path):
        disk.write_atomically(path, checkpoints.encode_partition_metadata(topic_id))
