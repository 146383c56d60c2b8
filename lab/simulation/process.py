"""A client: a script that sends, waits and sleeps, and a connection that may be lost under it. free

A script is a generator. It yields `Pause` or `Reply` (through `sleep`, `call`, `post`, `reply`) and is resumed with
the answer; a lost connection or a reply that does not come in time raises `Lost` in it.
"""

from collections.abc import Callable, Generator
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lab.simulation.network import Link
from ottla.protocol.requests import codec
from ottla.protocol.values import ProducerIdAndEpoch
from ottla.testkit.in_memory.wire import Request

if TYPE_CHECKING:
    from lab.simulation.world import World

RECONNECT_MS: Final = 25.0
REPLY_TIMEOUT_MS: Final = 900.0


class Pause(NamedTuple):
    """Signal of a script: resume after this delay."""

    delay_ms: float


class Reply(NamedTuple):
    """Signal of a script: resume with the reply to this request."""

    correlation_id: int
    timeout_ms: float


Script = Generator[Pause | Reply, Any, Any]


class Lost(Exception):
    """Raised when no reply will come. The broker may or may not have handled the request."""


class Attempt:
    """The operation that one or more requests belong to.

    Requests that arrive when it is `over` are late. `given_up` is the partition of a batch whose sequences are used
    again in the same epoch.
    """

    __slots__ = ("given_up", "over", "process", "producer", "txn")

    def __init__(self, process: "Process", txn: str | None, producer: ProducerIdAndEpoch | None = None) -> None:
        self.process = process
        self.producer = producer
        self.txn = txn
        self.over = False
        self.given_up: tuple[str, int] | None = None


class Process:
    """A client. `txn` names the transaction that it believes to be in."""

    has_worked = False
    """Whether nothing is left to do that the run must wait for."""

    def __init__(self, world: "World", name: str, random: Random) -> None:
        self.world = world
        self.name = name
        self.random = random
        self.txn: str | None = None
        self.done = False
        self._script: Script
        self._link: Link | None = None
        self._links = 0
        self._correlation_id = 0
        self._outstanding: dict[int, tuple[int, int]] = {}
        self._replies: dict[int, Any] = {}
        self._inbox = bytearray()
        self._awaited: int | None = None
        self._wakeups = 0

    def start(self, script: Callable[[], Script], delay_ms: float) -> None:
        self._script = script()

        def begin() -> None:
            if not self.done:
                self._resume(None)

        self.world.schedule.after(delay_ms, begin)

    # --- for scripts

    def sleep(self, delay_ms: float) -> Script:
        yield Pause(delay_ms)

    def post(self, request: Request, attempt: Attempt | None = None) -> Script:
        """Wait for a connection, send the request and return its correlation id."""
        while self._link is None or not self._link.open_to_client:
            self._link = self.world.connect(self, f"{self.name}.{self._links}")
            self._links += 1
            self._inbox.clear()
            if self._link is None:
                yield Pause(RECONNECT_MS)
        return self._write(self._link, request, attempt)

    def _write(self, link: Link, request: Request, attempt: Attempt | None) -> int:
        self._correlation_id += 1
        correlation_id = self._correlation_id
        self._outstanding[correlation_id] = (request.api_key, request.version)
        if attempt is not None:
            self.world.causes.expect(link.name, correlation_id, attempt)
        link.send(request.frame(correlation_id, self.name))
        return correlation_id

    def reply(self, correlation_id: int, timeout_ms: float = REPLY_TIMEOUT_MS) -> Script:
        """Return the reply to a request. Raises Lost."""
        if correlation_id in self._replies:
            return self._replies.pop(correlation_id)
        if correlation_id not in self._outstanding:
            raise Lost
        return (yield Reply(correlation_id, timeout_ms))

    def call(self, request: Request, attempt: Attempt | None = None, timeout_ms: float = REPLY_TIMEOUT_MS) -> Script:
        """Send a request and return its reply. Raises Lost."""
        correlation_id = yield from self.post(request, attempt)
        answer = yield from self.reply(correlation_id, timeout_ms)
        self.on_answer(request, attempt)
        return answer

    def on_answer(self, request: Request, attempt: Attempt | None) -> None:
        """Do nothing by default. Called after the reply to a request."""

    def send_again(self, request: Request, attempt: Attempt | None) -> None:
        """Repeat a request if there is a connection. The script does not read the reply."""
        link = self._link
        if link is not None and link.open_to_client:
            self._write(link, request, attempt)

    def hang_up(self) -> None:
        """Close the connection and drop its outstanding requests."""
        link, self._link = self._link, None
        self._inbox.clear()
        self._outstanding.clear()
        self._replies.clear()
        if link is not None:
            link.leave()

    def stop(self) -> None:
        """End the script and close the connection."""
        self.done = self.has_worked = True
        self._awaited = None
        self._wakeups += 1
        self.hang_up()

    # --- what happens to it

    def on_data(self, link: Link, data: bytes) -> None:
        if link is not self._link:
            return
        self._inbox += data
        while link is self._link and len(self._inbox) >= 4:
            size = int.from_bytes(self._inbox[:4], "big")
            if len(self._inbox) < 4 + size:
                return
            frame = bytes(self._inbox[4 : 4 + size])
            del self._inbox[: 4 + size]
            self._take(frame)

    def lost(self, link: Link) -> None:
        if link is not self._link:
            return
        self._link = None
        self._outstanding.clear()
        self._replies.clear()
        if self._awaited is not None:
            self._resume(Lost())

    def _take(self, frame: bytes) -> None:
        correlation_id = int.from_bytes(frame[:4], "big")
        _, message = codec.decode_response(*self._outstanding.pop(correlation_id), frame)
        if correlation_id == self._awaited:
            self._resume(message)
        else:
            self._replies[correlation_id] = message

    def _resume(self, value: Any) -> None:
        self._awaited = None
        self._wakeups += 1
        wakeup = self._wakeups
        try:
            signal = self._script.throw(value) if isinstance(value, Lost) else self._script.send(value)
        except StopIteration:
            self.done = self.has_worked = True
            self.hang_up()
            return

        def wake() -> None:
            if wakeup == self._wakeups:
                self._on_time(signal)

        if isinstance(signal, Reply):
            self._awaited = signal.correlation_id
            self.world.schedule.after(signal.timeout_ms, wake)
        else:
            self.world.schedule.after(signal.delay_ms, wake)

    def _on_time(self, signal: Pause | Reply) -> None:
        if isinstance(signal, Reply):
            self.hang_up()
            self._resume(Lost())
        else:
            self._resume(None)
