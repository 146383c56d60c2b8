"""Cut files, flipped bits and lost pages: compare the records that the broker serves with the scanner's. free

After an unclean stop the broker reads everything above the recovery point again. It must serve the longest sound
prefix, or take the partition offline and leave its log untouched. Below the recovery point no record may be missing.
Pages that never reached the device are no damage: the log is cut where they begin, whatever follows them.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from lab.crash.log_directory import DIRECTORY, MemoryLogDirectory
from lab.crash.logs import PARTITION, Shape, stopped_log
from lab.in_memory.power import PAGE_BYTES
from ottla.broker.log.meta_properties import LogDirectoryError
from ottla.broker.log.partition import Partition
from ottla.broker.log.results import FetchIsolation
from ottla.broker.log.timestamps import offset_for_timestamp
from ottla.protocol.errors import ErrorCode
from ottla.protocol.steps import to_the_end
from ottla.testkit.scanner import ScannedBatch, ScannedPartition, scan_contents

RECOVERY_POINTS: Final = f"{DIRECTORY}/recovery-point-offset-checkpoint"
EVERYTHING: Final = 1 << 30
LOOK_UPS: Final = 10
LAST: Final = 3
_EPOCH: Final = slice(12, 16)
"""The leader epoch of a batch: no CRC covers it."""


class Kind(Enum):
    """Kinds of damage to a file."""

    CUT = "cut"
    FLIP = "bits flipped"
    HOLE = "pages lost"


class Damage(NamedTuple):
    """A damage to one file.

    The file ends at byte `at`, or its bit `at` (counted from the start of the file) is flipped, or it has zeros from
    byte `at` to the end of that page: the page was last written when the file ended at `at`.
    """

    path: str
    kind: Kind
    at: int

    def apply(self, content: bytes) -> bytes:
        if self.kind is Kind.CUT:
            return content[: self.at]
        changed = bytearray(content)
        if self.kind is Kind.FLIP:
            changed[self.at >> 3] ^= 1 << (self.at & 7)
        else:
            end = min(len(content), (self.at // PAGE_BYTES + 1) * PAGE_BYTES)
            changed[self.at : end] = bytes(end - self.at)
        return bytes(changed)

    def __str__(self) -> str:
        name = self.path.rpartition("/")[2]
        if self.kind is Kind.FLIP:
            return f"{name}: bit {self.at & 7} of byte {self.at >> 3} flipped"
        return f"{name} {'cut at' if self.kind is Kind.CUT else 'has a page of zeros from'} {self.at}"


class Outcome(Enum):
    """Results of a start on a damaged file."""

    WHOLE = "all is served"
    CUT = "the longest sound prefix is served"
    OFFLINE = "the partition is offline, its log untouched"
    REFUSED = "the broker does not start, and says which file is broken"
    SET_ASIDE = "the directory is kept aside as another topic's"
    UNSEEN = "synced before, so the broker does not check it; the reader refuses it"
    MISPLACED = "synced before, so the broker does not check it, and no CRC covers the offset"


class Wrong(Exception):
    """Raised when the broker breaks a rule."""


class LogLines(logging.Handler):
    """A log handler that keeps lines and tracebacks of the broker's log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.tracebacks: list[str] = []
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if record.exc_info:
            self.tracebacks.append(record.getMessage())


