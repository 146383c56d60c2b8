"""Metadata 0-12: this broker, the topics, the leader of each partition. free

Version notes: 0 has no null list, so an empty list asks for all topics; 4 adds auto-creation; 7 leader epochs; 9 is
flexible; 10 topic ids; 12 looks topics up by id. 8 asks for authorized operations (all: there is no authorizer), those
of the cluster up to 10. Who came in on a listener that is not advertised is told of no broker, and of no leaders:
LISTENER_NOT_FOUND, below 6 LEADER_NOT_AVAILABLE; 0 names no replicas either (`KRaftMetadataCache`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.broker.api import operations
from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.api.named import named
from ottla.broker.api.reply import ReplyBuilder
from ottla.broker.cluster.image import INTERNAL_TOPICS, TopicImage
from ottla.broker.cluster.names import detect_invalid_topic
from ottla.broker.costs import CHANGE_US
from ottla.protocol.errors import ErrorCode
from ottla.protocol.metadata_records import NO_LEADER
from ottla.protocol.values import ZERO_UUID


async def handle(broker: Broker, request: Request) -> Reply:
    """Describe the cluster and the topics that were asked for, creating absent ones when both sides allow it."""
    version, body = request.api_version, request.body
    asked = body.topics
    answer = _Answer(broker, request)
    if asked is None or (version == 0 and not asked):
        for topic in list(broker.cluster.topics.values()):
            await answer.add(topic)
    else:
        create = broker.config.auto_create_topics_enable and (version < 4 or body.allow_auto_topic_creation)
        by_id = version >= 10
        once, _ = await named(broker.turns, asked, lambda item: (item.name, item.topic_id if by_id else None))
        refused = await _create_absent(broker, [name for name, _ in once if name]) if create else {}
        for name, topic_id in once:
            await answer.add_asked(name, None if topic_id is None else topic_id.bytes, refused)
    of_cluster = 8 <= version <= 10 and body.include_cluster_authorized_operations
    return answer.reply.finish(
        brokers=answer.brokers,
        cluster_id=broker.logs.properties.cluster_id,
        controller_id=broker.cluster.node_id,
        topics=answer.topics,
        authorized_operations=operations.OF_CLUSTER if of_cluster else operations.NOT_ASKED_FOR,
    )


class _Placed(NamedTuple):
    """What is said of every partition: there is one broker."""

    error: ErrorCode
    leader: int
    replicas: tuple[int, ...]
    offline: tuple[int, ...]


def _unreached(here: tuple[int, ...], version: int) -> _Placed:
    """For who came in on a listener that is not advertised."""
    error = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    return _Placed(error, NO_LEADER, here if version else (), here)


class _Answer:
    """The rows of the topics."""

    def __init__(self, broker: Broker, request: Request) -> None:
        self._broker = broker
        self._version = version = request.api_version
        self.reply = ReplyBuilder(broker, request)
        self.topics = self.reply.rows("topics")
        asked_for = version >= 8 and request.body.include_topic_authorized_operations
        self._operations = operations.OF_TOPIC if asked_for else operations.NOT_ASKED_FOR
        endpoint = broker.endpoints.get(request.listener_name)
        self.brokers = [] if endpoint is None else [endpoint]
        here = (broker.cluster.node_id,)
        self._placed = _Placed(ErrorCode.NONE, *here, here, ()) if endpoint is not None else _unreached(here, version)

    async def add_asked(self, name: str | None, topic_id: bytes | None, refused: Mapping[str, ErrorCode]) -> None:
        """A topic that was asked for by name or id, or why it is not there."""
        topics = self._broker.cluster.topics
        if not name and topic_id is not None:
            topic = self._broker.cluster.topics_by_id.get(topic_id)
            if topic is None:
                nameless = None if self._version >= 12 else ""
                await self.topics.add(ErrorCode.UNKNOWN_TOPIC_ID, nameless, topic_id)
            else:
                await self.add(topic)
        elif name is None or detect_invalid_topic(name) is not None:
            await self._add_error(name or "", ErrorCode.INVALID_TOPIC_EXCEPTION)
        elif name not in topics:
            await self._add_error(name, refused.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            await self.add(topics[name])

    async def _add_error(self, name: str, error: ErrorCode) -> None:
        await self.topics.add(error, name, ZERO_UUID, False, (), self._operations)

    async def add(self, topic: TopicImage) -> None:
        """A topic with its partitions."""
        partitions = self.reply.rows("topics", "partitions")
        error, leader, replicas, offline = self._placed
        for index, epoch in enumerate(topic.leader_epochs):
            await partitions.add(error, index, leader, epoch, replicas, replicas, offline)
        await self.topics.add(ErrorCode.NONE, topic.name, topic.topic_id, topic.internal, partitions, self._operations)


async def _create_absent(broker: Broker, names: Iterable[str]) -> dict[str, ErrorCode]:
    """Create the topics that do not exist, and wait until they do; why each of the others could not be created."""
    # A name may stand beside several ids. What is logged exists only later, so the second would be created as well.
    absent = [name for name in dict.fromkeys(names) if name not in broker.cluster.topics]
    refused: dict[str, ErrorCode] = {}
    if absent:
        try:
            await broker.cluster.controller.in_parts(absent, str, lambda part: _create(broker, part, refused))
        except OSError:
            refused = {name: refused.get(name, ErrorCode.KAFKA_STORAGE_ERROR) for name in absent}
    return refused


async def _create(broker: Broker, names: Sequence[str], refused: dict[str, ErrorCode]) -> None:
    cluster = broker.cluster
    for name in names:
        if name in INTERNAL_TOPICS:
            await cluster.create_internal_topic(name)
        elif name not in cluster.topics:
            if cluster.name_problem(name) is None:
                await cluster.controller.create_topic(name, cluster.default_partitions, {})
            else:
                refused[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
        broker.turns.charge(CHANGE_US)
        await broker.turns.share()
