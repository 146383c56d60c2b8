"""Torn transactions: compare the decisions of the coordinator with the markers that a partition has. pure

A marker has the producer id and epoch of the decision that it carries out, and is written after it. So it belongs to
the newest earlier decision with this id and epoch. Matching the n-th marker to the n-th decision instead would report
every transaction after a lost marker as torn.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ottla.audit.checks import history
from ottla.audit.checks.finding import Finding, Severity
from ottla.audit.checks.history import History
from ottla.audit.checks.words import KINDS, count, name_producer
from ottla.protocol.times import at_time
from ottla.protocol.values import TopicPartition
from ottla.scan import events
from ottla.scan.compiled.kernels import Longs
from ottla.verdict import RESTORE, SKEW_MS, abort_command

# Columns of a marker that contradicts or repeats its decision, or has none. DECISION: index of the decision, or -1.
PRODUCER_ID = 0
EPOCH = 1
FATE = 2
END_MS = 3
MARKER_OFFSET = 4
FIRST_OFFSET = 5
SEGMENT = 6
POSITION = 7
DECISION = 8
MARKER_COLUMNS = 9
# The columns of `ended` that they are from, without DECISION.
_ENDED_COLUMNS = [
    events.ENDED_PRODUCER_ID,
    events.ENDED_MARKER_EPOCH,
    events.ENDED_FATE,
    events.ENDED_END_MS,
    events.ENDED_MARKER_OFFSET,
    events.ENDED_FIRST_OFFSET,
    events.ENDED_SEGMENT,
    events.ENDED_POSITION,
]

# At most this many markers of a range are kept; more would not help.
MOST_MARKERS = 10_000
NOWHERE = 2**62
# At most this many missing markers have a finding each where lost offsets explain them.
_FEW = 3
_BY_HAND = "if an administrator aborted a transaction here (kafka-transactions.sh abort), nothing is wrong"


class Matched(NamedTuple):
    """Matches of one range: the decisions of the partition that its markers carry out, and the other markers.

    `carried_out`: rows (index of the decision, number of markers, first offset of the ended data or `NOWHERE`).
    """

    carried_out: Longs
    others: Longs
    others_count: int
    first_marker_ms: int


class MarkerMatcher:
    """Matches the markers of one range, in offset order, to the decisions of its partition.

    `decisions` need only the columns up to UPDATED_MS.

    `cleaned_below`: markers below it prove nothing about the transactions there, because compaction deletes markers.
    """

    def __init__(self, decisions: Longs, cleaned_below: int) -> None:
        self._decisions = decisions
        self._cleaned_below = cleaned_below
        self._keys = keys(decisions[:, history.PRODUCER_ID], decisions[:, history.EPOCH])
        self._groups, self._group_of = np.unique(self._keys, return_inverse=True)
        times = decisions[:, history.UPDATED_MS]
        self._earliest = int(times.min()) if len(times) else 0
        self._span = int(times.max()) - self._earliest + 2 if len(times) else 2
        self._order = self._group_of * self._span + (times - self._earliest) + 1
        self._carried_out = np.zeros(len(decisions), dtype=np.int64)
        self._first_offsets = np.full(len(decisions), NOWHERE, dtype=np.int64)
        self._others: list[Longs] = []
        self._kept = 0
        self._count = 0
        self._first_marker_ms = -1

    def restore(self, carried_out: Longs) -> None:
        """Begin with these rows of an earlier `result`."""
        self._carried_out[carried_out[:, 0]] = carried_out[:, 1]
        self._first_offsets[carried_out[:, 0]] = carried_out[:, 2]

    def add(self, markers: Longs) -> None:
        """Add rows of the marker columns, and set their DECISION."""
        if not len(markers):
            return
        if self._first_marker_ms < 0:
            known = markers[markers[:, MARKER_OFFSET] >= self._cleaned_below]
            if len(known):
                self._first_marker_ms = int(known[0, END_MS])
        markers[:, DECISION] = decision = self._newest(markers)
        found = decision >= 0
        agrees = found.copy()
        agrees[found] = self._decisions[decision[found], history.KIND] == markers[found, FATE]
        np.add.at(self._carried_out, decision[agrees], 1)
        ended = agrees & (markers[:, FIRST_OFFSET] >= 0)
        again = self._again(markers, decision, ended)
        np.minimum.at(self._first_offsets, decision[ended], markers[ended, FIRST_OFFSET])
        others = markers[~agrees | again]
        self._count += len(others)
        if len(others) and self._kept < MOST_MARKERS:
            self._others.append(others[: MOST_MARKERS - self._kept].copy())
            self._kept += len(self._others[-1])

    def _again(self, markers: Longs, decision: Longs, ended: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a mask of the markers that ended data although an earlier marker did so for the same decision."""
        again = ended.copy()
        at = np.flatnonzero(ended)
        mine = decision[at]
        first = np.zeros(len(at), dtype=bool)
        first[np.unique(mine, return_index=True)[1]] = True
        again[at[first & (self._first_offsets[mine] == NOWHERE)]] = False
        at = np.flatnonzero(again)
        following = np.minimum(decision[at] + 1, len(self._decisions) - 1)
        # A broker with a slow clock may have written the marker for the next decision.
        is_next = (self._keys[following] == self._keys[decision[at]]) & (following > decision[at])
        is_next &= self._decisions[following, history.UPDATED_MS] <= markers[at, END_MS] + SKEW_MS
        again[at[is_next]] = False
        return again

    def _newest(self, markers: Longs) -> Longs:
        """Return, for each marker, the newest decision with its producer id and epoch that is not later, or -1."""
        none = np.full(len(markers), -1, dtype=np.int64)
        if not len(self._decisions):
            return none
        needed = keys(markers[:, PRODUCER_ID], markers[:, EPOCH])
        group = np.minimum(np.searchsorted(self._groups, needed), len(self._groups) - 1)
        after = np.clip(markers[:, END_MS] - self._earliest + 1, 0, self._span - 1)
        at = np.searchsorted(self._order, group * self._span + after, side="right") - 1
        sound = (self._groups[group] == needed) & (at >= 0)
        sound[sound] = self._group_of[at[sound]] == group[sound]
        return np.where(sound, at, none)

    def result(self) -> Matched:
        others = np.concatenate(self._others) if self._others else np.empty((0, MARKER_COLUMNS), dtype=np.int64)
        at = np.flatnonzero(self._carried_out)
        carried_out = np.stack([at, self._carried_out[at], self._first_offsets[at]], axis=1)
        return Matched(carried_out, others, self._count, self._first_marker_ms)


