"""Fetch 4-12: bytes of the log as they stand, up to the high watermark or the last stable offset. free

Version notes: 4 isolation level, last stable offset and aborted list; 5 log start offset; 7 sessions (answered as "no
session": every fetch is full, KIP-227); 9 leader epoch; 10 zstd; 11 rack; 12 flexible. Topic ids (13) are not served.

A fetch that finds less than `min_bytes` is parked on its partitions and woken when a high watermark, a last stable
offset or a log start moves, or when `max_wait_ms` has passed. Below the log start it is out of range.
A partition that is named twice is fetched once, as it was named last.

Records are not read: the reply has slices of the files, which its connection sends when it can be written. Only small
pieces are, because a system call costs more than their copy.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, cast

from ottla.broker import outbox
from ottla.broker.api.context import Broker, Encoded, Reply, Request
from ottla.broker.costs import COPY_BYTE_US, LOOK_US, ROW_US
from ottla.broker.log.partition import Partition
from ottla.broker.log.results import FetchIsolation
from ottla.broker.memory import FREE_BYTES
from ottla.broker.turns import Wait
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.fetch_wire import (
    INLINE_BYTES,
    FetchableTopicResponse,
    FetchPartitionData,
    encode_fetch_response,
    fetch_response_steps,
)

READ_COMMITTED = 1
_TXN_COMMITTED: Final = FetchIsolation.TXN_COMMITTED
_HIGH_WATERMARK: Final = FetchIsolation.HIGH_WATERMARK
FULL_FETCH_EPOCHS = (-1, 0)
MAX_RESPONSE_BYTES = 55 * 1024 * 1024
ROWS_AT_ONCE: Final = 32
"""Looked at before others are asked about: what has few rows goes on although the share is spent."""
PARKED_ROW_BYTES: Final = 600
"""What a partition of a waiting Fetch takes, about."""
MOST_READ_BYTES: Final = 32 * 1024
"""Of one partition; more is sent from its file."""
MOST_HELD_BYTES: Final = 128 * 1024
"""Read for one reply; what comes behind it is sent from files as soon as that is possible at all."""


class FetchPartitionStatus(NamedTuple):
    """One partition of the request; `partition` is None when `error` says why.

    Source: Kafka's class of this name, what a `DelayedFetch` keeps of each.
    """

    offset: int
    max_bytes: int
    partition: Partition | None
    error: ErrorCode


FetchStatus = dict[str, dict[int, FetchPartitionStatus]]
"""By topic and partition."""


async def handle(broker: Broker, request: Request) -> Reply:
    """Answer at once when there is enough or something is wrong, else wait for data or the time limit."""
    version, body = request.api_version, request.body
    if version >= 7 and (body.session_id or body.session_epoch not in FULL_FETCH_EPOCHS):
        failed = encode_fetch_response((), version, request.correlation_id, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return Encoded(cast("list[outbox.Part]", failed))
    turns = broker.turns
    status: FetchStatus = {}
    done = 0
    for topic in body.topics:
        rows = status.setdefault(topic.topic, {})
        for row in topic.partitions:
            turns.charged_us += ROW_US
            done += 1
            if not done % ROWS_AT_ONCE:
                await turns.share()
            if broker.cluster.is_unopened(topic.topic, row.partition):
                await broker.cluster.opened(topic.topic, row.partition)
            rows[row.partition] = _status_of(broker, version, topic.topic, row)
    isolation = _TXN_COMMITTED if body.isolation_level == READ_COMMITTED else _HIGH_WATERMARK
    min_bytes, max_wait_ms, max_bytes = body.min_bytes, body.max_wait_ms, min(body.max_bytes, MAX_RESPONSE_BYTES)
    if max_wait_ms > 0 and not await _enough(broker, status, isolation, min_bytes):
        if request.claim is not None:
            topic = row = body = None  # what waits is lent its memory in `_parked`
            request.forget_body()
        await _wait_for_data(broker, status, isolation, min_bytes, max_wait_ms)
    topics = await _read(broker, status, isolation, max_bytes)
    parts: list[Any] = []  # buffers, and of what has no bytes yet the slices that the partitions gave
    for cost_us in fetch_response_steps(parts, topics, version, request.correlation_id):
        turns.charged_us += cost_us
        await turns.share()
    return Encoded(parts)


def _status_of(broker: Broker, version: int, topic: str, row: object) -> FetchPartitionStatus:
    index, offset = row.partition, row.fetch_offset  # type: ignore[attr-defined]
    max_bytes = row.partition_max_bytes  # type: ignore[attr-defined]
    partition = broker.cluster.partition(topic, index)
    if partition is None:
        return FetchPartitionStatus(offset, max_bytes, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error = NO_ERROR
    if version >= 9:
        error = leader_epoch_error(row.current_leader_epoch, partition.leader_epoch)  # type: ignore[attr-defined]
    if partition.offline is not None:
        error = ErrorCode.KAFKA_STORAGE_ERROR
    elif not error and not partition.log.log_start_offset <= offset <= partition.log.log_end_offset:
        error = ErrorCode.OFFSET_OUT_OF_RANGE
    return FetchPartitionStatus(offset, max_bytes, partition, error)


def leader_epoch_error(asked: int, current: int) -> ErrorCode:
    """KIP-320: a client that knows an older or newer leader epoch must refresh its metadata; -1 is no epoch."""
    if asked == -1 or asked == current:
        return NO_ERROR
    return ErrorCode.FENCED_LEADER_EPOCH if asked < current else ErrorCode.UNKNOWN_LEADER_EPOCH


async def _enough(
    broker: Broker,
    status: FetchStatus,
    isolation: FetchIsolation,
    min_bytes: int,
    on_discard: Callable[[], None] | None = None,
) -> bool:
    turns = broker.turns
    missing = min_bytes
    for done, asked in enumerate(_each(status), 1):
        turns.charged_us += ROW_US
        if not done % ROWS_AT_ONCE:
            await turns.share(on_discard)
        if asked.error or asked.partition is None or asked.partition.offline is not None:
            return True
        if asked.offset < asked.partition.log.log_start_offset:  # raised since by DeleteRecords or retention
            return True
        missing -= asked.partition.bytes_available(asked.offset, isolation, missing)
        if missing <= 0:
            return True
    return not status


def _each(status: FetchStatus) -> Iterator[FetchPartitionStatus]:
    for rows in status.values():
        yield from rows.values()


async def _wait_for_data(
    broker: Broker, status: FetchStatus, isolation: FetchIsolation, min_bytes: int, max_wait_ms: int
) -> None:
    """Wait for enough, the time limit, or an error.

    Whoever looks at many partitions rests in between, and what comes to one of them then must not be missed. So those
    are looked at while the fetch is parked on them already; few are looked at when it is woken.
    """
    partitions = [asked.partition for asked in _each(status) if asked.partition is not None]
    many = len(partitions) >= ROWS_AT_ONCE
    deadline = broker.clock.monotonic_ms() + max_wait_ms
    left_ms = float(max_wait_ms)

    async def look(on_discard: Callable[[], None]) -> bool:
        return await _enough(broker, status, isolation, min_bytes, on_discard)

    while left_ms > 0:
        if not await _parked(broker, partitions, left_ms, look if many else None):
            return
        if not many and await _enough(broker, status, isolation, min_bytes):
            return
        left_ms = deadline - broker.clock.monotonic_ms()


async def _parked(
    broker: Broker,
    partitions: Sequence[Partition],
    limit_ms: float,
    look: Callable[[Callable[[], None]], Awaitable[bool]] | None,
) -> bool:
    """Wait until one of the partitions moves or the time is over.

    False to answer at once: memory is short, or `look` finds enough. It gets what must be done if it is discarded.
    """
    wait: Wait[None] = Wait(broker.turns)
    goes_on = True

    def recall() -> None:
        nonlocal goes_on
        goes_on = False
        wait.wake(None)

    claim = None
    held_bytes = len(partitions) * PARKED_ROW_BYTES
    if held_bytes > FREE_BYTES:
        claim = broker.memory.lend(held_bytes, recall)
        if claim is None:
            return False
    timer = broker.clock.call_later(limit_ms, lambda: wait.wake(None))

    def leave() -> None:
        timer.cancel()
        if claim is not None:
            claim.release()
        for partition in partitions:
            partition.unpark(wait)

    wait.on_discard = leave
    for partition in partitions:
        partition.park(wait)
    if look is not None and await look(leave):
        goes_on = False
    else:
        await wait
    wait.on_discard = None  # else they would keep each other, and the request, until the next garbage collection
    leave()
    return goes_on


async def _read(
    broker: Broker, status: FetchStatus, isolation: FetchIsolation, max_bytes: int
) -> list[FetchableTopicResponse]:
    turns = broker.turns
    left = max_bytes
    first = True
    held_bytes = 0
    done = 0
    topics = []
    for topic, rows in status.items():
        fetched = []
        for index, asked in rows.items():
            if done and turns.over:
                await turns.share()
            done += 1
            most_read = MOST_READ_BYTES if held_bytes < MOST_HELD_BYTES else INLINE_BYTES
            partition = asked.partition
            turns.charged_us += ROW_US
            if asked.error or partition is None:
                fetched.append(_failed(index, asked.error, () if partition is None else None))
                continue
            size_bytes = min(asked.max_bytes, left)
            found = partition.fetch_at_once(asked.offset, size_bytes, most_read, isolation, first)
            if found is None:
                steps = partition.fetch(asked.offset, size_bytes, most_read, isolation=isolation, min_one_batch=first)
                found = await broker.long_work.drive(steps)
            error, records, aborted = found
            if error:
                fetched.append(_failed(index, error, None))
                continue
            offsets = partition.high_watermark, partition.last_stable_offset, partition.log.log_start_offset
            fetched.append(FetchPartitionData(index, NO_ERROR, *offsets, aborted, records))
            if aborted:
                turns.charged_us += len(aborted) * LOOK_US  # they are encoded
            if records:
                first = False
                left = max(0, left - len(records))
                if isinstance(records, bytes):
                    turns.charged_us += len(records) * COPY_BYTE_US
                    held_bytes += len(records)
                    if len(records) > most_read and held_bytes > MOST_HELD_BYTES:
                        left = 0  # too many files are held for others: the client asks for the rest again
        topics.append(FetchableTopicResponse(topic, fetched))
    return topics


def _failed(index: int, error: ErrorCode, aborted: tuple[()] | None) -> FetchPartitionData:
    return FetchPartitionData(index, error, -1, -1, -1, aborted, b"")
