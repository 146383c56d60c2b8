"""`ottla health`: check whether a broker is ready, for compose files, service managers and scripts. shell"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from ottla import files
from ottla.cli.bootstrap import takes_command_config
from ottla.cli.ctl.duration import parse_duration
from ottla.cli.output import fail
from ottla.printable import host_and_port, printable

DEFAULT_URL: Final = "http://127.0.0.1:9644"
READY, NOT_READY = 0, 1
ASK_S: Final = 3.0
"""Timeout of one answer."""
PAUSE_S: Final = 0.2
NO_ADMIN_PORT: Final = "not an admin port of Ottla"

Check = Callable[[float], str | None]
"""Function that returns, within a number of seconds, the reason why the broker is not ready, or None if it is."""


def _wait(context: click.Context, parameter: click.Parameter, given: str | None) -> float:
    if given is None:
        return 0.0
    try:
        return parse_duration(given) / 1000
    except ValueError as error:
        raise click.BadParameter(f"{given}: {error}", context, parameter) from None


@click.command()
@click.option(
    "--admin",
    "url",
    metavar="URL",
    envvar="OTTLA_ADMIN",
    help=f"Ask /readyz of this admin port.  [default: {DEFAULT_URL}; env: OTTLA_ADMIN]",
)
@click.option(
    "-b", "--bootstrap-server", metavar="HOST:PORT", help="Ask a broker, Ottla or Apache Kafka, in Kafka's protocol."
)
@takes_command_config
@click.option(
    "--ready-file",
    metavar="FILE",
    type=click.Path(),
    help="Check this file of `ottla serve`, and the admin port that it names, if any.",
)
@click.option("--wait", "wait_s", metavar="DURATION", callback=_wait, help="Retry for this long, such as 10s or 1m.")
@click.pass_context
def health(
    context: click.Context,
    url: str | None,
    bootstrap_server: str | None,
    command_config: Path | None,
    ready_file: str | None,
    wait_s: float,
) -> None:
    """Check whether a broker is ready, and print what is missing.

    It is ready when its logs are recovered, its coordinators are loaded, and clients can connect. No token is needed.

    Exit codes: 0 ready, 1 not ready (stderr says what is missing), 2 usage.
    """
    if context.get_parameter_source("url") is click.core.ParameterSource.ENVIRONMENT and (
        bootstrap_server or ready_file
    ):
        url = None
    if sum(1 for each in (url, bootstrap_server, ready_file) if each is not None) > 1:
        raise click.UsageError("--admin, --bootstrap-server and --ready-file are three ways to ask: give one")
    where, check = _check_of(url, bootstrap_server, command_config, ready_file)
    deadline = time.monotonic() + wait_s
    while True:
        left_s = deadline - time.monotonic()
        problem = check(max(min(ASK_S, left_s), PAUSE_S) if wait_s else ASK_S)
        if problem is None:
            click.echo(printable(f"{where}: ready"))
            sys.exit(READY)
        if time.monotonic() + PAUSE_S > deadline:
            fail(NOT_READY, f"{where}: not ready: {problem}")
        time.sleep(PAUSE_S)


def _check_of(
    url: str | None, bootstrap: str | None, command_config: Path | None, ready_file: str | None
) -> tuple[str, Check]:
    """Return the address, file or URL to check, and the function that checks it."""
    if bootstrap is not None:
        from ottla.wire.brokers import parse_address  # and the client, which is slow to import
        from ottla.wire.client_properties import client_options

        try:
            host, port = parse_address(bootstrap)
            security = client_options(command_config)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--bootstrap-server") from None
        return bootstrap, lambda seconds: _check_listener(host, port, security, seconds)
    if ready_file is not None:
        return ready_file, lambda seconds: _check_ready_file(ready_file, seconds)
    address = _host_and_port(url or DEFAULT_URL)
    if address is None:
        raise click.BadParameter(f"{url} is not http://HOST:PORT, such as {DEFAULT_URL}", param_hint="--admin")
    return f"http://{host_and_port(*address)}", lambda seconds: _check_admin_port(*address, seconds)


def _check_admin_port(host: str, port: int, timeout_s: float) -> str | None:
    connection = HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        body = json.loads(response.read(65_536))
    except OSError as error:
        return f"no answer: {error.strerror or error}"
    except (HTTPException, ValueError):
        return NO_ADMIN_PORT
    finally:
        connection.close()
    if not isinstance(body, dict) or "status" not in body:
        return NO_ADMIN_PORT
    if response.status == 200:
        return None
    return str(body.get("error", f"status {response.status}"))


def _check_ready_file(path: str, timeout_s: float) -> str | None:
    try:
        lines = files.read(path).decode(errors="replace").splitlines()
    except OSError as error:
        return f"the broker has not written the file: {error.strerror}"
    for line in lines:
        word, _, url = line.partition(" ")
        address = _host_and_port(url) if word == "admin" else None
        if address is not None:
            return _check_admin_port(*address, timeout_s)
    return None if lines else "the file is empty"


def _check_listener(host: str, port: int, security: Mapping[str, object], timeout_s: float) -> str | None:
    """Return the problem, None if the listener serves. A loading coordinator answers list requests with an error."""
    from ottla.protocol.api_keys import ApiKey
    from ottla.protocol.errors import ErrorCode, ProtocolError
    from ottla.protocol.requests import codec
    from ottla.wire.connection import BlockingConnection

    try:
        with BlockingConnection(host, port, timeout_s=timeout_s, security=security) as connection:
            metadata = connection.send(codec.request_class(ApiKey.METADATA)(topics=[]))
            if not metadata.brokers:
                return "its metadata has no broker"
            listings = (
                (ApiKey.LIST_GROUPS, "group", {"states_filter": ["Dead"]}),
                (ApiKey.LIST_TRANSACTIONS, "transaction", {"state_filters": ["Dead"], "producer_id_filters": []}),
            )
            for key, coordinator, nothing in listings:
                if key in connection.versions:
                    reply = connection.send(codec.request_class(key)(**nothing))
                    if reply.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                        return f"its {coordinator} coordinator still reads its logs"
    except TimeoutError:
        return f"no answer within {timeout_s:.1f} s"
    except (OSError, ProtocolError) as error:
        return f"no answer: {getattr(error, 'strerror', None) or error}"
    return None


def _host_and_port(url: str) -> tuple[str, int] | None:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme == "http" and parts.hostname and parts.port and parts.path in ("", "/"):
            return parts.hostname, parts.port
    except ValueError:
        pass
    return None
