"""`ottla ctl broker`: move leaders, and stop, pause or cut off brokers of a process. shell"""

from typing import TYPE_CHECKING, Any

import click

from ottla.cli.ctl.options import add_admin_options, run

if TYPE_CHECKING:
    from ottla.cli.ctl.asking import Port
    from ottla.cli.output import Output


@click.group()
def broker() -> None:
    """Change the brokers of `ottla serve --brokers N`: leaders, coordinators, stops, pauses, links, metadata.

    Each command returns when the change is in effect, and prints all brokers. `ottla ctl fault list` shows how often
    clients have met the changes.
    """


def _change(path: str, where: dict[str, Any], body: object = None) -> None:
    def work(port: "Port", output: "Output") -> None:
        from ottla.cli.ctl.show import show_brokers

        if path:
            port.post(f"/v1/brokers/{path}", body)
        show_brokers(output, port.get("/v1/brokers"))

    run(**where, work=work)


_to = click.option("--to", metavar="ID", type=int, required=True, help="The broker that it moves to.")
_id = click.argument("number", metavar="ID", type=int)


@broker.command("list")
@add_admin_options
def list_(**where: Any) -> None:
    """List the brokers."""
    _change("", where)


@broker.command("move-leader")
@click.argument("topic")
@click.argument("partition", type=int)
@_to
@add_admin_options
def move_leader(topic: str, partition: int, to: int, **where: Any) -> None:
    """Make another replica the leader of a partition."""
    _change(f"{to}/lead", where, {"topic": topic, "partition": partition})


@broker.command("move-coordinator")
@click.argument("transactional_id", required=False)
@click.option("--group", metavar="NAME", help="A group instead of a transactional id.")
@_to
@add_admin_options
def move_coordinator(transactional_id: str | None, group: str | None, to: int, **where: Any) -> None:
    """Move the coordinator of TRANSACTIONAL_ID, or of a group."""
    if (transactional_id is None) == (group is None):
        raise click.UsageError("Give a TRANSACTIONAL_ID or --group, and not both.")
    named = {"group": group} if transactional_id is None else {"transactional_id": transactional_id}
    _change(f"{to}/coordinate", where, named)


@broker.command()
@_id
@add_admin_options
def stop(number: int, **where: Any) -> None:
    """Close the ports and connections of a broker. Replicas in sync lead its partitions."""
    _change(f"{number}/stop", where)


@broker.command()
@_id
@add_admin_options
def start(number: int, **where: Any) -> None:
    """Start a stopped broker."""
    _change(f"{number}/start", where)


@broker.command()
@_id
@add_admin_options
def pause(number: int, **where: Any) -> None:
    """Let a broker accept requests and answer nothing."""
    _change(f"{number}/pause", where)


@broker.command("resume")
@_id
@add_admin_options
def resume_(number: int, **where: Any) -> None:
    """Let a paused broker answer what it has received."""
    _change(f"{number}/resume", where)


@broker.command()
@click.argument("one", type=int)
@click.argument("other", type=int)
@add_admin_options
def disconnect(one: int, other: int, **where: Any) -> None:
    """Lose all messages between two brokers."""
    _change(f"{one}/disconnect", where, {"from": other})


@broker.command()
@add_admin_options
def reconnect(**where: Any) -> None:
    """Restore all links between brokers."""
    _change("reconnect", where)


@broker.command("freeze-metadata")
@_id
@add_admin_options
def freeze_metadata(number: int, **where: Any) -> None:
    """Let Metadata and FindCoordinator of a broker answer what is true now."""
    _change(f"{number}/freeze-metadata", where)


@broker.command("unfreeze-metadata")
@_id
@add_admin_options
def unfreeze_metadata(number: int, **where: Any) -> None:
    """Let a broker answer what is true."""
    _change(f"{number}/unfreeze-metadata", where)


@broker.command("reset")
@add_admin_options
def reset_(**where: Any) -> None:
    """Undo all changes: each broker runs, and leads the partitions of which it is the first replica."""
    _change("reset", where)
