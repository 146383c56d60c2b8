"""Metrics as text for Prometheus (exposition format 0.0.4), written a piece at a time. free

The format requires the help and type of a name once, followed by all its series. `Family` describes a name;
`families.py` in this folder has all of them.

Source: prometheus.io/docs/instrumenting/exposition_formats.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

from ottla.admin.routes import Send
from ottla.broker.metrics import Histogram
from ottla.broker.turns import Turns

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

SERIES_US: Final = 1.5
"""Cost of a line, with the lookups for it."""
LINES_AT_ONCE: Final = 64
PIECE_CHARS: Final = 16 * 1024

Labels = str
"""Labels as text: `topic="ledger",partition="0"`; empty for none."""

Row = tuple[Labels, float]


class Family(NamedTuple):
    """A metric name and its meaning. `untyped` is for the other names of a counter."""

    name: str
    kind: Literal["counter", "gauge", "histogram", "untyped"]
    help: str
    labels: tuple[str, ...] = ()

    @property
    def suffixes(self) -> Sequence[str]:
        """The suffixes of the name in its series."""
        return ("_bucket", "_sum", "_count") if self.kind == "histogram" else ("",)


def labels(**values: object) -> Labels:
    """Return labels with these values, with the special characters of the format escaped."""
    return ",".join([f'{name}="{escape_label(str(value))}"' for name, value in values.items()])


def escape_label(value: str) -> str:
    """Return the escaped value of a label."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class Exposition:
    """The text of one scrape, sent while it is written."""

    def __init__(self, turns: Turns, send: Send) -> None:
        self._turns = turns
        self._send = send
        self._lines: list[str] = []

    async def write(self, family: Family, rows: Iterable[Row]) -> None:
        """Write all series of a name. Write nothing if it has none."""
        name, first = family.name, True
        for row, value in rows:
            if first:
                first = False
                self._head(family)
            self._lines.append(f"{name}{{{row}}} {_number(value)}\n" if row else f"{name} {_number(value)}\n")
            if len(self._lines) >= LINES_AT_ONCE:
                await self._rest()

    async def write_one(self, family: Family, value: float) -> None:
        """Write a name that has one series, without labels."""
        await self.write(family, (("", value),))

    async def write_histograms(
        self, family: Family, rows: Iterable[tuple[Labels, Histogram]], scale: float = 1.0
    ) -> None:
        """Write all histograms of a name. Values are multiplied by `scale`, to be in seconds."""
        first = True
        for row, histogram in rows:
            if first:
                first = False
                self._head(family)
            self._lines += _histogram_lines(family.name, row, histogram, scale)
            if len(self._lines) >= LINES_AT_ONCE:
                await self._rest()

    async def finish(self) -> None:
        """Send the remaining text."""
        await self._rest(0)

    def _head(self, family: Family) -> None:
        text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
        self._lines.append(f"# HELP {family.name} {text}\n# TYPE {family.name} {family.kind}\n")

    async def _rest(self, piece_chars: int = PIECE_CHARS) -> None:
        """Send the text if it is longer than a piece, and yield to other work if the turn budget is spent."""
        text = "".join(self._lines)
        self._turns.charge(len(self._lines) * SERIES_US)
        self._lines = [text]
        if len(text) > piece_chars:
            self._lines = []
            await self._send(text.encode())
        await self._turns.yield_if_due()


def _histogram_lines(name: str, row: Labels, histogram: Histogram, scale: float) -> Iterator[str]:
    below, before = 0, f"{row}," if row else ""
    for bound, count in zip(histogram.bounds, histogram.counts, strict=False):  # the last one has no bound
        below += count
        yield f'{name}_bucket{{{before}le="{_number(bound * scale)}"}} {below}\n'
    total = histogram.count
    yield f'{name}_bucket{{{before}le="+Inf"}} {total}\n'
    braces = f"{{{row}}}" if row else ""
    yield f"{name}_sum{braces} {_number(histogram.sum * scale)}\n{name}_count{braces} {total}\n"


def _number(value: float) -> str:
    """Return a number as text; a float with 12 digits, without floating-point noise."""
    return str(value) if isinstance(value, int) else format(value, ".12g")
