"""Requests of `ottla txn` to a Kafka cluster. shell"""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.hashing import coordinator_partition
from ottla.protocol.requests import codec
from ottla.protocol.values import TopicPartition
from ottla.verdict import OPEN_STATES, OVERDUE_AFTER_MS, KnownTransaction, OpenTransaction
from ottla.wire import Unanswered
from ottla.wire.brokers import Address, Brokers
from ottla.wire.login import error_name
from ottla.wire.topology import DELETED, Place, Topology, by_leader, chunks, parse_topology

COORDINATOR_TOPIC: Final = "__transaction_state"
IDS_AT_ONCE: Final = 500
GROUPS_AT_ONCE: Final = 20
PRODUCER_IDS_AT_ONCE: Final = 10_000  # the broker searches all its ids for each request
RETRY_S: Final = 0.1
RETRY_FOR_S: Final = 3.0
_BATCHED, _NAMED = 8, 9
"""Versions of OffsetFetch: the first for several groups, the last with topics by name."""
LATEST: Final = -1
EARLIEST: Final = -2
CONSUMER, DEBUGGER = -1, -2
"""Replica ids of clients. Any replica answers ListOffsets for a debugger, only the leader for a consumer."""
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
GROUP, TRANSACTION = 0, 1
"""Key types of FindCoordinator."""

_NOT_LOADED: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)
_MOST_PROBES: Final = 100_000
_ELSEWHERE: Final = frozenset({ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER})


class _Moved(Unanswered):
    """A coordinator has moved or is loading its transactions."""


class Offsets(NamedTuple):
    """Offsets of partitions, and the reasons why others have none."""

    offsets: Mapping[TopicPartition, int]
    errors: Mapping[TopicPartition, str]


class CoordinatorView(NamedTuple):
    """States of some producer ids, reasons why states may be missing, and the brokers that were queried."""

    known: list[KnownTransaction]
    gaps: tuple[str, ...]
    brokers: tuple[Address, ...] = ()


