"""A client: a script that sends, waits and sleeps, and a connection that may be lost under it. free

Of several brokers a client has a connection to each that it needs; `routes.py` finds the broker of a request.

A script is a generator. It yields `Pause` or `Reply` (through `sleep`, `call`, `post`, `reply`) and is resumed with
the answer; a lost connection or a reply that does not come in time raises `Lost` in it.
"""

from collections.abc import Callable, Generator
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lab.simulation.network import Link
from lab.simulation.routes import Routes
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
        self._links: dict[int, Link] = {}
        """The connections in use, by the number of their broker."""
        self._inboxes: dict[Link, bytearray] = {}
        self._link_count = 0
        self._correlation_id = 0
        self._outstanding: dict[int, tuple[Link, Request]] = {}
        self._replies: dict[int, tuple[Link, Any]] = {}
        self._awaited: int | None = None
        self._wakeups = 0
        self.routes = Routes(self) if world.profile.brokers > 1 else None
        """Finds the brokers of requests; None if there is one broker."""

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
        """Wait for a connection to the broker of the request, send it and return its correlation id."""
        routes = self.routes
        while True:
            broker = 0 if routes is None else (yield from routes.find(request))
            link = self.connect(broker)
            if link is not None:
                return self.write(link, request, attempt)
            yield Pause(RECONNECT_MS)
            if routes is not None:
                routes.forget_broker(broker)

    def connect(self, broker: int) -> Link | None:
        """Return the connection to a broker, a new one if there is none; None if it is refused."""
        link = self._links.get(broker)
        if link is not None and link.open_to_client:
            return link
        link = self.world.connect(self, f"{self.name}.{self._link_count}", broker)
        self._link_count += 1
        if link is not None:
            self._links[broker] = link
            self._inboxes[link] = bytearray()
        return link

    def write(self, link: Link, request: Request, attempt: Attempt | None = None) -> int:
        """Send a request on a connection and return its correlation id."""
        self._correlation_id += 1
        correlation_id = self._correlation_id
        self._outstanding[correlation_id] = link, request
        if attempt is not None:
            self.world.causes.expect(link.name, correlation_id, attempt)
        link.send(request.frame(correlation_id, self.name))
        return correlation_id

    def reply(self, correlation_id: int, timeout_ms: float = REPLY_TIMEOUT_MS) -> Script:
        """Return the reply to a request. Raises Lost."""
        if correlation_id in self._replies:
            return self._replies.pop(correlation_id)[1]
        if correlation_id not in self._outstanding:
            raise Lost
        return (yield Reply(correlation_id, timeout_ms))

    def call(self, request: Request, attempt: Attempt | None = None, timeout_ms: float = REPLY_TIMEOUT_MS) -> Script:
        """Send a request and return its reply. Raises Lost."""
        correlation_id = yield from self.post(request, attempt)
        answer = yield from self.reply(correlation_id, timeout_ms)
        self.on_answer(request, attempt)
        return answer

    def ask(self, link: Link, request: Request) -> Script:
        """Send a request on a connection. Return its reply, or None if it is lost."""
        try:
            return (yield from self.reply(self.write(link, request)))
        except Lost:
            return None

    def on_answer(self, request: Request, attempt: Attempt | None) -> None:
        """Do nothing by default. Called after the reply to a request."""

    def send_again(self, request: Request, attempt: Attempt | None) -> None:
        """Repeat a request if there is a connection. The script does not read the reply."""
        link = self._links.get(0 if self.routes is None else self.routes.last(request))
        if link is not None and link.open_to_client:
            self.write(link, request, attempt)

    def hang_up(self) -> None:
        """Close all connections and drop their outstanding requests."""
        links = [*self._links.values()]
        self.turn_away()
        for link in links:
            link.leave()

    def turn_away(self) -> None:
        """Continue on new connections and leave the old ones open."""
        self._links.clear()
        self._inboxes.clear()
        self._outstanding.clear()
        self._replies.clear()

    def stop(self) -> None:
        """End the script and close the connection."""
        self.done = self.has_worked = True
        self._awaited = None
        self._wakeups += 1
        self.hang_up()

    # --- what happens to it

    def on_data(self, link: Link, data: bytes) -> None:
        inbox = self._inboxes.get(link)
        if inbox is None:
            return
        inbox += data
        while self._inboxes.get(link) is inbox and len(inbox) >= 4:
            size = int.from_bytes(inbox[:4], "big")
            if len(inbox) < 4 + size:
                return
            frame = bytes(inbox[4 : 4 + size])
            del inbox[: 4 + size]
            self._take(frame)

    def lost(self, link: Link) -> None:
        if self._inboxes.pop(link, None) is None:
            return
        self._links = {broker: each for broker, each in self._links.items() if each is not link}
        is_awaited = self._awaited is not None and self._outstanding[self._awaited][0] is link
        for requests in (self._outstanding, self._replies):
            for correlation_id in [each for each, value in requests.items() if value[0] is link]:
                del requests[correlation_id]
        if is_awaited:
            self._resume(Lost())

    def _take(self, frame: bytes) -> None:
        correlation_id = int.from_bytes(frame[:4], "big")
        link, request = self._outstanding.pop(correlation_id)
        _, message = codec.decode_response(request.api_key, request.version, frame)
        if self.routes is not None:
            self.routes.on_answer(request, message)
        if correlation_id == self._awaited:
            self._resume(message)
        else:
            self._replies[correlation_id] = link, message

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
