"""Channels that carry the markers of a transaction coordinator to the other brokers of the process. shell

A channel is one connection with one WriteTxnMarkers request in flight. All markers that wait when a turn ends, or when
the reply arrives, are one request. A marker whose answer does not arrive is answered REQUEST_TIMED_OUT, and the
coordinator sends it again: the connection is lost, no reply arrives within 30 seconds, or the link is cut.

Source: `TransactionMarkerChannelManager`, `TransactionMarkerRequestCompletionHandler` of Kafka 4.3.1.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from ottla.broker.cluster.links import Links
from ottla.broker.costs import REQUEST_US, ROW_US
from ottla.broker.ports.clock import Clock, Timer
from ottla.broker.ports.listener import StreamProtocol, Transport
from ottla.broker.ports.peers import Peers
from ottla.broker.turns import Turns
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.requests import codec
from ottla.protocol.requests.frames import ReceiveBuffer
from ottla.protocol.values import TransactionMarker

log = logging.getLogger(__name__)

VERSION: Final = 2
ANSWER_MS: Final = 30_000.0
"""The time limit of an answer: `request.timeout.ms` of Kafka's brokers."""
MOST_MARKERS: Final = 200
"""Most markers in a request, so that its encoding is short work."""
MOST_REPLY_BYTES: Final = 1024 * 1024
"""More than the reply to `MOST_MARKERS` with the longest names."""

_MOST_INT32: Final = 0x7FFF_FFFF

_Row = tuple[int, int, bool, list[tuple[str, list[int]]], int, int]
_Key = tuple[int, str, int]
"""Producer id, topic, partition: the place of an answer in a reply."""


class Owner(Protocol):
    """The shard of the transaction that a marker ends."""

    resigned: bool


class MarkerAnswer:
    """The answer of another broker to a marker, which is still to come."""

    __slots__ = ("_on_answer", "_owner", "index", "marker", "topic")

    def __init__(self, topic: str, index: int, marker: TransactionMarker) -> None:
        self.topic = topic
        self.index = index
        self.marker = marker
        self._owner: Owner | None = None
        self._on_answer: Callable[[ErrorCode], None] | None = None

    def follow(self, owner: Owner, on_answer: Callable[[ErrorCode], None]) -> None:
        """Call `on_answer` with the answer, in a turn. The marker is not sent if `owner` resigns before."""
        self._owner = owner
        self._on_answer = on_answer

    @property
    def is_dropped(self) -> bool:
        """Whether another coordinator writes this marker now."""
        return self._owner is not None and self._owner.resigned

    @property
    def key(self) -> _Key:
        """The place of the answer in a reply."""
        return self.marker.producer_id, self.topic, self.index

    def give(self, error: ErrorCode) -> None:
        """Pass the answer on."""
        on_answer, self._on_answer = self._on_answer, None
        if on_answer is not None:
            on_answer(error)


