"""The timeline of one partition: its newest transactions as spans in lanes, as SVG, over offsets and over time. pure"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

from ottla.audit.audited import PartitionAudit
from ottla.audit.checks.words import count
from ottla.protocol.batch import COMMIT
from ottla.protocol.times import duration
from ottla.scan import events

WIDTH, LEFT, RIGHT = 1040, 0, 8
LANE, BAR = 11, 8
TOP, BOTTOM = 22, 22
MOST_SPANS = 300
MOST_LANES = 32
_NARROWEST = 1.8
_GAP = 0.6
_TOUCHING = 0.05
_LEAST_SHARE = 0.1


class Span(NamedTuple):
    """One transaction. `end` is the marker's offset, of an open one the log end. Times in ms, -1: not known."""

    fate: str
    producer: str
    first: int
    end: int
    start_ms: int
    end_ms: int
    records: int


class Axis(NamedTuple):
    """From values to the width of the picture."""

    low: float
    high: float

    def x(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max(share, 0.0), 1.0)


def spans_of(one: PartitionAudit, names: "Callable[[int], str]", now_ms: int) -> list[Span]:
    """The open transactions and the newest of those that ended with data, by first offset."""
    rows = one.recent[one.recent[:, events.ENDED_FIRST_OFFSET] >= 0][-MOST_SPANS:]
    spans = [
        Span(
            "committed" if row[events.ENDED_FATE] == COMMIT else "aborted",
            names(row[events.ENDED_PRODUCER_ID]),
            row[events.ENDED_FIRST_OFFSET],
            row[events.ENDED_MARKER_OFFSET],
            row[events.ENDED_START_MS],
            row[events.ENDED_END_MS],
            row[events.ENDED_RECORDS],
        )
        for row in rows.tolist()
    ]
    for held in one.open_transactions:
        start_ms = -1 if held.age_ms is None else now_ms - held.age_ms
        producer = held.transactional_id or names(held.producer_id)
        spans.append(Span("open", producer, held.first_offset, one.log_end, start_ms, now_ms, held.records))
    return sorted(spans, key=lambda span: (span.first, span.end))


def drawn_from(one: PartitionAudit, spans: Sequence[Span]) -> int:
    """Where the axis of offsets begins: with the log, unless transactions that are not drawn, or so many plain records
    stand before the first span that the spans would be hard to see."""
    first, end = min(span.first for span in spans), max(one.log_end, *(span.end + 1 for span in spans))
    all_drawn = sum(span.fate != "open" for span in spans) >= one.committed.transactions + one.aborted.transactions
    return one.log_start if all_drawn and end - first >= (end - one.log_start) * _LEAST_SHARE else first


def over_offsets(
    one: PartitionAudit, spans: Sequence[Span], marks: Sequence[tuple[int, str, str]], begin: int | None = None
) -> str:
    """From `begin` on, or the first span. `marks`: (offset, id of the finding, its message) to point at."""
    first = min(span.first for span in spans) if begin is None else begin
    axis = Axis(first, max(one.log_end, *(span.end + 1 for span in spans)))
    picture = _Picture(axis, spans, lambda span: (span.first, span.end + 1))
    ticks = [(value, f"{value:,.0f}") for value in _round_steps(axis.low, axis.high)]
    stable = None
    if one.last_stable_offset < one.log_end:
        stable = (float(one.last_stable_offset), f"last stable offset {one.last_stable_offset:,}")
    drawn = [picture.mark(offset, target, text) for offset, target, text in marks if axis.low <= offset <= axis.high]
    return picture.svg(ticks, stable, f"Transactions of {one.name} over offsets", drawn)


