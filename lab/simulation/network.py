"""Connections in memory: FIFO, in chunks of any size, with random delays, stalls and resets. free

A link is one connection. Bytes arrive in order; their delays and the number of chunks are random. A reset ends the
link for the client at once and loses a suffix of the bytes on their way. The other bytes still reach the broker,
perhaps seconds later, after the client has retried on another link.
"""

from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple, Protocol

from ottla.broker.connection import Connection
from ottla.testkit.in_memory.schedule import Schedule

Buffer = bytes | bytearray | memoryview


class NetworkConditions(NamedTuple):
    """Conditions of the network. Probabilities are per message; times in ms."""

    delay_ms: float = 1.0
    stall: float = 0.02
    stall_ms: float = 400.0
    split: float = 0.15
    reset: float = 0.02
    late: float = 0.5
    late_ms: float = 4000.0


CALM: Final = NetworkConditions(stall=0.0, split=0.0, reset=0.0)


class Peer(Protocol):
    """The client's end of a link."""

    def on_data(self, link: "Link", data: bytes) -> None: ...

    def lost(self, link: "Link") -> None: ...


class Host(Protocol):
    """The world, as a link sees it."""

    schedule: Schedule
    random: Random
    network: NetworkConditions

    def note(self, what: str, data: bytes) -> None: ...

    def guard(self, work: Callable[[], None]) -> None: ...


class Transport:
    """The transport that `Connection` writes to."""

    __slots__ = ("_closing", "_link")

    def __init__(self, link: "Link") -> None:
        self._link = link
        self._closing = False

    def write(self, data: Buffer) -> None:
        if not self._closing:
            self._link.reply(bytes(data))

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        self.write(b"".join(buffers))

    def close(self) -> None:
        self._closing = True
        self._link.closed_by_broker()

    def abort(self) -> None:
        self.close()

    def get_extra_info(self, name: str) -> Any:
        return (self._link.name, 0) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        """Ignore the limit: all bytes are taken at once."""

    def pause_reading(self) -> None:
        self._link.reading = False

    def resume_reading(self) -> None:
        self._link.reading = True
        self._link.deliver_delayed_data()


class Link:
    """A connection between a client and one life of the broker."""

    def __init__(self, host: Host, peer: Peer, connection: Connection, name: str, broker: int = 0) -> None:
        self.name = name
        self.broker = broker
        """The number of the broker at its other end."""
        self.reading = True
        self.open_to_client = True
        self.open_to_broker = True
        self._host = host
        self._peer = peer
        self._connection = connection
        self._held: list[bytes] = []
        self._up_ms = self._down_ms = host.schedule.now_ms
        self._not_before_ms = 0.0
        self._sent = self._arrived = 0
        self._lost_from = -1
        transport: Any = Transport(self)
        connection.connection_made(transport)

    # --- towards the broker

    def send(self, data: bytes) -> None:
        """Send a request of the client to the broker."""
        host, random, network = self._host, self._host.random, self._host.network
        pieces = [data]
        if random.random() < network.split:
            at = random.randrange(1, len(data))
            pieces = [data[:at], data[at:]]
        for piece in pieces:
            self._up_ms = max(self._up_ms, host.schedule.now_ms) + self._delay()
            self._plan_up(piece)
        if random.random() < network.reset:
            host.schedule.after(random.random() * network.delay_ms, self.reset)

    def _plan_up(self, piece: bytes) -> None:
        number = self._sent
        self._sent += 1
        self._host.schedule.at(self._up_ms, partial(self._arrive, piece, number))

    def _arrive(self, piece: bytes, number: int) -> None:
        if not self.open_to_broker or 0 <= self._lost_from <= number:
            return
        schedule = self._host.schedule
        if schedule.now_ms < self._not_before_ms:  # delays all bytes on their way, so they stay in order
            schedule.at(self._not_before_ms, partial(self._arrive, piece, number))
            return
        self._arrived = number + 1
        self._held.append(piece)
        self.deliver_delayed_data()

    def deliver_delayed_data(self) -> None:
        while self._held and self.reading and self.open_to_broker:
            piece = self._held.pop(0)
            self._host.note(self.name, piece)
            self._host.guard(partial(self._hand_over, piece))

    def _hand_over(self, piece: bytes) -> None:
        connection = self._connection
        while piece and self.open_to_broker:
            view = connection.get_buffer(-1)
            size = min(len(piece), len(view))
            view[:size] = piece[:size]
            piece = piece[size:]
            connection.buffer_updated(size)

    # --- towards the client

    def reply(self, data: bytes) -> None:
        """Send bytes of the broker to the client."""
        host = self._host
        self._down_ms = max(self._down_ms, host.schedule.now_ms) + self._delay()
        host.schedule.at(self._down_ms, partial(self._reach_client, data))

    def _reach_client(self, data: bytes) -> None:
        if self.open_to_client:
            self._host.note(f"{self.name}<", data)
            self._peer.on_data(self, data)

    # --- ends

    def reset(self) -> None:
        """Break the connection. The client sees it at once, the broker after the bytes that are still on their way."""
        if not self.open_to_client:
            return
        self._host.note(f"{self.name} reset", b"")
        self.leave()
        self._peer.lost(self)

    def leave(self) -> None:
        """Close the client's end. Some or all of the bytes that it has written may still arrive, perhaps late."""
        if not self.open_to_client:
            return
        self.open_to_client = False
        host, random, network = self._host, self._host.random, self._host.network
        if random.random() < network.late:
            self.stall(random.random() * network.late_ms)
        else:
            self._lost_from = random.randrange(self._arrived, self._sent + 1)
        host.schedule.at(self._up_ms + 0.1, self._broker_sees_the_end)

    def stall(self, delay_ms: float) -> None:
        """Delay all bytes that have not arrived yet."""
        self._up_ms = max(self._up_ms, self._host.schedule.now_ms) + delay_ms
        self._not_before_ms = self._up_ms

    def _broker_sees_the_end(self) -> None:
        if self.open_to_broker:
            self.open_to_broker = False
            self._host.guard(partial(self._connection.connection_lost, None))

    def closed_by_broker(self) -> None:
        """Close the broker's end. The client still gets the bytes that it has written, and then sees the end."""
        host = self._host
        self._down_ms = max(self._down_ms, host.schedule.now_ms) + self._delay()
        host.schedule.at(self._down_ms, self._client_sees_the_end)
        host.schedule.after(0.0, self._broker_sees_the_end)

    def on_broker_death(self) -> None:
        """Stop deliveries to the broker, and let the client see the end after a delay."""
        self.open_to_broker = False
        self._host.schedule.after(self._delay(), self._client_sees_the_end)

    def _client_sees_the_end(self) -> None:
        if self.open_to_client:
            self.open_to_client = False
            self._peer.lost(self)

    def _delay(self) -> float:
        random, network = self._host.random, self._host.network
        delay_ms = random.random() * network.delay_ms
        if network.stall and random.random() < network.stall:
            delay_ms += random.random() * network.stall_ms
        return delay_ms
