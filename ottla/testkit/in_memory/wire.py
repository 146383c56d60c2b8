"""Requests as kafka-python messages, with their versions: those of producers, and any other from plain values. pure"""

from collections.abc import Mapping, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any, Final, NamedTuple

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from ottla.protocol.values import ProducerIdAndEpoch, TopicPartition


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


class Request:
    """A request and its version. The message does not change any more: equal requests may share one."""

    def __init__(self, api_key: int, version: int, message: Any) -> None:
        self.api_key = api_key
        self.version = version
        self.message = message

    @cached_property
    def body(self) -> bytes:
        """The encoded message."""
        return bytes(self.message.encode(version=self.version))

    def frame(self, correlation_id: int, client_id: str) -> bytes:
        """Return the framed request: size, header, body."""
        return codec.frame_request(self.api_key, self.version, correlation_id, client_id, self.body)


def request(api_key: int, version: int, **fields: Any) -> Request:
    """Build a request from plain values; rows of structs are dicts."""
    return Request(api_key, version, message(api_key, version, **fields))


def message(api_key: int, version: int, **fields: Any) -> Any:
    """Build the message of a request from plain values; structs are dicts."""
    return _build(codec.request_class(api_key), version, fields)


def _build(data_class: Any, version: int, values: dict[str, Any]) -> Any:
    for name, struct_class in _structs(data_class).items():
        given = values.get(name)
        if isinstance(given, dict):
            values = {**values, name: _build(struct_class, version, given)}
        elif given is not None:
            values = {**values, name: [_build(struct_class, version, row) for row in given]}
    return data_class(version=version, **values)


@cache
def _structs(data_class: Any) -> Mapping[str, Any]:
    """Return the classes of the structs by field: one struct, or each of an array."""
    fields = data_class.fields.values()
    return {
        field.name: field.data_class
        for field in fields
        if field.is_struct() or (field.is_array() and field.is_struct_array())
    }


@lru_cache
def init_producer_id(transactional_id: str | None, timeout_ms: int, producer_id: int = -1, epoch: int = -1) -> Request:
    return request(
        ApiKey.INIT_PRODUCER_ID,
        4,
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


def add_partitions(
    transactional_id: str, producer: ProducerIdAndEpoch, partitions: Sequence[TopicPartition]
) -> Request:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return request(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[{"name": name, "partitions": indexes} for name, indexes in topics.items()],
    )


@lru_cache
def add_offsets(transactional_id: str, producer: ProducerIdAndEpoch, group: str) -> Request:
    return request(ApiKey.ADD_OFFSETS_TO_TXN, 3, **_owner(transactional_id, producer), group_id=group)


@lru_cache
def end_txn(generation: Generation, transactional_id: str, producer: ProducerIdAndEpoch, commit: bool) -> Request:
    return request(ApiKey.END_TXN, generation.end_txn, **_owner(transactional_id, producer), committed=commit)


def produce(generation: Generation, transactional_id: str | None, topic: str, index: int, batch: bytes) -> Request:
    return request(
        ApiKey.PRODUCE,
        generation.produce,
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=1000,
        topic_data=[{"name": topic, "partition_data": [{"index": index, "records": batch}]}],
    )


def txn_offset_commit(
    generation: Generation,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    group: str,
    offsets: Sequence[tuple[str, int, int]],
    metadata: str,
    membership: tuple[int, str],
) -> Request:
    fixed = {"committed_leader_epoch": -1, "committed_metadata": metadata}
    generation_id, member_id = membership
    return request(
        ApiKey.TXN_OFFSET_COMMIT,
        generation.txn_offset_commit,
        **_owner(transactional_id, producer),
        group_id=group,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=None,
        topics=[
            {"name": topic, "partitions": [{"partition_index": index, "committed_offset": offset, **fixed}]}
            for topic, index, offset in offsets
        ],
    )


def _owner(transactional_id: str, producer: ProducerIdAndEpoch) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }
