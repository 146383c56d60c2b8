"""Records of one partition, as stored, by Fetch requests to its leader or the nearest replica. shell

The next answer is on its way while the caller reads the last one. A leader that moves is looked up again, and a broker
that throttles is waited for (KIP-219). With a rack, the leader names the replica to read from (KIP-392), for as long as
a Java consumer uses it. An empty answer is not the end of the records: a broker over its quota names no topic.

A stream of one replica reads from that broker alone, whose answers end at its own high watermark.

A stream up to a stable offset asks for committed records: the broker then names the aborted transactions, too.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import UUID

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.requests import fetched as wire
from ottla.protocol.requests.fetched import Fetched, fetch_request, read_fetch_response
from ottla.wire import Unanswered
from ottla.wire.address import KafkaAddress, connections_to
from ottla.wire.brokers import Address
from ottla.wire.cluster import Cluster
from ottla.wire.connection import BlockingConnection
from ottla.wire.login import error_name
from ottla.wire.topology import Topology

# A batch may be larger than what is asked for, as large as `max.message.bytes` of its topic allows.
LARGEST_ANSWER_BYTES: Final = 512 * 1024 * 1024
MAX_WAIT_MS: Final = 500
RETRY_S: Final = 0.1
REPLICA_S: Final = 300.0
"""Time after which the leader is asked again: the default of `metadata.max.age.ms`, as in a Java consumer."""

NEW_S: Final = 1.0
"""Age up to which an answer proves that a topic is still the same one, for brokers that read topics by name."""

ANY_REPLICA: Final = -1

_GONE: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
)
_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)
_UNREADABLE: Final = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR})


class RecordsGone(FileNotFoundError):
    """The records were deleted while they were read, by retention, or with their topic."""


class RecordsUnreadable(OSError):
    """The broker cannot read the records at this offset."""


class PartitionStream:
    """Reads one partition forward. What `read` returned is valid until the next call.

    `stable_end`: an offset up to which all transactions have ended; with it, `aborted` has those of the last answer.
    `replica`: the broker to read from, -1 for the leader or the replica that it names.
    """

    def __init__(
        self,
        address: KafkaAddress,
        cluster: Cluster,
        topic: str,
        topic_id: bytes,
        partition: int,
        stable_end: int | None = None,
        replica: int = ANY_REPLICA,
    ) -> None:
        self._address = address
        self._connections = connections_to(address)
        self._rate = self._connections.rate
        self._rack = self._connections.rack if replica == ANY_REPLICA else ""
        self._replica = replica
        self._cluster = cluster
        self._topic, self._topic_id, self._partition = topic, topic_id, partition
        self._name = f"{topic}-{partition}"
        self._broker: Address | None = None  # to read from: the leader, or the replica that it named
        self._topology: Topology | None = None  # which named the broker
        self._is_replica = False
        self._find_replica_at_s = self._leave_replica_at_s = 0.0
        self._stable_end = stable_end
        self._isolation = wire.READ_UNCOMMITTED if stable_end is None else wire.READ_COMMITTED
        self.aborted: tuple[tuple[int, int], ...] = ()
        self._pending: int | None = None  # the offset of the request whose answer is on its way
        self._memory = bytearray()

    def request(self, offset: int) -> None:
        """Ask for the records from `offset` on, without waiting. An error shows when they are read."""
        if self._is_replica and self._pending is None and time.monotonic() >= self._leave_replica_at_s:
            self._broker, self._is_replica = None, False
        if self._broker is not None and self._pending is None:
            with self._cluster.connect(self._broker) as connection:
                version = self._version(connection)
                message = fetch_request(
                    self._topic,
                    UUID(bytes=self._topic_id),
                    self._partition,
                    offset,
                    version,
                    max_bytes=self._connections.fetch_bytes,
                    max_wait_ms=MAX_WAIT_MS,
                    rack=self._rack if time.monotonic() >= self._find_replica_at_s else "",
                    isolation=self._isolation,
                )
                connection.post(message, version)
                self._pending = offset

    def read(self, offset: int) -> memoryview:
        """Return the records from `offset` on, at least one batch. The first may begin below it, the last may be cut.

        Nothing is returned if compaction has left no batch from there up to the stable offset, or if the replica has
        none yet.

        Raises Unanswered without an answer for `timeout_s`, RecordsGone, RecordsUnreadable.
        """
        deadline_s = time.monotonic() + self._address.timeout_s
        while True:
            try:
                answer, frame = self._exchange(offset)
            except Unanswered as error:
                reason = str(error)
                self._leave()
            else:
                self.aborted = answer.aborted
                is_over = self._has_no_more_batches(answer) or self._is_behind(answer, offset)
                if answer.records_end > answer.records_start or is_over:
                    return frame[answer.records_start : answer.records_end]
                if not answer.error and self._follow(answer.preferred_replica):
                    continue
                reason = self._explain(answer, offset)
                wait_s = min(answer.throttle_ms / 1000, self._address.timeout_s)
                time.sleep(wait_s)
                deadline_s += wait_s
            if time.monotonic() > deadline_s:
                raise Unanswered(f"{self._name}: {reason}")
            time.sleep(RETRY_S)

    def close(self) -> None:
        """Receive the answer that is on its way, so that the connection can be used again."""
        if self._pending is not None:
            try:
                self._receive()
            except Unanswered:  # the connection is closed
                self._pending = None

    def _exchange(self, offset: int) -> tuple[Fetched, memoryview]:
        if self._pending not in (None, offset):
            self._receive()
        self.request(offset)
        if self._broker is None:
            self._broker = self._find_leader()
            self.request(offset)
        return self._receive()

    def _follow(self, replica: int) -> bool:
        """Read from the replica that the leader names. Return False without one.

        A replica that the metadata lacks is left out for a while: the leader has the records, too.
        """
        now_s = time.monotonic()
        if replica < 0 or self._is_replica or not self._rack or now_s < self._find_replica_at_s:
            return False
        brokers = self._topology.brokers if self._topology is not None else {}
        if replica in brokers:
            self._broker, self._is_replica = brokers[replica], True
            self._leave_replica_at_s = now_s + REPLICA_S
        else:
            self._find_replica_at_s = now_s + REPLICA_S
        return True

    def _leave(self) -> None:
        """Look the leader up again. After a replica that failed, read from the leader for a while."""
        if self._is_replica:
            self._find_replica_at_s = time.monotonic() + REPLICA_S
        self._broker, self._is_replica = None, False

    def _receive(self) -> tuple[Fetched, memoryview]:
        assert self._broker is not None
        self._pending = None
        with self._cluster.connect(self._broker) as connection:
            frame, version = connection.receive_frame(self._room)
            self._rate.spend(len(frame))
            return read_fetch_response(frame, version, self._isolation), frame

    def _has_no_more_batches(self, answer: Fetched) -> bool:
        """Return whether an empty answer means that there is no batch up to the stable offset."""
        is_answered = answer.is_named and not answer.error and answer.preferred_replica < 0
        return self._stable_end is not None and is_answered and answer.stable_offset >= self._stable_end

    def _is_behind(self, answer: Fetched, offset: int) -> bool:
        """Return whether an empty answer means that the high watermark of the replica is not above `offset` yet."""
        is_answered = answer.is_named and not answer.error
        return self._replica != ANY_REPLICA and is_answered and answer.high_watermark <= offset

    def _room(self, size_bytes: int) -> memoryview:
        if size_bytes > LARGEST_ANSWER_BYTES:
            raise ProtocolError(f"an answer of {size_bytes} bytes; at most {LARGEST_ANSWER_BYTES} are read")
        if size_bytes > len(self._memory):
            self._memory = bytearray(size_bytes)
        return memoryview(self._memory)[:size_bytes]

    def _version(self, connection: BlockingConnection) -> int:
        """Return the version of Fetch: one with topic ids, if the broker and the topic have them."""
        best = connection.versions.get(ApiKey.FETCH, (0, wire.NAMED_VERSION))[1]
        return min(best, wire.HIGHEST_VERSION if any(self._topic_id) else wire.NAMED_VERSION)

    def _find_leader(self) -> Address:
        """Return the leader, by the topology that another stream has found if it suffices.

        Raises Unanswered, RecordsGone.
        """
        self._topology, is_new = self._connections.topology_of(self._topic, self._cluster, self._topology)
        if not is_new and not self._suffices(self._topology):
            self._topology, _ = self._connections.topology_of(self._topic, self._cluster, self._topology)
        topology = self._topology
        error = topology.errors.get(self._topic, 0)
        if error in _GONE or topology.topic_ids.get(self._topic, self._topic_id) != self._topic_id:
            raise RecordsGone(f"{self._name}: the topic was deleted, or created again, while it was read")
        if error:
            raise Unanswered(f"topic {self._topic}: {error_name(error)}")
        if self._replica != ANY_REPLICA:
            if self._replica not in topology.brokers:
                raise Unanswered(f"{self._name}: broker {self._replica} is not running")
            return topology.brokers[self._replica]
        place = topology.topics[self._topic].get(self._partition)
        if place is None or place.leader not in topology.brokers:
            raise Unanswered(f"{self._name} has no leader")
        return topology.brokers[place.leader]

    def _suffices(self, topology: Topology) -> bool:
        """Return whether a topology has a leader, and this broker would notice that the topic was created again.

        A broker that takes the name of a topic instead of its id does not, so it must have been asked just now.
        """
        place = topology.topics.get(self._topic, {}).get(self._partition)
        leader = topology.brokers.get(place.leader) if place is not None else None
        if leader is None or topology.topic_ids.get(self._topic) != self._topic_id:
            return False
        with self._cluster.connect(leader) as connection:
            has_id = self._version(connection) > wire.NAMED_VERSION
        return has_id or time.monotonic() - topology.asked_at_s < NEW_S

    def _explain(self, answer: Fetched, offset: int) -> str:
        """Return the reason to ask again after an answer without records.

        Raises RecordsGone, RecordsUnreadable, or Unanswered if it is in vain.
        """
        error = answer.error
        if not error:
            return f"no answer has the records from offset {offset} on"
        if error == ErrorCode.OFFSET_OUT_OF_RANGE and not self._is_replica:
            raise RecordsGone(f"{self._name}: the records from offset {offset} on were deleted while they were read")
        if error in _UNREADABLE:
            raise RecordsUnreadable(f"{self._name}: the broker answers {error_name(error)} for offset {offset}")
        if error in _GONE or error in _ELSEWHERE or error == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._leave()
            return error_name(error)
        raise Unanswered(f"{self._name}: {error_name(error)}")


@contextmanager
def open_stream(
    address: KafkaAddress,
    topic: str,
    topic_id: bytes,
    partition: int,
    stable_end: int | None = None,
    replica: int = ANY_REPLICA,
) -> Iterator[PartitionStream]:
    """Yield a stream of one partition, over a connection that other streams use before and after it.

    Raises Unanswered, also for properties that this machine lacks.
    """
    try:
        connections = connections_to(address)
    except ValueError as error:
        raise Unanswered(f"{address}: {error}") from None
    with connections.borrow() as cluster:
        stream = PartitionStream(address, cluster, topic, topic_id, partition, stable_end, replica)
        yield stream
        stream.close()
