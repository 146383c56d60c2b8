"""`ottla acl why`: the ACL that allows or denies an operation, or the missing ACL. shell"""

import sys
from pathlib import Path

import click

from ottla.cli.bootstrap import asks_a_cluster
from ottla.cli.output import fail, output_for

ALLOWED, REFUSED, FAILED = 0, 1, 2


@click.group()
def acl() -> None:
    """Show which ACL allows or denies an operation, or which ACL is missing.

    `kafka-acls` and `kafka-python admin acls` list, create and delete entries; this command shows
    their effect.
    """


@acl.command()
@click.option("--principal", required=True, metavar="User:NAME", help="Principal of the client.")
@click.option("--operation", required=True, metavar="OPERATION", help="Read, Write, Describe, IdempotentWrite...")
@click.option(
    "--resource",
    required=True,
    metavar="TYPE:NAME",
    help="Topic:NAME, Group:NAME, TransactionalId:NAME, Cluster, User:NAME.",
)
@click.option("--host", default="", metavar="ADDRESS", help="The client's address.  [default: one that no entry names]")
@click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Read the entries from a data directory instead of asking a broker.",
)
@asks_a_cluster
def why(
    principal: str,
    operation: str,
    resource: str,
    host: str,
    command_config: Path | None,
    data_dir: Path | None,
    bootstrap_server: str,
    timeout_s: float,
    format_name: str,
) -> None:
    """Show which ACL allows or denies an operation, or which ACL is missing.

    Works with any Kafka, Ottla or Apache. Reads the entries from a broker (which needs Describe on Cluster) or from a
    data directory, and prints the `kafka-acls` command that changes the answer.

    A broker does not show its super users, which may do everything, or allow.everyone.if.no.acl.found, which allows
    everything that no entry is about.

    Exit codes: 0 the entries allow it, 1 they do not, 2 usage, or no answer.
    """
    from ottla.cli.acl.entries import entries_of_cluster, entries_of_directory
    from ottla.cli.acl.question import parse_question
    from ottla.cli.acl.why import explain, show
    from ottla.wire import Unanswered

    try:
        question = parse_question(principal, operation, resource, host)
        if data_dir is not None:
            entries = entries_of_directory(data_dir)
        else:
            entries = entries_of_cluster(question, bootstrap_server, command_config, timeout_s)
    except (Unanswered, ValueError) as error:
        fail(FAILED, error)
    found = explain(question, entries)
    show(found, output_for(format_name), bootstrap_server)
    sys.exit(ALLOWED if found.decision.allowed else REFUSED)
