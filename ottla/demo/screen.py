"""Output of the demo: sections, steps, bars, tables and checked claims. shell"""

import sys
import textwrap
import time
from collections.abc import Sequence
from typing import TextIO

from ottla.colours import is_coloured
from ottla.printable import printable

WIDTH = 88
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Screen:
    """Terminal output, or a file without colours. Counts the claims and stores those that did not hold."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        self._stream = stream
        self._coloured = is_coloured(stream)
        self._unicode = "utf" in (stream.encoding or "").lower()
        self._sections = 0
        self._began = time.monotonic()
        self.held = 0
        self.broken: list[str] = []

    def paint(self, text: str, *styles: str) -> str:
        if not self._coloured or not styles:
            return text
        codes = ";".join(_CODES[style] for style in styles)
        return f"\x1b[{codes}m{text}\x1b[0m"

    def line(self, text: str = "") -> None:
        print(text, file=self._stream, flush=True)

    def title(self, text: str, below: str) -> None:
        self.line()
        self.line(self.paint(text, "bold", "cyan"))
        self.line(below)

    def facts(self, facts: Sequence[tuple[str, str]]) -> None:
        """Print names and values, aligned."""
        width = max(len(name) for name, _ in facts)
        for name, value in facts:
            self.line(f"  {self.paint(name.ljust(width), 'dim')}  {printable(value)}")

    def section(self, title: str, *sentences: str) -> None:
        self._sections += 1
        rule = ("─" if self._unicode else "-") * max(2, WIDTH - len(title) - 5)
        self.line()
        self.line(f"{self.paint(f'{self._sections}. {title}', 'bold')} {self.paint(rule, 'dim')}")
        for line in textwrap.wrap(" ".join(sentences), WIDTH - 2):
            self.line(f"  {line}")
        self.line()

    def step(self, who: str, what: str, *, style: str = "") -> None:
        """Print a step of the story: an actor and an action."""
        head, *tail = textwrap.wrap(printable(what), WIDTH - 24) or [""]
        styles = [style] if style else []
        self.line(f"  {self.paint(printable(who).ljust(20), *styles)}  {head}")
        for line in tail:
            self.line(f"  {' ' * 20}  {line}")

    def bars(self, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[int]]]) -> None:
        """Print a bar chart of small counts: one row per reader, one column per fate."""
        block, empty = ("█", "·") if self._unicode else ("#", ".")
        head = "".join(name.ljust(14) for name in columns).rstrip()
        self.line(f"  {' ' * 20}  {self.paint(head, 'dim')}")
        for name, counts in rows:
            cells = []
            for count in counts:
                bar = (block * min(count, 8) if count else empty).ljust(4)
                cells.append(self.paint(bar, "green" if count else "dim") + str(count).ljust(10))
            self.line(f"  {name.ljust(20)}  {''.join(cells)}".rstrip())
        self.line()

    def table(self, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table, with numbers aligned right and words left."""
        cells = [[printable(str(cell)) for cell in row] for row in rows]
        widths = [max(len(row[column]) for row in [list(head), *cells]) for column in range(len(head))]
        numeric = [all(isinstance(row[column], int) for row in rows) for column in range(len(head))]
        self.line()
        for number, row in enumerate([list(head), *cells]):
            line = "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, numeric, strict=True)
            ).rstrip()
            self.line("  " + (self.paint(line, "dim") if number == 0 else line))
        self.line()

    def quote(self, text: str) -> None:
        """Print the output of another program, indented, without control characters."""
        for line in text.rstrip().splitlines():
            self.line(f"  {printable(line)}".rstrip())
        self.line()

    def claim(self, holds: bool, text: str) -> None:
        """Print and count a claim that was just checked."""
        text = printable(text)
        yes, no = ("✓", "✗") if self._unicode else ("ok ", "NOT")
        if holds:
            self.held += 1
            self.line(f"  {self.paint(yes, 'green')} {text}")
        else:
            self.broken.append(text)
            self.line(f"  {self.paint(no, 'red', 'bold')} {self.paint(text, 'red')}")

    def summary(self) -> None:
        elapsed_s = time.monotonic() - self._began
        self.line()
        if self.broken:
            self.line(self.paint(f"{len(self.broken)} of {self.held + len(self.broken)} claims did not hold:", "red"))
            for text in self.broken:
                self.line(f"  {text}")
        else:
            self.line(self.paint(f"All {self.held} claims held, in {elapsed_s:.0f} s.", "bold", "green"))
