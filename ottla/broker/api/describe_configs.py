"""DescribeConfigs 1-4: the configs of topics, of this broker, of the cluster's brokers ("") and of groups. free

Version notes: 1 adds synonyms and sources; 3 types and documentation; 4 is flexible. Other resource types (loggers,
client metrics) have no configs here: INVALID_REQUEST.
"""

from collections.abc import Iterable

from ottla.broker.api.authorization import DESCRIBE_CONFIGS, refuse_configs
from ottla.broker.api.context import Broker
from ottla.broker.api.indexed_rows import index_last_rows
from ottla.broker.api.reply import ReplyBuilder
from ottla.broker.api.request import Reply, Request
from ottla.broker.config import ConfigEntry, describe_broker, describe_cluster, describe_group, describe_topic
from ottla.broker.costs import CONFIG_ENTRY_US
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.metadata_records import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from ottla.protocol.topic_names import detect_invalid_topic


async def handle(broker: Broker, request: Request) -> Reply:
    """Describe each requested resource once."""
    body = request.body
    documentation = request.api_version >= 3 and body.include_documentation
    reply = ReplyBuilder(broker, request)
    results = reply.rows("results")
    once = await index_last_rows(broker.turns, body.resources, lambda row: (row.resource_type, row.resource_name))
    for row in once.values():
        error, message, entries = _entries(broker, request, row.resource_type, row.resource_name)
        keys = frozenset(row.configuration_keys or ())
        configs = reply.rows("results", "configs")
        for entry in entries:
            await broker.turns.spend(CONFIG_ENTRY_US)
            if not keys or entry.name in keys:
                await configs.add(
                    name=entry.name,
                    value=entry.value,
                    read_only=entry.read_only,
                    config_source=entry.source,
                    is_sensitive=entry.sensitive,
                    synonyms=entry.synonyms if body.include_synonyms else (),
                    config_type=entry.kind.value,
                    documentation=entry.meaning if documentation else None,
                )
        await results.add(error, message, row.resource_type, row.resource_name, configs)
    return reply.finish(results=results)


def _entries(
    broker: Broker, request: Request, kind: int, name: str
) -> tuple[ErrorCode, str | None, Iterable[ConfigEntry]]:
    refused = refuse_configs(broker, request, DESCRIBE_CONFIGS, kind, name)
    if refused is not None:
        return *refused, ()
    if kind == TOPIC_RESOURCE:
        problem = detect_invalid_topic(name)
        if problem is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, problem, []
        topic = broker.cluster.topics.get(name)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.", []
        return ErrorCode.NONE, "", describe_topic(broker.config, topic.configs)
    if kind == BROKER_RESOURCE:
        if name not in ("", str(broker.cluster.node_id)):
            message = f"Unexpected broker id, expected {broker.cluster.node_id} or empty string, but received {name}"
            return ErrorCode.INVALID_REQUEST, message, []
        return ErrorCode.NONE, "", describe_broker(broker.config) if name else describe_cluster(broker.config)
    if kind == GROUP_RESOURCE:
        if not name:
            return ErrorCode.INVALID_REQUEST, "Group name must not be empty", []
        return ErrorCode.NONE, "", describe_group(broker.config, broker.cluster.image.group_configs.get(name, {}))
    return ErrorCode.INVALID_REQUEST, f"Resources of type {kind} have no configs in Ottla", []
