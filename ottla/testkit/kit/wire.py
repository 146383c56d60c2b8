"""Requests of the test kit in Kafka's protocol, to Ottla and to any other broker. shell

There is one connection for each broker of the cluster, used by one thread at a time. Its client id distinguishes it
from the clients under test: faults do not affect it, and histories do not contain it.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

from ottla.printable import printable
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.testkit.control import KIT_CLIENT_ID
from ottla.testkit.in_memory.wire import message
from ottla.testkit.kit.groups import DEAD, Group, classic_group, consumer_group
from ottla.testkit.reading import TopicRecord, readable
from ottla.verdict import OPEN_STATES
from ottla.wire.connection import BlockingConnection

__tracebackhide__ = True  # pytest then shows the line of the test and the message
K: Final = ApiKey
WAIT_S: Final = 60.0
FETCH_BYTES: Final = 16 * 1024 * 1024
_AGAIN_S: Final = 0.02
_MOST_REASON: Final = 500
_LATEST: Final = -1
_EARLIEST: Final = -2
GROUP, TRANSACTION = 0, 1
_ALL: Final[dict[str, Any]] = {"state_filters": [], "producer_id_filters": []}
ISOLATION: Final = {"read_uncommitted": 0, "read_committed": 1}

T = TypeVar("T")


class KafkaError(RuntimeError):
    """A broker refused a request of the test kit; `error` is Kafka's error code, `reason` the broker's own text."""

    def __init__(self, error: ErrorCode, what: str, reason: str = "") -> None:
        super().__init__(printable(f"{what}: {error.name}{reason and f' ({reason[:_MOST_REASON]})'}"))
        self.error = error


class Transaction(NamedTuple):
    """A transactional id as its coordinator describes it; `start_ms` is -1 while no transaction is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    start_ms: int
    timeout_ms: int
    partitions: tuple[tuple[str, int], ...]

    @property
    def is_open(self) -> bool:
        """Return whether the transaction has begun and not ended."""
        return self.state in OPEN_STATES


