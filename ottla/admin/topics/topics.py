"""`GET /v1/topics` and `GET /v1/topics/{topic}`: topics, and the partitions and configs of one. free"""

from typing import Any, Final
from uuid import UUID

from ottla.admin.fields import NUMBER, NUMBER_OR_NULL, TEXT, TEXT_OR_NULL, a_list, an_object
from ottla.admin.listing import LIMIT_MEANS, JsonRows, SmallestRows, limit_of, whole_number
from ottla.admin.routes import AdminError, AdminRequest, AdminResponse, Route
from ottla.broker.api.context import Broker
from ottla.broker.cluster.image import INTERNAL_TOPICS, TopicImage
from ottla.broker.config import describe_topic
from ottla.broker.config.option import DEFAULT_CONFIG
from ottla.broker.costs import CONFIG_ENTRY_US, LOOKUP_US

_BOOLEAN: Final = {"type": "boolean"}
_TOPIC: Final = an_object(
    {
        "topic": TEXT,
        "internal": _BOOLEAN,
        "partition_count": NUMBER,
        "replication_factor": NUMBER,
        "offsets": {**NUMBER, "description": "Offsets from the log start to the high watermark of all partitions."},
        "bytes": NUMBER,
        "held": {**NUMBER, "description": "Partitions that an open transaction holds back."},
        "offline": NUMBER,
        "unopened": {**NUMBER, "description": "Partitions without figures: no client has used them since the start."},
    }
)
_PARTITION: Final = an_object(
    {
        "partition": NUMBER,
        "leader": {**NUMBER, "description": "-1 if there is none."},
        "log_start_offset": {**NUMBER_OR_NULL, "description": "null, as the others, until the partition is used."},
        "last_stable_offset": NUMBER_OR_NULL,
        "high_watermark": NUMBER_OR_NULL,
        "log_end_offset": NUMBER_OR_NULL,
        "bytes": NUMBER_OR_NULL,
        "offline": TEXT_OR_NULL,
    }
)
_CONFIG: Final = an_object({"name": TEXT, "value": TEXT_OR_NULL})
LIST_SCHEMA: Final = an_object({"topics": a_list(_TOPIC), "total": NUMBER, "left_out": NUMBER})
SCHEMA: Final = an_object(
    {
        "partitions": a_list(_PARTITION),
        "topic": TEXT,
        "topic_id": TEXT,
        "internal": _BOOLEAN,
        "partition_count": NUMBER,
        "replication_factor": NUMBER,
        "configs": a_list(_CONFIG, description="Those that are not Kafka's defaults."),
    }
)
_FIGURES: Final = ("log_start_offset", "last_stable_offset", "high_watermark", "log_end_offset")


def topics_route(broker: Broker) -> Route:
    """Return the route of the list."""

    async def show(request: AdminRequest) -> AdminResponse:
        prefix, after = request.query.get("prefix", ""), request.query.get("after", "")
        internal = request.query.get("internal", "true")
        if internal not in ("true", "false"):
            raise AdminError(400, "internal must be true or false")
        found: SmallestRows[tuple[str], str] = SmallestRows(limit_of(request))
        for name in list(broker.cluster.topics):
            await broker.turns.spend(2 * LOOKUP_US)
            if name.startswith(prefix) and name > after and (internal == "true" or name not in INTERNAL_TOPICS):
                found.add((name,), name)
        rows = JsonRows("topics", broker.turns)
        for name in found.rows():
            topic = broker.cluster.topics.get(name)
            if topic is not None:
                await rows.add(await _topic_row(broker, topic))
        return rows.finish(total=found.total, left_out=found.left_out)

    query = {
        "prefix": "Only topics whose names begin with this text.",
        "after": "Only topics whose names come after this one.",
        "internal": "true (the default), or false: without internal topics.",
        "limit": LIMIT_MEANS,
    }
    return Route("GET", "/v1/topics", show, "Show topics by name", query=query, response_schema=LIST_SCHEMA)


def topic_route(broker: Broker) -> Route:
    """Return the route of one topic."""

    async def show(request: AdminRequest) -> AdminResponse:
        limit, first = limit_of(request), whole_number(request, "from", 0)
        topic = broker.cluster.topics.get(request.parameters["topic"])
        if topic is None:
            raise AdminError(404, "There is no such topic, or it was deleted: GET /v1/topics lists the topics")
        configs = []
        for entry in describe_topic(broker.config, topic.configs):
            await broker.turns.spend(CONFIG_ENTRY_US)
            if entry.source != DEFAULT_CONFIG:
                configs.append({"name": entry.name, "value": entry.value})
        rows = JsonRows("partitions", broker.turns)
        for index in range(first, min(first + limit, topic.partition_count)):
            await rows.add(_partition_row(broker, topic.name, index))
        return rows.finish(**_about(topic), topic_id=str(UUID(bytes=topic.topic_id)), configs=configs)

    query = {"from": "The number of the first partition, 0 by default.", "limit": LIMIT_MEANS}
    summary = "Show a topic: its partitions, and its configs that are no defaults"
    return Route("GET", "/v1/topics/{topic}", show, summary, query=query, response_schema=SCHEMA)


def _about(topic: TopicImage) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "internal": topic.internal,
        "partition_count": topic.partition_count,
        "replication_factor": topic.replication_factor,
    }


async def _topic_row(broker: Broker, topic: TopicImage) -> dict[str, Any]:
    """Sum up the open partitions of a topic."""
    offsets = size_bytes = held = offline = unopened = 0
    for partition in list(broker.cluster.open_partitions(topic.name)):
        await broker.turns.spend(3 * LOOKUP_US)
        if partition is None:
            unopened += 1
            continue
        offsets += partition.high_watermark - partition.log_start_offset
        size_bytes += partition.log.size_bytes
        held += partition.last_stable_offset < partition.high_watermark
        offline += partition.offline is not None
    sums = {"offsets": offsets, "bytes": size_bytes, "held": held, "offline": offline, "unopened": unopened}
    return _about(topic) | sums


def _partition_row(broker: Broker, topic: str, index: int) -> dict[str, Any]:
    known = None if broker.cluster.is_unopened(topic, index) else broker.cluster.partition(topic, index)
    return {
        "partition": index,
        "leader": broker.cluster.leader_of(topic, index)[0],
        **{name: None if known is None else getattr(known, name) for name in _FIGURES},
        "bytes": None if known is None else known.log.size_bytes,
        "offline": None if known is None else known.offline,
    }
