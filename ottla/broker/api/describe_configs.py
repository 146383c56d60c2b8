"""DescribeConfigs 1-4: the configs of topics and of this broker. free

Version notes: 1 adds synonyms and sources; 3 types and documentation; 4 is flexible. Other resource types (groups,
loggers, client metrics) have no configs here: INVALID_REQUEST.
"""

from typing import Any

from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.cluster.names import topic_name_problem
from ottla.broker.config import ConfigEntry, describe_broker, describe_topic
from ottla.protocol import codec
from ottla.protocol.errors import ErrorCode
from ottla.protocol.metadata_records import BROKER_RESOURCE, TOPIC_RESOURCE

DESCRIBE_CONFIGS = 32
RESOURCES_PER_TURN = 20


async def handle(broker: Broker, request: Request) -> Reply:
    """Describe each resource asked for."""
    version, body = request.api_version, request.body
    results: list[Reply] = []
    once = {(asked.resource_type, asked.resource_name): asked for asked in body.resources}
    for asked in once.values():  # a resource named twice would only make the reply larger
        if len(results) % RESOURCES_PER_TURN == RESOURCES_PER_TURN - 1:
            await broker.turns.pause()
        error, message, entries = _entries(broker, asked.resource_type, asked.resource_name)
        wanted = frozenset(asked.configuration_keys or ())
        results.append(
            codec.response_class(DESCRIBE_CONFIGS).DescribeConfigsResult(
                version=version,
                error_code=error,
                error_message=message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
                configs=[
                    _row(version, entry, body.include_synonyms, version >= 3 and body.include_documentation)
                    for entry in entries
                    if not wanted or entry.name in wanted
                ],
            )
        )
    return codec.response_class(DESCRIBE_CONFIGS)(version=version, throttle_time_ms=0, results=results)


def _entries(broker: Broker, kind: int, name: str) -> tuple[ErrorCode, str | None, list[ConfigEntry]]:
    if kind == TOPIC_RESOURCE:
        problem = topic_name_problem(name)
        if problem is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, problem, []
        topic = broker.cluster.topics.get(name)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.", []
        return ErrorCode.NONE, None, describe_topic(broker.config, topic.configs)
    if kind == BROKER_RESOURCE:
        if name not in ("", str(broker.cluster.node_id)):
            message = f"Unexpected broker id, expected {broker.cluster.node_id} or empty string, but received {name}"
            return ErrorCode.INVALID_REQUEST, message, []
        return ErrorCode.NONE, None, describe_broker(broker.config) if name else []
    return ErrorCode.INVALID_REQUEST, f"Resources of type {kind} have no configs here", []


def _row(version: int, entry: ConfigEntry, synonyms: bool, documentation: bool) -> Any:
    result = codec.response_class(DESCRIBE_CONFIGS).DescribeConfigsResult.DescribeConfigsResourceResult
    return result(
        version=version,
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=False,
        synonyms=[
            result.DescribeConfigsSynonym(version=version, name=name, value=value, source=source)
            for name, value, source in (entry.synonyms if synonyms else ())
        ],
        config_type=entry.kind.value,
        documentation=entry.meaning if documentation else None,
    )
