"""What a command has found, as text for people or as JSON for programs: commands say it once. shell

One style for all: a sentence that answers, then tables under their names, aligned, with numbers to the right. Numbers
stand as other commands take them, without separators; what they count, and in which unit, the head says (`size_bytes`).
A value that there is none of is "-", a table without rows "NAME: none".

A column whose name ends with `_ms` holds milliseconds in JSON. Text has a duration ("3 min 20 s") or a time in UTC,
under the name without `_ms`. Text tables are at most as wide as the terminal, or 120 columns: heads and long texts
continue on the next line. A column `command` is no column of a text table: each command is a line of its own, to be
pasted.
"""

import json
import re
import shutil
import textwrap
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, Final, Protocol

import click

from ottla.cli.printable import printable
from ottla.protocol.times import difference, utc

Row = Sequence[Any]

WIDTH: Final = 120
_NARROWEST: Final = 12
_COMMAND: Final = "command"
# Columns of milliseconds that are points in time. All others are durations.
MOMENTS: Final = frozenset({"last_timestamp_ms", "now_ms", "start_ms", "started_ms", "until_ms"})


class Output(Protocol):
    """Takes sentences and tables, then is closed."""

    def line(self, name: str, text: str) -> None:
        """What there is to say in a sentence."""

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Rows of plain values under named columns; None is a value that there is none of."""

    def entries(self, name: str, columns: Sequence[str], rows: Sequence[Row], summary: Callable[[Row], str]) -> None:
        """A table whose last column is prose. Text has the first column and the `summary` of a row in one line, and the
        prose below it as wide as the terminal."""

    def close(self) -> None:
        """Print what was held back."""


class TextOutput:
    """Aligned columns, numbers to the right."""

    def __init__(self) -> None:
        self._first = True

    def line(self, name: str, text: str) -> None:
        self._first = False
        click.echo(text)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        self._begin_block()
        if not rows:
            click.echo(f"{name}: none")
            return
        kept = [index for index, column in enumerate(columns) if column != _COMMAND]
        commands = [row[columns.index(_COMMAND)] if _COMMAND in columns else None for row in rows]
        heads = [_head(columns[index]) for index in kept]
        cells = [[_cell(row[index], columns[index]) for index in kept] for row in rows]
        numeric = [all(_is_number(row[index]) for row in rows) for index in kept]
        gap, widths = _layout(heads, cells, numeric)
        click.echo(f"{name}:")
        folded = [_parts(head, width, "_") for head, width in zip(heads, widths, strict=True)]
        lines = [[_parts(cell, width, " ") for cell, width in zip(line, widths, strict=True)] for line in cells]
        for line in (folded, [["-" * width] for width in widths]):
            _echo_row(line, widths, numeric, gap)
        for line, command in zip(lines, commands, strict=True):
            _echo_row(line, widths, numeric, gap)
            if command is not None:
                click.echo(f"    {printable(command)}")

    def entries(self, name: str, columns: Sequence[str], rows: Sequence[Row], summary: Callable[[Row], str]) -> None:
        if not rows:
            self.table(name, columns, rows)
            return
        self._begin_block()
        width = shutil.get_terminal_size().columns
        click.echo(f"{name}:")
        for row in rows:
            click.echo(f"  {row[0]}  {printable(summary(row))}")
            told = {"initial_indent": " " * 6, "subsequent_indent": " " * 6, "break_long_words": False}
            click.echo(textwrap.fill(printable(str(row[-1])), max(width, 40), **told))  # type: ignore[arg-type]

    def close(self) -> None:
        """Nothing was held back."""

    def _begin_block(self) -> None:
        """A blank line between what is told and the next."""
        if not self._first:
            click.echo()
        self._first = False


class JsonOutput:
    """One object: a string for each sentence, a list of objects for each table."""

    def __init__(self) -> None:
        self._document: dict[str, str | list[dict[str, Any]]] = {}

    def line(self, name: str, text: str) -> None:
        self._document[name] = text

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        self._document[name] = [dict(zip(columns, row, strict=True)) for row in rows]

    def entries(self, name: str, columns: Sequence[str], rows: Sequence[Row], summary: Callable[[Row], str]) -> None:
        self.table(name, columns, rows)

    def close(self) -> None:
        click.echo(json.dumps(self._document, indent=2))


def output_for(format_name: str) -> Output:
    """The output for text or json."""
    return JsonOutput() if format_name == "json" else TextOutput()


def _head(column: str) -> str:
    """Return the head of a text column, whose cells say the unit themselves."""
    return "delay" if column == "ms" else column.removesuffix("_ms")


def _cell(value: object, column: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and (column == "ms" or column.endswith("_ms")):
        return utc(value) if column in MOMENTS else difference(value)
    text = "-" if value is None else str(value)
    return printable(text)


def _layout(heads: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool]) -> tuple[str, list[int]]:
    """Return what stands between columns, and their widths.

    Where a line would be too long heads are folded, then columns stand closer, then the longest texts are folded.
    """
    room = max(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns) - 2 * len(heads)
    gap = "  "
    needed = [max(map(len, column)) for column in zip(*cells, strict=True)]
    folded = [max(map(len, _parts(head, 0, "_"))) for head in heads]
    widths = [max(need, len(head)) for need, head in zip(needed, heads, strict=True)]
    least = [max(need, head) for need, head in zip(needed, folded, strict=True)]
    _narrow(widths, least, room)
    if sum(widths) > room:
        gap, room = " ", room + len(heads) - 1
    text_least = [
        now if is_number else min(now, max(head, _NARROWEST))
        for now, head, is_number in zip(widths, folded, numeric, strict=True)
    ]
    _narrow(widths, text_least, room)
    return gap, widths


def _narrow(widths: list[int], least: Sequence[int], room: int) -> None:
    """Take from the widest column that may become narrower, until all of them fit."""
    while sum(widths) > room:
        can = [index for index, width in enumerate(widths) if width > least[index]]
        if not can:
            return
        widths[max(can, key=lambda index: widths[index])] -= 1


def _parts(text: str, width: int, separator: str) -> list[str]:
    """Return the lines of a cell: broken behind separators, and within a word that is longer than a line."""
    if len(text) <= width:
        return [text]
    lines = [""]
    for word in re.findall(f"[^{separator}]*{separator}?", text):
        if lines[-1] and len(lines[-1]) + len(word.rstrip()) > width:
            lines.append("")
        lines[-1] += word
        while width and len(lines[-1].rstrip()) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return [line.rstrip() for line in lines if line.strip()]


def _echo_row(cells: Sequence[Sequence[str]], widths: Sequence[int], numeric: Sequence[bool], gap: str) -> None:
    for line in zip_longest(*cells, fillvalue=""):
        padded = zip(line, widths, numeric, strict=True)
        shown = [cell.rjust(width) if right else cell.ljust(width) for cell, width, right in padded]
        click.echo(("  " + gap.join(shown)).rstrip())


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
