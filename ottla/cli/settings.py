"""Configuration from the command line, the environment and a file, for every command that needs one. shell"""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from ottla import files
from ottla.broker.config import (
    ConfigError,
    Loaded,
    Origin,
    Setting,
    from_environment,
    from_flags,
    from_properties,
    jaas_file_of,
    load_config,
)
from ottla.broker.config.listeners import parse_listeners
from ottla.broker.config.load import FLAG
from ottla.cli.output import fail
from ottla.protocol.java.properties import decode_text

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

IMPOSSIBLE_VALUE = 2


def _directories(context: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Complete names like `click.Path`. That type would also validate the value, which the broker does."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


def takes_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments of a configuration: a properties file, and flags that override it."""
    command = takes_flags(command)
    file = click.Path(exists=True, dir_okay=False)
    return click.argument("properties", metavar="[server.properties]", required=False, type=file)(command)


def takes_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags of a configuration, without the properties file."""
    for decorate in (
        click.option(
            "--override", metavar="KEY=VALUE", multiple=True, help="Any option of `ottla configs`; may repeat."
        ),
        click.option("--listen", metavar="HOST:PORT", help="Address to listen at; port 0 takes a free port."),
        click.option(
            "--data-dir",
            metavar="DIR",
            help="Data directory.  [default: ottla-data]",
            shell_complete=_directories,
        ),
    ):
        command = decorate(command)
    return command


def load_or_exit(properties: str | None, data_dir: str | None, listen: str | None, override: tuple[str, ...]) -> Loaded:
    """Return the configuration of these arguments. Report an impossible value on stderr and exit with 2."""
    try:
        flags = from_flags(override)
        if data_dir is not None:
            _refuse_twice(flags, "--data-dir", ("log.dirs", "log.dir"))
            flags.append(Setting("log.dirs", data_dir, Origin(FLAG, "--data-dir")))
        if listen is not None:
            _refuse_twice(flags, "--listen", ("listeners",))
            flags.append(Setting("listeners", _listener(listen), Origin(FLAG, "--listen")))
        file = from_properties(decode_text(files.read_argument(properties)), properties) if properties else []
        return load_config(flags, from_environment(os.environ), file, jaas_file=_jaas_file())
    except (ConfigError, OSError) as error:
        fail(IMPOSSIBLE_VALUE, error)


def _jaas_file() -> str:
    """Return the text of the JAAS file that the environment names; empty if it cannot be read, because it may be for
    another program."""
    name = jaas_file_of(os.environ)
    with suppress(OSError, UnicodeDecodeError):
        return files.read_argument(name).decode() if name else ""
    return ""


def _listener(listen: str) -> str:
    """Return the value of `listeners` for an address. Raises ConfigError if it is invalid."""
    text = f"PLAINTEXT://{listen}"
    try:
        (_,) = parse_listeners(text)
    except ValueError:
        raise ConfigError(f"--listen {listen}: must be HOST:PORT, such as 127.0.0.1:9092 or [::1]:0") from None
    return text


def _refuse_twice(flags: list[Setting], flag: str, keys: tuple[str, ...]) -> None:
    """Refuse an option given by two flags, because one of them would be ignored silently."""
    for setting in flags:
        if setting.key in keys:
            raise ConfigError(f"--override {setting.key}={setting.text}: {flag} sets this already; give one of the two")
