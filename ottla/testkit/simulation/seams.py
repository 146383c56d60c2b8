"""Where the simulation stands between two parts of the broker. free"""

import logging
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.api.table import TABLE
from ottla.broker.assembly import Assembly
from ottla.broker.cluster.sinks import TransactionMarker
from ottla.broker.dispatch import Dispatcher, Refuse, Send
from ottla.broker.turns import Activity
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.testkit.simulation.world import World

MARKER_ERRORS: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class Served(Dispatcher):
    """The broker's dispatcher, and who tells the world what it serves."""

    def __init__(self, assembly: Assembly, world: "World") -> None:
        super().__init__(assembly.broker, TABLE)
        self._world = world

    def start(self, frame: memoryview, peer: str, send: Send, refuse: Refuse) -> Activity[Any] | None:
        self._world.serves(frame, peer)
        return super().start(frame, peer, send, refuse)


def spoil_markers(assembly: Assembly, world: "World") -> None:
    """Let leaders refuse markers for now, or write them while their answer is lost, as long as the world says so."""
    sink: Any = assembly.broker.transactions.sink
    write = sink.write_marker

    def write_marker(topic: str, index: int, marker: TransactionMarker) -> ErrorCode:
        if world.bad_markers <= 0:
            return write(topic, index, marker)  # type: ignore[no-any-return]
        world.bad_markers -= 1
        if world.random.random() < 0.5:
            write(topic, index, marker)
        return world.random.choice(MARKER_ERRORS)

    sink.write_marker = write_marker


class ErrorLog(logging.Handler):
    """What the broker calls an error is one."""

    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        self._found.append(f"error log: {record.getMessage()}")
