"""Tasks of an audit: each reads its ranges and returns small results. shell

The module imports no library: an executor that lacks one must be able to report that.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.protocol.errors import ProtocolError
from ottla.scan.damage_log import REPORT, Damage, DamageLog
from ottla.scan.needs import WorkerLacks, check_worker
from ottla.wire import Unanswered

if TYPE_CHECKING:
    from ottla.audit.audited import Limit
    from ottla.audit.checks.across import Ends, Marker
    from ottla.audit.checks.finding import Finding
    from ottla.audit.checks.history import HistoryDecoder, RangeHistory
    from ottla.audit.checks.replicas import Copy
    from ottla.audit.checks.shape import Packed
    from ottla.audit.checks.stale import Idle
    from ottla.audit.checks.torn import Matched
    from ottla.audit.outputs import Tables
    from ottla.scan.compiled.kernels import Longs
    from ottla.scan.listing import PartitionLog
    from ottla.scan.ranges import LogRange
    from ottla.scan.records import ReadFilter
    from ottla.scan.states import States
    from ottla.scan.walk import Step, Walk
    from ottla.verdict import OpenTransaction

# At most this many anomalies and gaps of each range are kept; the others are only counted.
MOST_ANOMALIES = 1_000
MOST_GAPS = 1_000
# Ended transactions are handled together: NumPy takes as long for a few rows as for a thousand.
ROWS_AT_ONCE = 4_096
# At most this many groups of them have separate counts, and numbers that are not packed.
MOST_APART = 64

_DECODED = [("offset", True), ("key", True), ("value", True), ("timestamp", True)]


class Settings(NamedTuple):
    """Settings of all tasks of an audit.

    `output`: the tables to which the transactions are written, or None. `recent`: the number of newest transactions of
    each range to keep, for the timelines of a report. `carries`: the states at the end of each partition are kept.
    """

    checks: tuple[str, ...]
    now_ms: int
    until_ms: int | None
    producer_expiration_ms: int
    output: "Tables | None"
    recent: int = 0
    carries: bool = False


class Work(NamedTuple):
    """A range to read.

    `log`: set for the first range of a partition, whose entering states may be in a snapshot; `entering`: set for the
    others. `limit`: batches from this offset on are left out. `decisions`: the coordinator's decisions for this
    partition. `names`: transactional ids by producer id, for the table of transactions. `numbers`: the markers to
    look up. `longest_ms`: the longest timeout of a transactional id. `lasting`: the producers with decisions whose
    transactions never timed out. `copies`: those of the partition, to compare.
    """

    part: "LogRange"
    settings: Settings
    log: "PartitionLog | None"
    cleaned_below: int
    limit: int | None = None
    is_last: bool = True
    entering: "States | None" = None
    decisions: "Longs | None" = None
    names: "Mapping[int, str] | None" = None
    numbers: "Longs | None" = None
    longest_ms: int = 0
    lasting: frozenset[int] = frozenset()
    copies: "tuple[Copy, ...]" = ()


class RangeFacts(NamedTuple):
    """Facts of one range for an audit. Rows have the columns of `scan.events`.

    `first_batch_ms`: the time of the first batch with a reliable time, -1 without one (`clocks.first_ms`). `latest_ms`:
    the latest time that a broker set itself, -1 without one. `ends`: the markers without a decision, to compare
    partitions. `shared`: counts of markers that cannot be compared (`once.count_markers_by_epoch`). `leaving`: the
    states at the end of the partition, for `--carry`.
    """

    totals: "Longs"
    open_rows: "Longs"
    next_offset: int
    first_batch_ms: int
    latest_ms: int
    matched: "Matched"
    ends: "Ends"
    shared: "Longs"
    anomalies: "Longs"
    anomalies_left_out: Counter[int]
    gaps: "Longs"
    gaps_left_out: int
    shape: "Packed"
    idle: "Idle"
    recent: "Longs"
    damage: tuple[Damage, ...]
    torn_tails: tuple[Damage, ...]
    findings: "tuple[Finding, ...]"
    leaving: "States | None" = None


Value: TypeAlias = (
    "RangeFacts | RangeHistory | States | Longs | list[Marker] | tuple[Finding | Limit, ...] | int | None"
)


class Result(NamedTuple):
    """Result of one piece of work: a value that depends on the function, or the error.

    `has_vanished`: a file that was listed is gone, as when a running broker deletes or compacts.
    """

    partition: int
    ordinal: int
    value: Value
    error: str = ""
    has_vanished: bool = False


def task(read: Callable[[Work], Value]) -> Callable[[Work], Result]:
    """Make a task of a reader. It returns an error in the result and does not raise it: no traceback, no retries."""

    @wraps(read)
    def run(work: Work) -> Result:
        try:
            check_worker()
            return Result(work.part.partition, work.part.ordinal, read(work))
        except (OSError, ProtocolError, Unanswered, WorkerLacks) as error:
            return failed_result(work, error)

    return run


def failed_result(work: Work, error: Exception) -> Result:
    """Return the result of work that ended in an error that users can understand."""
    part = work.part
    vanished = isinstance(error, FileNotFoundError)
    name = f"{part.topic}-{part.number}: "
    return Result(part.partition, part.ordinal, None, name + str(error).removeprefix(name), vanished)


def entry_states(work: Work) -> "States":
    """Return the states at the start of the range."""
    from ottla.scan.partitions import entering

    if work.entering is not None:
        return work.entering
    assert work.log is not None
    return entering(work.log)


def walk(work: Work, start: "States", log: DamageLog, *, check_crc: bool = False) -> "Walk":
    """Return a walk over the range up to `work.limit`."""
    from ottla.scan.walk import Walk

    expiration_ms = work.settings.producer_expiration_ms
    return Walk(work.part, start, log, check_crc=check_crc, limit=work.limit, expiration_ms=expiration_ms)


@task
def scan(work: Work) -> RangeFacts:
    """Return the RangeFacts of the range."""
    from ottla.audit.checks.index import IndexCheck
    from ottla.audit.output_tables import transactions_of

    log = DamageLog(REPORT)
    start = entry_states(work)
    walked = walk(work, start, log, check_crc=True)
    collector = _Collector(work)
    indexes = None
    if "index" in work.settings.checks and work.limit is None and work.part.segment_pieces:
        indexes = IndexCheck(work.part, start, work.settings.producer_expiration_ms)
    with transactions_of(work.settings.output, work.part, work.names or {}, is_last=work.is_last) as table:
        for step in walked:
            collector.take(step)
            if indexes is not None:
                indexes.add(step, walked)
            if table is not None:
                table.add(step)
        if table is not None:
            table.add_open(walked.leaving)
    return collector.result(walked.totals, walked.leaving, log, () if indexes is None else tuple(indexes.findings))


def facts_of_open(work: Work, opened: "Sequence[OpenTransaction]", end_offset: int) -> RangeFacts:
    """Return the facts of a partition whose leader named its open transactions, and whose records are not read."""
    import numpy as np

    from ottla.scan import events, states

    left = states.States(_rows_of(opened), next_offset=end_offset)
    totals = np.zeros(events.TOTALS, dtype=np.int64)
    return _Collector(work).result(totals, left, DamageLog(REPORT), ())


def add_open_below(facts: RangeFacts, opened: "Sequence[OpenTransaction]", log_start: int) -> RangeFacts:
    """Return the facts of a partition's end, with the open transactions that began below the start of its log.

    `opened`: what the leader named after the read. No marker of theirs was read: it would have ended them.
    """
    import numpy as np

    from ottla.scan import states

    below = {one.producer_id: one for one in opened if one.start_offset < log_start}
    if not below:
        return facts
    rows = facts.open_rows.copy()
    for row in rows:
        if (one := below.pop(int(row[states.PRODUCER_ID]), None)) is not None:
            row[states.FIRST_OFFSET] = one.start_offset
    every = np.concatenate([rows, _rows_of([*below.values()])])
    return facts._replace(open_rows=every[np.argsort(every[:, states.FIRST_OFFSET], kind="stable")])


def _rows_of(opened: "Sequence[OpenTransaction]") -> "Longs":
    """Return the states of open transactions without batches."""
    import numpy as np

    from ottla.scan import states

    rows = np.full((len(opened), states.COLUMNS), -1, dtype=np.int64)
    rows[:, [states.OPEN_RECORDS, states.OPEN_BYTES, states.OPEN_BATCHES, states.FLAGS]] = 0
    columns = [states.PRODUCER_ID, states.EPOCH, states.FIRST_OFFSET, states.OPEN_EPOCH, states.LAST_TIMESTAMP]
    for row, one in zip(rows, opened, strict=True):
        row[columns] = one.producer_id, one.epoch, one.start_offset, one.epoch, one.last_timestamp_ms
    return rows


@task
def read_history(work: Work) -> "RangeHistory":
    """Return the RangeHistory of a range of `__transaction_state`."""
    from ottla.audit.checks.history import HistoryDecoder
    from ottla.scan.records import ReadFilter

    log = DamageLog(REPORT)
    decoder = HistoryDecoder(work.part.number, work.cleaned_below, work.settings.until_ms)
    read_decisions(decoder, work.part, ReadFilter() if work.limit is None else ReadFilter(end_offset=work.limit), log)
    found = decoder.result()
    return found._replace(is_damaged=found.is_damaged or bool(log.found), unread=tuple(log.found))


def read_decisions(decoder: "HistoryDecoder", part: "LogRange", read_filter: "ReadFilter", log: DamageLog) -> None:
    """Add the chosen records of a range of `__transaction_state` to `decoder`."""
    from ottla.scan import schemas
    from ottla.scan.records import RecordScan, uncommitted_visibility

    scan = RecordScan(schemas.arrow_schema(schemas.RECORDS, _DECODED), log)
    for batch in scan.read(part, uncommitted_visibility(part.log_start), read_filter):
        *columns, times = batch.columns
        times_ms = times.cast("int64").to_numpy() // 1000
        for record in zip(*(column.to_pylist() for column in columns), times_ms.tolist(), strict=True):
            decoder.add(*record)


@task
def leaving(work: Work) -> "States":
    """Return the states at the end of the range if no states at its start are known."""
    from ottla.scan import states

    return walk(work, states.empty(), DamageLog(REPORT)).finish().leaving


@task
def cut(work: Work) -> int | None:
    """Return the first offset whose batch is later than `settings.until_ms`; None if there is none in the range."""
    import numpy as np

    from ottla.scan import headers
    from ottla.scan.pieces import PieceReader

    reader = PieceReader(DamageLog(REPORT), check_crc=False)
    assert work.settings.until_ms is not None
    next_offset = 0
    for piece in work.part.pieces:
        for chunk in reader.chunks(piece, next_offset):
            later = np.flatnonzero(chunk.rows[:, headers.MAX_TIMESTAMP] > work.settings.until_ms)
            if len(later):
                return int(chunk.rows[later[0], headers.BASE_OFFSET])
            next_offset = int(chunk.rows[-1, headers.LAST_OFFSET]) + 1
    return None


class _Collector:
    """Collector of the small facts of each step of a walk."""

    def __init__(self, work: Work) -> None:
        import numpy as np

        from ottla.audit.checks import history, shape, torn

        self._work = work
        self._is_internal = work.part.topic.startswith("__")
        none = np.empty((0, history.DECISION_COLUMNS), dtype=np.int64)
        self._matcher = torn.MarkerMatcher(none if work.decisions is None else work.decisions, work.cleaned_below)
        self._shape = shape.empty()
        self._anomalies: list[Longs] = []
        self._anomalies_left_out: Counter[int] = Counter()
        self._gaps: list[Longs] = []
        self._gaps_left_out = 0
        self._recent: list[Longs] = []
        self._first_batch_ms = self._latest_ms = -1
        self._waiting: list[Longs] = []
        self._waiting_rows = self._marker_bytes = self._data_bytes = 0
        self._ends: list[Longs] = []
        self._packed: list[Ends] = []
        self._shared: list[Longs] = []

    def take(self, step: "Step") -> None:
        from ottla.audit.checks import clocks, shape
        from ottla.scan import headers

        if self._first_batch_ms < 0 and len(step.rows):
            self._first_batch_ms = clocks.first_ms(
                step.rows, step.ended, self._work.longest_ms, self._work.lasting, is_internal=self._is_internal
            )
        if len(step.rows) and self._is_internal:
            self._latest_ms = max(self._latest_ms, int(step.rows[:, headers.MAX_TIMESTAMP].max()))
        marker_bytes, data_bytes = shape.count_bytes(step.rows)
        self._marker_bytes += marker_bytes
        self._data_bytes += data_bytes
        if len(step.ended):
            self._waiting.append(step.ended.copy())
            self._waiting_rows += len(step.ended)
            if self._waiting_rows >= ROWS_AT_ONCE:
                self._take_ends()
        self._keep_anomalies(step.anomalies)
        room = max(0, MOST_GAPS - sum(map(len, self._gaps)))
        if len(step.gaps):
            self._gaps.append(step.gaps[:room].copy())
            self._gaps_left_out += max(0, len(step.gaps) - room)

    def _take_ends(self) -> None:
        """Take the waiting rows of transactions that ended."""
        from ottla.audit.checks import across, once, shape, torn
        from ottla.scan import events

        ended = _concatenate(self._waiting, events.ENDED_COLUMNS)
        self._shape = self._shape.plus(shape.measure_ends(ended, self._marker_bytes, self._data_bytes))
        self._waiting, self._waiting_rows, self._marker_bytes, self._data_bytes = [], 0, 0, 0
        if not len(ended):
            return
        markers = torn.markers(ended)
        self._matcher.add(markers)
        undecided = ended[markers[:, torn.DECISION] < 0]
        self._ends.append(across.numbers(undecided))
        self._shared.append(once.count_markers_by_epoch(undecided))
        if len(self._shared) > MOST_APART:
            self._shared = [once.combine(self._shared)]
            self._packed.append(across.pack(self._ends))
            self._ends = []
        self._latest_ms = max(self._latest_ms, int(markers[:, torn.END_MS].max()))
        most = self._work.settings.recent
        self._recent.append(ended[max(0, len(ended) - most) :].copy())
        if sum(map(len, self._recent[1:])) >= most:
            self._recent = self._recent[1:]

    def _keep_anomalies(self, rows: "Longs") -> None:
        from ottla.scan.events import ANOMALY_KIND

        if not len(rows):
            return
        room = max(0, MOST_ANOMALIES - sum(map(len, self._anomalies)))
        self._anomalies.append(rows[:room].copy())
        self._anomalies_left_out.update(rows[room:, ANOMALY_KIND].tolist())

    def result(self, totals: "Longs", left: "States", log: DamageLog, findings: "tuple[Finding, ...]") -> RangeFacts:
        from ottla.audit.checks import across, once, shape
        from ottla.audit.checks.stale import Idle, idle_producers
        from ottla.scan import events

        self._take_ends()
        settings = self._work.settings
        recent = _concatenate(self._recent, events.ENDED_COLUMNS)
        idle = Idle()
        if self._work.is_last:
            idle = idle_producers(left.rows, settings.now_ms, settings.producer_expiration_ms)
        return RangeFacts(
            totals,
            left.open_rows,
            left.next_offset,
            self._first_batch_ms,
            self._latest_ms,
            self._matcher.result(),
            across.join([*self._packed, across.pack(self._ends)]),
            once.combine(self._shared),
            _concatenate(self._anomalies, events.ANOMALY_COLUMNS),
            self._anomalies_left_out,
            _concatenate(self._gaps, events.GAP_COLUMNS),
            self._gaps_left_out,
            shape.pack_shape(self._shape),
            idle,
            recent[max(0, len(recent) - settings.recent) :],
            tuple(log.found),
            tuple(log.torn),
            findings,
            left if settings.carries and self._work.is_last else None,
        )


def _concatenate(parts: "list[Longs]", columns: int) -> "Longs":
    import numpy as np

    return np.concatenate(parts) if parts else np.empty((0, columns), dtype=np.int64)
