"""The port to ZooKeeper nodes, over kazoo, whose threads reach the broker through the clock. shell

Every answer is given once, in a turn. A change whose answer is lost is UNKNOWN: it may be applied, now or later.
kazoo is an extra, and is imported only if a broker or a command uses ZooKeeper.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

SESSION_S: Final = 10.0
_LONGEST_DELAY_S: Final = 5.0
# kazoo logs each attempt to connect: the broker says once that ZooKeeper is missing.
_KAZOO_LOG: Final = logging.getLogger(f"{__name__}.kazoo")
_KAZOO_LOG.setLevel(logging.ERROR)


class Outcome(Enum):
    """The answer to a read or a change, with what to do about a failure."""

    OK = "done"
    NO_NODE = "there is no such node"
    EXISTS = "the node exists already"
    OTHER_VERSION = "the node has another version"
    NO_RIGHT = "refused: let anyone read, write and create it (setAcl of zkCli.sh), because Ottla does not log in"
    REFUSED = "refused"
    UNKNOWN = "no answer: check that ZooKeeper runs there"


class Answer(NamedTuple):
    """An outcome, with the node's bytes and version after a read, and the reason of a refusal."""

    outcome: Outcome
    data: bytes = b""
    version: int = 0
    why: str = ""
    children: Sequence[str] = ()

    def __str__(self) -> str:
        return f"{self.outcome.value} ({self.why})" if self.why else self.outcome.value


NO_ANSWER: Final = Answer(Outcome.UNKNOWN)
_DONE: Final = Answer(Outcome.OK)

OnAnswer = Callable[[Answer], None]


class ZooKeeper(Protocol):
    """Nodes of one ZooKeeper. Paths are absolute."""

    is_connected: bool
    on_connected: Callable[[], None]
    """Called in a turn each time that a connection is made."""

    def read(self, path: str, on_answer: OnAnswer) -> None:
        """Read a node's bytes and version."""

    def change(self, path: str, data: bytes, version: int, on_answer: OnAnswer) -> None:
        """Replace a node's bytes if it has this version."""

    def create(self, path: str, data: bytes, on_answer: OnAnswer) -> None:
        """Create a node and its parents."""

    def list_children(self, path: str, on_answer: OnAnswer) -> None:
        """List the names below a node."""

    def close(self) -> None:
        """End the session. Answers that are still to come are dropped."""


class KazooZooKeeper:
    """A ZooKeeper that is reached with kazoo. It connects, and connects again, without an end."""

    def __init__(self, hosts: str, from_thread: Callable[[Callable[[], None]], None]) -> None:
        """Begin to connect. `from_thread` runs a call of another thread in a turn. ImportError without kazoo."""
        from kazoo.client import KazooClient, KazooState
        from kazoo.retry import KazooRetry

        self._from_thread = from_thread
        self._connected_state = KazooState.CONNECTED
        self.is_connected = False
        self.on_connected: Callable[[], None] = lambda: None
        retry = KazooRetry(max_tries=-1, delay=0.1, max_delay=_LONGEST_DELAY_S)
        self._client = KazooClient(hosts=hosts, timeout=SESSION_S, connection_retry=retry, logger=_KAZOO_LOG)
        self._client.add_listener(self._follow)
        self._client.start_async()

    def read(self, path: str, on_answer: OnAnswer) -> None:
        """Read a node's bytes and version."""
        self._ask(
            lambda: self._client.get_async(path), on_answer, lambda got: Answer(Outcome.OK, got[0], got[1].version)
        )

    def change(self, path: str, data: bytes, version: int, on_answer: OnAnswer) -> None:
        """Replace a node's bytes if it has this version."""
        self._ask(lambda: self._client.set_async(path, data, version), on_answer, lambda stat: _DONE)

    def create(self, path: str, data: bytes, on_answer: OnAnswer) -> None:
        """Create a node and its parents."""
        self._ask(lambda: self._client.create_async(path, data, makepath=True), on_answer, lambda created: _DONE)

    def list_children(self, path: str, on_answer: OnAnswer) -> None:
        """List the names below a node."""
        self._ask(
            lambda: self._client.get_children_async(path),
            on_answer,
            lambda names: Answer(Outcome.OK, children=sorted(names)),
        )

    def close(self) -> None:
        """End the session in a thread of its own, because that may wait for the network."""
        threading.Thread(target=self._client.stop, daemon=True).start()

    def _follow(self, state: object) -> None:
        """Follow the connection. kazoo calls this in its own thread."""
        connected = state == self._connected_state
        if not connected:
            # A server that was wiped or restored refuses a client that has seen later changes, for ever.
            self._client.last_zxid = 0

        def change() -> None:
            self.is_connected = connected
            if connected:
                self.on_connected()

        self._from_thread(change)

    def _ask(self, start: Callable[[], Any], on_answer: OnAnswer, read: Callable[[Any], Answer]) -> None:
        if not self.is_connected:  # kazoo would send it when it connects, perhaps after the caller has given up
            self._from_thread(lambda: on_answer(NO_ANSWER))
            return

        def finish(result: Any) -> None:
            try:
                answer = read(result.get_nowait())
            except Exception as error:
                answer = _answer_of(error)
            self._from_thread(lambda: on_answer(answer))

        start().rawlink(finish)


def _answer_of(error: Exception) -> Answer:
    """Return the answer that is an exception of kazoo."""
    from kazoo import exceptions

    known = {
        exceptions.NoNodeError: Outcome.NO_NODE,
        exceptions.NodeExistsError: Outcome.EXISTS,
        exceptions.BadVersionError: Outcome.OTHER_VERSION,
        exceptions.NoAuthError: Outcome.NO_RIGHT,
    }
    lost = (
        exceptions.ConnectionLoss,
        exceptions.ConnectionClosedError,
        exceptions.SessionExpiredError,
        exceptions.OperationTimeoutError,
    )
    if isinstance(error, lost):
        return NO_ANSWER
    return Answer(known.get(type(error), Outcome.REFUSED), why=f"{type(error).__name__} {error}".strip())
