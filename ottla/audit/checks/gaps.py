"""Offsets that no consumer receives, and the reasons: the protocol explains some, others are lost. pure"""

from typing import NamedTuple

from ottla.audit.checks.finding import Finding, Severity
from ottla.audit.checks.words import count
from ottla.protocol.values import TopicPartition
from ottla.scan import events
from ottla.scan.compiled.kernels import Longs

# At most this many missing ranges of a partition are kept; the others are only counted.
MOST_REPORTED = 1_000


class Offsets(NamedTuple):
    """A partition as this check sees it.

    `cleaned_below`: the first dirty offset (0: never compacted; None: not known). `flushed_to` and
    `high_watermark`: the ends of the log by the checkpoints (0: none).
    """

    place: TopicPartition
    folder: str
    log_start: int
    log_end: int
    last_stable_offset: int
    cleaned_below: int | None
    flushed_to: int
    high_watermark: int


class Missing(NamedTuple):
    """Counts of the offsets of a partition without a record for read_committed consumers, by reason."""

    control: int
    aborted: int
    waiting: int  # at or after the last stable offset
    compacted: int
    lost: int

    @property
    def reasons(self) -> str:
        found = [
            f"{number:,} {reason}"
            for reason, number in (
                ("control", self.control),
                ("aborted", self.aborted),
                ("at or after the last stable offset", self.waiting),
                ("compacted", self.compacted),
                ("lost", self.lost),
            )
            if number
        ]
        return ", ".join(found)


def findings(part: Offsets, gaps: Longs, gaps_left_out: int, totals: Longs) -> tuple[Missing, list[Finding]]:
    """Return the reasons, and a finding for each range of offsets that is lost."""
    found: list[Finding] = []
    compacted, lost = int(totals[events.MISSING_IN_BATCHES]), 0
    for first, end, segment in gaps.tolist():
        first = max(first, part.log_start)
        if end <= first:
            continue
        if part.cleaned_below is not None and first >= part.cleaned_below:
            lost += end - first
            found.append(_lost(part, first, end, f"{part.folder}/{segment:020d}.log"))
        else:
            compacted += end - first
            if part.cleaned_below is None:
                found.append(_perhaps(part, first, end))
    promised = max(part.flushed_to, part.high_watermark)
    if promised > max(part.log_end, part.log_start):
        lost += promised - part.log_end
        found.append(_cut(part, promised))
    if gaps_left_out:
        message = f"{count(gaps_left_out, 'more range')} of missing offsets"
        severity: Severity = "info" if part.cleaned_below is None else "warning"
        found.append(Finding("gaps", severity, *part.place, None, None, None, message, "see --output"))
    missing = Missing(
        control=int(totals[events.CONTROL_BATCHES]),
        aborted=int(totals[events.ABORTED_RECORDS]),
        waiting=max(0, part.log_end - part.last_stable_offset),
        compacted=compacted,
        lost=lost,
    )
    if missing.reasons:
        # A checkpoint may be above the log end.
        last = max(part.log_end, promised) - 1
        message = f"of offsets {part.log_start:,} to {last:,}, without a record for consumers: {missing.reasons}"
        found.append(Finding("gaps", "info", *part.place, part.log_start, None, None, message, "nothing to do"))
    return missing, found


def _lost(part: Offsets, first: int, end: int, file: str) -> Finding:
    return Finding(
        "gaps",
        "error",
        *part.place,
        first,
        None,
        None,
        f"lost: {count(end - first, 'offset')}, {first:,} to {end - 1:,}, are not in the log, "
        "and compaction has never reached them",
        "restore the segments from a replica",
        file,
    )


def _perhaps(part: Offsets, first: int, end: int) -> Finding:
    return Finding(
        "gaps",
        "info",
        *part.place,
        first,
        None,
        None,
        f"{count(end - first, 'offset')}, {first:,} to {end - 1:,}, are not in the log: compacted or lost; "
        "it is not known which",
        "if cleanup.policy of the topic was never compact, restore the segments from a replica",
    )


def _cut(part: Offsets, promised: int) -> Finding:
    which = "the recovery point" if part.flushed_to == promised else "the high watermark"
    return Finding(
        "gaps",
        "error",
        *part.place,
        part.log_end,
        None,
        None,
        f"lost: the log ends at {part.log_end:,}, but {which} in its checkpoint is {promised:,}",
        "the end of the log was cut off: restore it from a replica",
    )
