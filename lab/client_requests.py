"""Requests of consumers and group members in simulations, and the errors that they expect. pure"""

from collections.abc import Sequence
from typing import Any, Final

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.values import ProducerIdAndEpoch
from ottla.testkit.in_memory.wire import Request, request

NONE: Final = 0
OUT_OF_RANGE: Final = 1
RETRIABLE: Final = frozenset((3, 6, 7, 13, 14, 15, 16, 19, 20, 51, 56, 88))
FENCED: Final = frozenset((47, 90))
UNKNOWN_PRODUCER_ID: Final = 59
NOT_A_MEMBER: Final = frozenset((22, 25))


def offset_fetch(group: str, topic: str, indexes: Sequence[int]) -> Request:
    topics = [{"name": topic, "partition_indexes": list(indexes)}]
    return request(ApiKey.OFFSET_FETCH, 7, group_id=group, topics=topics, require_stable=True)


def join_group(group: str, member_id: str, session_ms: int, rebalance_ms: int) -> Request:
    return request(
        ApiKey.JOIN_GROUP,
        5,
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="copy",
        protocols=[{"name": "share", "metadata": b""}],
    )


def sync_group(group: str, generation_id: int, member_id: str, shares: dict[str, bytes]) -> Request:
    assignments = [{"member_id": each, "assignment": share} for each, share in shares.items()]
    return request(ApiKey.SYNC_GROUP, 3, **_member(group, generation_id, member_id), assignments=assignments)


def heartbeat(group: str, generation_id: int, member_id: str) -> Request:
    return request(ApiKey.HEARTBEAT, 3, **_member(group, generation_id, member_id))


def _member(group: str, generation_id: int, member_id: str) -> dict[str, Any]:
    return {"group_id": group, "generation_id": generation_id, "member_id": member_id, "group_instance_id": None}


def fetch(
    topic: str, index: int, offset: int, committed: bool, max_wait_ms: int = 0, max_bytes: int = 1 << 20
) -> Request:
    row = {
        "partition": index,
        "current_leader_epoch": -1,
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
