"""What a command has found, as text for people or as JSON for programs: commands say it once. shell

One style for all: a sentence that answers, then tables under their names, aligned, with numbers to the right. Numbers
stand as other commands take them, without separators; what they count, and in which unit, the head says (`size_bytes`).
A value that there is none of is "-", a table without rows "NAME: none".
"""

import json
import shutil
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import click

from ottla.printable import printable

Row = Sequence[Any]


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
        click.echo(printable(text))

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        self._begin_block()
        if not rows:
            click.echo(f"{name}: none")
            return
        cells = [[_cell(value) for value in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        numeric = [all(_is_number(row[index]) for row in rows) for index in range(len(columns))]
        click.echo(f"{name}:")
        for line in ([*columns], ["-" * width for width in widths], *cells):
            padded = zip(line, widths, numeric, strict=True)
            shown = [cell.rjust(width) if right else cell.ljust(width) for cell, width, right in padded]
            click.echo(("  " + "  ".join(shown)).rstrip())

    def entries(self, name: str, columns: Sequence[str], rows: Sequence[Row], summary: Callable[[Row], str]) -> None:
        if not rows:
            self.table(name, columns, rows)
            return
        self._begin_block()
        width = shutil.get_terminal_size().columns
        click.echo(f"{name}:")
        for row in rows:
            click.echo(printable(f"  {row[0]}  {summary(row)}"))
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


def complain(text: str) -> None:
    """Print one line on stderr that says what happened and what to do."""
    click.echo(printable(f"ottla: {text}"), err=True)


def output_for(format_name: str) -> Output:
    """The output for text or json."""
    return JsonOutput() if format_name == "json" else TextOutput()


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = "-" if value is None else str(value)
    return printable(text)


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
