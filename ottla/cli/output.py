"""Output of commands as text or as JSON, from the same calls. shell

All commands print a sentence with the answer, then aligned tables under their names, with numbers to the right. Numbers
have no separators, so that other commands accept them. The head of a column has the unit (`size_bytes`). An absent
value is "-", a table without rows "NAME: none".

A column whose name ends with `_ms` holds milliseconds in JSON. Text has a duration ("3 min 20 s") or a time in UTC,
under the name without `_ms`. Text tables are at most as wide as the terminal, or 120 columns: heads and long texts
continue on the next line. Text prints the column `command` below the table, each command on a line of its own.
"""

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol

import click

from ottla.colours import OF_VERDICT, Style, is_coloured
from ottla.printable import printable
from ottla.protocol.times import difference, utc

Row = Sequence[Any]

WIDTH: Final = 120
USAGE: Final = 2
"""Exit code of every command for wrong usage."""
_COMMAND: Final = "command"
# Columns that give a row its colour.
_VERDICTS: Final = ("standing", "fate")
# Columns of milliseconds that are points in time. All others are durations.
MOMENTS: Final = frozenset({"last_timestamp_ms", "now_ms", "start_ms", "started_ms", "until_ms"})


takes_format: Final = click.option(
    "--format", "format_name", type=click.Choice(["text", "json"]), default="text", show_default=True
)
"""Option of the commands that print with `output_for`."""


class Output(Protocol):
    """Destination of sentences and tables. It is closed after the last one."""

    def line(self, name: str, text: str) -> None:
        """Print a sentence."""

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Print rows of plain values under named columns; None is an absent value."""

    def entries(self, name: str, columns: Sequence[str], rows: Sequence[Row], summary: Callable[[Row], str]) -> None:
        """Print a table whose last column is prose. Text has the first column and the `summary` of a row in one line,
        and the prose below, as wide as the terminal."""

    def close(self) -> None:
        """Print the output that was held back."""


class TextOutput:
    """Output as text: aligned columns, numbers to the right."""

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
        kept = [index for index, column in enumerate(columns) if column != _COMMAND]
        commands = [row[columns.index(_COMMAND)] if _COMMAND in columns else None for row in rows]
        heads = [_head(columns[index]) for index in kept]
        cells = [[_cell(row[index], columns[index]) for index in kept] for row in rows]
        numeric = [all(_is_number(row[index]) for row in rows) for index in kept]
        from ottla.audit.report.columns import lay_out

        layout = lay_out(heads, cells, numeric, max(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns) - 2)
        click.echo(f"{name}:")
        for line in (*layout.lines(heads, "_"), *layout.lines(["-" * width for width in layout.widths], " ")):
            click.echo(f"  {line}")
        style, verdicts = Style(is_coloured(sys.stdout)), [columns.index(name) for name in _VERDICTS if name in columns]
        for row, cell, command in zip(rows, cells, commands, strict=True):
            code = next((OF_VERDICT.get(str(row[index]), "") for index in verdicts), "")
            for line in layout.lines(cell, " "):
                click.echo(f"  {style(code, line)}")
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
            click.echo(printable(f"  {row[0]}  {summary(row)}"))
            indents = {"initial_indent": " " * 6, "subsequent_indent": " " * 6, "break_long_words": False}
            click.echo(textwrap.fill(printable(str(row[-1])), max(width, 40), **indents))  # type: ignore[arg-type]

    def close(self) -> None:
        """Do nothing: no output was held back."""

    def _begin_block(self) -> None:
        """Print a blank line between two sentences or tables."""
        if not self._first:
            click.echo()
        self._first = False


class JsonOutput:
    """Output as one JSON object: a string for each sentence, a list of objects for each table."""

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


def table_of(rows: Sequence[Mapping[str, Any]]) -> tuple[Sequence[str], Sequence[Row]]:
    """Return the columns and the rows of a table whose rows are mappings with the same keys: `table(name, *...)`."""
    return tuple(rows[0]) if rows else (), [tuple(row.values()) for row in rows]


def complain(text: str) -> None:
    """Print one line on stderr with the problem and the remedy."""
    click.echo(printable(f"ottla: {text}"), err=True)


def fail(code: int, problem: object) -> NoReturn:
    """Print one line on stderr, as `complain` does, and end the command with this exit code."""
    complain(str(problem))
    sys.exit(code)


def ask_first(code: int, question: str, agreed: bool) -> None:
    """Ask on the terminal unless the user has `agreed` by `--yes`. End the command with this code at a no.

    Without a terminal there is no answer: the command ends with 2, and names the option.
    """
    if agreed:
        return
    if not can_answer():
        fail(USAGE, f"{question} Stdin is no terminal, so nothing was changed: --yes does it without a question")
    if not click.confirm(printable(question), err=True):
        fail(code, "nothing was changed")


def can_answer() -> bool:
    """Return whether the user can answer a question: stdin is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


@contextmanager
def exit_at_errors(code: int, path: Path, *reasons: type[Exception]) -> Iterator[None]:
    """End the command with this code and one line at an error of a file, by default `path`, and at `reasons`."""
    try:
        yield
    except reasons as error:
        fail(code, error)
    except BrokenPipeError:
        raise  # the reader has closed the pipe: `| head`
    except OSError as error:
        fail(code, f"{error.filename or path}: {error.strerror or error}")


def output_for(format_name: str) -> Output:
    """Return the output for text or json."""
    return JsonOutput() if format_name == "json" else TextOutput()


def _head(column: str) -> str:
    """Return the head of a text column without the unit, which is in the cells."""
    return "delay" if column == "ms" else column.removesuffix("_ms")


def _cell(value: object, column: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and (column == "ms" or column.endswith("_ms")):
        return utc(value) if column in MOMENTS else difference(value)
    text = "-" if value is None else str(value)
    return printable(text)


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
