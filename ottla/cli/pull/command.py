"""`ottla pull`: copy partitions of a cluster into a log directory. shell

Everything else is imported when the command runs: help and completion need no extra.
"""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.output import complain, fail, output_for, takes_format

if TYPE_CHECKING:
    from ottla.cli.pull.directory import Progress, Pull
    from ottla.cli.pull.source import Request
    from ottla.wire.address import KafkaAddress

LEFT_OUT, COULD_NOT_RUN, INTERRUPTED = 1, 2, 130
CLIENT_ID: Final = "ottla-pull"
_MIB: Final = 1024 * 1024


@click.command()
@click.argument("source", metavar="kafka://HOST:PORT,...")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--topics", metavar="GLOBS", default="", help="Topics, comma-separated, such as ledger,audit-*.")
@click.option("--groups", is_flag=True, help="Copy committed offsets (__consumer_offsets).")
@click.option("--transactions", is_flag=True, help="Copy the coordinators' log (__transaction_state).")
@click.option("--since", metavar="TIME", default="", help="Begin new partitions at the first record from this time on.")
@click.option(
    "--command-config",
    metavar="FILE",
    default="",
    type=click.Path(readable=False),
    help="Properties of a Java client, for TLS or SASL.",
)
@click.option("--max-bytes-per-second", metavar="BYTES", default="", help="Limit of all connections, such as 20M.")
@takes_format
def pull(source: str, directory: Path, format_name: str, **options: str | bool) -> None:
    """Copy partitions of a cluster into a log directory.

    The copy has the batches as stored, topic ids, leader epochs and topic configs. `ottla audit`, `ottla dump`,
    Spark, `ottla serve` and `ottla graduate` read it. A repeated run reads what is new, and continues a run that was
    ended. Nothing is written to the cluster. TIME is ISO 8601 (UTC without a time zone), or milliseconds since 1970.

    Exit codes: 0 copied, 1 something was left out, 2 could not run, 130 interrupted.
    """
    from ottla.scan.needs import lacking

    if lacks := lacking():
        fail(
            COULD_NOT_RUN, f"the pull needs {', '.join(lacks)}: pip install 'ottla[audit]', or '.[audit]' in a checkout"
        )
    from ottla.audit.selection import BadArgument
    from ottla.broker.ports.descriptors import Shortage, shortage
    from ottla.cli.pull.directory import CannotPull
    from ottla.protocol.errors import ProtocolError
    from ottla.wire import Unanswered

    try:
        address, request = _parse(source, options)
        done = _pull(address, request, str(directory))
    except KeyboardInterrupt:
        fail(INTERRUPTED, "interrupted; the same command continues")
    except (Unanswered, ProtocolError) as error:
        fail(COULD_NOT_RUN, f"{source}: {error}")
    except (BadArgument, CannotPull, ValueError) as error:
        fail(COULD_NOT_RUN, error)
    except OSError as error:
        reason = shortage(error) if isinstance(error, Shortage) else error.strerror
        place = error.filename or directory
        fail(COULD_NOT_RUN, f"{place}: {reason or error}; when this is repaired, the same command continues")
    _show(done, directory, format_name)
    sys.exit(LEFT_OUT if done.left_out else 0)


def _parse(source: str, options: dict[str, str | bool]) -> "tuple[KafkaAddress, Request]":
    from ottla.audit.selection import BadArgument, parse_rate, parse_time_ms
    from ottla.cli.pull.source import Request
    from ottla.scan.listing import topic_patterns
    from ottla.wire import is_kafka_address
    from ottla.wire.address import parse_kafka_address

    if not is_kafka_address(source):
        raise BadArgument(f"{source}: an address is kafka://HOST:PORT,HOST:PORT")
    address = parse_kafka_address(source)._replace(
        properties=str(options["command_config"]),
        max_bytes_per_second=parse_rate(str(options["max_bytes_per_second"])),
        client_id=CLIENT_ID,
    )
    since = str(options["since"])
    request = Request(
        topic_patterns(str(options["topics"])),
        bool(options["groups"]),
        bool(options["transactions"]),
        parse_time_ms(since, "--since") if since else None,
    )
    if not (request.globs or request.groups or request.transactions):
        raise BadArgument("name what to copy: --topics GLOBS, --groups, --transactions")
    return address, request


def _pull(address: "KafkaAddress", request: "Request", place: str) -> "Pull":
    from ottla.broker.ports.disk import RealDisk
    from ottla.cli.pull.directory import Pull, open_directory
    from ottla.cli.pull.source import list_source
    from ottla.wire.address import connections_to

    disk = RealDisk()
    connections, asked_ms = connections_to(address), _now_ms()
    with connections.borrow() as cluster:
        found = list_source(cluster, request)
    connections.keep(found.topology)
    with open_directory(disk, place) as mark:
        run = Pull(disk, place, address, mark, found, asked_ms)
        try:
            run.run(_progress())
        except BaseException:
            if sys.stderr.isatty():
                click.echo(err=True)  # the error is on a line of its own
            raise
        run.finish(_now_ms())
    for note in found.notes:
        complain(note)
    return run


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _progress() -> "Progress":
    """Return callbacks that show the progress on a terminal, four times a second at most."""
    from ottla.cli.pull.directory import Progress

    read_bytes, done, count, due_s = 0, 0, 0, 0.0

    def show(*, is_last: bool = False) -> None:
        nonlocal due_s
        if sys.stderr.isatty() and (is_last or time.monotonic() >= due_s):
            due_s = time.monotonic() + 0.25
            text = f"\rottla: {done} of {count} partitions, {read_bytes / _MIB:.1f} MiB"
            click.echo(text, err=True, nl=is_last)

    def on_partition(now_done: int, of: int) -> None:
        nonlocal done, count
        done, count = now_done, of
        show(is_last=done == count)

    def on_bytes(size_bytes: int) -> None:
        nonlocal read_bytes
        read_bytes += size_bytes
        show()

    return Progress(on_partition, on_bytes)


def _show(done: "Pull", directory: Path, format_name: str) -> None:
    """Print the result. Text leaves out the partitions without new records."""
    from ottla.audit.checks.words import count

    output = output_for(format_name)
    size_bytes = sum(row.size_bytes for row in done.rows)
    sentence = f"{directory}: {count(len(done.rows), 'partition')}, {size_bytes} bytes are new"
    if done.mark.has_positions:
        positions = count(done.positions, "committed offset")
        sentence += f"; {positions} by OffsetFetch, because __consumer_offsets cannot be read"
    if done.left_out:
        sentence += f"; {len(done.left_out)} left out"
    output.line("result", f"{sentence}.")
    rows = [row for row in done.rows if row.batches or format_name == "json"]
    if rows or format_name == "json":
        output.table("partitions", ("partition", "start_offset", "end_offset", "batches", "size_bytes"), rows)
    if done.left_out:
        output.table("left out", ("what",), [(reason,) for reason in done.left_out])
    output.close()
