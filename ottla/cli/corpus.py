"""`ottla corpus`: log directories with the results that a reader must return, for tests of other programs. shell"""

import sys
from pathlib import Path

import click

from ottla.cli.output import complain, output_for

REFUSED, NO_SUCH_CASE = 1, 2

_only = click.option("--only", "glob", metavar="GLOB", default="*", help="Only cases whose name matches.")
_format = click.option(
    "--format", "format_name", type=click.Choice(["text", "json"]), default="text", show_default=True
)


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
@_format
def list_(glob: str, format_name: str) -> None:
    """List the cases, with their contents and why they are hard to read.

    Exit codes: 0 listed, 2 usage, or no case of that name.
    """
    from ottla.testkit.corpus.catalogue import cases  # imports a broker, which --help does not need

    found = cases(glob)
    _refuse_none(glob, bool(found))
    out = output_for(format_name)
    rows = [(case.name, case.what, [*case.reported], case.hard) for case in found]
    out.entries("cases", ["case", "what", "reported", "hard"], rows, lambda row: str(row[1]))
    out.close()


@corpus.command()
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@_only
@_format
def write(directory: Path, glob: str, format_name: str) -> None:
    """Write the cases into DIR, one directory each.

    The same version writes the same bytes. If one of the directories exists already, nothing is written.

    Exit codes: 0 written, 1 one of the directories exists already, 2 usage, or no case of that name.
    """
    from ottla.testkit.corpus.catalogue import cases  # imports a broker, which --help does not need
    from ottla.testkit.corpus.write import write_case

    found = cases(glob)
    _refuse_none(glob, bool(found))
    there = [case.name for case in found if (directory / case.name).exists()]
    if there:
        complain(f"{directory / there[0]} is there already: remove it, or write elsewhere")
        sys.exit(REFUSED)
    try:
        rows = [write_case(case, directory) for case in found]
    except OSError as problem:
        complain(str(problem))
        sys.exit(REFUSED)
    out = output_for(format_name)
    size_kb = sum(row.size_bytes for row in rows) / 1000
    out.line("result", f"{len(rows)} {'case' if len(rows) == 1 else 'cases'} in {directory}, {size_kb:.0f} KB.")
    out.table("cases", ["case", "files", "size_bytes"], rows)
    out.close()


def _refuse_none(glob: str, any_found: bool) -> None:
    if not any_found:
        complain(f"no case is named {glob}; `ottla corpus list` lists all")
        sys.exit(NO_SUCH_CASE)