class OpenProducer(NamedTuple):
    """A transaction that is open in a partition, whether or not a coordinator knows it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int


class Wire:
    """Requests to the cluster at this address, which may change when a broker restarts."""

    def __init__(self, bootstrap: Callable[[], str], await_restart: Callable[[], bool] = lambda: False) -> None:
        """`await_restart` waits for the planned restart of a broker, and returns whether it was restarted."""
        self._bootstrap = bootstrap
        self._await_restart = await_restart
        self._connections: dict[str, BlockingConnection] = {}
        self._lock = threading.RLock()

    @property
    def bootstrap(self) -> str:
        """The addresses that the test knows, as for clients."""
        return self._bootstrap()

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for connection in self._connections.values():
                connection.close()
            self._connections.clear()

    def ask(self, api_key: int, version: int, address: str | None = None, **fields: Any) -> Any:
        """Send a request of plain values and return the reply, on a new connection if the broker was restarted."""
        address = address or self._bootstrap()
        request = message(api_key, version, **fields)
        with self._lock:
            while True:
                was_open = address in self._connections
                try:
                    if not was_open:
                        self._connections[address] = connect(address, KIT_CLIENT_ID)
                    return self._connections[address].send(request, version)
                except (OSError, RuntimeError):
                    if address in self._connections:
                        self._connections.pop(address).close()
                    if not (self._await_restart() or was_open):
                        raise

    # ---- topics and records

    def topics(self, *, with_internal: bool = False) -> dict[str, int]:
        """Return {topic: number of partitions}; internal topics only with `with_internal`."""
        reply = self.ask(K.METADATA, 5, topics=None, allow_auto_topic_creation=False)
        return {topic.name: len(topic.partitions) for topic in reply.topics if with_internal or not topic.is_internal}

    def create_topic(self, name: str, partitions: int, configs: dict[str, str], replication_factor: int = 1) -> None:
        """Create a topic. Raises KafkaError."""
        rows = [{"name": key, "value": value} for key, value in configs.items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": replication_factor}
        topics = [topic | {"assignments": [], "configs": rows}]
        reply = self.ask(K.CREATE_TOPICS, 4, topics=topics, timeout_ms=int(WAIT_S * 1000), validate_only=False)
        check(reply.topics[0].error_code, f"create the topic {name}", reply.topics[0].error_message)

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete those of the topics that exist."""
        if names:
            reply = self.ask(K.DELETE_TOPICS, 4, topic_names=list(names), timeout_ms=int(WAIT_S * 1000))
            for topic in reply.responses:
                if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    check(topic.error_code, f"delete the topic {topic.name}")

    def start_offset(self, topic: str, partition: int) -> int:
        """Return the log start offset."""
        return self._list_offset(topic, partition, "read_uncommitted", _EARLIEST)

    def end_offset(self, topic: str, partition: int, isolation: str) -> int:
        """Return the high watermark (read_uncommitted) or the last stable offset (read_committed)."""
        return self._list_offset(topic, partition, isolation, _LATEST)

    def _list_offset(self, topic: str, partition: int, isolation: str, timestamp: int) -> int:
        rows = [{"partition_index": partition, "current_leader_epoch": -1, "timestamp": timestamp}]
        fields = {"replica_id": -1, "isolation_level": _level(isolation)}
        what = f"the offsets of {topic}-{partition}"

        def attempt() -> Any:
            topics = [{"name": topic, "partitions": rows}]
            return self.ask(K.LIST_OFFSETS, 4, self.leader(topic, partition), **fields, topics=topics)

        reply = when_ready(attempt, what, lambda reply: reply.topics[0].partitions[0].error_code)
        return int(reply.topics[0].partitions[0].offset)

    def read(self, topic: str, partition: int, isolation: str, start: int = 0) -> Iterator[TopicRecord]:
        """Yield the records that a consumer of this isolation level gets, up to the current end of the partition."""
        end, offset = self.end_offset(topic, partition, isolation), max(start, 0)
        while offset < end:
            row = self.fetch(topic, partition, isolation, offset)
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                first = self.start_offset(topic, partition)
                if first > offset:  # retention or DeleteRecords has deleted records
                    offset = first
                    continue
            check(row.error_code, f"read {topic}-{partition} at {offset}")
            aborted = None
            if isolation == "read_committed":
                aborted = [(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()]
            records, following = readable(topic, partition, bytes(row.records or b""), aborted, offset)
            yield from (record for record in records if record.offset < end)
            if following <= offset:
                return
            offset = following

    def fetch(self, topic: str, partition: int, isolation: str, offset: int) -> Any:
        """Return the partition's row of a Fetch reply from this offset: batches as bytes, and aborted transactions."""
        row = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": FETCH_BYTES}
        reply = self.ask(
            K.FETCH,
            5,
            self.leader(topic, partition),
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=FETCH_BYTES,
            isolation_level=_level(isolation),
            topics=[{"topic": topic, "partitions": [row | {"log_start_offset": -1}]}],
        )
        return reply.responses[0].partitions[0]

    def leader(self, topic: str, partition: int) -> str | None:
        """Return the address of the leader, or None (the bootstrap address) if the cluster has one broker."""
        attempt = partial(self.ask, K.METADATA, 5, topics=[{"name": topic}], allow_auto_topic_creation=False)

        def error(reply: Any) -> int:
            (found,) = reply.topics
            if found.error_code:
                return int(found.error_code)
            row = next((row for row in found.partitions if row.partition_index == partition), None)
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if row is None else int(row.error_code)

        reply = when_ready(attempt, f"the leader of {topic}-{partition}", error)
        if len(reply.brokers) == 1 and "," not in self.bootstrap:
            return None
        leader = next(row.leader_id for row in reply.topics[0].partitions if row.partition_index == partition)
        return next(f"{broker.host}:{broker.port}" for broker in reply.brokers if broker.node_id == leader)

    # ---- transactions and groups

    def transactions(self) -> list[Transaction]:
        """Return the transactional ids of all brokers."""
        found = []
        for address in self._brokers():
            listed = when_ready(partial(self.ask, K.LIST_TRANSACTIONS, 0, address, **_ALL), "list transactions")
            ids = [row.transactional_id for row in listed.transaction_states]
            if ids:
                reply = self.ask(K.DESCRIBE_TRANSACTIONS, 0, address, transactional_ids=ids)
                found += [_transaction(row) for row in reply.transaction_states if not row.error_code]
        return sorted(found)

    def open_producers(self, topic: str, partitions: Iterable[int]) -> list[OpenProducer]:
        """Return the producers with an open transaction in these partitions, as the leaders describe them."""
        alone = self._brokers() == [None]
        led: dict[str | None, list[int]] = {}
        for index in partitions:
            led.setdefault(None if alone else self.leader(topic, index), []).append(index)
        found = []
        for address, indexes in led.items():
            topics = [{"name": topic, "partition_indexes": indexes}]
            for row in self.ask(K.DESCRIBE_PRODUCERS, 0, address, topics=topics).topics[0].partitions:
                check(row.error_code, f"describe the producers of {topic}-{row.partition_index}")
                opened = (_open_at(each) for each in row.active_producers)
                found += [OpenProducer(topic, row.partition_index, *each) for each in opened if each[-1] >= 0]
        return found

    def abort_hanging(self, producer: OpenProducer) -> None:
        """Write an abort marker, as an administrator does (KIP-664). Raises KafkaError."""
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "transaction_result": False,
            "topics": [{"name": producer.topic, "partition_indexes": [producer.partition]}],
            "coordinator_epoch": max(producer.coordinator_epoch, 0),
        }
        address = self.leader(producer.topic, producer.partition)
        row = self.ask(K.WRITE_TXN_MARKERS, 1, address, markers=[marker]).markers[0].topics[0].partitions[0]
        check(row.error_code, f"abort what hangs in {producer.topic}-{producer.partition}")

    def groups(self) -> list[str]:
        """Return the groups of all brokers."""
        found: list[str] = []
        for address in self._brokers():
            reply = when_ready(partial(self.ask, K.LIST_GROUPS, 2, address), "list groups")
            found += [group.group_id for group in reply.groups]
        return sorted(found)

    def group(self, name: str) -> Group:
        """Return a group as its coordinator describes it. KafkaError, with the groups that exist, if there is none."""
        address = self.coordinator(name, GROUP)
        (described,) = self.ask(K.DESCRIBE_GROUPS, 4, address, groups=[name]).groups
        check(described.error_code, f"describe the group {name}")
        if described.group_state != DEAD:
            return classic_group(described)
        others = self.groups()
        if name in others:  # of the consumer protocol, which brokers before Apache Kafka 4.0 do not have
            (found,) = self.ask(K.CONSUMER_GROUP_DESCRIBE, 1, address, group_ids=[name]).groups
            if found.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                check(found.error_code, f"describe the group {name}")
                return consumer_group(found)
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name}, only {others}")

    def remove_groups(self, names: Sequence[str]) -> None:
        """Remove the members of the groups, and delete the groups."""
        for name in names:
            try:
                members = [
                    {"member_id": each.member_id, "group_instance_id": None} for each in self.group(name).members
                ]
            except KafkaError as error:
                if error.error != ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
                continue
            address = self.coordinator(name, GROUP)
            if members:
                self.ask(K.LEAVE_GROUP, 3, address, group_id=name, members=members)
            self.ask(K.DELETE_GROUPS, 1, address, groups_names=[name])

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return {(topic, partition): committed offset}. KafkaError while a transaction with offsets is open."""
        address = self.coordinator(group, GROUP)
        reply = self.ask(K.OFFSET_FETCH, 7, address, group_id=group, topics=None, require_stable=True)
        check(reply.error_code, f"the offsets of {group}")
        found = {}
        for topic in reply.topics:
            for row in topic.partitions:
                check(row.error_code, f"the offset of {group} in {topic.name}-{row.partition_index}")
                found[topic.name, row.partition_index] = row.committed_offset
        return found

    def abort(self, transaction: Transaction) -> None:
        """Fence the producer of a transactional id, which aborts its open transaction."""
        address = self.coordinator(transaction.transactional_id, TRANSACTION)
        fields = {"transactional_id": transaction.transactional_id, "transaction_timeout_ms": 60_000}

        attempt = partial(self.ask, K.INIT_PRODUCER_ID, 3, address, **fields, producer_id=-1, producer_epoch=-1)
        what = f"abort the transaction of {transaction.transactional_id}"
        when_ready(attempt, what, again=_WHEN_READY | {ErrorCode.CONCURRENT_TRANSACTIONS})

    def _brokers(self) -> list[str | None]:
        reply = self.ask(K.METADATA, 5, topics=[], allow_auto_topic_creation=False)
        if len(reply.brokers) == 1 and "," not in self.bootstrap:
            return [None]
        return [f"{broker.host}:{broker.port}" for broker in reply.brokers]

    def coordinator(self, key: str, key_type: int) -> str | None:
        """Return the coordinator's address of a group or transactional id; None if it is the bootstrap address."""
        attempt = partial(self.ask, K.FIND_COORDINATOR, 2, key=key, key_type=key_type)
        reply = when_ready(attempt, f"the coordinator of {key}")
        address = f"{reply.host}:{reply.port}"
        return None if address == self._bootstrap() else address


