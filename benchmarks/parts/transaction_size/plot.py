"""Plot of `transaction_size.py`: throughput, CPU cost, and a reader's wait, by a transaction's size. pure

The plot is an SVG for light and dark pages, which loads no other file. Points are measurements, lines the fitted model.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from parts.transaction_size.report import Measured, fits_of

WIDTH, LEFT, RIGHT = 760, 64, 30
PANEL, ABOVE, BETWEEN, BELOW = 220, 46, 48, 48
HEIGHT = ABOVE + 3 * PANEL + 2 * BETWEEN + BELOW
STEPS = 100
NAMES = {"ottla": "Ottla", "kafka": "Apache Kafka"}
KNEE = 0.9
LABEL = 130
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.head { font-weight: 600 } .end { text-anchor: end } .mid { text-anchor: middle }
.paper { fill: #ffffff } .axis { stroke: #1f2328 } .grid { stroke: #d1d9e0 }
.a { stroke: #0969da; fill: #0969da } .b { stroke: #bc4c00; fill: #bc4c00 } text.a, text.b { stroke: none }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .paper { fill: #0d1117 } .axis { stroke: #e6edf3 } .grid { stroke: #3d444d }
  .a { stroke: #58a6ff; fill: #58a6ff } .b { stroke: #f0883e; fill: #f0883e }
}
.line { fill: none; stroke-width: 1.5 } .knee { stroke-dasharray: 4 4 }
"""


class Axis(NamedTuple):
    """Logarithmic axis from `low` at position `begin` to `high` at `end`, in the plot's units."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.begin + share * (self.end - self.begin)

    def ticks(self) -> Iterator[float]:
        """Yield the powers of ten; over fewer than three decades also twice and five times them."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        steps = (1, 2, 5) if last - first < 3 else (1,)
        for power in range(first, last + 1):
            for step in steps:
                if self.low <= (value := step * 10.0**power) <= self.high:
                    yield value


class Curve(NamedTuple):
    """Line of one broker in a panel: its CSS class, the measured points, and the points of the model."""

    kind: str
    points: list[tuple[float, float]]
    model: list[tuple[float, float]]


def plot(brokers: Sequence[Measured], record_bytes: int) -> str:
    """Return the SVG document. It draws at most two brokers."""
    sizes, fits = brokers[0].sizes, [fits_of(broker) for broker in brokers]
    x = Axis(sizes[0], sizes[-1], LEFT, WIDTH - RIGHT)
    spread = [x.low * (x.high / x.low) ** (step / STEPS) for step in range(STEPS + 1)]

    def curves(name: str, value: Callable[[float, float], float]) -> list[Curve]:
        """Return the curves of `value`, a function of a transaction's records and its ms."""
        return [
            Curve(
                kind,
                [(n, value(n, ms)) for n, ms in zip(sizes, getattr(broker, f"{name}_ms"), strict=True)],
                [(n, value(n, getattr(found, name).ms(n))) for n in spread],
            )
            for kind, broker, found in zip("ab", brokers, fits, strict=False)
        ]

    def rate(records: float, ms: float) -> float:
        return records * record_bytes / 1000 / ms

    tops = [ABOVE + number * (PANEL + BETWEEN) for number in range(3)]
    wall_knees = [found.wall.records_for(KNEE) for found in fits]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
            "<title>Throughput, its cost and a reader's wait by the size of a transaction</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
            *_legend(brokers),
            *_panel("throughput, MB/s", curves("wall", rate), x, tops[0]),
            *_knees(wall_knees, x, tops[0], told=True),
            *_panel("MB for a CPU second of the broker", curves("cpu", rate), x, tops[1]),
            *_knees([found.cpu.records_for(KNEE) for found in fits], x, tops[1], told=True),
            *_panel(
                "until a read_committed reader has a transaction's first record, ms",
                curves("oldest", lambda _, ms: ms),
                x,
                tops[2],
            ),
            *_knees(wall_knees, x, tops[2], told=False),
            f'<text class="mid" x="{(x.begin + x.end) / 2:.0f}" y="{HEIGHT - 10}">records of {record_bytes:,} bytes '
            "in a transaction</text>",
            "</svg>\n",
        ]
    )


def _panel(title: str, curves: Sequence[Curve], x: Axis, top: float) -> Iterator[str]:
    values = [value for curve in curves for _, value in (*curve.points, *curve.model)]
    y = Axis(*_round_out(min(values), max(values)), top + PANEL, top)
    yield f'<text class="head" x="{LEFT}" y="{top - 10}">{escape(title)}</text>'
    for value in y.ticks():
        yield f'<line class="grid" x1="{x.begin}" x2="{x.end}" y1="{y.at(value):.1f}" y2="{y.at(value):.1f}"/>'
        yield f'<text class="end" x="{LEFT - 8}" y="{y.at(value) + 4:.1f}">{value:g}</text>'
    for value in x.ticks():
        yield f'<line class="grid" x1="{x.at(value):.1f}" x2="{x.at(value):.1f}" y1="{y.begin}" y2="{y.end}"/>'
        yield f'<text class="mid" x="{x.at(value):.1f}" y="{y.begin + 18}">{value:,.0f}</text>'
    yield f'<path class="line axis" d="M{x.begin} {y.end}V{y.begin}H{x.end}"/>'
    for curve in curves:
        line = " ".join(f"{x.at(n):.1f},{y.at(value):.1f}" for n, value in curve.model)
        yield f'<polyline class="line {curve.kind}" points="{line}"/>'
        for n, value in curve.points:
            yield f'<circle class="{curve.kind}" cx="{x.at(n):.1f}" cy="{y.at(value):.1f}" r="3"/>'


def _knees(places: Sequence[float], x: Axis, top: float, *, told: bool) -> Iterator[str]:
    """Yield a line for each broker where it reaches nine tenths of its highest rate."""
    for number, (kind, records) in enumerate(zip("ab", places, strict=False)):
        if not x.low <= records <= x.high:
            continue
        at = x.at(records)
        beside = "end" if number == 0 or at > x.end - LABEL else "begin"
        text_at = at - 6 if beside == "end" else at + 6
        yield f'<line class="knee {kind}" x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{top + PANEL}"/>'
        if told:
            yield f'<text class="{kind} {beside}" x="{text_at:.1f}" y="{top + PANEL - 12 - 16 * number}">'
            yield f"{KNEE:.0%} from {records:,.0f} on</text>"


def _legend(brokers: Sequence[Measured]) -> Iterator[str]:
    for number, (kind, broker) in enumerate(zip("ab", brokers, strict=False)):
        at = LEFT + 130 * number
        yield f'<circle class="{kind}" cx="{at + 4}" cy="14" r="4"/>'
        yield f'<text x="{at + 14}" y="18">{escape(NAMES.get(broker.name, broker.name))}</text>'


def _round_out(low: float, high: float) -> tuple[float, float]:
    """Return the nearest 1, 2 or 5 times a power of ten below `low` and above `high`; the two differ."""
    marks = [step * 10.0**power for power in range(-9, 10) for step in (1, 2, 5)]
    begin = max(mark for mark in marks if mark <= low)
    return begin, min(mark for mark in marks if mark >= high and mark > begin)
