"""Options of the commands that send requests to any cluster, such as `ottla txn`, `ottla top`, `ottla dump`. free"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ottla.cli.output import fail, takes_format
from ottla.wire import is_kafka_address

if TYPE_CHECKING:
    from ottla.wire.address import KafkaAddress
    from ottla.wire.cluster import Cluster

DEFAULT_TIMEOUT_S: Final = 10.0

takes_command_config: Final = click.option(
    "--command-config",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Properties of a Java client, for brokers with TLS or SASL.",
)


def asks_a_cluster(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that sends requests to brokers in Kafka's protocol."""
    for decorate in (
        takes_format,
        click.option(
            "--timeout-s",
            type=click.FloatRange(min=0.1),
            default=DEFAULT_TIMEOUT_S,
            show_default=True,
            help="Timeout for connecting, and for each answer.",
        ),
        takes_command_config,
        click.option(
            "-b",
            "--bootstrap-server",
            metavar="HOST:PORT[,...]",
            default="localhost:9092",
            show_default=True,
            help="Bootstrap brokers.",
        ),
    ):
        command = decorate(command)
    return command


class PathOrAddress(click.Path):
    """An existing path, as a Path, or the address of a cluster, as a string."""

    def __init__(self, *, file_okay: bool = True) -> None:
        super().__init__(exists=True, file_okay=file_okay, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and is_kafka_address(value):
            return value
        return super().convert(value, param, ctx)


def open_address(code: int, command: str, address: str, command_config: Path | None) -> "KafkaAddress":
    """Return the address of a cluster whose records `command` reads; exit with `code` if it cannot."""
    from ottla.scan.needs import lacking

    if lacks := lacking():
        fail(code, f"to read a cluster, {', '.join(lacks)} is needed: pip install 'ottla[audit]'")
    from ottla.wire.address import parse_kafka_address

    try:
        parsed = parse_kafka_address(address)
    except ValueError as error:
        fail(code, error)
    return parsed._replace(properties=str(command_config or ""), client_id=f"ottla-{command}")


@contextmanager
def borrow_cluster(
    code: int, command: str, bootstrap_server: str, command_config: Path | None, timeout_s: float
) -> "Iterator[tuple[KafkaAddress, Cluster]]":
    """Yield the address of a cluster and connections to it. Exit with `code` at a request without an answer."""
    from ottla.wire import Unanswered
    from ottla.wire.address import connections_to, parse_kafka_address

    try:
        parsed = parse_kafka_address(bootstrap_server)
        address = parsed._replace(
            properties=str(command_config or ""), timeout_s=timeout_s, client_id=f"ottla-{command}"
        )
        connections = connections_to(address)
    except ValueError as error:
        fail(code, error)
    try:
        with connections.borrow() as cluster:
            yield address, cluster
    except Unanswered as error:
        fail(code, error)


def refuse_options(code: int, given: dict[str, object], reason: str) -> None:
    """Exit with `code` if one of these options is given: its value is neither None nor False nor empty."""
    for name, value in given.items():
        if value is not None and value is not False and value != "":
            fail(code, f"{name} {reason}")
