"""Check `index`: recompute the index files of segments from the batches of a walk and compare. shell

A broker trusts these files after a clean stop: a wrong `.txnindex` shows aborted records, a wrong `.index` hides
records, a wrong `.snapshot` accepts a duplicate. The check skips cases that the log cannot prove: entries about batches
that retention or compaction deleted, or below the log start, which a start after a crash does not follow again,
and producers that a broker has forgotten since.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Final

import numpy as np

from ottla.audit.checks.finding import Finding, Severity
from ottla.protocol.batch import ABORT
from ottla.scan import events, headers, index_files, states, storage
from ottla.scan.chunks import SegmentPiece
from ottla.scan.compiled.kernels import Longs
from ottla.scan.index_files import Entries
from ottla.scan.ranges import LogRange
from ottla.scan.walk import Step, Walk

SHOWN_OF_A_FILE: Final = 20
REPAIR: Final = "ottla repair DIR rebuilds it, with the broker stopped"

_SNAPSHOT_WORDS: Final = (
    "producer id",
    "epoch",
    "coordinator epoch",
    "last sequence",
    "last offset",
    "offset delta",
    "timestamp",
    "first offset of the open transaction",
)


class IndexCheck:
    """Comparison of index files with a walk. `add` takes every step; then `findings` has the differences."""

    def __init__(
        self, part: LogRange, entering: states.States, expiration_ms: int = states.DEFAULT_EXPIRATION_MS
    ) -> None:
        self.findings: list[Finding] = []
        self._part = part
        self._expiration_ms = expiration_ms
        self._first_offset = entering.first_offset
        self._holes = entering.missing > 0
        self._piece: SegmentPiece | None = None
        self._counts: dict[str, int] = {}
        self._offsets = self._times = self._aborted = _NOTHING
        self._aborted_at = 0
        self._files = storage.Upcoming(_files_of(part))

    def add(self, step: Step, walked: Walk) -> None:
        """Compare the entries on the batches of `step`, the last step of the walk."""
        if step.segment is not self._piece:
            self._open(step.segment)
        if len(step.rows) == 0:
            return
        first = int(step.rows[0, headers.BASE_OFFSET])
        if self._first_offset < 0:
            self._first_offset = first
        if self._aborted_at < 0:
            self._aborted_at = int(np.searchsorted(self._aborted.rows[:, 0], first))
        self._holes = self._holes or bool(len(step.gaps)) or _lacks_records(step.rows)
        ends = step.rows[:, headers.POSITION] + step.rows[:, headers.SIZE] + step.file_position
        self._compare_offsets(step, ends)
        self._compare_times(step)
        self._compare_entries(step)
        if int(ends[-1]) >= step.segment.end:
            self._end_piece(step, walked)

    def _open(self, piece: SegmentPiece) -> None:
        self._piece = piece
        self._offsets = self._load(piece, ".index", index_files.offset_entries)
        self._times = self._load(piece, ".timeindex", index_files.time_entries)
        content = self._read(piece, ".txnindex")
        self._aborted = _NOTHING
        # A later piece of a segment leaves the entries of earlier pieces out.
        self._aborted_at = 0 if piece.start == 0 else -1
        if content is not None:
            self._aborted = index_files.aborted_entries(content)
            self._fault(piece, ".txnindex", self._aborted, "error")

    def _load(self, piece: SegmentPiece, suffix: str, parse: "index_files.Parse") -> Entries:
        content = self._read(piece, suffix)
        if content is None:
            if piece.start == 0 and not piece.is_last:
                self._add(piece, suffix, "warning", None, None, None, f"the segment has no {suffix}")
            return _NOTHING
        found = parse(content, piece.base_offset)
        self._fault(piece, suffix, found, "warning" if piece.is_last else "error")
        return found

    def _read(self, piece: SegmentPiece, suffix: str) -> bytes | None:
        return self._files.read(storage.with_suffix(piece.path, suffix))

    def _fault(self, piece: SegmentPiece, suffix: str, found: Entries, severity: Severity) -> None:
        if found.fault and piece.start == 0:
            self._add(piece, suffix, severity, None, None, found.fault_at, found.fault)

    def _compare_offsets(self, step: Step, ends: Longs) -> None:
        """Check that each entry names the start of a batch, and no offset before that batch."""
        starts = step.rows[:, headers.POSITION] + step.file_position
        entries = self._offsets.rows
        low, high = entries[:, 1].searchsorted((starts[0], ends[-1]))
        mine = entries[low:high]
        at = starts.searchsorted(mine[:, 1])
        hits = starts.take(at, mode="clip") == mine[:, 1]
        right = hits & (step.rows[:, headers.LAST_OFFSET].take(at, mode="clip") == mine[:, 0])
        for index in (~right).nonzero()[0].tolist():
            offset, position = mine[index].tolist()
            batch = step.rows[at[index] if hits[index] else 0]
            entry_at = (int(low) + index) * 8
            if not hits[index]:
                text = f"the entry for offset {offset} names position {position}, where no batch starts"
                self._add(step.segment, ".index", "error", offset, None, entry_at, text)
            elif not int(batch[headers.BASE_OFFSET]) <= offset or self._skips(step, int(at[index]), offset):
                text = (
                    f"the entry for position {position} says offset {offset}, the batch there ends at "
                    f"{batch[headers.LAST_OFFSET]}"
                )
                self._add(step.segment, ".index", "error", offset, None, entry_at, text)

    def _skips(self, step: Step, row: int, offset: int) -> bool:
        """Return whether a look-up above `offset` would start too late, or no batch from `row` on ends at `offset`.

        Brokers before 4.0 wrote the last offset of the whole append, which may have several batches.
        """
        ends = step.rows[row:, headers.LAST_OFFSET]
        return offset <= int(ends[-1]) and offset not in ends

    def _compare_times(self, step: Step) -> None:
        """Check that an entry names a batch with its timestamp, and that no batch before it is later."""
        entries = self._times.rows
        rows = step.rows
        stamps = np.where(rows[:, headers.RECORD_COUNT] > 0, rows[:, headers.MAX_TIMESTAMP], _NEVER)
        low, high = entries[:, 0].searchsorted((rows[0, headers.BASE_OFFSET], rows[-1, headers.LAST_OFFSET] + 1))
        if low < high:
            self._compare_stamps(step, entries[low:high], int(low), stamps)
        if not step.segment.is_last and len(entries) and not self._times.fault:
            self._compare_largest(step, int(entries[-1, 1]), stamps)

    def _compare_stamps(self, step: Step, mine: Longs, first: int, stamps: Longs) -> None:
        """Compare the entries on the batches of `step`. `first`: the index of the first of them in the file."""
        rows = step.rows
        at = np.searchsorted(rows[:, headers.LAST_OFFSET], mine[:, 0])
        so_far = np.maximum.accumulate(stamps)
        before = np.where(at > 0, so_far[at - 1], _NEVER)
        wrong = (stamps[at] != mine[:, 1]) & (rows[at, headers.RECORD_COUNT] > 0) | (before > mine[:, 1])
        for index in np.flatnonzero(wrong).tolist():
            offset, stamp = mine[index].tolist()
            row = int(at[index])
            text = f"the entry for offset {offset} says {stamp}, the largest timestamp up to there is {so_far[row]}"
            self._add(step.segment, ".timeindex", "error", offset, None, (first + index) * 12, text)

    def _compare_largest(self, step: Step, largest: int, stamps: Longs) -> None:
        """Check that the last entry of a sealed segment has its largest timestamp: look-ups skip segments by it."""
        later = (stamps > largest).nonzero()[0]
        if len(later):
            offset = int(step.rows[later[0], headers.LAST_OFFSET])
            text = f"the last entry says {largest}, but the batch at offset {offset} has {stamps[later[0]]}"
            self._add(step.segment, ".timeindex", "error", offset, None, None, text)

    def _compare_entries(self, step: Step) -> None:
        """Compare entries with the ABORT markers that ended a transaction, one to one, in order."""
        ended = step.ended
        ended = ended[(ended[:, events.ENDED_FATE] == ABORT)]
        entries = self._aborted.rows
        end = int(np.searchsorted(entries[:, 0], step.rows[-1, headers.LAST_OFFSET] + 1))
        mine = {entry[0]: entry for entry in entries[self._aborted_at : end].tolist()}
        first_at = self._aborted_at
        places = {entry: (first_at + index) * 34 for index, entry in enumerate(mine)}
        self._aborted_at = end
        for row in ended.tolist():
            marker, first = row[events.ENDED_MARKER_OFFSET], row[events.ENDED_FIRST_OFFSET]
            entry = mine.pop(marker, None)
            if entry is not None:
                self._compare_entry(step.segment, row, entry, places[marker])
            elif first >= self._part.log_start and not (self._aborted.fault and marker > _last(entries)):
                text = f"the transaction aborted at offset {marker} (first offset {first}) has no entry"
                # Ottla writes the entries of the active segment with a flush; a start rebuilds the later entries.
                is_due = not step.segment.is_last or marker < max(step.segment.recovery_point, _last(entries))
                severity: Severity = "error" if is_due else "info"
                text += "" if is_due else " yet; it is written with the next flush"
                self._add(step.segment, ".txnindex", severity, marker, row[events.ENDED_PRODUCER_ID], None, text)
        for marker, producer_id, _, _ in mine.values():
            text = f"an entry for the abort at offset {marker}, where the log has no ABORT marker"
            self._add(step.segment, ".txnindex", "error", marker, producer_id, places[marker], text)

    def _compare_entry(self, piece: SegmentPiece, row: list[int], entry: list[int], at: int) -> None:
        marker, producer_id, first, stable = entry
        expected = (row[events.ENDED_PRODUCER_ID], row[events.ENDED_FIRST_OFFSET], row[events.ENDED_LAST_STABLE_OFFSET])
        if expected[0] != producer_id:
            difference = f"names producer id {producer_id}, not {expected[0]}"
        elif first != expected[1] and not self._unprovable(first, expected[1]):
            difference = f"begins at {first}, the transaction at {expected[1]}"
        elif stable != expected[2] and not self._unprovable(stable, expected[2]):
            difference = f"has last stable offset {stable}, not {expected[2]}"
        else:
            return
        text = f"the entry for the abort at offset {marker} {difference}"
        self._add(piece, ".txnindex", "error", marker, producer_id, at, text)

    def _unprovable(self, stored: int, computed: int) -> bool:
        """Return whether deleted batches explain that a transaction seems to begin later than a file says.

        It may also seem to begin earlier, because a broker rebuilds the file from the log start.
        """
        if 0 <= computed < stored:
            return computed < self._part.log_start
        return stored < self._first_offset or self._holes

    def _end_piece(self, step: Step, walked: Walk) -> None:
        piece = step.segment
        if piece.end != piece.file_bytes:
            return
        left = self._aborted.rows[self._aborted_at :]
        if not piece.is_last:
            for at, (marker, producer_id, _, _) in enumerate(left.tolist(), self._aborted_at):
                text = f"an entry for the abort at offset {marker}, after the end of the segment"
                self._add(piece, ".txnindex", "error", marker, producer_id, at * 34, text)
        beyond = self._offsets.rows[self._offsets.rows[:, 1] >= piece.file_bytes] if not piece.is_last else ()
        for offset, position in beyond:
            text = f"the entry for offset {offset} names position {position}, after the end of the segment"
            self._add(piece, ".index", "error", int(offset), None, None, text)
        self._compare_snapshot(piece, walked.leaving)

    def _compare_snapshot(self, piece: SegmentPiece, now: states.States) -> None:
        name = f"{now.next_offset:020d}.snapshot"
        path = storage.join(storage.parent(piece.path), name)
        content = self._files.read(path)
        if content is None:
            return
        stored = index_files.snapshot_entries(content)
        if stored.fault:
            self._add(piece, name, "error", now.next_offset, None, stored.fault_at, stored.fault)
            return
        for severity, producer_id, text in self._snapshot_differences(stored.rows, now, path):
            self._add(piece, name, severity, now.next_offset, producer_id, None, text)

    def _snapshot_differences(
        self, stored: Longs, now: states.States, path: str
    ) -> Iterator[tuple[Severity, int, str]]:
        computed = now.rows[:, : states.FIRST_OFFSET + 1]
        stored = stored[np.argsort(stored[:, 0], kind="stable")]
        computed = computed[np.argsort(computed[:, 0], kind="stable")]
        if np.array_equal(stored, computed):
            return
        mine = {row[0]: row for row in computed.tolist()}
        marked = dict(now.rows[:, [states.PRODUCER_ID, states.LAST_MARKER_OFFSET]].tolist())
        for row in stored.tolist():
            other = mine.pop(row[0], None)
            if other is None:
                if not (self._holes or row[states.LAST_OFFSET] < self._first_offset):
                    yield "error", row[0], f"names producer id {row[0]}, which is not in the log"
            elif row != other and (text := self._difference(row, other, marked[row[0]])):
                yield "error", row[0], f"producer id {row[0]}: {text}"
        clock_ms = max(now.clock_ms, storage.status(path).modified_ms)
        for row in mine.values():
            idle_ms = clock_ms - row[states.LAST_TIMESTAMP]
            is_held = row[states.FIRST_OFFSET] >= 0 or idle_ms < self._expiration_ms
            if is_held and max(row[states.LAST_OFFSET], marked[row[0]]) >= self._part.log_start:
                yield "error", row[0], f"lacks producer id {row[0]}, last at offset {row[states.LAST_OFFSET]}"

    def _difference(self, stored: list[int], computed: list[int], marker: int) -> str:
        """Return the first different column that the log can prove; `marker`: offset of the producer's last marker."""
        for column, word in enumerate(_SNAPSHOT_WORDS):
            listed, found = stored[column], computed[column]
            if listed == found:
                continue
            if column == states.COORDINATOR_EPOCH and marker < self._part.log_start and listed == -1:
                continue
            if column == states.FIRST_OFFSET and self._unprovable(listed, found) and listed >= 0:
                continue
            if self._holes or stored[states.LAST_OFFSET] < self._first_offset:
                # Compaction and retention delete the batches from which the broker derived a state.
                continue
            return f"{word} {listed}, but {found} in the log"
        return ""

    def _add(
        self,
        piece: SegmentPiece,
        name: str,
        severity: Severity,
        offset: int | None,
        producer_id: int | None,
        position: int | None,
        text: str,
    ) -> None:
        path = piece.path
        file = storage.with_suffix(path, name) if name.startswith(".") else storage.join(storage.parent(path), name)
        count = self._counts[file] = self._counts.get(file, 0) + 1
        if count > SHOWN_OF_A_FILE + 1:
            return
        if count > SHOWN_OF_A_FILE:
            text = f"more than {SHOWN_OF_A_FILE} differences, only these are shown"
            offset = position = producer_id = None
        place = self._part.topic, self._part.number, offset, producer_id, None
        action = "nothing to do" if severity == "info" else REPAIR
        message = f"{storage.name_of(file)}: {text}"
        self.findings.append(Finding("index", severity, *place, message, action, file, position))