class StoppedLog:
    """The files of a stopped log with a recovery point (None: the end of the log)."""

    def __init__(self, shape: Shape, recovery_point: int | None) -> None:
        self.shape = shape
        self.files = stopped_log(shape)
        self.logs = sorted(path for path in self.files if path.startswith(PARTITION) and path.endswith(".log"))
        self.sound = self._scan(self.files)
        end = self.sound.log_end_offset
        self.recovery_point = end if recovery_point is None else recovery_point
        self.files[RECOVERY_POINTS] = f"0\n1\nt 0 {self.recovery_point}\n".encode()
        self.loudness = LogLines()
        self._prefixes: dict[int, ScannedPartition] = {}

    def path(self, suffix: str, segment: int = 0) -> str:
        """Return the path of the file of a segment with this suffix."""
        return f"{self.logs[segment].removesuffix('log')}{suffix}"

    def damages(self, path: str, kind: Kind) -> Iterator[Damage]:
        """Return every cut or every bit of a file, or each page of a log lost from its start or from a batch on."""
        size_bytes = len(self.files[path])
        places: Iterable[int] = range(size_bytes * 8 if kind is Kind.FLIP else size_bytes)
        if kind is Kind.HOLE:
            batches = {batch.position for batch in self.sound.batches if str(batch.path) == path}
            places = sorted(batches | set(range(0, size_bytes, PAGE_BYTES)))
        for at in places:
            yield Damage(path, kind, at)

    def play(self, damage: Damage) -> Outcome:
        """Start the broker on the damaged files and check the records that it serves. Raises Wrong."""
        logger = logging.getLogger("ottla")
        logger.addHandler(self.loudness)
        propagate, logger.propagate = logger.propagate, False
        self.loudness.lines.clear()
        try:
            outcome = self._play(damage)
        except Wrong as wrong:
            raise Wrong(f"{damage}, recovery point {self.recovery_point}: {wrong}") from None
        finally:
            logger.removeHandler(self.loudness)
            logger.propagate = propagate
        if self.loudness.tracebacks:
            raise Wrong(f"{damage}: traceback in the log: {self.loudness.tracebacks}")
        return outcome

    def _play(self, damage: Damage) -> Outcome:
        files = {**self.files, damage.path: damage.apply(self.files[damage.path])}
        directory = MemoryLogDirectory(files)
        try:
            directory.open()
        except LogDirectoryError as refused:
            _hold(damage.path in str(refused), f"the refusal does not name the file: {refused}")
            return Outcome.REFUSED
        partition = directory.partition(settings=self.shape.settings, leader_epoch=3)
        if any(path.split("/")[2].endswith("-stray") for path in directory.files()):
            return self._judge_aside(directory)
        scanned = self._scan(files)
        if partition.offline is None:
            # The check may itself take the partition offline, which is also correct.
            outcome = self._judge_fetch(directory, partition, scanned, damage)
            if outcome is not None:
                return outcome
        if damage.kind is Kind.HOLE:
            first = next(batch for batch in self.sound.batches if batch.position + batch.size_bytes > damage.at)
            _hold(first.base_offset < self.recovery_point, "offline, although only an unsynced page is missing")
        return self._judge_offline(directory, files, damage)

    def _judge_aside(self, directory: MemoryLogDirectory) -> Outcome:
        kept = {content for path, content in directory.files().items() if "-stray/" in path}
        _hold(all(self.files[path] in kept for path in self.logs), "the files set aside are not complete")
        return Outcome.SET_ASIDE

    def _judge_offline(self, directory: MemoryLogDirectory, files: dict[str, bytes], damage: Damage) -> Outcome:
        _hold(directory.logs.offline is None, f"the whole directory is offline: {directory.logs.offline}")
        after = directory.files()
        _hold(all(after[path] == files[path] for path in self.logs), "offline, and its log was changed")
        lines = [line for line in self.loudness.lines if "is damaged" in line]
        _hold(bool(lines), "offline without a line in the log")
        _hold("--truncate-damaged" in lines[0], f"the log line does not say what to do: {lines[0]}")
        return Outcome.OFFLINE

    def _judge_fetch(
        self, directory: MemoryLogDirectory, partition: Partition, scanned: ScannedPartition, damage: Damage
    ) -> Outcome | None:
        """Check the served batches and return the outcome, or None if a read takes the partition offline."""
        served = _read_all(partition, self.recovery_point > 0)
        if served is None:
            return None
        sound, unseen = self._compare(served)
        if unseen is not None:
            return unseen
        end_offset = sound[-1].last_offset + 1 if sound else 0
        _hold(end_offset == partition.log_end_offset, f"ends at {partition.log_end_offset}, serves up to {end_offset}")
        _hold(end_offset >= self.recovery_point, f"{self.recovery_point - end_offset} offsets below it are missing")
        # The broker must serve exactly the batches that the scanner reads before the first damage.
        valid = [_place(batch) for batch in _prefix(scanned)]
        _hold(valid == [_place(batch) for batch in sound], f"{len(sound)} batches, the scanner finds {len(valid)}")
        after = directory.files()
        kept = b"".join(after[path] for path in self.logs if path in after)
        _hold(kept == served, "the files differ from what is served")
        cut = len(sound) < len(self.sound.batches)
        if cut and scanned.damages and scanned.damages[0].size_bytes and damage.kind is not Kind.HOLE:
            self._hold_torn(scanned, len(sound))
        if not self._looks_right(partition, sound, self._prefix_of(len(sound)), damage.at):
            return None
        return Outcome.CUT if cut else Outcome.WHOLE

    def _compare(self, served: bytes) -> tuple[list[ScannedBatch], Outcome | None]:
        """Return the batches of the sound log that are served, and the outcome for a changed one (None if none is)."""
        position, unseen = 0, None
        for number, batch in enumerate(self.sound.batches):
            if position == len(served):
                return self.sound.batches[:number], unseen
            path = str(batch.path)
            whole = self.files[path][batch.position : batch.position + batch.size_bytes]
            found = bytearray(served[position : position + batch.size_bytes])
            found[_EPOCH] = whole[_EPOCH]
            if found != whole:
                _hold(batch.last_offset < self.recovery_point, f"recovered although it is wrong: {batch.base_offset}")
                taken = scan_contents([(Path("served"), served[position:])]).batches
                only_moved = found[8:] == whole[8:]
                _hold(not taken or only_moved or taken[0].position > 0, f"wrong bytes at {batch.base_offset}")
                unseen = Outcome.MISPLACED if only_moved else Outcome.UNSEEN
            position += batch.size_bytes
        _hold(position == len(served), f"{len(served) - position} bytes too many are served")
        return self.sound.batches, unseen

    def _hold_torn(self, scanned: ScannedPartition, kept: int) -> None:
        """Check that the broker cut off no sound batch: all bytes cut off belong to one batch, the last one."""
        lost = self.sound.batches[kept:]
        _hold(len(lost) <= 1 or not self._holds_sound(lost[1:], scanned), f"{len(lost) - 1} sound batches were cut off")

    def _holds_sound(self, batches: list[ScannedBatch], scanned: ScannedPartition) -> bool:
        damage = scanned.damages[0]
        return any(batch.position + batch.size_bytes <= damage.position + damage.size_bytes for batch in batches)

    def _looks_right(
        self, partition: Partition, sound: list[ScannedBatch], expected: ScannedPartition, turn: int
    ) -> bool:
        """Check look-ups by offset and time, and aborted and open transactions.

        Return False if that takes the partition offline. The check looks up the last batches, and one in `LOOK_UPS` of
        the others, which `turn` selects.
        """
        whole = partition.read(0, EVERYTHING, isolation=FetchIsolation.TXN_COMMITTED)
        for batch in (*sound[turn % LOOK_UPS : -LAST : LOOK_UPS], *sound[-LAST:]):
            found = partition.read(batch.last_offset, 1, isolation=FetchIsolation.LOG_END)
            if found.error != ErrorCode.NONE:
                return False
            assert isinstance(found.records, bytes)
            at = int.from_bytes(found.records[:8], "big")
            _hold(at == batch.base_offset, f"the look-up of offset {batch.last_offset} finds {at}")
            _hold(len(found.records) == batch.size_bytes, f"{len(found.records)} bytes for {batch.base_offset}")
        stable = expected.last_stable_offset
        _hold(
            partition.last_stable_offset == stable, f"last stable offset {partition.last_stable_offset}, not {stable}"
        )
        if len(self.logs) == 1:
            aborted = [(pid, first) for pid, first, _, _ in expected.aborted_index if first < stable]
            if whole.error != ErrorCode.NONE:
                return False
            given = [entry for entry in whole.aborted or [] if entry[1] < stable]
            _hold(given == aborted, f"aborted {given}, not {aborted}")
        self._times_are_right(partition, sound)
        return partition.offline is None

    def _times_are_right(self, partition: Partition, sound: list[ScannedBatch]) -> None:
        for batch in sound[:: max(1, len(sound) // 4)]:
            found = to_the_end(offset_for_timestamp(partition, batch.max_timestamp, FetchIsolation.LOG_END))
            if found is None:
                return
            first = next(
                (record.offset, record.timestamp)
                for each in sound
                for record in each.records()
                if record.timestamp >= batch.max_timestamp
            )
            _hold(found[:2] == first, f"the look-up of time {batch.max_timestamp} finds {found[:2]}, not {first}")

    def _prefix_of(self, count: int) -> ScannedPartition:
        if count not in self._prefixes:
            self._prefixes[count] = self._scan_sound(count)
        return self._prefixes[count]

    def _scan_sound(self, count: int) -> ScannedPartition:
        contents = b""
        for batch in self.sound.batches[:count]:
            contents += self.files[str(batch.path)][batch.position : batch.position + batch.size_bytes]
        return scan_contents([(Path("sound"), contents)])

    def _scan(self, files: dict[str, bytes]) -> ScannedPartition:
        return scan_contents([(Path(path), files[path]) for path in self.logs if path in files])


def _read_all(partition: Partition, may_be_wrong: bool) -> bytes | None:
    """Read up to the end of the log, or to bytes that a reader refuses. Return None if the partition goes offline."""
    data, offset = b"", partition.log_start_offset
    while offset < partition.log_end_offset:
        found = partition.read(offset, EVERYTHING, isolation=FetchIsolation.LOG_END)
        if found.error != ErrorCode.NONE:
            return None
        assert isinstance(found.records, bytes)
        _hold(bool(found.records), f"nothing at {offset}, the log ends at {partition.log_end_offset}")
        data += found.records
        end = _end_of(found.records)
        if may_be_wrong and (end <= offset or scan_contents([(Path("read"), found.records)]).damages):
            return data
        _hold(end > offset, f"what is read at {offset} ends at {end}")
        offset = end
    return data


def _end_of(records: bytes) -> int:
    position, end = 0, 0
    while position < len(records):
        end = int.from_bytes(records[position : position + 8], "big") + 1
        end += int.from_bytes(records[position + 23 : position + 27], "big")
        position += 12 + int.from_bytes(records[position + 8 : position + 12], "big")
    return end


def _prefix(scanned: ScannedPartition) -> list[ScannedBatch]:
    """Return the batches before the first damage or the first missing offset."""
    first = scanned.damages[0] if scanned.damages else None
    found: list[ScannedBatch] = []
    for batch in scanned.batches:
        if first is not None and str(batch.path) > str(first.path):
            break
        if batch.base_offset != (found[-1].last_offset + 1 if found else 0):
            break
        found.append(batch)
    return found


def _place(batch: ScannedBatch) -> tuple[int, int, int]:
    return batch.base_offset, batch.last_offset, batch.size_bytes


def _hold(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Wrong(otherwise)


def sweep(
    stopped: StoppedLog, damages: Iterator[Damage], on_failure: Callable[[str], None] | None = None
) -> tuple[dict[Outcome, int], list[str]]:
    """Try all damages. Return the count of each outcome and the failures; the callback gets each failure at once."""
    met = dict.fromkeys(Outcome, 0)
    wrong: list[str] = []
    for damage in damages:
        try:
            met[stopped.play(damage)] += 1
        except Wrong as found:
            wrong.append(str(found))
            if on_failure is not None:
                on_failure(wrong[-1])
    return {outcome: count for outcome, count in met.items() if count}, wrong


def sweep_file(
    shape: Shape, recovery_point: int | None, name: str, kind: Kind, every: int, part: int, parts: int
) -> tuple[str, dict[str, int], list[str]]:
    """Try one part of every `every`-th damage of the first file whose name ends with `name`.

    Return a title, the count of each outcome, and the failures.
    """
    stopped = StoppedLog(shape, recovery_point)
    path = next(path for path in sorted(stopped.files) if path.startswith(PARTITION) and path.endswith(name))
    chosen = (each for each in stopped.damages(path, kind) if kind is Kind.HOLE or each.at % every == 0)
    met, wrong = sweep(stopped, islice(chosen, part, None, parts))
    title = (
        f"{name} of {shape.log_bytes >> 10} KiB{', rolled' if shape.segment_bytes < shape.log_bytes else ''}, "
        f"{kind.value}, recovery point {stopped.recovery_point}"
    )
    return title, {outcome.value: count for outcome, count in met.items()}, wrong