class Cluster(Brokers):
    """A Kafka cluster, by the answers of its brokers. `timeout_s` bounds retries, too."""

    def topology(self, topics: Iterable[str] | None = None, *, with_rights: bool = False) -> Topology:
        """Return the brokers, and these topics or all, from the first bootstrap address that answers."""
        message = metadata_request(topics, with_rights)
        asked_at_s = time.monotonic()
        return parse_topology(self.ask_any(message))._replace(asked_at_s=asked_at_s)

    def newest_topology(self, topics: Iterable[str]) -> Topology:
        """Return the leaders with the highest epoch that a broker knows. Brokers learn of changes at different times.

        A leader has learned that it is one, so these are the leaders of all answers that came before.
        """
        message = metadata_request(topics)
        found, asked = parse_topology(self.ask_any(message)), set[Address]()
        while left := [address for address in found.brokers.values() if address not in asked]:
            asked.add(left[0])
            found = found.merge_newer(parse_topology(self.ask(left[0], message)))
        return found

    def open_transactions(
        self,
        places: Sequence[TopicPartition],
        on_answers: Callable[[int], None] = lambda count: None,
        *,
        of_newest: bool = False,
    ) -> tuple[list[OpenTransaction], list[str]]:
        """Return the open transactions of these partitions, and the reasons why partitions did not answer.

        Partitions that are deleted meanwhile have none. `on_answers` gets the number of partitions that answered since
        its last call. `of_newest`: ask no former leader that has not learned yet that it is one.
        """
        found: list[OpenTransaction] = []
        gaps: list[str] = []
        left = list(places)
        deadline = time.monotonic() + min(self._timeout_s, RETRY_FOR_S)
        while left:
            names = {name for name, _ in left}
            if of_newest:
                topology = self.newest_topology(names)
            else:
                topology = self.topology(names if len(names) <= IDS_AT_ONCE else None)
            late = time.monotonic() > deadline
            again: list[TopicPartition] = []
            for leader, batch in by_leader(topology, left):
                if leader is None:
                    errors = dict.fromkeys(batch, int(ErrorCode.LEADER_NOT_AVAILABLE))
                else:
                    errors = self._describe_producers(topology.brokers[leader], batch, found)
                moved = [place for place, error in errors.items() if error in _ELSEWHERE and not late]
                again += moved
                gaps += [
                    f"{name}-{number}: {error_name(error)}"
                    for (name, number), error in errors.items()
                    if error and (late or error not in _ELSEWHERE)
                ]
                on_answers(len(batch) - len(moved))
            left = again
            if left:
                time.sleep(RETRY_S)
        return found, gaps

    def _describe_producers(
        self, address: Address, places: Sequence[TopicPartition], found: list[OpenTransaction]
    ) -> dict[TopicPartition, int]:
        """Add open transactions to `found`. Return the error code of each partition, without deleted partitions."""
        request = codec.request_class(ApiKey.DESCRIBE_PRODUCERS)
        topics = [request.TopicRequest(name=name, partition_indexes=numbers) for name, numbers in _by_topic(places)]
        errors: dict[TopicPartition, int] = {}
        for topic in self.ask(address, request(topics=topics)).topics:
            for row in topic.partitions:
                place = topic.name, row.partition_index
                errors[place] = 0 if row.error_code in DELETED else row.error_code
                found += [
                    OpenTransaction(
                        *place,
                        each.producer_id,
                        each.producer_epoch,
                        each.coordinator_epoch,
                        each.current_txn_start_offset,
                        each.last_timestamp,
                    )
                    for each in row.active_producers
                    if each.current_txn_start_offset >= 0
                ]
        return errors

    def end_offset(self, address: Address, name: str, number: int, isolation: int) -> int:
        """Return the last stable offset for READ_COMMITTED, the high watermark for READ_UNCOMMITTED."""
        ((_, row),) = self.list_offsets(address, [(name, number)], isolation)
        if row.error_code:
            raise Unanswered(f"{name}-{number}: {error_name(row.error_code)}")
        return int(row.offset)

    def list_offsets(
        self,
        address: Address,
        places: Sequence[TopicPartition],
        isolation: int,
        timestamp: int = LATEST,
        replica_id: int = CONSUMER,
    ) -> Iterator[tuple[TopicPartition, Any]]:
        """Yield each partition with its row of the ListOffsets answer: the offset, or an error."""
        request = codec.request_class(ApiKey.LIST_OFFSETS)
        topic_row = request.ListOffsetsTopic
        row = partial(topic_row.ListOffsetsPartition, current_leader_epoch=-1, timestamp=timestamp)
        topics = [
            topic_row(name=name, partitions=[row(partition_index=number) for number in numbers])
            for name, numbers in _by_topic(places)
        ]
        reply = self.ask(address, request(replica_id=replica_id, isolation_level=isolation, topics=topics))
        yield from (((topic.name, row.partition_index), row) for topic in reply.topics for row in topic.partitions)

    def offsets(self, places: Sequence[TopicPartition], timestamp: int, isolation: int = READ_UNCOMMITTED) -> Offsets:
        """Return offsets of partitions, from their leaders: the first ones (EARLIEST), or the high watermarks (LATEST).

        LATEST with READ_COMMITTED is the last stable offset. A time in ms is the first offset that is as late, else -1.
        """
        found: dict[TopicPartition, int] = {}
        errors: dict[TopicPartition, str] = {}
        left = list(places)
        deadline = time.monotonic() + min(self._timeout_s, RETRY_FOR_S)
        while left:
            errors = {place: reason for place, reason in errors.items() if place not in left}
            topology = self.topology({name for name, _ in left})
            for leader, batch in by_leader(topology, left):
                if leader is None:
                    errors |= dict.fromkeys(batch, "it has no leader")
                    continue
                try:
                    rows = [*self.list_offsets(topology.brokers[leader], batch, isolation, timestamp)]
                except Unanswered as error:
                    errors |= dict.fromkeys(batch, str(error))
                    continue
                for place, row in rows:
                    if row.error_code:
                        errors[place] = error_name(row.error_code)
                    else:
                        found[place] = row.offset
            left = [place for place in errors if place in left]
            if time.monotonic() > deadline:
                break
            if left:
                time.sleep(RETRY_S)
        return Offsets(found, errors)

    def epoch_end(self, name: str, number: int, leader_epoch: int) -> int:
        """Return the end of a leader epoch in a partition; -1 if the leader does not know it. Raises Unanswered."""
        topology = self.topology([name])
        leader = next((leader for leader, _ in by_leader(topology, [(name, number)])), None)
        if leader is None:
            raise Unanswered(f"{name}-{number} has no leader, or was deleted")
        request = codec.request_class(ApiKey.OFFSET_FOR_LEADER_EPOCH)
        topic = request.OffsetForLeaderTopic
        row = topic.OffsetForLeaderPartition(partition=number, current_leader_epoch=-1, leader_epoch=leader_epoch)
        message = request(replica_id=-1, topics=[topic(topic=name, partitions=[row])])
        for found in self.ask(topology.brokers[leader], message).topics:
            for row in found.partitions:
                if (found.topic, row.partition) == (name, number):
                    if row.error_code:
                        raise Unanswered(f"{name}-{number}: {error_name(row.error_code)}")
                    return int(row.end_offset)
        raise Unanswered(f"{name}-{number}: the broker answers about other partitions")

    def sizes(self, topology: Topology, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the bytes of these partitions at their leaders, as far as this user may ask for them."""
        request = codec.request_class(ApiKey.DESCRIBE_LOG_DIRS)
        found: dict[TopicPartition, int] = {}
        for leader, batch in by_leader(topology, places):
            if leader is None:
                continue
            rows = [
                request.DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in _by_topic(batch)
            ]
            try:
                reply = self.ask(topology.brokers[leader], request(topics=rows))
            except Unanswered:
                continue  # the sizes are estimates for people: an audit needs none
            for directory in reply.results:
                for topic in directory.topics:
                    for row in topic.partitions:
                        if not row.is_future_key:
                            found[topic.name, row.partition_index] = row.partition_size
        return found

    def list_groups(self, broker: int, address: Address) -> list[Any]:
        """Return the rows of the ListGroups answer of one broker. Raises Unanswered."""
        reply = self.ask(address, codec.request_class(ApiKey.LIST_GROUPS)())
        if reply.error_code:
            raise Unanswered(f"broker {broker} does not list its groups: {error_name(reply.error_code)}")
        return list(reply.groups)

    def list_ids(self, broker: int, address: Address, states: Sequence[str] = OPEN_STATES, **filters: Any) -> list[str]:
        """Return the transactional ids in these states, or in all without any, that one broker coordinates.

        Raises Unanswered.
        """
        request = codec.request_class(ApiKey.LIST_TRANSACTIONS)
        reply = self.ask(address, request(state_filters=list(states), producer_id_filters=[], **filters))
        if reply.error_code:
            raise Unanswered(f"broker {broker} does not list its transactions: {error_name(reply.error_code)}")
        return [row.transactional_id for row in reply.transaction_states]

    def find_coordinator(self, key: str, key_type: int) -> tuple[int, Address]:
        """Return the broker that coordinates a group or a transactional id, and its address. Raises Unanswered."""
        request = codec.request_class(ApiKey.FIND_COORDINATOR)
        deadline = time.monotonic() + min(self._timeout_s, RETRY_FOR_S)
        while True:
            (row,) = self.ask_any(request(key_type=key_type, coordinator_keys=[key])).coordinators
            if not row.error_code:
                return row.node_id, (row.host, row.port)
            if row.error_code not in _NOT_LOADED or time.monotonic() > deadline:
                raise Unanswered(f"no coordinator of {key!r}: {error_name(row.error_code)}")
            time.sleep(RETRY_S)

    def known_transactions(
        self, topology: Topology, states: Sequence[str] = OPEN_STATES
    ) -> tuple[list[KnownTransaction], list[str]]:
        """Return the ids in these states, or in all without any, and the reasons why brokers did not answer."""
        found: list[KnownTransaction] = []
        gaps: list[str] = []
        for broker, address in sorted(topology.brokers.items()):
            try:
                found += self.describe(broker, address, self.list_ids(broker, address, states))
            except Unanswered as error:
                gaps.append(str(error))
        return [each for each in found if not states or each.state in states], gaps

    def transactional_ids(self, producer_ids: Iterable[int]) -> dict[int, str]:
        """Return the transactional ids of these producer ids that this user sees. Raises Unanswered."""
        ids = sorted(producer_ids)
        return {
            row.producer_id: row.transactional_id
            for broker, address in sorted(self.topology([]).brokers.items())
            for row in self._list_producers(broker, address, ids)
        }

    def committed_offsets(self) -> Iterator[tuple[str, int, Any]]:
        """Yield what `fetch_offsets` yields, of all groups that this user sees. Raises Unanswered."""
        for broker, address in sorted(self.topology([]).brokers.items()):
            yield from self.fetch_offsets(address, sorted(row.group_id for row in self.list_groups(broker, address)))

    def fetch_offsets(self, address: Address, group_ids: Sequence[str]) -> Iterator[tuple[str, int, Any]]:
        """Yield (group id, error code, topics of the OffsetFetch answer) of groups that this broker coordinates."""
        request = codec.request_class(ApiKey.OFFSET_FETCH)
        for some in chunks(group_ids, GROUPS_AT_ONCE):
            with self.connect(address) as connection:
                served = connection.versions.get(ApiKey.OFFSET_FETCH, (0, 0))[1]
            if served < _BATCHED:
                for group_id in some:
                    reply = self.ask(address, request(group_id=group_id, topics=None))
                    yield group_id, reply.error_code, reply.topics
                continue
            named = [request.OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in some]
            for row in self.ask(address, request(groups=named), min(served, _NAMED)).groups:
                if row.group_id in some:
                    yield row.group_id, row.error_code, row.topics

    def coordinators(self, producer_ids: Iterable[int]) -> CoordinatorView:
        """Return the state of these producer ids at every coordinator.

        Retries while a coordinator is loading its transactions, or while their leaders change. Otherwise a transaction
        that moves from a broker that was not queried yet to one that was queried already would seem to be unknown.

        A broker lists the transactions that it has loaded. It is a leader by the metadata before it begins to load, so
        each broker is asked before and after whether it coordinates what it leads. Brokers learn of a move at different
        times, so all of them are asked for the leaders, and what a former coordinator still has does not count.
        """
        needed = sorted(set(producer_ids))
        deadline = time.monotonic() + min(self._timeout_s, RETRY_FOR_S)
        while True:
            before = self.newest_topology([COORDINATOR_TOPIC])
            gap, known = "", []
            probes = _probe_ids(_coordinators(before))
            try:
                self._check_coordinators(before, probes)
                for broker, address in sorted(before.brokers.items()):
                    known += self._known_to(broker, address, needed)
                self._check_coordinators(before, probes)
                after = self.newest_topology([COORDINATOR_TOPIC])
                known = [each for each in known if _is_of_coordinator(before, each)]
                if (after.brokers, after.topics) != (before.brokers, before.topics):
                    gap = "coordinators have just changed"
            except _Moved as moved:
                gap = str(moved)
            headless = sorted(number for number, place in _coordinators(before).items() if place.leader < 0)
            if headless:
                gap = f"no broker coordinates the transactions of {COORDINATOR_TOPIC} partitions {headless}"
            hidden = before.errors.get(COORDINATOR_TOPIC) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if hidden:
                gap = f"this user lacks DESCRIBE on topic {COORDINATOR_TOPIC}, so a coordinator may be down unnoticed"
            elif before.errors.get(COORDINATOR_TOPIC, 0) not in (0, *DELETED):
                gap = f"topic {COORDINATOR_TOPIC}: {error_name(before.errors[COORDINATOR_TOPIC])}"
            if not gap or hidden or time.monotonic() > deadline:
                return CoordinatorView(known, (gap,) if gap else (), tuple(before.brokers.values()))
            time.sleep(RETRY_S)

    def _check_coordinators(self, topology: Topology, probes: Mapping[int, Sequence[str]]) -> None:
        """Raise _Moved if a broker does not coordinate the ids of the partitions that it leads."""
        for broker, ids in probes.items():
            if broker not in topology.brokers:
                continue
            for some in chunks(ids, IDS_AT_ONCE):
                for row in self._describe(topology.brokers[broker], some):
                    if row.error_code in _NOT_LOADED:
                        _check(broker, row.error_code)

    def _describe(self, address: Address, transactional_ids: Sequence[str]) -> list[Any]:
        """Return the rows of a DescribeTransactions answer."""
        request = codec.request_class(ApiKey.DESCRIBE_TRANSACTIONS)
        return list(self.ask(address, request(transactional_ids=list(transactional_ids))).transaction_states)

    def _known_to(self, broker: int, address: Address, producer_ids: Sequence[int]) -> list[KnownTransaction]:
        rows = self._list_producers(broker, address, producer_ids)
        return self.describe(broker, address, [row.transactional_id for row in rows])

    def _list_producers(self, broker: int, address: Address, producer_ids: Sequence[int]) -> Iterator[Any]:
        """Yield the rows of ListTransactions answers of one broker for these producer ids."""
        listing = codec.request_class(ApiKey.LIST_TRANSACTIONS)
        for some in chunks(producer_ids, PRODUCER_IDS_AT_ONCE):
            reply = self.ask(address, listing(state_filters=[], producer_id_filters=list(some)))
            _check(broker, reply.error_code)
            yield from reply.transaction_states

    def describe(self, broker: int, address: Address, transactional_ids: Sequence[str]) -> list[KnownTransaction]:
        """Return the states of these ids, as far as they exist and the broker coordinates them."""
        known = []
        for ids in chunks(transactional_ids, IDS_AT_ONCE):
            for row in self._describe(address, ids):
                if row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    continue
                _check(broker, row.error_code)
                known.append(_known(broker, row))
        return known

    def denied_ids(self, address: Address, transactional_ids: Sequence[str]) -> list[str]:
        """Return the ids, existing or not, that this user may not DESCRIBE on the broker."""
        return [
            row.transactional_id
            for ids in chunks(transactional_ids, IDS_AT_ONCE)
            for row in self._describe(address, ids)
            if row.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        ]

    def overdue_ids(self, late: Iterable[KnownTransaction]) -> set[str]:
        """Return the ids of the transactions that are overdue by the clock of their coordinator too.

        A broker without version 1 of ListTransactions (before Kafka 3.8) cannot compare. For such a broker the clock of
        this machine decides.
        """
        listing = codec.request_class(ApiKey.LIST_TRANSACTIONS)
        found: set[str] = set()
        addresses = self.topology([COORDINATOR_TOPIC]).brokers if (late := list(late)) else {}
        for each in late:
            address = addresses.get(each.coordinator)
            if address is None:
                continue
            if self._serves(address, ApiKey.LIST_TRANSACTIONS) < 1:
                found.add(each.transactional_id)
                continue
            older_ms = each.timeout_ms + OVERDUE_AFTER_MS
            message = listing(state_filters=[], producer_id_filters=[each.producer_id], duration_filter=older_ms)
            found |= {row.transactional_id for row in self.ask(address, message).transaction_states}
        return found

    def _serves(self, address: Address, key: ApiKey) -> int:
        """Return the highest version of an API that a broker serves, -1 if none. The connection must be open."""
        return self._connections[address].versions.get(key, (-1, -1))[1]


def _by_topic(places: Sequence[TopicPartition]) -> Iterable[tuple[str, list[int]]]:
    """Return (topic, partitions) of these partitions."""
    topics: dict[str, list[int]] = {}
    for name, number in places:
        topics.setdefault(name, []).append(number)
    return topics.items()


def _coordinators(topology: Topology) -> dict[int, Place]:
    return topology.topics.get(COORDINATOR_TOPIC, {})


def _is_of_coordinator(topology: Topology, known: KnownTransaction) -> bool:
    """Return whether a state is from the leader for its id, as far as the partitions are known."""
    partitions = _coordinators(topology)
    place = partitions.get(coordinator_partition(known.transactional_id, len(partitions))) if partitions else None
    return place is None or place.leader == known.coordinator


def metadata_request(topics: Iterable[str] | None, with_rights: bool = False) -> Any:
    """Return a Metadata request for these topics, or for all, which creates none."""
    request = codec.request_class(ApiKey.METADATA)
    rows = None if topics is None else [request.MetadataRequestTopic(name=name) for name in topics]
    return request(topics=rows, allow_auto_topic_creation=False, include_topic_authorized_operations=with_rights)


def _probe_ids(partitions: Mapping[int, Place]) -> dict[int, list[str]]:
    """Return by leader an unused transactional id for each partition of the coordinators' log that it leads."""
    prefix = uuid.uuid4().hex
    found: dict[int, str] = {}
    is_numbered = set(partitions) == set(range(len(partitions)))  # else the ids of a partition are not known
    for number in range(_MOST_PROBES if is_numbered else 0):
        if len(found) == len(partitions):
            break
        transactional_id = f"{prefix}{number}"
        found.setdefault(coordinator_partition(transactional_id, len(partitions)), transactional_id)
    probes: dict[int, list[str]] = {}
    for partition, transactional_id in sorted(found.items()):
        probes.setdefault(partitions[partition].leader, []).append(transactional_id)
    return probes


def _check(broker: int, error: int) -> None:
    if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        raise _Moved(f"broker {broker} is still loading its transactions")
    if error in _NOT_LOADED:
        raise _Moved("coordinators have just changed")
    if error:
        raise Unanswered(f"broker {broker} does not describe its transactions: {error_name(error)}")


def _known(broker: int, row: Any) -> KnownTransaction:
    return KnownTransaction(
        row.transactional_id,
        broker,
        row.transaction_state,
        row.producer_id,
        row.producer_epoch,
        row.transaction_timeout_ms,
        row.transaction_start_time_ms,
        frozenset((topic.topic, number) for topic in row.topics for number in topic.partitions),
    )
