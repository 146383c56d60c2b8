"""Merge the facts of all ranges into the audit: partitions with their fates, and every check's findings. pure"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ottla.audit.ambiguous_ends import AmbiguousEnds
from ottla.audit.audited import Audit, PartitionAudit, Tally
from ottla.audit.checks import (
    across,
    damage,
    gaps,
    hanging,
    history,
    once,
    reused,
    sequence,
    shape,
    stale,
    torn,
    zombie,
)
from ottla.audit.checks.finding import Finding, in_order
from ottla.audit.checks.history import NEVER, History
from ottla.audit.checks.index import first_of_each_file
from ottla.audit.checks.sequence import make_findings
from ottla.audit.checks.torn import Reached
from ottla.audit.read_ends import ReadEnds, end_of
from ottla.audit.tasks import RangeFacts
from ottla.scan import events, states
from ottla.scan.compiled.kernels import Longs
from ottla.scan.fates import OpenTransaction, open_of

if TYPE_CHECKING:
    from ottla.audit.listed import Listed
    from ottla.audit.request import Request

# Checks that report anomalies of a walk, with the messages on their kinds.
_OF_ANOMALIES = {"sequence": sequence.MESSAGES, "zombie": zombie.MESSAGES, "reused": reused.MESSAGES}


def judge(
    request: "Request",
    listed: Mapping[int, "Listed"],
    facts: Mapping[int, Sequence[RangeFacts]],
    known: History,
    limits: Mapping[int, int],
    copied: Sequence[Finding],
    ambiguous: AmbiguousEnds,
    changed: Collection[str] = (),
    present: hanging.Present | None = None,
) -> Audit:
    """Return the audit of the partitions in `listed`; `limits` are the offsets at which some were cut.

    `changed`: the paths of partitions that changed during the read, so that they may lack markers that others have.
    `present`: what coordinators answered about open transactions; None if they were not asked.
    """
    found: list[Finding] = [*copied, *ambiguous.findings]
    names = Counter(one.log.name for one in listed.values())
    partitions: list[PartitionAudit] = []
    idle = []
    ends = ReadEnds(request, listed, facts, known)
    arrived_ms = min(request.now_ms - hanging.SETTLED_MS, request.decided_until_ms)

    def settled_ms(one: "Listed") -> int:
        """Return a time in ms: a missing marker proves nothing about later transactions. NEVER: no limit."""
        return arrived_ms if one.log.path in changed else request.decided_until_ms

    sure = {
        index: _there(request, one, facts[index], min(ends.until_ms(index), settled_ms(one)))
        for index, one in listed.items()
    }
    # The marker of another partition may not be written yet.
    there = {index: one._replace(until_ms=min(one.until_ms, arrived_ms)) for index, one in sure.items()}
    # A coordinator that no longer holds a transaction open has received the confirmation of every marker.
    ended_there = sure if known.whole else there
    across_partitions = across.judge(ambiguous.markers, there, known)
    for index, one in listed.items():
        partition = _Partition(request, one, facts[index], known, limits.get(index), ends.of(index), settled_ms(one))
        partition.present = present
        partition.findings += across_partitions.get(index, [])
        partition.ended_elsewhere = {
            open_one: bool(marker.number & 1)
            for open_one in there[index].opened
            if (marker := across.ended_elsewhere(open_one, index, ambiguous.markers, ended_there)) is not None
        }
        partitions.append(partition.audit())
        found += partition.findings if names[one.log.name] == 1 else name_directories(partition.findings, one.directory)
        if ends.counts(index):
            idle += [((one.log.topic, one.log.partition), part.idle) for part in facts[index]]
    total = shape.merge(part.shape for index, parts in facts.items() if ends.counts(index) for part in parts)
    certain = {name: state for name, state in known.states.items() if not known.doubts(name)}
    found += stale.findings(certain, idle, request.now_ms, request.id_expiration_ms, request.producer_expiration_ms)
    counted = [_gather_transactions(one, facts[index], known) for index, one in listed.items() if ends.counts(index)]
    ended = once.count_once(counted)
    found += shape.findings(total, ended)
    return Audit(
        request.directories,
        request.now_ms,
        request.as_of,
        request.checks,
        partitions,
        in_order([one for one in found if one.check in request.checks]),
        total,
        shape.fit(total),
        _names(partitions, known),
        ended,
    )


def _gather_transactions(one: "Listed", parts: Sequence[RangeFacts], known: History) -> once.Facts:
    decisions = known.for_place((one.log.topic, one.log.partition))
    totals = [sum(int(part.totals[at]) for part in parts) for at in (events.ABORTED, events.COMMITTED)]
    return once.Facts(
        decisions,
        [part.matched for part in parts],
        [part.ends for part in parts],
        [part.shared for part in parts],
        (totals[0], totals[1]),
    )


def _there(request: "Request", one: "Listed", parts: Sequence[RangeFacts], until_ms: int) -> across.There:
    """Return a partition to compare with others. If it was cut at offsets, its open transactions prove nothing."""
    opened = () if request.until_offsets or not parts else tuple(open_of(row) for row in parts[-1].open_rows)
    return across.There((one.log.topic, one.log.partition), one.log.path, one.log.name, until_ms, opened)


def name_directories(findings: Sequence[Finding], directory: str) -> list[Finding]:
    """Add the directory to findings on a partition that several directories have."""
    return [one._replace(message=f"{one.message}; replica in {directory}") for one in findings]


def _names(partitions: Sequence[PartitionAudit], known: History) -> dict[int, str]:
    recent = [part.recent[:, events.ENDED_PRODUCER_ID] for part in partitions if len(part.recent)]
    producers = np.unique(np.concatenate(recent)).tolist() if recent else []
    named = ((one, known.name_of(one)) for one in producers)
    return {one: name for one, name in named if name is not None}


class _Partition:
    """Audit of a single partition: `audit` fills `findings`."""

    def __init__(
        self,
        request: "Request",
        one: "Listed",
        parts: Sequence[RangeFacts],
        known: History,
        limit: int | None,
        reached: Reached,
        settled_ms: int,
    ) -> None:
        self.findings: list[Finding] = []
        self.ended_elsewhere: Mapping[OpenTransaction, bool] = {}
        self.present: hanging.Present | None = None
        self._lacking: frozenset[int] = frozenset()
        self._tearing: frozenset[int] = frozenset()
        self._reached = reached
        self._settled_ms = settled_ms
        self._request = request
        self._one = one
        self._log = one.log
        self._place = one.log.topic, one.log.partition
        self._parts = parts
        self._known = known
        self._limit = limit
        self._totals: Longs = (
            np.sum([part.totals for part in parts], axis=0) if parts else np.zeros(events.TOTALS, dtype=np.int64)
        )
        self._open: Longs = parts[-1].open_rows if parts else np.empty((0, states.COLUMNS), dtype=np.int64)

    def audit(self) -> PartitionAudit:
        log, totals = self._log, self._totals
        log_end = self._log_end()
        stable = max(log.log_start, int(self._open[0, states.FIRST_OFFSET])) if len(self._open) else log_end
        missing = self._gaps(log_end, stable)
        open_now = self._transactions(missing)
        damaged = tuple(one for part in self._parts for one in part.damage)
        if self._log.topic == history.TOPIC and self._known.directories.get(self._log.partition) == self._one.directory:
            damaged += tuple(one for one in self._known.unread.get(self._log.partition, ()) if one not in damaged)
        tails = tuple(one for part in self._parts for one in part.torn_tails)
        self.findings += damage.findings(self._place, damaged, tails)
        self._anomalies()
        self.findings += first_of_each_file(part.findings for part in self._parts)
        recent = [part.recent for part in self._parts]
        return PartitionAudit(
            directory=self._one.directory,
            log=log,
            log_start=log.log_start,
            log_end=log_end,
            last_stable_offset=stable,
            committed=Tally(int(totals[events.COMMITTED]), int(totals[events.COMMITTED_RECORDS])),
            aborted=Tally(int(totals[events.ABORTED]), int(totals[events.ABORTED_RECORDS])),
            opened=Tally(len(self._open), int(self._open[:, states.OPEN_RECORDS].sum())),
            plain_records=int(totals[events.PLAIN_RECORDS]),
            control_batches=int(totals[events.CONTROL_BATCHES]),
            batches=int(totals[events.BATCHES]),
            size_bytes=int(totals[events.BYTES]),
            missing=missing,
            open_transactions=open_now,
            damage=damaged,
            torn_tails=tails,
            recent=np.concatenate(recent) if recent else np.empty((0, events.ENDED_COLUMNS), np.int64),
        )

    def _log_end(self) -> int:
        """Return the log end. The last segment may be empty: the log continues at its base offset."""
        if self._limit is not None:
            return max([self._log.log_start, *(part.next_offset for part in self._parts)])
        return end_of(self._one, self._parts)

    def _gaps(self, log_end: int, last_stable_offset: int) -> gaps.Missing:
        cut = self._limit is not None
        part = gaps.Offsets(
            self._place,
            self._log.path,
            self._log.log_start,
            log_end,
            last_stable_offset,
            self._one.cleaned_below,
            0 if cut else self._log.recovery_point,
            0 if cut else self._one.high_watermark,
        )
        left_out = sum(part.gaps_left_out for part in self._parts)
        rows = [part.gaps for part in self._parts]
        every = np.concatenate(rows) if rows else np.empty((0, events.GAP_COLUMNS), dtype=np.int64)
        missing, found = gaps.findings(part, every, left_out, self._totals)
        self.findings += found
        return missing

    def _transactions(self, missing: gaps.Missing) -> tuple[hanging.OpenFinding, ...]:
        """Check for torn and hanging transactions. A log cut at an offset has no time for the comparison."""
        found = [open_of(row) for row in self._open]
        if self._limit is not None and self._request.until_ms is None:
            return tuple(hanging.omit_verdict(self._place, one, self._known) for one in found)
        part = torn.Partition(
            self._place,
            self._log.path,
            self._known_from_offset(),
            self._first_ms(found),
            {one.producer_id: one.first_offset for one in found},
            missing.lost > 0,
            self._one.created_ms,
        )
        matched = [one.matched for one in self._parts]
        result = torn.judge(part, matched, self._known, self._settled_ms, self._request.since_ms or 0, self._reached)
        self.findings += result.findings
        self._lacking = result.lacking
        self._tearing = result.tearing
        open_now = tuple(self._judge_open(one, result.undone) for one in found)
        self.findings += hanging.findings(open_now)
        return open_now

    def _first_ms(self, opened: Sequence[OpenTransaction]) -> int:
        """Return the earliest time at which the partition is known to exist, or -1.

        The start of an open transaction counts if a decision would have ended it in time.
        """
        times = [one.first_batch_ms for one in self._parts if one.first_batch_ms >= 0][:1]
        decisions = self._known.for_place(self._place)
        for one in opened:
            mine = decisions[decisions[:, history.PRODUCER_ID] == one.producer_id, history.UPDATED_MS]
            in_time = mine >= one.start_ms
            if one.producer_id not in self._known.lasting:
                in_time &= mine <= one.start_ms + self._known.longest_timeout_ms
            if one.start_ms > 0 and np.any(in_time):
                times.append(one.start_ms)
        return min(times, default=-1)

    def _judge_open(self, one: OpenTransaction, undone: Mapping[int, Longs]) -> hanging.OpenFinding:
        if self._reached.still_open is not None and (one.producer_id, one.first_offset) not in self._reached.still_open:
            return hanging.behind(self._place, one, self._known)
        elsewhere = self.ended_elsewhere.get(one)
        if self.present is not None:
            answered = self.present.of(self._place, one)
            # The audit began earlier: what began since then is not in the future.
            now_ms = max(self._request.now_ms, self.present.now_ms)
            return hanging.judge_present(self._place, one, self._known, undone, now_ms, elsewhere, answered)
        now_ms = self._request.now_ms
        if self._request.decided_until_ms != NEVER:  # of a copy, whose partition may have been copied later
            now_ms = max(now_ms, one.start_ms)
        return hanging.judge(self._place, one, self._known, undone, now_ms, elsewhere, self._settled_ms)

    def _known_from_offset(self) -> int:
        cleaned_below = self._one.cleaned_below
        if cleaned_below is None:
            # If no offset is missing, compaction removed nothing.
            is_whole = not self._totals[events.MISSING_IN_BATCHES] and not any(len(one.gaps) for one in self._parts)
            cleaned_below = 0 if is_whole else NEVER
        return max(self._log.first_offset, self._log.log_start, cleaned_below)

    def _anomalies(self) -> None:
        left_out: Counter[int] = Counter()
        for part in self._parts:
            left_out.update(part.anomalies_left_out)
        rows = [part.anomalies for part in self._parts]
        every = np.concatenate(rows) if rows else np.empty((0, events.ANOMALY_COLUMNS), dtype=np.int64)
        # The finding on the abort that tears its transaction covers this.
        is_torn = np.isin(every[:, events.ANOMALY_ABORT_OFFSET], [*self._tearing])
        every = every[~(is_torn & (every[:, events.ANOMALY_KIND] == events.EMPTY_COMMIT))]
        place, folder = self._place, self._log.path
        for check, messages in _OF_ANOMALIES.items():
            self.findings += make_findings(check, messages, place, folder, every, left_out, self._known)
        self.findings += reused.count_findings(place, every, left_out)
        if not len(every):
            return
        # The finding on the decision without marker covers this.
        others = every[~np.isin(every[:, events.ANOMALY_PRODUCER_ID], [*self._lacking])]
        self.findings += make_findings("torn", across.MESSAGES, place, folder, others, left_out, self._known)