class Partition(NamedTuple):
    """A partition as this check sees it. `open_from`: first offset of the open transaction by producer id.

    `known_from_offset`: no later marker was deleted: the log start, or the first dirty offset. `first_batch_ms`: the
    earliest time at which it is known to exist, -1 if unknown. `lacks_offsets`: offsets are lost or damaged.
    `created_ms`: when its topic was created, -1 if unknown: earlier decisions are on a deleted topic of the same name.
    """

    place: TopicPartition
    folder: str
    known_from_offset: int
    first_batch_ms: int
    open_from: dict[int, int]
    lacks_offsets: bool = False
    created_ms: int = -1


class Reached(NamedTuple):
    """Limits of the files if the audit reads those of several brokers.

    `until_ms`: the partition has all markers up to this time. `decided_until_ms`: the coordinators' log has all
    decisions up to this time.
    `still_open`: the open transactions (producer id, first offset) of a longer replica; None: there is none.
    """

    until_ms: int = history.NEVER
    decided_until_ms: int = history.NEVER
    still_open: frozenset[tuple[int, int]] | None = None


EVERYTHING = Reached()


class TornResult(NamedTuple):
    """Findings of a partition, and the producers that lack a marker in it.

    `undone`: the last decision by producer id, if its marker is missing, so that its transaction is still open here.
    `lacking`: all producers that lack a marker. `tearing`: the offsets of aborts that tear a committed transaction.
    """

    findings: list[Finding]
    undone: dict[int, Longs]
    lacking: frozenset[int] = frozenset()
    tearing: frozenset[int] = frozenset()


