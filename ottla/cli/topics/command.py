"""`ottla topics`: list, describe, create and delete the topics of any Kafka. shell"""

import sys
from pathlib import Path

import click

from ottla.cli.bootstrap import asks_a_cluster, borrow_cluster
from ottla.cli.output import ask_first, complain, fail, output_for, table_of
from ottla.printable import printable

DONE, REFUSED, FAILED = 0, 1, 2


@click.group(invoke_without_command=True)
@click.option("--internal", is_flag=True, help="List internal topics, too.")
@asks_a_cluster
@click.pass_context
def topics(
    context: click.Context,
    internal: bool,
    bootstrap_server: str,
    command_config: Path | None,
    timeout_s: float,
    format_name: str,
) -> None:
    """List, describe, create and delete topics of any Kafka.

    Without a command it lists them.

    Exit codes: 0 done, 1 the brokers refuse it, 2 usage, or they do not answer.
    """
    if context.invoked_subcommand is None:
        _list(internal, bootstrap_server, command_config, timeout_s, format_name)
        return
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[-1]} must follow the command: {context.invoked_subcommand}")


@topics.command("list")
@click.option("--internal", is_flag=True, help="List internal topics, too.")
@asks_a_cluster
def list_command(
    internal: bool, bootstrap_server: str, command_config: Path | None, timeout_s: float, format_name: str
) -> None:
    """List the topics that this user sees, with partitions and replicas."""
    _list(internal, bootstrap_server, command_config, timeout_s, format_name)


def _list(
    internal: bool, bootstrap_server: str, command_config: Path | None, timeout_s: float, format_name: str
) -> None:
    from ottla.cli.topics.asking import TopicRow, list_topics

    with borrow_cluster(FAILED, "topics", bootstrap_server, command_config, timeout_s) as (_, cluster):
        rows = list_topics(cluster, with_internal=internal)
    output = output_for(format_name)
    output.table("topics", TopicRow._fields, rows)
    output.close()


@topics.command()
@click.argument("topic")
@asks_a_cluster
def describe(
    topic: str, bootstrap_server: str, command_config: Path | None, timeout_s: float, format_name: str
) -> None:
    """Show the partitions of a topic, and the configs that are set for it.

    Consumers with isolation.level=read_committed read up to `last_stable_offset`; others up to `end_offset`.
    """
    from ottla.cli.topics.asking import PartitionRow, Refused, describe_configs, describe_partitions

    with borrow_cluster(FAILED, "topics", bootstrap_server, command_config, timeout_s) as (_, cluster):
        rows = describe_partitions(cluster, topic)
        output = output_for(format_name)
        output.table("partitions", PartitionRow._fields, rows)
        try:
            output.table("configs", ("config", "value"), describe_configs(cluster, topic))
        except Refused as error:
            complain(str(error))
        output.close()


def _parse_configs(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    configs = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{printable(each)!r} is not NAME=VALUE")
        configs[name] = value
    return configs


@topics.command()
@click.argument("topic")
@click.option("--partitions", metavar="N", type=click.IntRange(1, 2**31 - 1), help="[default: that of the broker]")
@click.option(
    "--replication-factor", metavar="N", type=click.IntRange(1, 2**15 - 1), help="[default: that of the broker]"
)
@click.option(
    "--config", "configs", metavar="NAME=VALUE", multiple=True, callback=_parse_configs, help="A config; may repeat."
)
@click.option("--if-not-exists", is_flag=True, help="Exit with 0 if the topic exists.")
@asks_a_cluster
def create(
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: dict[str, str],
    if_not_exists: bool,
    bootstrap_server: str,
    command_config: Path | None,
    timeout_s: float,
    format_name: str,
) -> None:
    """Create a topic, and wait until its partitions have leaders."""
    from ottla.cli.topics.asking import BROKER_DEFAULT, Refused, create_topic
    from ottla.protocol.topic_names import detect_invalid_topic

    if reason := detect_invalid_topic(topic):
        fail(FAILED, reason)
    with borrow_cluster(FAILED, "topics", bootstrap_server, command_config, timeout_s) as (_, cluster):
        if if_not_exists and cluster.topology([topic]).topics.get(topic):
            result = f"topic {topic} exists."
        else:
            counts = partitions or BROKER_DEFAULT, replication_factor or BROKER_DEFAULT
            try:
                is_led = create_topic(cluster, topic, *counts, configs, timeout_s)
            except Refused as error:
                fail(REFUSED, error)
            result = f"created topic {topic}."
            if not is_led:
                complain(f"topic {topic} has partitions without leaders after {timeout_s:g} s: ottla topics describe")
    output = output_for(format_name)
    output.line("result", result)
    output.close()


@topics.command()
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@asks_a_cluster
def delete(
    topics: tuple[str, ...],
    yes: bool,
    bootstrap_server: str,
    command_config: Path | None,
    timeout_s: float,
    format_name: str,
) -> None:
    """Delete topics with all their records."""
    names = tuple(dict.fromkeys(topics))
    shown = ", ".join(map(printable, names))
    ask_first(REFUSED, f"Delete {shown} at {printable(bootstrap_server)} with all records?", yes)
    from ottla.cli.topics.asking import delete_topics

    with borrow_cluster(FAILED, "topics", bootstrap_server, command_config, timeout_s) as (_, cluster):
        reasons = delete_topics(cluster, names, timeout_s)
    output = output_for(format_name)
    rows = [{"topic": name, "deleted": reason is None, "reason": reason} for name, reason in reasons.items()]
    output.table("topics", *table_of(rows))
    output.close()
    sys.exit(REFUSED if any(reasons.values()) else DONE)
