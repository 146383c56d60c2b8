"""Fetch 4-12: bytes of the log as they stand, up to the high watermark or the last stable offset. free

Version notes: 4 isolation level, last stable offset and aborted list; 5 log start offset; 7 sessions (answered as "no
session": every fetch is full, KIP-227); 9 leader epoch; 10 zstd; 11 rack; 12 flexible. Topic ids (13) are not served.

A fetch that finds less than `min_bytes` is parked on its partitions and woken when a high watermark, a last stable
offset or a log start moves, or when `max_wait_ms` has passed. Below the log start it is out of range.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.broker.api.context import ROWS_PER_TURN, Broker, Encoded, Reply, Request
from ottla.broker.log.partition import Limit, Partition
from ottla.broker.turns import Wait
from ottla.protocol.errors import ErrorCode
from ottla.protocol.fetch_wire import FetchedPartition, FetchedTopic, encode_fetch_response

READ_COMMITTED = 1
FULL_FETCH_EPOCHS = (-1, 0)
MAX_RESPONSE_BYTES = 55 * 1024 * 1024


class Ask(NamedTuple):
    """One partition of the request; `partition` is None when `error` says why."""

    partition_index: int
    offset: int
    max_bytes: int
    partition: Partition | None
    error: ErrorCode


Asks = list[tuple[str, list[Ask]]]


async def handle(broker: Broker, request: Request) -> Reply:
    """Answer at once when there is enough or something is wrong, else wait for data or the time limit."""
    body = request.body
    if request.api_version >= 7 and (body.session_id or body.session_epoch not in FULL_FETCH_EPOCHS):
        return _encode(request, [], ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    asks = [
        (topic.topic, [_ask(broker, request.api_version, topic.topic, row) for row in topic.partitions])
        for topic in body.topics
    ]
    limit = Limit.STABLE if body.isolation_level == READ_COMMITTED else Limit.HIGH_WATERMARK
    if body.max_wait_ms > 0 and not _enough(asks, limit, body.min_bytes):
        await _wait_for_data(broker, asks, limit, body.min_bytes, body.max_wait_ms)
    topics = await _read(broker, asks, limit, min(body.max_bytes, MAX_RESPONSE_BYTES))
    return _encode(request, topics, ErrorCode.NONE)


def _ask(broker: Broker, version: int, topic: str, row: object) -> Ask:
    index, offset = row.partition, row.fetch_offset  # type: ignore[attr-defined]
    max_bytes = row.partition_max_bytes  # type: ignore[attr-defined]
    partition = broker.cluster.partition(topic, index)
    if partition is None:
        return Ask(index, offset, max_bytes, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error = ErrorCode.NONE
    if version >= 9:
        error = leader_epoch_error(row.current_leader_epoch, partition.leader_epoch)  # type: ignore[attr-defined]
    if partition.offline is not None:
        error = ErrorCode.KAFKA_STORAGE_ERROR
    elif not error and not partition.log_start_offset <= offset <= partition.log_end_offset:
        error = ErrorCode.OFFSET_OUT_OF_RANGE
    return Ask(index, offset, max_bytes, partition, error)


def leader_epoch_error(asked: int, current: int) -> ErrorCode:
    """KIP-320: a client that knows an older or newer leader epoch must refresh its metadata; -1 is no epoch."""
    if asked == -1 or asked == current:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if asked < current else ErrorCode.UNKNOWN_LEADER_EPOCH


def _enough(asks: Asks, limit: Limit, min_bytes: int) -> bool:
    missing = min_bytes
    for _topic, rows in asks:
        for ask in rows:
            if ask.error or ask.partition is None or ask.partition.offline is not None:
                return True
            if ask.offset < ask.partition.log_start_offset:  # raised since by DeleteRecords or retention
                return True
            missing -= ask.partition.bytes_available(ask.offset, limit, missing)
            if missing <= 0:
                return True
    return not asks


async def _wait_for_data(broker: Broker, asks: Asks, limit: Limit, min_bytes: int, max_wait_ms: int) -> None:
    partitions = [ask.partition for _topic, rows in asks for ask in rows if ask.partition is not None]
    deadline = broker.clock.monotonic_ms() + max_wait_ms
    left_ms = float(max_wait_ms)
    while left_ms > 0:
        await _parked(broker, partitions, left_ms)
        if _enough(asks, limit, min_bytes):
            return
        left_ms = deadline - broker.clock.monotonic_ms()


async def _parked(broker: Broker, partitions: Sequence[Partition], limit_ms: float) -> None:
    """Wait until one of the partitions moves or the time is over."""
    wait: Wait[None] = Wait(broker.turns)
    timer = broker.clock.call_later(limit_ms, lambda: wait.wake(None))

    def leave() -> None:
        timer.cancel()
        for partition in partitions:
            partition.unpark(wait)

    wait.on_discard = leave
    for partition in partitions:
        partition.park(wait)
    await wait
    leave()


async def _read(broker: Broker, asks: Asks, limit: Limit, max_bytes: int) -> list[FetchedTopic]:
    left = max_bytes
    first = True
    reads = 0
    topics = []
    for topic, rows in asks:
        fetched = []
        for ask in rows:
            reads += 1
            if reads % ROWS_PER_TURN == 0:
                await broker.turns.pause()
            row = _read_one(ask, limit, left, first)
            size_bytes = len(row.records or b"")
            first = first and size_bytes == 0
            left = max(0, left - size_bytes)
            fetched.append(row)
        topics.append(FetchedTopic(topic, fetched))
    return topics


def _read_one(ask: Ask, limit: Limit, left: int, first: bool) -> FetchedPartition:
    """`first`: nothing was read yet, so one batch is returned even when it is larger than every limit."""
    partition = ask.partition
    if partition is None:
        return FetchedPartition(ask.partition_index, ask.error, -1, -1, -1, (), b"")
    if ask.error:
        return FetchedPartition(ask.partition_index, ask.error, -1, -1, -1, None, b"")
    taken = partition.read(ask.offset, min(ask.max_bytes, left), limit=limit, min_one_batch=first)
    if taken.error:
        return FetchedPartition(ask.partition_index, taken.error, -1, -1, -1, None, b"")
    return FetchedPartition(
        ask.partition_index,
        ErrorCode.NONE,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log_start_offset,
        taken.aborted,
        taken.records,
    )


def _encode(request: Request, topics: Sequence[FetchedTopic], error: ErrorCode) -> Reply:
    return Encoded(encode_fetch_response(topics, request.api_version, request.correlation_id, error))