def judge(
    part: Partition,
    ranges: Sequence[Matched],
    known: History,
    settled_ms: int,
    since_ms: int = 0,
    reached: Reached = EVERYTHING,
) -> TornResult:
    """Return the findings of a partition on decisions from `since_ms` to `settled_ms`. `ranges` are in order."""
    decisions = known.for_place(part.place)
    carried_out = np.zeros(len(decisions), dtype=np.int64)
    first_offsets = np.full(len(decisions), NOWHERE, dtype=np.int64)
    for one in ranges:
        np.add.at(carried_out, one.carried_out[:, 0], one.carried_out[:, 1])
        np.minimum.at(first_offsets, one.carried_out[:, 0], one.carried_out[:, 2])
    others = [row for one in ranges for row in one.others]
    found = _TornFindings(part, known, decisions)
    first_marker_ms = next((one.first_marker_ms for one in ranges if one.first_marker_ms >= 0), -1)
    from_ms = _known_from_ms(part, first_marker_ms)
    times = decisions[:, history.UPDATED_MS]
    settled = (times <= settled_ms) & (times >= since_ms)
    missing = [int(index) for index in np.flatnonzero((carried_out == 0) & settled)]
    _pair_across_clocks(missing, others, decisions)
    undone: list[int] = []
    # Decisions that may be older than the partition. Still, an open transaction here may await their markers.
    unproven: list[int] = []
    again = [row for row in others if agrees(row, decisions)]
    others = [row for row in others if not agrees(row, decisions)]
    contradicted = {int(row[DECISION]): row for row in reversed(others) if row[DECISION] >= 0}
    for index in missing:
        decision = decisions[index]
        if index in contradicted:
            found.add_contradiction(decision, contradicted[index])
            others = [row for row in others if row is not contradicted[index]]
        elif decision[history.PENDING]:
            continue
        elif decision[history.UPDATED_MS] > reached.until_ms:
            found.unverifiable["decisions"] += 1
        elif decision[history.UPDATED_MS] <= from_ms:
            found.unverifiable["decisions"] += 1
            if part.known_from_offset == 0 and decision[history.UPDATED_MS] > part.created_ms:
                unproven.append(index)
        else:
            undone.append(index)
    producers = decisions[:, history.PRODUCER_ID]
    last = {int(producers[index]): index for index in undone}
    lacking = frozenset(last)
    # If a later decision has its marker, the open transaction began after that marker.
    last = {one: at for one, at in last.items() if not carried_out[at:][producers[at:] == one].any()}
    doubtful = {index for index in undone if found.may_be_of_another_topic(index, set(last.values()), first_offsets)}
    undone = [index for index in undone if index not in doubtful]
    found.unverifiable["decisions"] += len(doubtful)
    found.add_missing(undone, set(last.values()), first_offsets)
    tearing = []
    commits = find_torn_commits(others, decisions, (carried_out > 0) & (first_offsets == NOWHERE))
    for row, commit in zip(others, commits, strict=True):
        if commit is not None:
            found.add_early_abort(row, decisions[commit])
            tearing.append(int(row[MARKER_OFFSET]))
        elif row[END_MS] <= settled_ms:
            found.add_without_decision(row, reached.decided_until_ms)
    for row in again:
        if row[END_MS] <= settled_ms:
            found.add_repetition(row, decisions[row[DECISION]], reached.decided_until_ms)
    found.unverifiable["markers"] += sum(one.others_count - len(one.others) for one in ranges)
    awaited = {int(producers[index]): index for index in unproven} | last
    awaited = {one: at for one, at in awaited.items() if not carried_out[at:][producers[at:] == one].any()}
    of_awaited = {one: decisions[index] for one, index in awaited.items()}
    return TornResult(found.findings + found.summary(), of_awaited, lacking, frozenset(tearing))


