"""Rules that must hold after any number of crashes, checked from the clients' responses and the logs.

Values are unique, so every record found names the transaction that wrote it. The rules follow the checkers of Jepsen's
Kafka tests; each `Violation.kind` is the name of an anomaly there where one exists.
"""

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

COMMITTED, ABORTED, UNKNOWN, PLAIN = "committed", "aborted", "unknown", "plain"


class Partition(NamedTuple):
    topic: str
    number: int


class Violation(NamedTuple):
    kind: str
    what: str


@dataclass
class Span:
    """Times of a call's begin and of its success, in ns; None if it never began or its success is unknown."""

    began: int | None = None
    ended: int | None = None

    def begin(self):
        self.began = time.monotonic_ns()

    def end(self):
        self.ended = time.monotonic_ns()


@dataclass
class Write:
    partition: Partition
    value: str
    offset: int | None = None  # as acknowledged
    source: str | None = None  # the input value that this output was made from
    span: Span = field(default_factory=Span)


@dataclass
class Poll:
    """The records of one poll: {partition: (position before, position after, [(offset, value)])}."""

    span: Span
    rows: dict[Partition, tuple[int, int, list[tuple[int, str]]]]


@dataclass
class Transaction:
    """A client's operations between begin and end, with the results. PLAIN is a producer without transactions.

    UNKNOWN is a commit whose answer never came. ABORTED includes a transaction without a commit request.
    """

    writer: str
    outcome: str = UNKNOWN
    writes: list[Write] = field(default_factory=list)
    name: str = ""
    commit: Span = field(default_factory=Span)
    positions: dict[Partition, int] = field(default_factory=dict)  # of the group, sent along
    sent_positions: Span = field(default_factory=Span)
    polls: list[Poll] = field(default_factory=list)


@dataclass
class Findings:
    """Data read after the last restart.

    `(offset, value)` rows for each partition in both isolation levels, the end of each log for both levels, the group's
    positions, and the records that a reader got while brokers crashed.
    """

    committed: dict[Partition, list[tuple[int, str]]]
    uncommitted: dict[Partition, list[tuple[int, str]]]
    ends: dict[Partition, tuple[int, int]] = field(default_factory=dict)  # (high watermark, last stable offset)
    positions: dict[Partition, int] = field(default_factory=dict)
    seen: list[tuple[Partition, int, str]] = field(default_factory=list)


def violations(history, findings):
    """Return a list of Violation: everything in the findings that contradicts the history. Empty is good."""
    found = [
        *_order_and_duplicates(findings),
        *_origins(history, findings),
        *_acknowledged_offsets(history, findings),
        *_outcomes(history, findings),
        *_readers_agree(findings),
        *_stuck(findings),
    ]
    if findings.positions:
        found += _exactly_once(history, findings)
    return found


def _order_and_duplicates(findings):
    place = {}
    for partition, rows in findings.uncommitted.items():
        last = -1
        for offset, value in rows:
            if offset <= last:
                yield Violation("nonmonotonic-poll", f"{partition} offset {offset} after {last}")
            last = offset
            if value in place:
                yield Violation("duplicate", f"{value} at {place[value]} and {(partition, offset)}")
            place[value] = (partition, offset)


def _origins(history, findings):
    home = {write.value: write.partition for txn in history for write in txn.writes}
    for partition, rows in findings.uncommitted.items():
        for offset, value in rows:
            if home.get(value) != partition:
                yield Violation("phantom", f"{value} at {partition} offset {offset}, sent to {home.get(value)}")


def _acknowledged_offsets(history, findings):
    logs = {partition: dict(rows) for partition, rows in findings.uncommitted.items()}
    owners = {}
    for txn in history:
        for write in txn.writes:
            if write.offset is None:
                continue
            place = (write.partition, write.offset)
            if owners.setdefault(place, write.value) != write.value:
                yield Violation("offset-reused", f"{place} acknowledged for {owners[place]} and {write.value}")
            kept = logs.get(write.partition, {}).get(write.offset)
            if kept is None:
                yield Violation("lost-write", f"{write.value} acknowledged at {place}, nothing is there")
            elif kept != write.value:
                yield Violation("offset-reused", f"{place} acknowledged for {write.value} holds {kept}")


def _outcomes(history, findings):
    visible = {value for rows in findings.committed.values() for _, value in rows}
    for txn in history:
        shown = [write.value for write in txn.writes if write.value in visible]
        hidden = [write.value for write in txn.writes if write.value not in visible]
        if txn.outcome == COMMITTED and hidden:
            kind = "torn-txn" if shown else "lost-write"
            yield Violation(kind, f"commit of {txn.writer} acknowledged, missing {hidden}, visible {shown}")
        elif txn.outcome == ABORTED and shown:
            yield Violation("G1a", f"{txn.writer} aborted, yet visible: {shown}")
        elif txn.outcome == UNKNOWN and shown and hidden:
            yield Violation("torn-txn", f"{txn.writer}: visible {shown}, missing {hidden}")
        elif txn.outcome == PLAIN:
            lost = [write.value for write in txn.writes if write.offset is not None and write.value not in visible]
            if lost:
                yield Violation("lost-write", f"{txn.writer}: acknowledged, never visible: {lost}")


def _readers_agree(findings):
    for partition, rows in findings.committed.items():
        log = dict(findings.uncommitted.get(partition, ()))
        for offset, value in rows:
            if log.get(offset) != value:
                what = f"{partition} offset {offset}: read_committed {value}, read_uncommitted {log.get(offset)}"
                yield Violation("inconsistent-offsets", what)
    finals = {partition: dict(rows) for partition, rows in findings.committed.items()}
    places = set()
    for partition, offset, value in findings.seen:
        final = finals.get(partition, {}).get(offset)
        if final != value:
            what = f"{partition} offset {offset}: once {value}, now {final}"
            yield Violation("inconsistent-offsets", what)
        if (partition, offset) in places:
            yield Violation("nonmonotonic-poll", f"{partition} offset {offset} was delivered twice")
        places.add((partition, offset))


def _stuck(findings):
    for partition, (high_watermark, last_stable_offset) in findings.ends.items():
        if last_stable_offset != high_watermark:
            what = f"{partition}: last stable offset {last_stable_offset}, high watermark {high_watermark}"
            yield Violation("hanging-txn", what)


def _exactly_once(history, findings):
    """Check that inputs below the group's position have one committed output each, and later inputs none."""
    source = {write.value: write.source for txn in history for write in txn.writes if write.source is not None}
    outputs = defaultdict(list)
    for rows in findings.committed.values():
        for _, value in rows:
            if value in source:
                outputs[source[value]].append(value)
    for partition, position in findings.positions.items():
        for offset, value in findings.committed.get(partition, ()):
            made = outputs[value]
            if offset < position and not made:
                yield Violation("skipped-input", f"{value} at {partition} offset {offset}, position {position}")
            elif offset < position and len(made) > 1:
                yield Violation("reprocessed", f"{value} became {made}")
            elif offset >= position and made:
                what = f"{value} at {partition} offset {offset} became {made}, position {position}"
                yield Violation("uncommitted-output", what)
