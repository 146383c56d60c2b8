"""Columns of a text table: widths that fit a line, and cells folded into them without loss. pure"""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

# Texts are folded to this width at least.
NARROWEST = 12


class Layout(NamedTuple):
    """Widths of the columns, the gap between them, and the columns that are aligned to the right."""

    widths: Sequence[int]
    gap: str
    numeric: Sequence[bool]

    @property
    def width(self) -> int:
        return sum(self.widths) + len(self.gap) * (len(self.widths) - 1)

    def lines(self, cells: Sequence[str], separator: str = " ") -> Iterator[str]:
        """Yield the lines of a row; a cell that is too long is broken at `separator` if possible."""
        folded = [fold(cell, width, separator) for cell, width in zip(cells, self.widths, strict=True)]
        for line in zip_longest(*folded, fillvalue=""):
            padded = zip(line, self.widths, self.numeric, strict=True)
            aligned = [cell.rjust(width) if right else cell.ljust(width) for cell, width, right in padded]
            yield self.gap.join(aligned).rstrip()


def lay_out(
    heads: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool], width: int, breaks: str = "_"
) -> Layout:
    """Return a layout that fits into `width`, unless numbers and parts of heads are too wide.

    If a line would be too long, heads are folded (after `breaks`), then the gap is reduced, then texts are folded.
    """
    needed = [max(map(len, column)) for column in zip(*cells, strict=True)]
    folded = [max(map(len, fold(head, 0, breaks))) for head in heads]
    widths = [max(need, len(head)) for need, head in zip(needed, heads, strict=True)]
    gap, room = "  ", width - 2 * (len(heads) - 1)
    _narrow(widths, [max(need, head) for need, head in zip(needed, folded, strict=True)], room)
    if sum(widths) > room:
        gap, room = " ", room + len(heads) - 1
    least = [
        now if is_number else min(now, max(head, NARROWEST))
        for now, head, is_number in zip(widths, folded, numeric, strict=True)
    ]
    _narrow(widths, least, room)
    return Layout(widths, gap, numeric)


def fold(text: str, width: int, separator: str = " ") -> list[str]:
    """Return the lines of a cell, broken after separators, and within a word that is longer than a line.

    With a `width` of 0 every word is a line.
    """
    if len(text) <= width:
        return [text]
    lines = [""]
    for word in re.findall(f"[^{separator}]*{separator}?", text):
        if lines[-1] and len(lines[-1]) + len(word.rstrip()) > width:
            lines.append("")
        lines[-1] += word
        while width and len(lines[-1].rstrip()) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return [line.rstrip() for line in lines if line.strip()] or [""]


def _narrow(widths: list[int], least: Sequence[int], room: int) -> None:
    """Take from the widest column that may become narrower, until all of them fit."""
    while sum(widths) > room:
        can = [index for index, width in enumerate(widths) if width > least[index]]
        if not can:
            return
        widths[max(can, key=lambda index: widths[index])] -= 1
