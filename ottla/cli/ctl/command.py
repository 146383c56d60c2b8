"""`ottla ctl`: query and control a running broker over its admin port. shell"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ottla.cli.ctl.brokers import broker
from ottla.cli.ctl.duration import parse_duration
from ottla.cli.ctl.loglevel import loglevel
from ottla.cli.ctl.options import add_admin_options, in_front, keep, run
from ottla.cli.output import Output, fail

if TYPE_CHECKING:
    from ottla.cli.ctl.asking import Port

_ALWAYS: Final = "always"
_NUMBERS: Final = frozenset({"broker", "partition", "producer_id"})


@click.group()
@in_front
@click.pass_context
def ctl(context: click.Context, /, **given: str | None) -> None:
    """Query and control a running broker or proxy over its admin port.

    The broker opens the port with `ottla serve --admin-listen HOST:PORT`. Its time and faults can be controlled if
    it was started with --test-control too. `ottla proxy --admin-listen HOST:PORT` always has faults, but no time.

    Exit codes: 0 done, 1 refused, 2 usage, or no answer.
    """
    keep(context, **given)


@ctl.group()
def clock() -> None:
    """Move the broker's time.

    Timeouts, expiry, sessions, retention and all other timers follow. The clocks of clients do not.
    """


@ctl.group()
def fault() -> None:
    """Plan faults, and list those that fired."""


ctl.add_command(loglevel)
ctl.add_command(broker)


@ctl.command()
@add_admin_options
def status(**where: Any) -> None:
    """Show the broker or proxy, and the time and faults that a test has set."""
    from ottla.cli.ctl.show import show_proxy, show_status

    def work(port: "Port", output: Output) -> None:
        broker = port.find("/v1/broker")
        if broker is not None:
            show_status(output, broker, port.find("/v1/clock"), port.find("/v1/faults"))
        else:
            show_proxy(output, port.get("/v1/proxy"), port.get("/v1/faults"))

    run(**where, work=work)


@ctl.command()
@add_admin_options
def thaw(**where: Any) -> None:
    """End the frozen state of a broker that was started with --as-pulled."""

    def work(port: "Port", output: Output) -> None:
        port.post("/v1/thaw")
        output.line("result", "The broker has thawed: transactions end, and records are deleted and compacted.")

    run(**where, work=work)


def _clock(call: Callable[["Port"], Any], where: dict[str, Any]) -> None:
    from ottla.cli.ctl.show import show_clock

    run(**where, work=lambda port, output: show_clock(output, call(port)))


@clock.command("show")
@add_admin_options
def show_(**where: Any) -> None:
    """Show the broker's time."""
    _clock(lambda port: port.get("/v1/clock"), where)


@clock.command()
@click.argument("duration")
@add_admin_options
def advance(duration: str, **where: Any) -> None:
    """Jump ahead by DURATION, such as 7d or 1h30m.

    Units are ms, s, m, h, d and w. All timers that become due have fired when the command ends.
    """
    try:
        ms = parse_duration(duration)
    except ValueError as error:
        raise click.BadParameter(f"{duration}: {error}") from None
    _clock(lambda port: port.post("/v1/clock/advance", {"ms": ms}), where)


@clock.command()
@add_admin_options
def freeze(**where: Any) -> None:
    """Stop the broker's time."""
    _clock(lambda port: port.post("/v1/clock/freeze"), where)


@clock.command()
@add_admin_options
def resume(**where: Any) -> None:
    """Let the time run again, from where it stopped."""
    _clock(lambda port: port.post("/v1/clock/resume"), where)


@clock.command()
@add_admin_options
def reset(**where: Any) -> None:
    """Set the time back to that of the machine."""
    _clock(lambda port: port.post("/v1/clock/reset"), where)


def _faults(call: Callable[["Port"], Any], where: dict[str, Any]) -> None:
    from ottla.cli.ctl.show import show_faults

    def work(port: "Port", output: Output) -> None:
        answer = call(port)
        show_faults(output, answer if isinstance(answer, list) else [answer])

    run(**where, work=work)


