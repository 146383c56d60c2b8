"""Address and token of the admin port from flags, for `ottla serve` and for clients of that port. shell"""

import logging
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ottla import files
from ottla.cli.output import fail
from ottla.cli.settings import IMPOSSIBLE_VALUE

if TYPE_CHECKING:
    from ottla.admin.settings import AdminSettings
    from ottla.broker.config import Config

CLOSED: Final = "none"
"""The value of --admin-listen without an admin port."""
_LOOPBACK: Final = "127.0.0.1"
_PORT: Final = 9644
LEAST_TOKEN_CHARS: Final = 16
MOST_TOKEN_BYTES: Final = 4096

_log = logging.getLogger("ottla.admin")


def opens_admin_port(meaning: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator with the options of an admin port. `meaning` is the help of --admin-listen."""
    listen = click.option(
        "--admin-listen",
        metavar="HOST:PORT",
        envvar="OTTLA_ADMIN_LISTEN",
        help=f"{meaning}  [env: OTTLA_ADMIN_LISTEN]",
    )
    token = click.option(
        "--admin-token-file",
        metavar="FILE",
        type=click.Path(),
        envvar="OTTLA_ADMIN_TOKEN_FILE",
        help="Require the token in this file at the admin port.  [env: OTTLA_ADMIN_TOKEN_FILE]",
    )
    return lambda command: listen(token(command))


def address_for_a_terminal(config: "Config") -> str:
    """Return the address of an admin port that was not asked for: none without a terminal, or if clients log in.

    Each user of this machine can open the page, which must show no more than the listeners do.
    """
    is_secured = config.authorizer_class_name or any(config.protocol(each) != "PLAINTEXT" for each in config.listeners)
    if is_secured or not sys.stdout.isatty():
        return CLOSED
    with socket.socket() as probe:
        try:
            probe.bind((_LOOPBACK, _PORT))
        except OSError:
            return f"{_LOOPBACK}:0"
    return f"{_LOOPBACK}:{_PORT}"


def admin_or_exit(listen: str | None, token_file: str | None) -> "AdminSettings | None":
    """Return the settings of the admin port, None without a port. Report an invalid value on stderr and exit with 2."""
    if listen is None or listen == CLOSED:
        if token_file is not None:
            fail(IMPOSSIBLE_VALUE, "--admin-token-file needs --admin-listen HOST:PORT, which opens the admin port")
        return None
    from ottla.admin.settings import AdminSettings, address_problem, parse_address

    try:
        host, port = parse_address(listen)
    except ValueError as error:
        fail(IMPOSSIBLE_VALUE, f"--admin-listen {listen}: {error}")
    token = None if token_file is None else token_or_exit("--admin-token-file", token_file)
    problem = address_problem(host, token)
    if problem is not None:
        fail(IMPOSSIBLE_VALUE, f"--admin-listen {listen}: {problem}")
    return AdminSettings(host, port, token)


def token_or_exit(flag: str, path: str) -> str:
    """Return the token in a file. Report an unreadable file or an invalid token on stderr and exit with 2."""
    try:
        token = files.read_argument(path, MOST_TOKEN_BYTES).decode("ascii").strip()
    except OSError as error:
        fail(IMPOSSIBLE_VALUE, f"{flag} {path}: {error.strerror}")
    except UnicodeDecodeError:
        token = ""
    if len(token) < LEAST_TOKEN_CHARS or not all("!" <= character <= "~" for character in token):
        fail(
            IMPOSSIBLE_VALUE,
            f"{flag} {path}: must hold {LEAST_TOKEN_CHARS} ASCII characters or more, without blanks, as "
            "`openssl rand -hex 16` prints them",
        )
    return token


def warn_of_readers(path: str) -> None:
    """Log a warning if users other than the file's owner may read the token."""
    if Path(path).stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        _log.warning("--admin-token-file %s: other users may read it; chmod 600 keeps the token secret", path)
