"""Requests of consumers and group members in simulations, and the errors that they expect. pure"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.values import ProducerIdAndEpoch
from ottla.testkit.in_memory.wire import Request, request

NONE: Final = 0
OUT_OF_RANGE: Final = 1
NOT_COORDINATOR: Final = 16
RETRIABLE: Final = frozenset((3, 6, 7, 13, 14, 15, 16, 19, 20, 51, 56, 88))
FENCED: Final = frozenset((47, 90))
UNKNOWN_PRODUCER_ID: Final = 59
ILLEGAL_GENERATION: Final = 22
NOT_A_MEMBER: Final = frozenset((22, 25))
UNKNOWN_MEMBER_ID: Final = 25
REBALANCE_IN_PROGRESS: Final = 27
GROUP_ID_NOT_FOUND: Final = 69
MEMBER_ID_REQUIRED: Final = 79
FENCED_INSTANCE_ID: Final = 82
FENCED_MEMBER_EPOCH: Final = 110
STALE_MEMBER_EPOCH: Final = 113


def offset_fetch(group: str, topic: str, indexes: Sequence[int]) -> Request:
    topics = [{"name": topic, "partition_indexes": list(indexes)}]
    return request(ApiKey.OFFSET_FETCH, 7, group_id=group, topics=topics, require_stable=True)


COPIERS_PROTOCOL: Final = ("copy", "share", b"")


def join_group(
    group: str,
    member_id: str,
    session_ms: int,
    rebalance_ms: int,
    protocol: tuple[str, str, bytes] = COPIERS_PROTOCOL,
    instance_id: str | None = None,
) -> Request:
    """Return a JoinGroup; `protocol` is (type, name, metadata)."""
    protocol_type, name, metadata = protocol
    return request(
        ApiKey.JOIN_GROUP,
        5,
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[{"name": name, "metadata": metadata}],
    )


def sync_group(
    group: str, generation_id: int, member_id: str, shares: dict[str, bytes], instance_id: str | None = None
) -> Request:
    assignments = [{"member_id": each, "assignment": share} for each, share in shares.items()]
    member = _member(group, generation_id, member_id, instance_id)
    return request(ApiKey.SYNC_GROUP, 3, **member, assignments=assignments)


@lru_cache
def heartbeat(group: str, generation_id: int, member_id: str, instance_id: str | None = None) -> Request:
    return request(ApiKey.HEARTBEAT, 3, **_member(group, generation_id, member_id, instance_id))


def leave_group(group: str, member_id: str, instance_id: str | None) -> Request:
    members = [{"member_id": member_id, "group_instance_id": instance_id}]
    return request(ApiKey.LEAVE_GROUP, 3, group_id=group, members=members)


def _member(group: str, generation_id: int, member_id: str, instance_id: str | None) -> dict[str, Any]:
    return {"group_id": group, "generation_id": generation_id, "member_id": member_id, "group_instance_id": instance_id}


def consumer_group_heartbeat(
    group: str,
    member_id: str,
    member_epoch: int,
    instance_id: str | None,
    subscription: tuple[int, Sequence[str], str | None, str | None] | None = None,
    owned: Mapping[bytes, Sequence[int]] | None = None,
) -> Request:
    """Return a heartbeat of the consumer protocol.

    `subscription` has the rebalance timeout, the topics, their regular expression and the assignor; `owned` has
    partitions by topic id. None is "as before".
    """
    rebalance_ms, names, regex, assignor = subscription or (-1, None, None, None)
    topics = None if owned is None else [{"topic_id": UUID(bytes=key), "partitions": owned[key]} for key in owned]
    return request(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        group_id=group,
        member_id=member_id,
        member_epoch=member_epoch,
        instance_id=instance_id,
        rack_id=None,
        rebalance_timeout_ms=rebalance_ms,
        subscribed_topic_names=names,
        subscribed_topic_regex=regex,
        server_assignor=assignor,
        topic_partitions=topics,
    )


def offset_commit(group: str, membership: tuple[int, str], topic: str, index: int, offset: int) -> Request:
    """Return a commit of a member of the consumer protocol; `membership` is its epoch and its id."""
    row = {"partition_index": index, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
    return request(
        ApiKey.OFFSET_COMMIT,
        9,
        group_id=group,
        generation_id_or_member_epoch=membership[0],
        member_id=membership[1],
        group_instance_id=None,
        topics=[{"name": topic, "partitions": [row]}],
    )


def member_offset_fetch(group: str, membership: tuple[int, str], topic: str, index: int) -> Request:
    """Return a fetch of a committed offset by a member of the consumer protocol."""
    topics = [{"name": topic, "partition_indexes": [index]}]
    asked = {"group_id": group, "member_id": membership[1], "member_epoch": membership[0], "topics": topics}
    return request(ApiKey.OFFSET_FETCH, 9, groups=[asked], require_stable=True)


def create_topic(name: str, partition_count: int) -> Request:
    row = {"name": name, "num_partitions": partition_count, "replication_factor": 1, "assignments": [], "configs": []}
    return request(ApiKey.CREATE_TOPICS, 5, topics=[row], timeout_ms=1000, validate_only=False)


def delete_topic(name: str) -> Request:
    return request(ApiKey.DELETE_TOPICS, 5, topic_names=[name], timeout_ms=1000)


def create_partitions(name: str, partition_count: int) -> Request:
    row = {"name": name, "count": partition_count, "assignments": None}
    return request(ApiKey.CREATE_PARTITIONS, 3, topics=[row], timeout_ms=1000, validate_only=False)


@lru_cache(maxsize=1024)
def fetch(
    topic: str,
    index: int,
    offset: int,
    committed: bool,
    max_wait_ms: int = 0,
    max_bytes: int = 1 << 20,
    leader_epoch: int = -1,
) -> Request:
    row = {
        "partition": index,
        "current_leader_epoch": leader_epoch,
        "fetch_offset": offset,
        "log_start_offset": -1,
        "partition_max_bytes": max_bytes,
    }
    return request(
        ApiKey.FETCH,
        11,
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=int(committed),
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": topic, "partitions": [row]}],
        forgotten_topics_data=[],
        rack_id="",
    )


def write_txn_marker(producer: ProducerIdAndEpoch, topic: str, indexes: Sequence[int]) -> Request:
    """Return an abort marker of an administrator for a hanging transaction."""
    marker = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "transaction_result": False,
        "topics": [{"name": topic, "partition_indexes": list(indexes)}],
        "coordinator_epoch": 0,
    }
    return request(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker])