@fault.command("list")
@add_admin_options
def list_(**where: Any) -> None:
    """List the planned faults, and how often each has fired."""
    _faults(lambda port: port.get("/v1/faults"), where)


def _conditions(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, object]:
    conditions: dict[str, object] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or name in conditions:
            raise click.BadParameter(f"{text} is not NAME=VALUE, each name once", context, parameter)
        conditions[name] = int(value) if name in _NUMBERS and value.isdecimal() else value
    return conditions


def _times(context: click.Context, parameter: click.Parameter, given: str) -> int | None:
    if given == _ALWAYS:
        return None
    if not given.isdecimal():
        raise click.BadParameter(f"{given} is neither a number nor {_ALWAYS}", context, parameter)
    return int(given)


@fault.command()
@click.argument("deed", metavar="DO")
@click.option(
    "--at", default="request", show_default=True, help="request, reply, marker, marker_reply, append or sync."
)
@click.option("--api", metavar="NAME", help="Only requests of this API, such as EndTxn.")
@click.option(
    "--where",
    "conditions",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_conditions,
    help="Only with this client_id, transactional_id, producer_id, group, topic, partition or broker; may repeat.",
)
@click.option("--nth", type=click.IntRange(min=1), default=1, show_default=True, help="The match that it fires at.")
@click.option(
    "--times", metavar="N", default="1", show_default=True, callback=_times, help=f"How often it fires, or {_ALWAYS}."
)
@click.option("--error", metavar="NAME", help="Error of a reply (NOT_COORDINATOR) or of the disk (ENOSPC).")
@click.option("--ms", type=click.FloatRange(min=0, min_open=True), help="Duration of a delay.")
@add_admin_options
def add(
    deed: str,
    at: str,
    api: str | None,
    conditions: dict[str, object],
    nth: int,
    times: int | None,
    error: str | None,
    ms: float | None,
    **where: Any,
) -> None:
    """Plan a fault that does DO: reply, drop, delay, hold, duplicate, lose, fail or crash.

    Which of these are possible depends on --at; the broker refuses the others.
    """
    given = {"api": api, "where": conditions or None, "error": error, "ms": ms}
    planned = {"do": deed, "at": at, "nth": nth, "times": times}
    planned |= {name: value for name, value in given.items() if value is not None}
    _faults(lambda port: port.post("/v1/faults", planned), where)


@fault.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@add_admin_options
def load(file: Path, **where: Any) -> None:
    """Plan the faults of FILE: YAML or JSON, one fault or a list. If one is invalid, none is planned."""
    from ottla.cli.ctl.asking import FAILED
    from ottla.cli.plan_file import PlanError, read_plan

    try:
        plan = read_plan(file)
    except (PlanError, OSError) as error:
        fail(FAILED, error)
    _faults(lambda port: port.post("/v1/faults", plan), where)


@fault.command()
@click.argument("number", metavar="ID", type=click.IntRange(min=1))
@add_admin_options
def remove(number: int, **where: Any) -> None:
    """Remove a fault, and release the messages that it holds."""
    _faults(lambda port: port.delete(f"/v1/faults/{number}"), where)


@fault.command()
@click.argument("number", metavar="ID", type=click.IntRange(min=1))
@add_admin_options
def release(number: int, **where: Any) -> None:
    """Release the messages that a fault holds."""
    _faults(lambda port: port.post(f"/v1/faults/{number}/release"), where)


@fault.command()
@click.option("--expect-hits", is_flag=True, help="Exit with 1 if one of them never fired: its case is untested.")
@add_admin_options
def clear(expect_hits: bool, **where: Any) -> None:
    """Remove all faults, and show how often each has fired."""
    missed: list[Any] = []

    def call(port: "Port") -> Any:
        cleared = port.delete("/v1/faults")
        missed.extend(each["id"] for each in cleared if not each["hits"])
        return cleared

    _faults(call, where)
    if expect_hits and missed:
        fail(1, f"never fired: fault {', '.join(map(str, missed))}")
