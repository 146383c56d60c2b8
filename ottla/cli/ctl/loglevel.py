"""`ottla ctl loglevel`: change the log level of a part of the broker for some minutes. shell"""

from typing import TYPE_CHECKING, Any

import click

from ottla.cli.ctl.duration import parse_duration
from ottla.cli.ctl.options import add_admin_options, run

if TYPE_CHECKING:
    from ottla.cli.ctl.asking import Port
    from ottla.cli.output import Output


@click.group()
def loglevel() -> None:
    """Change the log level of a part of the broker for some minutes.

    LOGGER is a module of the broker, such as ottla.broker.group, or root for all loggers without a level of their own.
    """


def _levels(method: str, path: str, where: dict[str, Any], body: object = None) -> None:
    def work(port: "Port", output: "Output") -> None:
        from ottla.cli.ctl.show import show_levels

        answer = port.put(path, body) if method == "put" else getattr(port, method)(path)
        show_levels(output, answer if isinstance(answer, list) else [answer])

    run(**where, work=work)


def _path(logger: str) -> str:
    from urllib.parse import quote

    return f"/v1/loglevel/{quote(logger, safe='')}"


@loglevel.command("show")
@add_admin_options
def show_(**where: Any) -> None:
    """List the loggers whose level is not that of their parent."""
    _levels("get", "/v1/loglevel", where)


@loglevel.command("set")
@click.argument("logger")
@click.argument("level")
@click.option(
    "--for",
    "duration",
    metavar="DURATION",
    default="5m",
    show_default=True,
    help="Time until the level is reset; up to 1d.",
)
@add_admin_options
def set_(logger: str, level: str, duration: str, **where: Any) -> None:
    """Set the level of LOGGER: DEBUG, INFO, WARN, ERROR or OFF."""
    try:
        for_ms = round(parse_duration(duration))
    except ValueError as error:
        raise click.BadParameter(f"{duration}: {error}") from None
    _levels("put", _path(logger), where, {"level": level.upper(), "for_ms": for_ms})


@loglevel.command()
@click.argument("logger")
@add_admin_options
def reset(logger: str, **where: Any) -> None:
    """Reset the level of LOGGER before its time is over."""
    _levels("delete", _path(logger), where)