def _files_of(part: LogRange) -> Iterator[str]:
    """Yield the files that a check of `part` reads, in about its order: a segment's files, then the next snapshot."""
    for piece, following in pairwise([*part.segment_pieces, None]):
        assert piece is not None
        for suffix in (".index", ".timeindex", ".txnindex"):
            yield storage.with_suffix(piece.path, suffix)
        if following is not None and piece.end == piece.file_bytes:
            yield storage.with_suffix(following.path, ".snapshot")


def first_of_each_file(ranges: Iterable[Sequence[Finding]]) -> list[Finding]:
    """Return the findings of several ranges, for each file at most as many as a single range reports."""
    counts: Counter[str | None] = Counter()
    found = []
    for one in chain.from_iterable(ranges):
        counts[one.file] += 1
        if counts[one.file] <= SHOWN_OF_A_FILE:
            found.append(one)
        elif counts[one.file] == SHOWN_OF_A_FILE + 1:
            text = f"{storage.name_of(one.file or '')}: more than {SHOWN_OF_A_FILE} differences, only these are shown"
            found.append(one._replace(message=text, offset=None, position=None, producer_id=None))
    return found


_NEVER: Final = -(2**63)
_NOTHING: Final = Entries(np.empty((0, 4), dtype=np.int64), 0)


def _last(entries: Longs) -> int:
    return int(entries[-1, 0]) if len(entries) else -1


def _lacks_records(rows: Longs) -> bool:
    span = rows[:, headers.LAST_OFFSET] - rows[:, headers.BASE_OFFSET] + 1
    return bool((span != rows[:, headers.RECORD_COUNT]).any())
