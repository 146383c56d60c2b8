"""A broker in memory, on a virtual clock, with one client or several; its every event can be weighed."""

import sys
from collections import deque
from contextlib import contextmanager
from random import Random
from typing import NamedTuple

from lab.in_memory.disk import VOLUME_BYTES, MemoryDisk
from lab.in_memory.zookeeper import ModelConnection
from lab.simulation.charged import ChargeMeter
from lab.simulation.network import Link, NetworkConditions
from ottla.broker.api.table import TABLE
from ottla.broker.assembly import Assembly
from ottla.broker.config import Config
from ottla.broker.dispatch import Dispatcher
from ottla.broker.late_modules import import_all
from ottla.broker.ports.disk import Volume
from ottla.broker.security.session import ANONYMOUS
from ottla.broker.turns import Turns
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.testkit.in_memory.ports import PortCalls
from ottla.testkit.in_memory.schedule import Schedule, VirtualClock
from ottla.testkit.in_memory.wire import message

import_all()  # no weighed event pays for an import

STILL = NetworkConditions(delay_ms=0.0, stall=0.0, split=0.0, reset=0.0, late=0.0)
METADATA_LOG = "/data/__cluster_metadata-0/00000000000000000000.log"
CALLS_PER_US = 30
"""So many calls of the interpreter a charged microsecond pays for; twice of what it takes, for costs are rounded up."""


class Weight(NamedTuple):
    """The highest charge of an event, and the highest number of uncharged calls in an event."""

    us: float
    uncharged_calls: float


class Scales(ChargeMeter):
    """Counts the calls of Python's interpreter in each event too: work that is not charged is seen by them."""

    __slots__ = ("_calls", "_weighs", "uncharged_calls")

    def __init__(self, turns):
        super().__init__(turns, lambda what, cost_us: None)
        self._weighs = False
        self.uncharged_calls = self._calls = 0

    @contextmanager
    def weigh(self):
        """Weigh the events of a block: `most_us` and `uncharged_calls` are those of its heaviest ones."""
        self.most_us, self.uncharged_calls, self._weighs = 0.0, 0, True
        try:
            yield
        finally:
            self._weighs = False

    def begin(self):
        super().begin()
        self._calls = 0
        if self._weighs:
            sys.setprofile(self._count)

    def end(self, work):
        if self._weighs:
            sys.setprofile(None)
            uncharged = self._calls - (self._turns.charged_us - self._before_us) * CALLS_PER_US
            self.uncharged_calls = max(self.uncharged_calls, uncharged)
        super().end(work)

    def _count(self, frame, event, argument):
        if event in ("call", "c_call"):
            self._calls += 1


class _Disk(MemoryDisk):
    def volume(self, path):
        """Return a fixed volume: a real system needs one call, and summing up all files is not the broker's work."""
        return Volume(path, VOLUME_BYTES, VOLUME_BYTES)


class Client:
    """A connection of its own, for requests that are sent and not waited for; `replies` are what they were answered."""

    def __init__(self, broker, name, principal=ANONYMOUS):
        self.replies = []
        self.closed = False
        self._asked = deque()
        self._received = b""
        self._broker = broker
        self._connection = broker.assembly.accept(broker=broker.number)
        self._link = Link(broker, self, self._connection, name)
        self._connection.session.principal = principal

    def post(self, api_key, version, **fields):
        """Send a request, which is there a moment later."""
        if fields.get("acks") != 0:
            self._asked.append((api_key, version))
        self._link.send(codec.encode_request(message(api_key, version, **fields), version, 1, "client"))

    def send(self, api_key, version, **fields):
        """Send a request, and let the broker do what it does at once."""
        self.post(api_key, version, **fields)
        self._broker.advance(0.1)

    def send_bytes(self, data):
        """Send bytes that may be no request."""
        self._link.send(data)
        self._broker.advance(0.1)

    def hang_up(self):
        """Close the connection. The broker notices it at once, before all other events."""
        self._link.open_to_client = self._link.open_to_broker = False
        self._connection.connection_lost(None)

    # What a link asks of its client.

    def on_data(self, link, data):
        self._received += data
        while len(self._received) >= 4 and len(self._received) >= (end := 4 + int.from_bytes(self._received[:4])):
            frame, self._received = self._received[:end], self._received[end:]
            self.replies.append(codec.decode_response(*self._asked.popleft(), frame[4:])[1])

    def lost(self, link):
        self.closed = True


