"""Metadata 0-13: the brokers, the topics, the leader of each partition. free

Version notes: 0 has no null list, so an empty list asks for all topics; 4 adds auto-creation; 7 leader epochs; 9 is
flexible; 10 topic ids; 12 looks topics up by id, and then no names count; 10 and 11 refuse rows with an id or without a
name. 13 has an error of the whole reply, which stays NONE. 8 asks for authorized operations, those of the cluster up to
10. A client on a listener that is not advertised gets no broker and
no leaders: LISTENER_NOT_FOUND, below 6 LEADER_NOT_AVAILABLE; 0 has no replicas either, and no replicas whose brokers
are stopped: REPLICA_NOT_AVAILABLE (`KRaftMetadataCache`).

An offline partition has no leader, and its replica is offline and not in sync: LEADER_NOT_AVAILABLE, as Kafka answers
for one in a failed log directory.

A request for all topics leaves out those that the client may not DESCRIBE. If they are named, the answer is
TOPIC_AUTHORIZATION_FAILED, whether they exist or not. The same error is for topics that would be created and that the
client may not CREATE.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from ottla.broker.api import operations
from ottla.broker.api.authorization import (
    CREATE_ANY_TOPIC,
    CREATE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC,
    SEE_TOPIC,
    find_denials,
)
from ottla.broker.api.context import Broker
from ottla.broker.api.placement import Placement
from ottla.broker.api.reply import ReplyBuilder
from ottla.broker.api.request import Reply, Request
from ottla.broker.cluster.image import INTERNAL_TOPICS, TopicImage
from ottla.broker.costs import CHANGE_US, ROW_US
from ottla.broker.quotas.managers import ControllerMutationQuota
from ottla.broker.turns import Turns
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_names import detect_invalid_topic
from ottla.protocol.values import ZERO_UUID

_LOOKS_UP_IDS: Final = 12
_HAS_IDS: Final = 10


async def handle(broker: Broker, request: Request) -> Reply:
    """Describe the cluster and the requested topics. Create absent ones if client and broker allow it."""
    version, body = request.api_version, request.body
    requested = body.topics
    answer = _Answer(broker, request)
    if requested is None or (version == 0 and not requested):
        for topic in list(broker.metadata.topics.values()):
            if broker.may(request, SEE_TOPIC, topic.name):
                await answer.add(topic)
            else:
                await broker.turns.yield_if_due()
    else:
        names, ids = await _divide(broker.turns, version, requested)
        if _HAS_IDS <= version < _LOOKS_UP_IDS and (ids or None in names):
            return await answer.refuse(requested)
        if ids:
            await answer.add_by_id(ids)
        else:
            create = broker.config.auto_create_topics_enable and (version < 4 or body.allow_auto_topic_creation)
            await answer.add_by_name(names, create=create)
    of_cluster = operations.NOT_REQUESTED
    if 8 <= version <= 10 and body.include_cluster_authorized_operations:
        may = broker.may(request, DESCRIBE_CLUSTER)
        of_cluster = operations.of_cluster(broker, request) if may else 0
    return answer.reply.finish(
        brokers=answer.brokers,
        cluster_id=broker.logs.properties.cluster_id,
        controller_id=broker.brokers[0].cluster.node_id,
        topics=answer.topics,
        authorized_operations=of_cluster,
    )


async def _divide(turns: Turns, version: int, rows: Iterable[Any]) -> tuple[Collection[str | None], Collection[bytes]]:
    """Return the names and the ids of a request, each once. A row may have both. Works in turns."""
    names: dict[str | None, None] = {}
    ids: dict[bytes, None] = {}
    for row in rows:
        names[row.name] = None
        if version >= _HAS_IDS and row.topic_id is not None and row.topic_id.int:
            ids[row.topic_id.bytes] = None
        await turns.spend(ROW_US)
    return names, ids


class _Answer:
    """The rows of the topics."""

    def __init__(self, broker: Broker, request: Request) -> None:
        self._broker = broker
        self._version = version = request.api_version
        self.reply = ReplyBuilder(broker, request)
        self.topics = self.reply.rows("topics")
        self._request = request
        self._operations_too = version >= 8 and request.body.include_topic_authorized_operations
        self.brokers = broker.endpoints_of(request.session.listener_name)
        self._placement = Placement(broker, version, is_advertised=bool(self.brokers))

    async def refuse(self, rows: Iterable[Any]) -> Reply:
        """Return a reply that refuses each row, without brokers."""
        for row in rows:
            topic_id = ZERO_UUID if row.topic_id is None else row.topic_id.bytes
            await self.topics.add(ErrorCode.INVALID_REQUEST, row.name or "", topic_id)
        return self.reply.finish(brokers=(), cluster_id=None, controller_id=-1, topics=self.topics)

    async def add_by_id(self, ids: Iterable[bytes]) -> None:
        """Add the topics with these ids, or their errors."""
        by_id = self._broker.metadata.topics_by_id
        known = {topic_id: by_id[topic_id].name for topic_id in ids if topic_id in by_id}
        hidden = await find_denials(self._broker, self._request, DESCRIBE_TOPIC, known.values())
        for topic_id in ids:
            topic = by_id.get(topic_id)
            if topic is None or topic_id not in known:
                await self.topics.add(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
            elif topic.name in hidden:
                await self.topics.add(DESCRIBE_TOPIC.error, None, topic_id)
            else:
                await self.add(topic)

    async def add_by_name(self, names: Iterable[str | None], *, create: bool) -> None:
        """Add the topics with these names, or their errors. `create` those that do not exist."""
        hidden = await find_denials(self._broker, self._request, DESCRIBE_TOPIC, filter(None, names))
        absent = [name for name in names if name and name not in hidden] if create else ()
        refused = await _create_absent(self._broker, self._request, absent)
        topics = self._broker.metadata.topics
        for name in names:
            if name in hidden:
                await self.topics.add(DESCRIBE_TOPIC.error, name)
            elif name is None or (name not in refused and detect_invalid_topic(name) is not None):
                await self._add_error(name or "", ErrorCode.INVALID_TOPIC_EXCEPTION)
            elif name not in topics:
                await self._add_error(name, refused.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                await self.add(topics[name])

    async def _add_error(self, name: str, error: ErrorCode) -> None:
        allowed = operations.NOT_REQUESTED if error is CREATE_TOPIC.error else self._operations(name)
        await self.topics.add(error, name, ZERO_UUID, False, (), allowed)

    def _operations(self, name: str) -> int:
        if not self._operations_too:
            return operations.NOT_REQUESTED
        return operations.of_topic(self._broker, self._request, name)

    async def add(self, topic: TopicImage) -> None:
        """Add a topic with its partitions."""
        partitions = self.reply.rows("topics", "partitions")
        for index, epoch in enumerate(topic.leader_epochs):
            error, leader, replicas, in_sync, offline = self._placement.locate(topic, index)
            await partitions.add(error, index, leader, epoch, replicas, in_sync, offline)
        await self.topics.add(
            ErrorCode.NONE, topic.name, topic.topic_id, topic.internal, partitions, self._operations(topic.name)
        )


async def _create_absent(broker: Broker, request: Request, names: Iterable[str]) -> dict[str, ErrorCode]:
    """Create the topics that do not exist, and wait until they do. Return the errors of those that could not be
    created."""
    absent = [name for name in names if name not in broker.cluster.topics]
    refused: dict[str, ErrorCode] = {}
    if absent and not broker.may(request, CREATE_ANY_TOPIC):
        refused = dict.fromkeys(await find_denials(broker, request, CREATE_TOPIC, absent), CREATE_TOPIC.error)
        absent = [name for name in absent if name not in refused]
    if absent:
        quota = request.mutation_quota(0)
        try:
            await broker.cluster.controller.in_parts(absent, str, lambda part: _create(broker, part, quota, refused))
        except OSError:
            refused |= {name: refused.get(name, ErrorCode.KAFKA_STORAGE_ERROR) for name in absent}
    return refused


async def _create(
    broker: Broker, names: Sequence[str], quota: ControllerMutationQuota | None, refused: dict[str, ErrorCode]
) -> None:
    cluster = broker.cluster
    for name in names:
        if name in INTERNAL_TOPICS:
            await cluster.create_internal_topic(name)
        elif name not in cluster.topics:
            if cluster.name_problem(name) is not None:
                refused[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif quota is not None and not quota.takes(cluster.default_partitions):
                refused[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # the client retries
            else:
                await cluster.controller.create_topic(name, cluster.default_partitions, {}, cluster.default_factor)
        await broker.turns.spend(CHANGE_US)