_WHEN_READY: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)


def when_ready(
    attempt: Callable[[], T],
    what: str,
    error_of: Callable[[T], int] = attrgetter("error_code"),
    again: frozenset[ErrorCode] = _WHEN_READY,
) -> T:
    """Repeat `attempt` while its error is in `again`, up to `WAIT_S` seconds, and return the reply. KafkaError."""
    deadline = time.monotonic() + WAIT_S
    while True:
        reply = attempt()
        error = ErrorCode(error_of(reply))
        if error in again and time.monotonic() < deadline:
            time.sleep(_AGAIN_S)
            continue
        check(error, what)
        return reply


def connect(address: str, client_id: str) -> BlockingConnection:
    """Connect to HOST:PORT, or to the first of several that can be reached (HOST:PORT,HOST:PORT). ValueError for any
    other text."""
    first, _, others = address.partition(",")
    if others:
        with suppress(OSError):
            return connect(first, client_id)
        return connect(others, client_id)
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        raise ValueError(f"{address!r} is not HOST:PORT")
    return BlockingConnection(host.strip("[]"), int(port), client_id=client_id, timeout_s=WAIT_S)


def _open_at(row: Any) -> tuple[int, int, int, int]:
    return row.producer_id, row.producer_epoch, row.coordinator_epoch, row.current_txn_start_offset


def _transaction(row: Any) -> Transaction:
    partitions = tuple(sorted((topic.topic, index) for topic in row.topics for index in topic.partitions))
    return Transaction(
        row.transactional_id,
        row.transaction_state,
        row.producer_id,
        row.producer_epoch,
        row.transaction_start_time_ms,
        row.transaction_timeout_ms,
        partitions,
    )


def _level(isolation: str) -> int:
    if isolation not in ISOLATION:
        raise ValueError(f"isolation is {' or '.join(ISOLATION)}, not {isolation!r}")
    return ISOLATION[isolation]


def check(error: int, what: str, reason: str | None = "") -> None:
    """Raise KafkaError if it is an error; `reason` is the text that the broker has sent with it."""
    if error:
        raise KafkaError(ErrorCode(error), what, reason or "")


def transaction_version(wire: Wire) -> int:
    """The finalized level of `transaction.version`."""
    reply = wire.ask(K.API_VERSIONS, 3, client_software_name="ottla-testkit", client_software_version="1")
    found = {feature.name: feature.max_version_level for feature in reply.finalized_features or ()}
    return int(found.get("transaction.version", 0))
