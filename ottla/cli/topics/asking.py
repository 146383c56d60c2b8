"""Requests of `ottla topics` to a cluster. shell"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.protocol.values import TopicPartition
from ottla.wire import Unanswered
from ottla.wire.cluster import EARLIEST, LATEST, READ_COMMITTED, RETRY_S, Cluster, metadata_request
from ottla.wire.login import error_name
from ottla.wire.topology import DELETED, Topology

BROKER_DEFAULT: Final = -1
_TOPIC_CONFIG: Final = 1
"""Source of a config that is set for the topic (`DescribeConfigsResponse.ConfigSource`)."""
_TOPIC_RESOURCE: Final = 2
"""`ConfigResource.Type`."""


class TopicRow(NamedTuple):
    """A topic in a list. `partitions` and `replicas` are None, with the reason in `error`, if it is not described."""

    topic: str
    partitions: int | None
    replicas: int | None
    error: str | None


class PartitionRow(NamedTuple):
    """A partition. Offsets are None, with the reason in `error`, if its leader does not answer."""

    partition: int
    leader: int | None
    replicas: str
    isr: str
    first_offset: int | None
    last_stable_offset: int | None
    end_offset: int | None
    error: str | None


class Refused(Exception):
    """The brokers refuse a request. The message is one line, with the reason."""


def list_topics(cluster: Cluster, *, with_internal: bool) -> list[TopicRow]:
    """Return the topics that this user sees, by name."""
    rows = []
    for topic in sorted(cluster.ask_any(metadata_request(None)).topics, key=lambda topic: str(topic.name)):
        if topic.is_internal and not with_internal:
            continue
        if topic.error_code:
            rows.append(TopicRow(topic.name, None, None, error_name(topic.error_code)))
            continue
        replicas = max((len(each.replica_nodes) for each in topic.partitions), default=0)
        rows.append(TopicRow(topic.name, len(topic.partitions), replicas, None))
    return rows


def describe_partitions(cluster: Cluster, name: str) -> list[PartitionRow]:
    """Return the partitions of a topic. Raises Unanswered."""
    (topic,) = (each for each in cluster.ask_any(metadata_request([name])).topics if each.name == name)
    if topic.error_code in DELETED:
        raise Unanswered(f"topic {name} does not exist, or this user lacks DESCRIBE on it")
    if topic.error_code:
        raise Unanswered(f"topic {name}: {error_name(topic.error_code)}")
    found = sorted(topic.partitions, key=lambda each: int(each.partition_index))
    places: list[TopicPartition] = [(name, each.partition_index) for each in found]
    ends = cluster.offsets(places, LATEST)
    stable = cluster.offsets(places, LATEST, READ_COMMITTED)
    starts = cluster.offsets(places, EARLIEST)
    return [
        PartitionRow(
            each.partition_index,
            each.leader_id if each.leader_id >= 0 else None,
            ",".join(map(str, each.replica_nodes)),
            ",".join(map(str, each.isr_nodes)),
            starts.offsets.get(place),
            stable.offsets.get(place),
            ends.offsets.get(place),
            next((known.errors[place] for known in (ends, stable, starts) if place in known.errors), None),
        )
        for place, each in zip(places, found, strict=True)
    ]


def describe_configs(cluster: Cluster, name: str) -> list[tuple[str, str | None]]:
    """Return the configs that are set for a topic, without values of secret ones. Raises Refused."""
    request = codec.request_class(ApiKey.DESCRIBE_CONFIGS)
    resource = request.DescribeConfigsResource(
        resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None
    )
    for result in cluster.ask_any(request(resources=[resource])).results:
        if result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise Refused(f"the configs are not shown: this user lacks DESCRIBE_CONFIGS on topic {name}")
        if result.error_code:
            raise Refused(f"the configs are not shown: {_reason(result)}")
        return sorted((each.name, each.value) for each in result.configs if each.config_source == _TOPIC_CONFIG)
    raise Refused("the configs are not shown: the broker answers about nothing")


def create_topic(
    cluster: Cluster, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str], timeout_s: float
) -> bool:
    """Create a topic, and wait until the broker that was asked first shows its leaders. Return whether it does.

    Raises Refused, Unanswered.
    """
    request = codec.request_class(ApiKey.CREATE_TOPICS)
    row = request.CreatableTopic
    topic = row(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[row.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    message = request(topics=[topic], timeout_ms=round(timeout_s * 1000), validate_only=False)
    for result in _ask_controller(cluster, message).topics:
        if result.error_code:
            raise Refused(f"topic {name}: {_reason(result)}")
    deadline_s = time.monotonic() + timeout_s
    while not _has_leaders(cluster.topology([name]), name):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(RETRY_S)
    return True


def delete_topics(cluster: Cluster, names: Sequence[str], timeout_s: float) -> dict[str, str | None]:
    """Delete topics. Return the reason why one was not deleted, None if it was."""
    request = codec.request_class(ApiKey.DELETE_TOPICS)
    topics = [request.DeleteTopicState(name=name) for name in names]
    reply = _ask_controller(cluster, request(topics=topics, timeout_ms=round(timeout_s * 1000)))
    found = {row.name: _reason(row) if row.error_code else None for row in reply.responses}
    return {name: found.get(name, "the broker answers about other topics") for name in names}


def _has_leaders(topology: Topology, name: str) -> bool:
    places = topology.topics.get(name, {})
    return bool(places) and all(place.leader in topology.brokers for place in places.values())


def _ask_controller(cluster: Cluster, message: Any) -> Any:
    """Return the answer of the controller, as far as the brokers name it. Before KRaft, only it answers."""
    metadata = cluster.ask_any(metadata_request([]))
    for broker in metadata.brokers:
        if broker.node_id == metadata.controller_id:
            return cluster.ask((broker.host, broker.port), message)
    return cluster.ask_any(message)


def _reason(row: Any) -> str:
    """Return the error of a row, with the text of the broker."""
    name, text = error_name(row.error_code), getattr(row, "error_message", None)
    return f"{text} ({name})" if text and text != name else name