class MarkerChannels:
    """The channels of the broker `node_id` to the other brokers of the process."""

    def __init__(self, node_id: int, turns: Turns, clock: Clock, links: Links, peers: Peers) -> None:
        self.node_id = node_id
        self._turns = turns
        self._clock = clock
        self._links = links
        self._peers = peers
        self._channels: dict[int, _Channel] = {}

    def send(self, leader: int, topic: str, index: int, marker: TransactionMarker) -> ErrorCode | MarkerAnswer:
        """Send a marker to another broker when this turn ends. REQUEST_TIMED_OUT if its answers do not arrive here."""
        if not self._links.reaches(self.node_id, leader):
            return ErrorCode.REQUEST_TIMED_OUT
        channel = self._channels.get(leader)
        if channel is None:
            channel = self._channels[leader] = _Channel(
                f"broker-{self.node_id}-txn-marker-sender",
                self._turns,
                self._clock,
                lambda: self._links.reaches(self.node_id, leader),
                lambda end: self._peers.connect(leader, end),
            )
        answer = MarkerAnswer(topic, index, marker)
        channel.queue(answer)
        return answer

    @property
    def awaits_answers(self) -> bool:
        """Return whether a broker that can be reached has not answered a marker yet."""
        return any(channel.awaits_answers for channel in self._channels.values())

    def close(self) -> None:
        """End all connections. Markers without an answer get none."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()


class _Channel:
    """The markers for one other broker: those that wait, and those of the request in flight."""

    def __init__(
        self,
        client_id: str,
        turns: Turns,
        clock: Clock,
        reaches: Callable[[], bool],
        connect: Callable[[StreamProtocol], None],
    ) -> None:
        self.turns = turns
        self._client_id = client_id
        self._clock = clock
        self._reaches = reaches
        self._connect = connect
        self._waiting: deque[MarkerAnswer] = deque()
        self._sent: dict[_Key, MarkerAnswer] = {}
        self._correlation_id = 0
        self._connection: _Connection | None = None
        self._is_due = False
        # The time limit of the request in flight, or of connecting.
        self._timer: Timer | None = None

    @property
    def awaits_answers(self) -> bool:
        """Return whether markers wait, or are not answered, and the other broker can be reached."""
        return bool(self._sent or self._waiting) and self._reaches()

    def queue(self, answer: MarkerAnswer) -> None:
        """Send a marker when this turn ends, or after the request in flight."""
        self._waiting.append(answer)
        if not self._is_due and not self._sent:
            self._is_due = True
            self.turns.at_end(self.send_next)

    def send_next(self) -> None:
        """Send the waiting markers in a request if none is in flight; connect first if necessary."""
        self._is_due = False
        if self._sent or not self._waiting:
            return
        if self._connection is None:
            self._connection = _Connection(self)
            self._set_timer()
            self._connect(self._connection)
        elif self._connection.transport is not None:
            self._collect()
            if self._sent:
                self._correlation_id = self._correlation_id + 1 & _MOST_INT32
                self.turns.charge(REQUEST_US + len(self._sent) * ROW_US)
                header = ApiKey.WRITE_TXN_MARKERS, VERSION, self._correlation_id, self._client_id
                self._connection.transport.write(codec.encode_values(*header, _rows_of(self._sent.values())))
                self._set_timer()

    def _collect(self) -> None:
        """Take the markers of the next request from the queue. It has one for each place of its reply."""
        waiting, sent = self._waiting, self._sent
        while waiting and len(sent) < MOST_MARKERS and waiting[0].key not in sent:
            answer = waiting.popleft()
            if not answer.is_dropped:
                sent[answer.key] = answer

    def receive(self, frame: memoryview) -> None:
        """Give each marker of the request in flight its answer in the reply. Raises ProtocolError."""
        correlation_id, reply = codec.decode_response(ApiKey.WRITE_TXN_MARKERS, VERSION, frame)
        if correlation_id != self._correlation_id or not self._sent:
            raise ProtocolError(f"a reply with correlation id {correlation_id}, which no request in flight has")
        errors = {
            (row.producer_id, topic.name, partition.partition_index): _error_of(partition.error_code)
            for row in reply.markers
            for topic in row.topics
            for partition in topic.partitions
        }
        sent, self._sent = self._sent, {}
        self._clear_timer()
        arrives = self._reaches()
        for key, answer in sent.items():
            answer.give(errors.get(key, ErrorCode.REQUEST_TIMED_OUT) if arrives else ErrorCode.REQUEST_TIMED_OUT)
        self.send_next()

    def uses(self, connection: "_Connection") -> bool:
        """Return whether this is the current connection, and not one that was given up."""
        return connection is self._connection

    def lose(self, connection: "_Connection") -> None:
        """Answer all markers because the connection is lost."""
        if self.uses(connection):
            self._fail()

    def close(self) -> None:
        """End the connection, and forget all markers."""
        self._waiting.clear()
        self._sent.clear()
        self._disconnect()

    def _fail(self) -> None:
        failed = [*self._sent.values(), *self._waiting]
        self.close()
        for answer in failed:
            answer.give(ErrorCode.REQUEST_TIMED_OUT)

    def _disconnect(self) -> None:
        self._clear_timer()
        connection, self._connection = self._connection, None
        if connection is not None and connection.transport is not None:
            connection.transport.abort()

    def _set_timer(self) -> None:
        self._clear_timer()
        self._timer = self._clock.call_later(ANSWER_MS, self._fail)

    def _clear_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()


class _Connection(StreamProtocol):
    """A connection of a channel."""

    def __init__(self, channel: _Channel) -> None:
        self._channel = channel
        self._inbox = ReceiveBuffer(MOST_REPLY_BYTES)
        self.transport: Transport | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if self._channel.uses(self):
            self._channel.turns.event(self._channel.send_next)
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self._channel.turns.event(lambda: self._receive(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self._channel.turns.event(lambda: self._channel.lose(self))

    def _receive(self, data: bytes) -> None:
        try:
            for frame in self._frames(data):
                if self._channel.uses(self):
                    self._channel.receive(frame)
        except ProtocolError as error:
            log.error("Closing a connection between two brokers of this process: a reply to markers is bad: %s", error)
            self._channel.lose(self)

    def _frames(self, data: bytes) -> Iterable[memoryview]:
        inbox = self._inbox
        while data:
            view = inbox.get_buffer()
            size = min(len(view), len(data))
            view[:size] = data[:size]
            data = data[size:]
            inbox.commit(size)
            while (frame := inbox.next_frame()) is not None:
                yield frame
                inbox.release()


def _rows_of(answers: Iterable[MarkerAnswer]) -> list[_Row]:
    """Return the rows of a WriteTxnMarkers request: one for each marker, with all its partitions."""
    places: dict[TransactionMarker, dict[str, list[int]]] = {}
    for answer in answers:
        places.setdefault(answer.marker, {}).setdefault(answer.topic, []).append(answer.index)
    return [
        (
            *(marker.producer_id, marker.producer_epoch, marker.commit),
            [*topics.items()],
            *(marker.coordinator_epoch, marker.transaction_version),
        )
        for marker, topics in places.items()
    ]


def _error_of(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
