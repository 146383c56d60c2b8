"""`ottla serve`: run the broker. shell"""

import gc
import logging
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.broker import MOST_BROKERS
from ottla.broker.config.option import INT32_MAX
from ottla.broker.loggers import parse_levels
from ottla.cli.admin import address_for_a_terminal, admin_or_exit, opens_admin_port, warn_of_readers
from ottla.cli.logs import log_to_stderr
from ottla.cli.output import fail
from ottla.cli.settings import IMPOSSIBLE_VALUE, load_or_exit, takes_settings
from ottla.printable import first_names
from ottla.protocol.checkpoints import META_PROPERTIES, PULLED, parse_directory_name
from ottla.scan.log_directory import MOST_NAMED

if TYPE_CHECKING:
    from ottla.admin.serving import BrokerAdmin
    from ottla.admin.settings import AdminSettings
    from ottla.broker.config import Loaded
    from ottla.testkit.control.control import Control

_log = logging.getLogger(__name__)

_MOST_PORT: Final = 65535
# Names that exist on a new file system or after a killed first start.
_LEFT_IN_NEW = ("lost+found", ".lock")


def _build_admin(settings: "AdminSettings") -> "BrokerAdmin":
    from ottla.admin.serving import BrokerAdmin  # imports HTTP, which most brokers do not need

    return BrokerAdmin(settings)


def _holds_something_else(directory: str) -> str:
    """Return the reason why no new cluster may begin in a directory; "" if it has a cluster, or is empty."""
    path = Path(directory)
    if (path / META_PROPERTIES).exists() or not path.exists():
        return ""
    try:
        names = sorted(each.name for each in path.iterdir())
    except NotADirectoryError:
        return f"Data directory {directory}: it is a file"
    except OSError:
        return ""  # the broker names the error when it opens the directory
    others = [name for name in names if name not in _LEFT_IN_NEW and not name.startswith(META_PROPERTIES)]
    if not others:
        return ""
    from ottla.scan.listing import describe_logs_below

    below = describe_logs_below(directory)
    return (
        f"Data directory {directory}: it has no {META_PROPERTIES}, and holds other files "
        f"({first_names(others, MOST_NAMED)}){f'; {below}' if below else ''}. "
        "Name that directory, a new or an empty one; --format-data-dir begins a new "
        "cluster among these files"
    )


