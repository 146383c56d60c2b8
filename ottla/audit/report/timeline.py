"""The timeline of one partition: its newest transactions as spans in lanes, as SVG, over offsets and over time. pure"""

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from ottla.audit.audited import PartitionAudit
from ottla.audit.checks.words import count
from ottla.printable import html_text as escape
from ottla.protocol.batch import COMMIT
from ottla.protocol.times import duration
from ottla.scan import events

# Bars are placed in percent of the picture's width. Words keep their size, so they have to fit the narrowest.
WIDTH = 1040
DESKTOP_PX, PHONE_PX = 700, 320
LETTER_PX = 7
LANE, BAR = 11, 8
TOP, BOTTOM = 22, 22
MOST_SPANS = 300
MOST_LANES = 32
_NARROWEST = 180 / WIDTH
_GAP = 60 / WIDTH
_TOUCHING = 5 / WIDTH
_LEAST_SHARE = 0.1


class Span(NamedTuple):
    """A transaction. `end` is the marker's offset, or the log end while it is open. Times in ms, -1: not known."""

    fate: str
    producer: str
    first: int
    end: int
    start_ms: int
    end_ms: int
    records: int


class Axis(NamedTuple):
    """Conversion of values to percent of the picture's width."""

    low: float
    high: float

    def x(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return 100 * min(max(share, 0.0), 1.0)


def spans_of(one: PartitionAudit, names: "Callable[[int], str]", now_ms: int) -> list[Span]:
    """Return the open transactions and the newest of those that ended with data, by first offset."""
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
        start_ms = -1 if held.start_ms is None else held.start_ms
        producer = held.transactional_id or names(held.producer_id)
        spans.append(
            Span("open", producer, held.first_offset, one.log_end, start_ms, max(now_ms, start_ms), held.records)
        )
    return sorted(spans, key=lambda span: (span.first, span.end))


def drawn_from(one: PartitionAudit, spans: Sequence[Span]) -> int:
    """Return the start of the axis of offsets: the log start, or the first span.

    It is the first span if earlier transactions are not drawn, or if so many plain records are before it that the
    spans would be hard to see.
    """
    first, end = min(span.first for span in spans), max(one.log_end, *(span.end + 1 for span in spans))
    all_drawn = sum(span.fate != "open" for span in spans) >= one.committed.transactions + one.aborted.transactions
    return one.log_start if all_drawn and end - first >= (end - one.log_start) * _LEAST_SHARE else first


def over_offsets(
    one: PartitionAudit, spans: Sequence[Span], marks: Sequence[tuple[int, str, str]], begin: int | None = None
) -> str:
    """Draw spans over offsets from `begin` or the first span on. `marks`: (offset, id of the finding, its message)."""
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
    """Draw the transactions whose start is known; empty without any."""
    timed = [span for span in spans if span.start_ms >= 0 and span.end_ms >= span.start_ms]
    if not timed:
        return ""
    ended = [span.end_ms for span in timed if span.fate != "open"]
    starts = [span.start_ms for span in timed]
    # With a transaction that is open for long, the other spans would be too narrow. So the axis ends with the log.
    high = max([*ended, *starts])
    low = min(starts)
    axis = Axis(low, high + max(1, (high - low) // 50))
    picture = _Picture(axis, timed, lambda span: (span.start_ms, span.end_ms))
    ticks = [(value, _clock(value, axis)) for value in _round_steps(axis.low, axis.high)]
    held = [span.start_ms for span in timed if span.fate == "open" and span.first <= one.last_stable_offset]
    stable = (float(min(held)), "readers wait since") if held else None
    return picture.svg(ticks, stable, f"Transactions of {one.name} over time", [])


class _Picture:
    """Spans in lanes: a span that begins after the end of a lane's last span is drawn in that lane."""

    def __init__(self, axis: Axis, spans: Sequence[Span], ends: "Callable[[Span], tuple[int, int]]") -> None:
        self._axis = axis
        self._drawn: list[str] = []
        self._left_out = 0
        lanes: list[float] = []
        for span in sorted(spans, key=lambda one: ends(one)[0]):
            start, end = ends(span)
            x, right = axis.x(start), max(axis.x(end), axis.x(start) + _NARROWEST)
            lane = next((at for at, taken in enumerate(lanes) if taken <= x + _TOUCHING), len(lanes))
            if lane >= MOST_LANES:
                self._left_out += 1
                continue
            lanes[lane : lane + 1] = [right]
            self._drawn.append(
                f'<rect class="{span.fate}" x="{x:.2f}%" y="{TOP + lane * LANE}" width="{right - x - _GAP:.2f}%" '
                f'height="{BAR}" rx="1.5"><title>{escape(_hover_text(span))}</title></rect>'
            )
        self._bottom = TOP + max(len(lanes), 1) * LANE

    def mark(self, offset: int, target: str, text: str) -> str:
        """Return a triangle above the lanes that links to a finding."""
        x = self._axis.x(offset)
        return (
            f'<a href="#{escape(target)}"><svg x="{x:.2f}%"><path class="mark" d="M-5 {TOP - 12} h10 l-5 9 z">'
            f"<title>{escape(text)}</title></path></svg></a>"
        )

    def svg(
        self, ticks: Sequence[tuple[float, str]], stable: tuple[float, str] | None, label: str, more: Sequence[str]
    ) -> str:
        bottom = self._bottom
        parts = [
            f'<line class="grid" x1="{x:.2f}%" x2="{x:.2f}%" y1="{TOP - 4}" y2="{bottom}"/>'
            for x in (self._axis.x(value) for value, _ in ticks)
        ]
        parts += _tick_labels([(self._axis.x(value), text) for value, text in ticks], bottom + 14)
        if stable is not None:
            x = self._axis.x(stable[0])
            parts.append(
                f'<rect class="beyond" x="{x:.2f}%" y="{TOP - 4}" width="{100 - x:.2f}%" height="{bottom - TOP + 4}"/>'
            )
        parts += self._drawn
        if stable is not None:
            parts.append(f'<line class="stable" x1="{x:.2f}%" x2="{x:.2f}%" y1="{TOP - 8}" y2="{bottom}"/>')
            parts.append(_stable_label(x, stable[1]))
        if self._left_out:
            text = f"{count(self._left_out, 'transaction')} did not fit into the lanes"
            parts.append(f'<text x="100%" y="{bottom - 2}" text-anchor="end">{text}</text>')
        # The space above the lanes is for labels and marks.
        top = 0 if stable is not None or more else TOP - 6
        return (
            f'<svg height="{bottom + BOTTOM - top}" role="img" aria-label="{escape(label)}">'
            f'<g transform="translate(0 {-top})">{"".join([*parts, *more])}</g></svg>'
        )


def _tick_labels(ticks: Sequence[tuple[float, str]], y: int) -> list[str]:
    """Return as many labels as fit on a wide page; those that do not fit on a phone have a separate class.

    `ticks`: (percent of the width, text), evenly spaced.
    """
    if not ticks:
        return []
    widest = max(len(text) for _, text in ticks) * LETTER_PX
    step = (ticks[1][0] - ticks[0][0]) / 100 if len(ticks) > 1 else 1.0
    # A label at an edge is moved by half its width.
    on_desktop, on_phone = (math.ceil(1.5 * widest / (step * width)) for width in (DESKTOP_PX, PHONE_PX))
    on_phone = math.ceil(on_phone / on_desktop) * on_desktop
    labels = []
    for at in range(0, len(ticks), on_desktop):
        x, text = ticks[at]
        roomy = at % on_phone > 0
        half = 50 * len(text) * LETTER_PX / (DESKTOP_PX if roomy else PHONE_PX)
        side = "start" if x < half else "end" if x > 100 - half else "middle"
        shown = ' class="roomy"' if roomy else ""
        labels.append(f'<text{shown} x="{x:.2f}%" y="{y}" text-anchor="{side}">{escape(text)}</text>')
    return labels


def _stable_label(x: float, text: str) -> str:
    """Return the label of the dashed line, next to it and to a finding's triangle, on the side that fits on a phone."""
    wide = 100 * (len(text) * LETTER_PX + 8) / PHONE_PX
    if x + wide <= 100:
        at, aside, side = x, 8, "start"
    elif x >= wide:
        at, aside, side = x, -8, "end"
    else:
        at, aside, side = 50.0, 0, "middle"
    where = f'x="{at:.2f}%" dx="{aside}" y="{TOP - 11}" text-anchor="{side}"'
    return f'<text class="stable-label" {where}>{escape(text)}</text>'


def _hover_text(span: Span) -> str:
    """Return the text that a pointer over the span shows."""
    where = f"offsets {span.first:,} to {span.end:,}" if span.fate != "open" else f"from offset {span.first:,}"
    times = ""
    if span.start_ms >= 0:
        long = span.end_ms - span.start_ms
        times = f", {long:,} ms" if long < 10_000 else f", {duration(long)}"
    return f"{span.fate}: {span.producer}, {where}, {count(span.records, 'record')}{times}"


def _round_steps(low: float, high: float, count: int = 8) -> list[float]:
    """Return round numbers between the two, about as many as requested."""
    step = 1.0
    while (high - low) / step > count:
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