def over_time(one: PartitionAudit, spans: Sequence[Span], now_ms: int) -> str:
    """Transactions whose start is known; empty without any."""
    timed = [span for span in spans if span.start_ms >= 0 and span.end_ms >= span.start_ms]
    if not timed:
        return ""
    ended = [span.end_ms for span in timed if span.fate != "open"]
    starts = [span.start_ms for span in timed]
    # What is open since long before would press all others into a point at the right: the axis ends with the log.
    high = max([*ended, *starts])
    low = min(starts)
    axis = Axis(low, high + max(1, (high - low) // 50))
    picture = _Picture(axis, timed, lambda span: (span.start_ms, span.end_ms))
    ticks = [(value, _clock(value, axis)) for value in _round_steps(axis.low, axis.high)]
    held = [span.start_ms for span in timed if span.fate == "open" and span.first <= one.last_stable_offset]
    stable = (float(min(held)), "readers wait since") if held else None
    return picture.svg(ticks, stable, f"Transactions of {one.name} over time", [])


class _Picture:
    """Spans in lanes: one that begins behind the end of a lane's last goes into that lane."""

    def __init__(self, axis: Axis, spans: Sequence[Span], ends: "Callable[[Span], tuple[int, int]]") -> None:
        self._axis = axis
        self._drawn: list[str] = []
        self._left_out = 0
        lanes: list[float] = []
        for span in sorted(spans, key=lambda one: ends(one)[0]):
            start, end = ends(span)
            x, behind = axis.x(start), max(axis.x(end), axis.x(start) + _NARROWEST)
            lane = next((at for at, taken in enumerate(lanes) if taken <= x + _TOUCHING), len(lanes))
            if lane >= MOST_LANES:
                self._left_out += 1
                continue
            lanes[lane : lane + 1] = [behind]
            self._drawn.append(
                f'<rect class="{span.fate}" x="{x:.1f}" y="{TOP + lane * LANE}" width="{behind - x - _GAP:.1f}" '
                f'height="{BAR}" rx="1.5"><title>{escape(_told(span))}</title></rect>'
            )
        self._bottom = TOP + max(len(lanes), 1) * LANE

    def mark(self, offset: int, target: str, text: str) -> str:
        """A triangle above the lanes that leads to a finding."""
        x = self._axis.x(offset)
        return (
            f'<a href="#{escape(target)}"><path class="mark" d="M{x - 5:.1f} {TOP - 12} h10 l-5 9 z">'
            f"<title>{escape(text)}</title></path></a>"
        )

    def svg(
        self, ticks: Sequence[tuple[float, str]], stable: tuple[float, str] | None, label: str, more: Sequence[str]
    ) -> str:
        bottom = self._bottom
        parts = []
        for value, text in ticks:
            x = self._axis.x(value)
            parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 4}" y2="{bottom}"/>')
            parts.append(f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="{_side(x)}">{escape(text)}</text>')
        if stable is not None:
            x = self._axis.x(stable[0])
            parts.append(
                f'<rect class="beyond" x="{x:.1f}" y="{TOP - 4}" width="{WIDTH - RIGHT - x:.1f}" '
                f'height="{bottom - TOP + 4}"/>'
            )
        parts += self._drawn
        if stable is not None:
            x = self._axis.x(stable[0])
            side = "end" if x > WIDTH * 0.7 else "start"
            parts.append(f'<line class="stable" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{bottom}"/>')
            # Beside the triangle of a finding there.
            beside = x - 8 if side == "end" else x + 8
            text = f'<text class="stable-label" x="{beside:.1f}" y="{TOP - 11}" text-anchor="{side}">'
            parts.append(f"{text}{escape(stable[1])}</text>")
        if self._left_out:
            text = f"{count(self._left_out, 'transaction')} more at once than there are lanes"
            parts.append(f'<text x="{WIDTH - RIGHT}" y="{bottom - 2}" text-anchor="end">{text}</text>')
        # What stands above the lanes is drawn where there is anything to point at.
        top = 0 if stable is not None or more else TOP - 6
        view = f"0 {top} {WIDTH} {bottom + BOTTOM - top}"
        return f'<svg viewBox="{view}" role="img" aria-label="{escape(label)}">{"".join([*parts, *more])}</svg>'


def _told(span: Span) -> str:
    """What a pointer over the span shows."""
    where = f"offsets {span.first:,} to {span.end:,}" if span.fate != "open" else f"from offset {span.first:,}"
    times = ""
    if span.start_ms >= 0:
        long = span.end_ms - span.start_ms
        times = f", {long:,} ms" if long < 10_000 else f", {duration(long)}"
    return f"{span.fate}: {span.producer}, {where}, {count(span.records, 'record')}{times}"


def _side(x: float) -> str:
    return "start" if x < LEFT + 30 else "end" if x > WIDTH - RIGHT - 30 else "middle"


def _round_steps(low: float, high: float, wanted: int = 8) -> list[float]:
    """Round numbers between the two, about as many as wanted."""
    step = 1.0
    while (high - low) / step > wanted:
        step *= 2.5 if str(step)[0] == "2" else 2
    first = -(-low // step) * step
    return [first + at * step for at in range(int((high - first) // step) + 1)]


def _clock(time_ms: float, axis: Axis) -> str:
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ms:.0f} ms"
    if axis.high - axis.low < 60_000:
        return f"{moment:%H:%M:%S}.{int(time_ms) % 1000:03d}"
    return f"{moment:%H:%M:%S}" if axis.high - axis.low < 86_400_000 else f"{moment:%m-%d %H:%M}"
