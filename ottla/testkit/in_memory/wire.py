"""Requests of the simulated clients, as kafka-python's messages, with their versions. pure"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from ottla.protocol.values import ProducerIdAndEpoch, TopicPartition

NONE: Final = 0
OUT_OF_RANGE: Final = 1
RETRIABLE: Final = frozenset((3, 6, 7, 13, 14, 15, 16, 19, 20, 51, 56, 88))
FENCED: Final = frozenset((47, 90))
UNKNOWN_PRODUCER_ID: Final = 59
NOT_A_MEMBER: Final = frozenset((22, 25))


class Generation(NamedTuple):
    """The versions of one generation of the transaction protocol (KIP-890 made the second)."""

    name: str
    produce: int
    end_txn: int
    txn_offset_commit: int
    adds_by_itself: bool
    """Return whether partitions join by AddPartitionsToTxn; in the second generation Produce itself adds them."""


V1: Final = Generation("v1", produce=11, end_txn=3, txn_offset_commit=3, adds_by_itself=True)
V2: Final = Generation("v2", produce=12, end_txn=5, txn_offset_commit=5, adds_by_itself=False)


class Request(NamedTuple):
    """A request and its version."""

    api_key: int
    version: int
    message: Any


def init_producer_id(transactional_id: str | None, timeout_ms: int, producer_id: int = -1, epoch: int = -1) -> Request:
    message = codec.request_class(ApiKey.INIT_PRODUCER_ID)(
        version=4,
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    return Request(ApiKey.INIT_PRODUCER_ID, 4, message)


def add_partitions(
    transactional_id: str, producer: ProducerIdAndEpoch, partitions: Sequence[TopicPartition]
) -> Request:
    request = codec.request_class(ApiKey.ADD_PARTITIONS_TO_TXN)
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    message = request(
        version=3,
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[
            request.AddPartitionsToTxnTopic(version=3, name=name, partitions=indexes)
            for name, indexes in topics.items()
        ],
    )
    return Request(ApiKey.ADD_PARTITIONS_TO_TXN, 3, message)


def add_offsets(transactional_id: str, producer: ProducerIdAndEpoch, group: str) -> Request:
    message = codec.request_class(ApiKey.ADD_OFFSETS_TO_TXN)(
        version=3,
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group,
    )
    return Request(ApiKey.ADD_OFFSETS_TO_TXN, 3, message)


def end_txn(generation: Generation, transactional_id: str, producer: ProducerIdAndEpoch, commit: bool) -> Request:
    message = codec.request_class(ApiKey.END_TXN)(
        version=generation.end_txn,
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
    )
    return Request(ApiKey.END_TXN, generation.end_txn, message)


def produce(generation: Generation, transactional_id: str | None, topic: str, index: int, batch: bytes) -> Request:
    request, version = codec.request_class(ApiKey.PRODUCE), generation.produce
    data = request.TopicProduceData
    rows = [data.PartitionProduceData(version=version, index=index, records=batch)]
    message = request(
        version=version,
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=1000,
        topic_data=[data(version=version, name=topic, partition_data=rows)],
    )
    return Request(ApiKey.PRODUCE, version, message)


def txn_offset_commit(
    generation: Generation,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    group: str,
    offsets: Sequence[tuple[str, int, int]],
    metadata: str,
    membership: tuple[int, str],
) -> Request:
    request, version = codec.request_class(ApiKey.TXN_OFFSET_COMMIT), generation.txn_offset_commit
    row = request.TxnOffsetCommitRequestTopic
    message = request(
        version=version,
        transactional_id=transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id=membership[0],
        member_id=membership[1],
        group_instance_id=None,
        topics=[
            row(
                version=version,
                name=topic,
                partitions=[
                    row.TxnOffsetCommitRequestPartition(
                        version=version,
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=-1,
                        committed_metadata=metadata,
                    )
                ],
            )
            for topic, index, offset in offsets
        ],
    )
    return Request(ApiKey.TXN_OFFSET_COMMIT, version, message)


def offset_fetch(group: str, topic: str, indexes: Sequence[int]) -> Request:
    request = codec.request_class(ApiKey.OFFSET_FETCH)
    topics = [request.OffsetFetchRequestTopic(version=7, name=topic, partition_indexes=list(indexes))]
    return Request(ApiKey.OFFSET_FETCH, 7, request(version=7, group_id=group, topics=topics, require_stable=True))


def join_group(group: str, member_id: str, session_ms: int, rebalance_ms: int) -> Request:
    request = codec.request_class(ApiKey.JOIN_GROUP)
    message = request(
        version=5,
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="copy",
        protocols=[request.JoinGroupRequestProtocol(version=5, name="share", metadata=b"")],
    )
    return Request(ApiKey.JOIN_GROUP, 5, message)


def sync_group(group: str, generation_id: int, member_id: str, shares: dict[str, bytes]) -> Request:
    request = codec.request_class(ApiKey.SYNC_GROUP)
    message = request(
        version=3,
        group_id=group,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=None,
        assignments=[
            request.SyncGroupRequestAssignment(version=3, member_id=each, assignment=share)
            for each, share in shares.items()
        ],
    )
    return Request(ApiKey.SYNC_GROUP, 3, message)


def heartbeat(group: str, generation_id: int, member_id: str) -> Request:
    message = codec.request_class(ApiKey.HEARTBEAT)(
        version=3, group_id=group, generation_id=generation_id, member_id=member_id, group_instance_id=None
    )
    return Request(ApiKey.HEARTBEAT, 3, message)


def fetch(
    topic: str, index: int, offset: int, committed: bool, max_wait_ms: int = 0, max_bytes: int = 1 << 20
) -> Request:
    request = codec.request_class(ApiKey.FETCH)
    row = request.FetchTopic.FetchPartition(
        version=11,
        partition=index,
        current_leader_epoch=-1,
        fetch_offset=offset,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )
    message = request(
        version=11,
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=int(committed),
        session_id=0,
        session_epoch=-1,
        topics=[request.FetchTopic(version=11, topic=topic, partitions=[row])],
        forgotten_topics_data=[],
        rack_id="",
    )
    return Request(ApiKey.FETCH, 11, message)


def write_txn_marker(producer: ProducerIdAndEpoch, topic: str, indexes: Sequence[int]) -> Request:
    """Return an abort marker of an administrator for a hanging transaction."""
    marker = codec.request_class(ApiKey.WRITE_TXN_MARKERS).WritableTxnMarker
    message = codec.request_class(ApiKey.WRITE_TXN_MARKERS)(
        version=1,
        markers=[
            marker(
                version=1,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                transaction_result=False,
                topics=[marker.WritableTxnMarkerTopic(version=1, name=topic, partition_indexes=list(indexes))],
                coordinator_epoch=0,
            )
        ],
    )
    return Request(ApiKey.WRITE_TXN_MARKERS, 1, message)
