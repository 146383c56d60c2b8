"""Options of every `ottla ctl` command, its admin port and its output. shell"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from ottla.cli.output import Output, output_for, takes_format

if TYPE_CHECKING:
    from ottla.cli.ctl.asking import Port


_IN_FRONT: Final = f"{__name__}.in_front"
_ADMIN_HELP: Final = "URL of the admin port."
_TOKEN_HELP: Final = "File with the token of the port, if it needs one."


def in_front(group: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that may be given before a command as well as after it."""
    token = click.option("--admin-token-file", metavar="FILE", type=click.Path(), help=_TOKEN_HELP)
    return click.option("--admin", "url", metavar="URL", help=_ADMIN_HELP)(token(group))


def keep(context: click.Context, **given: str | None) -> None:
    """Store the options that were given before the command, so that the command can use them."""
    context.meta[_IN_FRONT] = {name: value for name, value in given.items() if value is not None}


def _choose_option(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Return the value of the command line, after or before the command; else of the environment, else the default."""
    name = parameter.name or ""
    if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
        return value
    given: dict[str, str] = context.meta.get(_IN_FRONT, {})
    return given.get(name, value)


def add_admin_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that all commands have."""
    for decorate in (
        takes_format,
        click.option(
            "--admin-token-file",
            metavar="FILE",
            type=click.Path(),
            envvar="OTTLA_ADMIN_TOKEN_FILE",
            callback=_choose_option,
            help=f"{_TOKEN_HELP}  [env: OTTLA_ADMIN_TOKEN_FILE]",
        ),
        click.option(
            "--admin",
            "url",
            metavar="URL",
            default="http://127.0.0.1:9644",
            show_default=True,
            envvar="OTTLA_ADMIN",
            callback=_choose_option,
            help=f"{_ADMIN_HELP}  [env: OTTLA_ADMIN]",
        ),
    ):
        command = decorate(command)
    return command


def run(url: str, admin_token_file: str | None, format_name: str, work: Callable[["Port", Output], None]) -> None:
    from ottla.cli.ctl.asking import Port

    output = output_for(format_name)
    work(Port(url, admin_token_file), output)
    output.close()