class MemoryBroker:
    """The broker, and `ask` to send it a request and run everything that follows.

    `sync_ms` is how long its disk takes to sync. With several `brokers`, `ask_broker` chooses the one that is asked.
    Blocks of producer ids are those of `zookeeper`, a `ModelZooKeeper`, if it is given.
    """

    def __init__(self, sync_ms=1.0, brokers=1, zookeeper=None, **options):
        self.bugs = []
        self.schedule = Schedule()
        self.random = Random(1)
        self.network = STILL
        self.clock = VirtualClock(self.schedule, PortCalls(), 0.0, lambda work: work())
        self.turns = Turns(self.clock.next_turn, self.bugs.append)
        self.scales = Scales(self.turns)
        self.clock.enter = self.turns.event
        self.disk = _Disk(PortCalls(), Random(1), lambda work: self.schedule.after(sync_ms, work))
        if zookeeper is not None:
            options |= {"producer_id_manager": "zookeeper", "zookeeper_connect": "zk:2181/ottla"}
        config = Config(log_dirs="/data", **options)
        self.zookeeper = zookeeper and ModelConnection(zookeeper, self._after, Random(1))
        self.assembly = Assembly(
            config, self.clock, self.disk, self.turns, broker_count=brokers, zookeeper=self.zookeeper
        )
        self.replies = []
        self.number = 0
        self.link = None
        self.advance()

    def _after(self, delay_ms, work):
        self.schedule.after(delay_ms, lambda: self.clock.next_turn(work))

    # What a link asks of its world and of its client.

    def note(self, what, data):
        """Record nothing, because these tests do not compare runs."""

    def guard(self, work):
        work()

    def on_data(self, link, data):
        self.replies.append(data)

    def lost(self, link):
        self.link = None

    # What tests use.

    def advance(self, for_ms=2.0):
        """Run what is due, and what follows from it."""
        until_ms = self.schedule.now_ms + for_ms
        done = []
        self.schedule.at(until_ms, lambda: done.append(True))
        while not done:
            self.schedule.run_next()

    def complete(self, work):
        """Run a coroutine of the broker to its end and return its result. Raises its exception."""
        results, errors = [], []
        self.turns.event(lambda: self.turns.start(work, results.append, errors.append))
        for _ in range(1_000):
            if results or errors:
                break
            self.advance()
        if errors:
            raise errors[0]
        return results[0]

    def ask_broker(self, node_id):
        """Send the next requests to the broker of this id, on a new connection."""
        self.link, self.number = None, node_id - self.assembly.broker.cluster.node_id
        return self

    def serve(self, message, version):
        """Return the frame of the reply; None if the connection was closed instead."""
        if self.link is None:
            self.link = Link(self, self, self.assembly.accept(broker=self.number), "client")
        self.replies.clear()
        self.link.send(codec.encode_request(message, version, 1, "client"))
        for _ in range(1_000):
            self.advance()
            frame = b"".join(self.replies)
            if self.link is None:
                return None
            if len(frame) >= 4 and len(frame) >= 4 + int.from_bytes(frame[:4], "big"):
                return frame
        return None

    def weigh(self, message, version):
        """Serve a request and return the weight of the heaviest event, then and in the following 100 ms."""
        with self.scales.weigh():
            self.serve(message, version)
            self.advance(100.0)
        return Weight(self.scales.most_us, self.scales.uncharged_calls)

    def serve_with(self, api_key, handler):
        """Let one API be served by another handler, on a connection of its own."""
        table = {api_key: TABLE[api_key].with_handler(handler)}
        self.assembly.dispatchers = [Dispatcher(self.assembly.broker, table)]
        self.link = None

    def mark(self):
        """Remember the size of the metadata log, for `has_changed`."""
        self._metadata_bytes = self.disk.size_bytes(METADATA_LOG)

    def has_changed(self):
        """Return whether the metadata log has changed since `mark`, for example by a new topic."""
        return self.disk.size_bytes(METADATA_LOG) != self._metadata_bytes

    def ask(self, api_key, version, message):
        return codec.decode_response(api_key, version, self.serve(message, version)[4:])[1]

    def call(self, api_key, version, **fields):
        """Send a request of plain values and return the reply."""
        return self.ask(api_key, version, message(api_key, version, **fields))

    def call_when_ready(self, api_key, version, **fields):
        """Return the reply as soon as a coordinator can give it."""
        while (reply := self.call(api_key, version, **fields)).error_code:
            assert ErrorCode(reply.error_code).retriable
            self.advance()
        return reply

    def client(self, name="other", principal=ANONYMOUS):
        """Return another client, whose address has this name."""
        return Client(self, name, principal)

    def create_topic(self, name, partitions=1, **configs):
        """Create a topic and return its partitions; configs have underscores in place of dots."""
        configs = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        row = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": []}
        asked = message(ApiKey.CREATE_TOPICS, 5, topics=[row | {"configs": configs}], timeout_ms=1, validate_only=False)
        assert self.ask(ApiKey.CREATE_TOPICS, 5, asked).topics[0].error_code == ErrorCode.NONE
        return [self.assembly.broker.cluster.partition(name, index) for index in range(partitions)]
