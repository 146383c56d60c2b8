"""`ottla produce`: send lines of stdin as records to a topic of any Kafka. shell"""

import sys
from pathlib import Path

import click

from ottla.cli.bootstrap import asks_a_cluster, borrow_cluster
from ottla.cli.output import fail

DONE, REFUSED, FAILED = 0, 1, 2


@click.command()
@click.argument("topic")
@click.option("--key-separator", metavar="TEXT", help="Text between key and value, such as ':'.  [default: no keys]")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="Header of every record; may repeat.")
@click.option(
    "--partition", metavar="N", type=click.IntRange(0, 2**31 - 1), help="Partition of every record.  [default: by key]"
)
@click.option("--transactional-id", metavar="ID", help="Send in transactions of this id.")
@click.option(
    "--every",
    metavar="N",
    type=click.IntRange(min=1),
    help="Lines of a transaction; the last may have fewer.  [default: one transaction]",
)
@click.option("--abort", is_flag=True, help="Abort each transaction instead of committing it, to make test data.")
@asks_a_cluster
def produce(
    topic: str,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    transactional_id: str | None,
    every: int | None,
    abort: bool,
    bootstrap_server: str,
    command_config: Path | None,
    timeout_s: float,
    format_name: str,
) -> None:
    """Send lines of stdin as records, in transactions if asked.

    For any Kafka. A line is a value, or with --key-separator a key and a value. With --format json it is an object with
    key, value, headers, partition and timestamp, as `ottla consume --format json` prints them: text, or
    {"base64": TEXT} for bytes.

    Records are written exactly once and in the order of the lines of each partition (acks=all, idempotent). An error
    ends the command with the number of its line and what was written before. Ctrl-C aborts the open transaction. The
    broker aborts one that is open for longer than a minute.

    Exit codes: 0 all written, 1 a line was refused, or a transaction failed, 2 usage, or the brokers do not answer.
    """
    for name, given in (("--every", every), ("--abort", abort)):
        if given and transactional_id is None:
            raise click.UsageError(f"{name} is for transactions: give --transactional-id")
    if key_separator is not None and (not key_separator or format_name == "json"):
        raise click.UsageError("--key-separator needs a text, and lines that are not JSON")
    if transactional_id == "":
        raise click.UsageError("--transactional-id must not be empty")
    from ottla.cli.produce.lines import Parse, json_parser, parse_headers, plain_parser, read_lines
    from ottla.cli.produce.session import Session, count_partitions
    from ottla.wire.client_properties import client_options

    try:
        more = parse_headers(headers)
    except ValueError as error:
        raise click.UsageError(f"--header: {error}") from None
    separator = None if key_separator is None else key_separator.encode(errors="surrogateescape")
    parse: Parse = json_parser(more) if format_name == "json" else plain_parser(separator, more)
    if sys.stdin is None:
        fail(FAILED, "stdin is closed: the records come from there")
    with borrow_cluster(FAILED, "produce", bootstrap_server, command_config, timeout_s) as (address, cluster):
        partitions = count_partitions(cluster, topic)
    if partition is not None and partition >= partitions:
        fail(FAILED, f"topic {topic} has partitions 0 to {partitions - 1}, not {partition}")
    lines = read_lines(sys.stdin.buffer, parse)
    if partition is not None:
        lines = (line._replace(partition=partition) for line in lines)
    if sys.stdin.isatty():
        click.echo("Type a record on each line; Ctrl-D ends.", err=True)
    session = Session(address, client_options(command_config), topic, partitions, transactional_id)
    sys.exit(session.run(lines, every, abort=abort))
