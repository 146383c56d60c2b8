"""`ottla corpus`: log directories with the results that a reader must return, for tests of other programs. shell"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.output import fail, output_for, takes_format

if TYPE_CHECKING:
    from ottla.testkit.corpus.case import Case

REFUSED, NO_SUCH_CASE = 1, 2

_only = click.option("--only", "glob", metavar="GLOB", default="*", help="Only cases whose name matches.")


@click.group()
def corpus() -> None:
    """Write log directories that are hard to read, with the expected results.

    For authors of clients, connectors and tools. Each case is a small log directory in Kafka's format that is hard to
    read, such as one that ends with an abort marker. Its case.json has the records that a consumer gets at either
    isolation level, the aborted transactions, and the last stable offset. `ottla serve` and Apache Kafka 4 start on it
    with the server.properties next to it.
    """


@corpus.command("list")
@_only
@takes_format
def list_(glob: str, format_name: str) -> None:
    """List the cases, with their contents and why they are hard to read.

    Exit codes: 0 listed, 2 usage, or no case of that name.
    """
    found = _cases_or_exit(glob)
    out = output_for(format_name)
    rows = [(case.name, case.what, [*case.reported], case.hard) for case in found]
    out.entries("cases", ["case", "what", "reported", "hard"], rows, lambda row: str(row[1]))
    out.close()


@corpus.command()
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@_only
@takes_format
def write(directory: Path, glob: str, format_name: str) -> None:
    """Write the cases into DIR, one directory each.

    The same version writes the same bytes. If one of the directories exists already, nothing is written.

    Exit codes: 0 written, 1 one of the directories exists already, 2 usage, or no case of that name.
    """
    from ottla.testkit.corpus.case import write_case

    found = _cases_or_exit(glob)
    there = [case.name for case in found if (directory / case.name).exists()]
    if there:
        fail(REFUSED, f"{directory / there[0]} is there already: remove it, or write elsewhere")
    try:
        rows = [write_case(case, directory) for case in found]
    except OSError as problem:
        fail(REFUSED, problem)
    out = output_for(format_name)
    size_kb = sum(row.size_bytes for row in rows) / 1000
    out.line("result", f"{len(rows)} {'case' if len(rows) == 1 else 'cases'} in {directory}, {size_kb:.0f} KB.")
    out.table("cases", ["case", "files", "size_bytes"], rows)
    out.close()


def _cases_or_exit(glob: str) -> "list[Case]":
    from ottla.testkit.corpus.catalogue import cases  # imports a broker, which --help does not need

    return cases(glob) or fail(NO_SUCH_CASE, f"no case is named {glob}; `ottla corpus list` lists all")
