"""The copy of one partition: batches from its leader, as stored, appended to segment files. shell

Recovery of the broker's log runs before the new batches are written: it cuts the torn tail of a run that was killed,
and rebuilds indexes, `.txnindex`, snapshots and leader epochs. Then these follow the batches that are written.
"""

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Final, NamedTuple

from ottla.broker.cluster.adoption_records import highest_producer_id
from ottla.broker.cluster.image import TRANSACTION_STATE_TOPIC
from ottla.broker.log.loaded import LoadedLog
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_loader import Start, load_log
from ottla.broker.ports.disk import Disk
from ottla.cli.inspect.partition import silent_recovery
from ottla.cli.pull.runs import read_runs
from ottla.cli.pull.segment_writer import Refused, SegmentWriter
from ottla.protocol import checkpoints
from ottla.protocol.errors import ProtocolError
from ottla.scan.cluster.offset_window import OffsetWindow
from ottla.scan.damage_log import REPORT, Damage, DamageLog
from ottla.wire import Unanswered
from ottla.wire.partition_stream import RecordsGone

SEGMENT_BYTES: Final = 1024 * 1024 * 1024
"""The size of segments; `segment.bytes` of the topic lowers it."""
_LOG: Final = ".log"
# Compaction may have left gaps. The copy keeps each producer that the source remembers.
_SETTINGS: Final = LogConfig(cleanup_policy="compact", producer_id_expiration_ms=2**62)


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
        if start and known_end is None:
            self._complete_skip(start)
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

    def _complete_skip(self, start: int) -> None:
        """Begin the segment at a log start that a killed run only marked: recovery removes logs that end below."""
        bases = [name.removesuffix(_LOG) for name in self._disk.list(self._directory) if name.endswith(_LOG)]
        if bases and max(map(int, bases)) < start:
            segments = self._load(0, None).segments
            if segments.size_bytes and segments.end_offset < start:
                self._disk.open(f"{self._directory}/{start:020d}{_LOG}", create=True).close()

    def _copy(self, loaded: LoadedLog, window: OffsetWindow, start: int, known_end: int | None) -> Copied:
        """Write the batches, then the files that follow from them, also if the source failed meanwhile."""
        log = DamageLog(REPORT)
        writer = SegmentWriter(self._disk, self._directory, loaded, _SETTINGS, self._segment_bytes, self._now_ms)
        self._start, failure = start, ""
        try:
            try:
                self._write(writer, log, window)
            except (Refused, Unanswered, ProtocolError) as error:
                failure = str(error)
            writer.finish(self._start)
        finally:
            writer.close()
        end = writer.next_offset
        return Copied(
            self._start,
            end,
            writer.batches,
            writer.size_bytes,
            writer.epochs.latest_epoch,
            self._find_highest_id(writer, window.topic, end),
            failure,
            tuple(_describe(one) for one in log.found if one.position >= end),
        )

    def _find_highest_id(self, writer: SegmentWriter, topic: str, end: int) -> int:
        """Return the highest producer id in the copy, -1 if there is none."""
        highest = max((entry.producer_id for entry in writer.producers.snapshot()), default=-1)
        if topic == TRANSACTION_STATE_TOPIC:
            with closing(self._load(self._start, end).segments) as segments:
                highest = max(highest, highest_producer_id(segments.scan(self._start)))
        return highest

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
        first, reported = window.first_offset, 0
        while True:
            if first > writer.next_offset:
                self._start = first
                self._calls.on_start(first)
                writer.skip_to(first)
            try:
                for run in read_runs(window._replace(first_offset=writer.next_offset), log):
                    if damage := log.found[reported:]:
                        self._calls.on_damage([_describe(one) for one in damage])
                        reported = len(log.found)
                    writer.write(run)
                    self._calls.on_bytes(len(run.data))
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