def _known_from_ms(part: Partition, first_marker_ms: int) -> int:
    """Return the time up to which the marker of a decision, or the topic that the decision names, may be gone."""
    if part.known_from_offset > 0:
        return history.NEVER if first_marker_ms < 0 else first_marker_ms + SKEW_MS
    return history.NEVER if part.first_batch_ms < 0 else max(part.first_batch_ms - SKEW_MS, part.created_ms)


def _pair_across_clocks(missing: list[int], others: list[Longs], decisions: Longs) -> None:
    """Remove from both lists the pairs that match if a slow clock made the marker older than its decision."""
    if not missing:
        return
    of_decisions = keys(decisions[:, history.PRODUCER_ID], decisions[:, history.EPOCH])
    kinds, times = decisions[:, history.KIND], decisions[:, history.UPDATED_MS]
    is_missing = np.zeros(len(decisions), dtype=bool)
    is_missing[missing] = True
    kept = []
    for row in others:
        key = int(keys(row[PRODUCER_ID], row[EPOCH]))
        first, end = np.searchsorted(of_decisions, (key, key + 1))
        late_by = times[first:end] - row[END_MS]
        matches = is_missing[first:end] & (kinds[first:end] == row[FATE]) & (late_by > 0) & (late_by <= SKEW_MS)
        if matches.any():
            is_missing[first + matches.argmax()] = False
        else:
            kept.append(row)
    missing[:] = np.flatnonzero(is_missing).tolist()
    others[:] = kept


def find_torn_commits(rows: Sequence[Longs], decisions: Longs, unfilled: NDArray[np.bool_]) -> list[int | None]:
    """Return for each marker the index of the COMMIT whose records it has ended before as an ABORT, or None.

    The transaction was open when the ABORT was written, so an administrator wrote it. `unfilled`: the decisions whose
    marker is here and ended no record. In transactions V2 a decision has the next epoch.
    """
    of_decisions = keys(decisions[:, history.PRODUCER_ID], decisions[:, history.EPOCH])
    began, decided = decisions[:, history.START_MS], decisions[:, history.UPDATED_MS] + SKEW_MS
    is_commit = unfilled & (decisions[:, history.KIND] == 1) & (began > 0)
    if not is_commit.any():
        return [None] * len(rows)
    found: list[int | None] = []
    for row in rows:
        key = int(keys(row[PRODUCER_ID], row[EPOCH]))
        first, end = (
            np.searchsorted(of_decisions, (key, key + 2)) if not row[FATE] and row[FIRST_OFFSET] >= 0 else (0, 0)
        )
        is_torn = is_commit[first:end] & (began[first:end] <= row[END_MS]) & (row[END_MS] <= decided[first:end])
        found.append(int(first + is_torn.argmax()) if is_torn.any() else None)
    return found


def agrees(row: Longs, decisions: Longs) -> bool:
    """Return whether a marker is of the kind that its decision has."""
    return bool(row[DECISION] >= 0 and decisions[row[DECISION], history.KIND] == row[FATE])