def _partitions(context: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> frozenset[str]:
    for name in names:
        if parse_directory_name(name) is None:
            raise click.BadParameter(f"{name} is not TOPIC-PARTITION, such as audit-log-0", context, parameter)
    return frozenset(names)


def _levels(context: click.Context, parameter: click.Parameter, given: str) -> dict[str, int]:
    try:
        return parse_levels(given)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None


@click.command()
@takes_settings
@click.option(
    "--ready-file",
    metavar="FILE",
    type=click.Path(readable=False),
    help="Write the `ready` line to this file while the broker serves.",
)
@click.option(
    "--kafka-lines",
    is_flag=True,
    help="Also print Kafka's line about a started broker, which testcontainers waits for.",
)
@opens_admin_port(
    "Open the admin port, an HTTP server for people, tools and tests, such as 127.0.0.1:9644.  [default: on a terminal "
    "127.0.0.1:9644, or a free port, unless clients have to log in; else none]"
)
@click.option(
    "--test-control",
    is_flag=True,
    envvar="OTTLA_TEST_CONTROL",
    help="Let the admin port move the broker's time, plan faults and kill it: for tests.  [env: OTTLA_TEST_CONTROL]",
)
@click.option(
    "--as-version",
    metavar="RELEASE",
    help="With --test-control: offer no newer version of any API than this Kafka, such as 2.8 or 3.9.",
)
@click.option(
    "--until-input-ends",
    is_flag=True,
    help="Stop when standard input ends: when the process at the other end of the pipe exits.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--log-level",
    metavar="LEVELS",
    default="INFO",
    show_default=True,
    envvar="OTTLA_LOG_LEVEL",
    callback=_levels,
    help="DEBUG, INFO, WARN or ERROR; of one logger as in INFO,ottla.broker.group=DEBUG.  [env: OTTLA_LOG_LEVEL]",
)
@click.option(
    "--truncate-damaged",
    metavar="TOPIC-PARTITION",
    multiple=True,
    callback=_partitions,
    help="Cut this partition's log at its damage and serve the rest; may repeat.",
)
@click.option(
    "--format-data-dir",
    is_flag=True,
    help="Begin a new cluster in --data-dir although it holds other files.",
)
@click.option(
    "--as-pulled",
    is_flag=True,
    help="End no transaction, expire, delete and compact nothing, until `ottla ctl thaw`: for a copy of `ottla pull`.",
)
@click.option(
    "--brokers",
    "broker_count",
    metavar="N",
    type=click.IntRange(1, MOST_BROKERS),
    envvar="OTTLA_BROKERS",
    help="Present this process as N brokers over one log, on consecutive ports: a test bench.  [env: OTTLA_BROKERS; "
    "default: 1]",
)
def serve(
    properties: str | None,
    data_dir: str | None,
    listen: str | None,
    override: tuple[str, ...],
    ready_file: str | None,
    kafka_lines: bool,
    admin_listen: str | None,
    admin_token_file: str | None,
    test_control: bool,
    as_version: str | None,
    until_input_ends: bool,
    log_format: str,
    log_level: dict[str, int],
    truncate_damaged: frozenset[str],
    format_data_dir: bool,
    as_pulled: bool,
    broker_count: int | None,
) -> None:
    """Run the broker.

    Prints `ready PLAINTEXT://HOST:PORT`, a line for each listener, when it serves, and `admin http://HOST:PORT` if it
    has that port; logs go to stderr. SIGTERM and SIGINT drain and stop it, a second signal forces. SIGHUP does so too,
    unless a listener has TLS: then keystores are read again. Flags override the environment (KAFKA_LOG_SEGMENT_BYTES),
    which overrides the file.
    """
    if ready_file is not None:
        # First of all: imports and recovery are slow, and an earlier run that was killed has left its file.
        with suppress(OSError):  # a fault of the file is reported when it is written
            Path(ready_file).unlink()
    loaded = load_or_exit(properties, data_dir, listen, override)
    occupied = "" if format_data_dir else _holds_something_else(loaded.config.log_dirs)
    if reason := occupied or _refuse_brokers(loaded, broker_count):
        fail(IMPOSSIBLE_VALUE, reason)
    admin = admin_or_exit(admin_listen or address_for_a_terminal(loaded.config), admin_token_file)
    parts = None
    if as_version is not None and not test_control:
        raise click.UsageError("--as-version needs --test-control: it is for tests only")
    if test_control:
        if admin is None:
            raise click.UsageError("--test-control needs --admin-listen: a test controls the broker over that port")
        from ottla.testkit.control.routes import control_routes

        parts = control = _build_control(as_version)
        admin = admin._replace(routes=lambda _broker: control_routes(control))
    log_to_stderr(log_format, log_level)
    if admin_token_file is not None:
        warn_of_readers(admin_token_file)
    for note in loaded.notes():
        logging.getLogger("ottla.broker.config").warning("%s", note)
    _warn_of_copy(loaded.config.log_dirs, as_pulled)

    if until_input_ends:
        _stop_at_end_of_input()
    gc.disable()  # a start makes no garbage worth a visit of all its objects; `Collector.start` enables it afterwards
    from ottla.broker.server import run  # the broker takes most of the time to start

    sys.exit(
        run(
            loaded.config,
            ready_file=ready_file,
            kafka_lines=kafka_lines,
            truncate_damaged=truncate_damaged,
            admin=None if admin is None else _build_admin(admin),
            parts=parts,
            frozen=as_pulled,
            broker_count=broker_count or 1,
        )
    )


def _build_control(as_version: str | None) -> "Control":
    from ottla.testkit.control.control import Control

    try:
        return Control(as_version)
    except ValueError as error:
        raise click.UsageError(f"--as-version: {error}") from None


def _refuse_brokers(loaded: "Loaded", broker_count: int | None) -> str:
    """Return the reason why so many brokers cannot have consecutive ids and ports; empty if they can."""
    config = loaded.config
    if broker_count is None:
        if loaded.voters <= 1:
            return ""
        return (
            f"controller.quorum.voters names {loaded.voters} nodes, and each Ottla is a cluster of its own: run one in "
            f"place of them with --brokers {min(loaded.voters, MOST_BROKERS)}, or with --brokers 1"
        )
    if config.node_id > INT32_MAX - broker_count + 1:
        return f"--brokers {broker_count}: node.id={config.node_id} leaves no ids for them: use a smaller one"
    taken: dict[int, str] = {}
    for listener in config.listeners:
        for port in range(listener.port, listener.port + broker_count) if listener.port else ():
            if port in taken:
                return (
                    f"--brokers {broker_count}: listeners {taken[port]} and {listener.name} both need port {port}: "
                    f"each listener needs {broker_count} consecutive ports"
                )
            if port > _MOST_PORT:
                return f"--brokers {broker_count}: listener {listener} has no {broker_count} ports: use a smaller one"
            taken[port] = listener.name
    return ""


def _warn_of_copy(directory: str, as_pulled: bool) -> None:
    """Log that the broker is frozen, or warn of the effects on a copy of `ottla pull` that is not."""
    if as_pulled:
        _log.info("Frozen: no transaction ends, and nothing expires or is deleted or compacted, until `ottla ctl thaw`")
    elif (Path(directory) / PULLED).exists():
        _log.warning(
            "Data directory %s is a copy of `ottla pull`: this broker aborts its open transactions after their "
            "timeouts, finishes prepared ones, and deletes and compacts by the configs of its topics; --as-pulled "
            "serves it as it is",
            directory,
        )


def _stop_at_end_of_input() -> None:
    """Send this process SIGTERM when its standard input ends, because the process at the other end of the pipe ended.

    This works for every end of that process, `kill -9` included, and on every system with pipes.
    """
    threading.Thread(target=_wait_for_end, args=(sys.stdin.fileno(),), name="end-of-input", daemon=True).start()


def _wait_for_end(descriptor: int) -> None:
    while os.read(descriptor, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
