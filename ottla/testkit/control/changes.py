"""Changes to the brokers of a process by a test, and the clients that met them. shell

A change is a fault of the plan, at the point "cluster": it fires each time that a client meets it. An answer counts for
the last move of its partition, and for earlier ones that no client has met.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import Final
from uuid import UUID

from ottla.broker.api.context import Broker
from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.internal_topics.metadata_records import NO_LEADER
from ottla.protocol.requests import codec
from ottla.protocol.requests.structs import error_codes
from ottla.protocol.subject import partition_errors
from ottla.protocol.values import TopicPartition
from ottla.testkit.faults.exchange import Exchange
from ottla.testkit.faults.fault import CLUSTER, Fault
from ottla.testkit.faults.plan import Plan

MOVE: Final = "move"
STOP: Final = "stop_broker"
FREEZE: Final = "freeze_metadata"
MOST_CHANGES: Final = 500
"""Above this number the oldest one is forgotten."""
_MOVED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
_MISSING: Final = frozenset(
    {
        *(ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        *(ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
    }
)
"""Answers of the brokers that run because another one is stopped."""
_OF_TRANSACTIONS: Final = frozenset(
    {
        *(ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN),
        ApiKey.DESCRIBE_TRANSACTIONS,
    }
)
_OF_METADATA: Final = frozenset({ApiKey.METADATA, ApiKey.FIND_COORDINATOR})
_SIZE_BYTES: Final = 4

Key = tuple[str, Hashable]
"""What a change does, and to which broker, link or partition."""


class Changes:
    """The changes that are in force."""

    def __init__(self, broker: Broker, plan: Plan) -> None:
        self._broker = broker
        self._brokers = {each.cluster.node_id: each for each in broker.brokers}
        self._plan = plan
        self._added: list[Fault] = []
        self._in_force: dict[Key, list[Fault]] = {}

    def add(self, do: str, where: dict[str, object], key: Key) -> Fault:
        """Count the clients that meet a change from now on."""
        change = self._plan.add(Fault(do, CLUSTER, where=where, times=None))
        self._in_force.setdefault(key, []).append(change)
        self._added.append(change)
        if len(self._added) > MOST_CHANGES:
            self._plan.remove(self._added.pop(0).id)
        return change

    def cancel(self, change: Fault) -> None:
        """Forget a change that was not possible."""
        self._plan.remove(change.id)
        self._added.remove(change)

    def forget(self, key: Key) -> None:
        """Count no more clients for a change that is undone."""
        self._in_force.pop(key, None)

    def count(self, key: Key) -> None:
        """Count a client that meets a change, if it is in force."""
        known = [each for each in self._in_force.get(key, ()) if self._plan.get(each.id) is each]
        for change in known:
            self._plan.fire(change)
        if known:
            self._in_force[key] = known[-1:]
        else:
            self.forget(key)

    # ---- replies

    def count_reply(self, node_id: int, exchange: Exchange, reply: bytes) -> None:
        """Count the changes that a client meets in the reply of a broker, given with its size."""
        if not self._in_force or not reply:
            return
        if (FREEZE, node_id) in self._in_force and exchange.api_key in _OF_METADATA:
            self._count_stale(node_id, exchange)
        try:
            _, message = codec.decode_response(exchange.api_key, exchange.api_version, reply[_SIZE_BYTES:])
        except ProtocolError:
            return  # a reply without its secrets
        codes = frozenset(error_codes(message))
        if ErrorCode.NOT_COORDINATOR in codes:
            self._count_all((MOVE, place) for place in self._coordinators(exchange))
        without_leader = False
        if codes & _MOVED:
            errors = partition_errors(message, self.name_of)
            places = {(topic, index) for topic, index, code in errors if code in _MOVED}
            self._count_all((MOVE, place) for place in places)
            without_leader = any(self._broker.cluster.leader_of(*place)[0] == NO_LEADER for place in places)
        if codes & _MISSING or without_leader:
            self._count_all([key for key in self._in_force if key[0] == STOP])

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of a topic, None if there is none with this id."""
        topic = self._broker.cluster.topics_by_id.get(topic_id.bytes)
        return None if topic is None else topic.name

    def _count_all(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.count(key)

    # ---- coordinators

    def transaction_place(self, transactional_id: str) -> TopicPartition:
        """Return the partition of a transactional id."""
        return TRANSACTION_STATE_TOPIC, self._broker.transactions.states.partition_for(transactional_id)

    def group_place(self, group: str) -> TopicPartition:
        """Return the partition of a group."""
        return CONSUMER_OFFSETS_TOPIC, self._broker.groups.offsets.partition_for(group)

    def _coordinators(self, exchange: Exchange) -> set[TopicPartition]:
        """Return the partitions of the coordinators that the request asks."""
        if exchange.api_key in _OF_TRANSACTIONS:
            return {self.transaction_place(each) for each in exchange.subject.transactional_ids}
        return {self.group_place(each) for each in exchange.subject.groups}

    # ---- frozen metadata

    def _count_stale(self, node_id: int, exchange: Exchange) -> None:
        """Count an answer from frozen metadata if another broker would answer otherwise."""
        broker = self._brokers[node_id]
        frozen, current = broker.metadata, broker.cluster
        places = self._list_answers(exchange, [*frozen.topics, *current.topics])
        if frozen.stopped_ids != current.stopped_ids or any(
            frozen.leader_of(*place) != current.leader_of(*place) for place in places
        ):
            self.count((FREEZE, node_id))

    def _list_answers(self, exchange: Exchange, names: list[str]) -> Iterator[TopicPartition]:
        """Yield the partitions whose leaders an answer names."""
        subject = exchange.subject
        yield from map(self.transaction_place, subject.transactional_ids)
        yield from map(self.group_place, subject.groups)
        if exchange.api_key == ApiKey.METADATA:
            topics = self._broker.cluster.topics
            for name in {topic for topic, _ in subject.partitions} or names:
                yield from ((name, index) for index in range(topics[name].partition_count if name in topics else 1))