class _TornFindings:
    """Builder of the findings of one partition."""

    def __init__(self, part: Partition, known: History, decisions: Longs) -> None:
        self._part = part
        self._known = known
        self._decisions = decisions
        self.findings: list[Finding] = []
        self.unverifiable: Counter[str] = Counter()

    def add_contradiction(self, decision: Longs, marker: Longs) -> None:
        name = self._known.ids[decision[history.ID]]
        decided, here = KINDS[decision[history.KIND]], KINDS[marker[FATE]]
        producer = name_producer(name, int(marker[PRODUCER_ID]), int(marker[EPOCH]))
        self._add(
            "error",
            marker,
            name,
            f"torn: the coordinator decided {decided} for {producer} "
            f"{at_time(int(decision[history.UPDATED_MS]))}, but this partition has {here}",
            f"the other partitions of this transaction have {decided}: treat this as an incident, and correct the data "
            "of this partition's consumers by hand",
        )

    def add_early_abort(self, marker: Longs, decision: Longs) -> None:
        name = self._known.ids[decision[history.ID]]
        producer = name_producer(name, int(marker[PRODUCER_ID]), int(marker[EPOCH]))
        self._add(
            "error",
            marker,
            name,
            f"torn: ABORT for {producer} ended its open records from offset {int(marker[FIRST_OFFSET]):,} on; then the "
            f"coordinator decided COMMIT {at_time(int(decision[history.UPDATED_MS]))}, which found none here",
            "an administrator wrote it, and the other partitions of this transaction have COMMIT: correct the data of "
            "this partition's consumers by hand",
        )

    def add_missing(self, undone: Sequence[int], last: set[int], first_offsets: Longs) -> None:
        """Report decisions without a marker. Open transactions of their producers await the markers of `last`."""
        topic, number = self._part.place
        one_by_one = [at for at in undone if not self._part.lacks_offsets or len(undone) <= _FEW]
        for index in one_by_one:
            decision = self._decisions[index]
            producer_id = int(decision[history.PRODUCER_ID])
            open_from = self._part.open_from.get(producer_id) if index in last else None
            self._missing(decision, open_from, *self._find_records_without_marker(index, first_offsets))
        if many := len(undone) - len(one_by_one):
            message = f"torn: {count(many, 'decided transaction')} without a marker, because offsets are lost here"
            action = "restore the segments from a replica: see the findings of gaps and damage"
            self.findings.append(Finding("torn", "error", topic, number, None, None, None, message, action))

    def may_be_of_another_topic(self, index: int, last: set[int], first_offsets: Longs) -> bool:
        """Return whether a decision without a marker may be on a deleted topic of the same name.

        The decision is about as old as the first batch here, no record of the transaction is here, and the time at
        which the topic was created is not known.
        """
        decision = self._decisions[index]
        is_new = self._part.created_ms < 0 and decision[history.UPDATED_MS] <= self._part.first_batch_ms + SKEW_MS
        if self._part.known_from_offset > 0 or self._part.lacks_offsets or not is_new:
            return False
        is_open = index in last and int(decision[history.PRODUCER_ID]) in self._part.open_from
        return not is_open and self._find_records_without_marker(index, first_offsets)[0] is None

    def _find_records_without_marker(self, index: int, first_offsets: Longs) -> tuple[int | None, str]:
        """Return the first offset of the records of a decision without marker, and the marker that ended them."""
        if index + 1 < len(self._decisions) and first_offsets[index + 1] < NOWHERE:
            mine, following = self._decisions[index], self._decisions[index + 1]
            if (mine[[history.PRODUCER_ID, history.EPOCH]] == following[[history.PRODUCER_ID, history.EPOCH]]).all():
                return int(first_offsets[index + 1]), KINDS[following[history.KIND]]
        return None, ""

    def _missing(self, decision: Longs, open_from: int | None, swallowed_from: int | None, swallowed_as: str) -> None:
        producer_id, epoch = int(decision[history.PRODUCER_ID]), int(decision[history.EPOCH])
        name = self._known.ids[decision[history.ID]]
        decided = KINDS[decision[history.KIND]]
        topic, number = self._part.place
        what = "the offsets of a consumer group" if topic == "__consumer_offsets" else "its records"
        if open_from is not None:
            state = f", and {what} stay open"
        elif swallowed_from is not None:
            state = f"; {what} ended with the next transaction, as {swallowed_as}"
        else:
            state = f", and {what} are not open here"
        if decision[history.KIND]:
            action = RESTORE
        elif open_from is not None:
            action = f"end it as decided: {abort_command(self._part.place, open_from)}"
        else:
            action = "restore this partition from a replica, or correct the data of consumers by hand"
        message = (
            f"torn: the coordinator decided {decided} for {name_producer(name, producer_id, epoch)} "
            f"{at_time(int(decision[history.UPDATED_MS]))} and completed it; this partition has no such marker{state}"
        )
        offset = open_from if open_from is not None else swallowed_from
        self.findings.append(Finding("torn", "error", topic, number, offset, producer_id, name, message, action))

    def add_without_decision(self, marker: Longs, until_ms: int) -> None:
        producer_id, epoch = int(marker[PRODUCER_ID]), int(marker[EPOCH])
        if not self._known.known_from_ms(producer_id) < marker[END_MS] <= until_ms:
            self.unverifiable["markers"] += 1
            return
        name = self._known.name_of(producer_id)
        producer = name_producer(name, producer_id, epoch)
        closed = "" if marker[FIRST_OFFSET] >= 0 else "; no transaction was open"
        severity: Severity = "info" if marker[FIRST_OFFSET] < 0 else "error" if marker[FATE] else "warning"
        self._add(
            severity,
            marker,
            name,
            f"{KINDS[marker[FATE]]} for {producer} that no coordinator has decided{closed}",
            _BY_HAND if not marker[FATE] else "find out who wrote it: only a coordinator commits",
        )

    def add_repetition(self, marker: Longs, decision: Longs, until_ms: int) -> None:
        if marker[END_MS] > until_ms:
            self.unverifiable["markers"] += 1
            return
        producer_id, kind = int(marker[PRODUCER_ID]), KINDS[marker[FATE]]
        name = self._known.name_of(producer_id)
        self._add(
            "error" if marker[FATE] else "warning",
            marker,
            name,
            f"torn: {kind} for {name_producer(name, producer_id, int(marker[EPOCH]))} again: the marker of the "
            f"decision {at_time(int(decision[history.UPDATED_MS]))} is before it, and this one ended the records from "
            f"offset {int(marker[FIRST_OFFSET]):,} on",
            _BY_HAND
            if not marker[FATE]
            else "a late marker ended the next transaction before that was decided (KIP-890), or its decision "
            "is lost: compare with the other partitions of that transaction",
        )

    def summary(self) -> list[Finding]:
        if not any(self.unverifiable.values()):
            return []
        topic, number = self._part.place
        things = " and ".join(count(many, word[:-1]) for word, many in sorted(self.unverifiable.items()) if many)
        why = (
            "their counterparts are compacted, deleted or not read"
            if self._known.at_hand
            else "there is no __transaction_state here"
        )
        message = f"unverifiable: {things} cannot be compared, {why}"
        return [Finding("torn", "info", topic, number, None, None, None, message, "nothing to do")]

    def _add(self, severity: Severity, marker: Longs, name: str | None, message: str, action: str) -> None:
        place = *self._part.place, int(marker[MARKER_OFFSET]), int(marker[PRODUCER_ID]), name
        file = f"{self._part.folder}/{int(marker[SEGMENT]):020d}.log"
        self.findings.append(Finding("torn", severity, *place, message, action, file, int(marker[POSITION])))


def keys(producer_ids: Longs, epochs: Longs) -> Longs:
    """Return one number for each producer id and epoch: ids are allocated in order and stay far below 2^47."""
    return (producer_ids << 16) | (epochs & 0xFFFF)


def markers(ended: Longs) -> Longs:
    """Return rows of the marker columns from the `ended` rows of a walk."""
    rows = np.full((len(ended), MARKER_COLUMNS), -1, dtype=np.int64)
    rows[:, :DECISION] = ended[:, _ENDED_COLUMNS]
    return rows
