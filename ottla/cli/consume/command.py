"""`ottla consume`: print the records of a topic of any Kafka with the fate of their transactions. shell"""

import sys
from pathlib import Path

import click

from ottla.cli.bootstrap import asks_a_cluster, borrow_cluster
from ottla.cli.output import complain, fail

DONE, UNREADABLE, FAILED = 0, 1, 2


@click.command()
@click.argument("topic")
@click.option(
    "--partition",
    "partitions",
    metavar="N",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this one; may repeat.",
)
@click.option("-f", "--follow", is_flag=True, help="Continue with new records until Ctrl-C.")
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="Print all records, or those that a read_committed consumer gets.",
)
@click.option(
    "--first-offset",
    metavar="N",
    type=click.IntRange(-(2**63), 2**63 - 1),
    default=0,
    help="Begin at this offset; -N is N offsets before the end.  [default: the beginning]",
)
@click.option("--end-offset", metavar="N", type=click.IntRange(0, 2**63 - 1), help="Print no record from there on.")
@click.option("--max", "most", metavar="N", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option("--whole", is_flag=True, help="Do not cut long keys and values.")
@asks_a_cluster
def consume(
    topic: str,
    partitions: tuple[int, ...],
    follow: bool,
    isolation: str,
    first_offset: int,
    end_offset: int | None,
    most: int | None,
    whole: bool,
    bootstrap_server: str,
    command_config: Path | None,
    timeout_s: float,
    format_name: str,
) -> None:
    """Print the records of a topic, each with its fate: committed, aborted, open, or none.

    For any Kafka. The fate is that of the record's transaction; a record without one has none. The command reads
    without a group, one partition after the other, up to the end as it is at the start.

    A line has PARTITION:OFFSET, the time (UTC), the fate with the transactional id, the key and the value. A record
    "waiting for" an offset has its fate, but consumers with isolation.level=read_committed do not get it before the
    transaction that begins at this offset ends: `ottla txn why TOPIC PARTITION`. With --follow, the fate is that at the
    time of reading. JSON has one object a line, which `ottla produce --format json` reads.

    Exit codes: 0 done, 1 records are damaged or were deleted, 2 usage, or the brokers do not answer.
    """
    if follow and end_offset is not None:
        raise click.UsageError("--follow has no end: leave out --end-offset")
    from ottla.cli.consume.session import Options, Session
    from ottla.protocol.errors import ProtocolError

    options = Options(
        topic,
        partitions,
        follow,
        committed_only=isolation == "read_committed",
        first_offset=first_offset,
        end_offset=end_offset,
        most=most,
        whole=whole,
        as_json=format_name == "json",
    )
    try:
        with borrow_cluster(FAILED, "consume", bootstrap_server, command_config, timeout_s) as (address, cluster):
            Session(address, cluster, options, complain).run()
    except BrokenPipeError:
        raise  # the reader has closed the pipe: `| head`
    except (ProtocolError, OSError) as error:
        fail(UNREADABLE, error)
    except KeyboardInterrupt:
        if not follow:
            raise
        # Ctrl-C is the normal end.
    sys.exit(DONE)
