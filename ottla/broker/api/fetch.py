"""Fetch 4-12: bytes of the log as they are, up to the high watermark or the last stable offset. free

Version notes: 4 isolation level, last stable offset and aborted list; 5 log start offset; 7 sessions (answered as "no
session": every fetch is full, KIP-227, and may name any session to close); 9 leader epoch; 10 zstd; 11 rack, and any
replica answers (KIP-392); 12 flexible, and the epoch of the last fetched record (KIP-595). Topic ids (13) are not
served.

A fetch that finds less than `min_bytes` is parked on its partitions and woken when a high watermark, a last stable
offset or a log start offset moves, or when `max_wait_ms` has passed. An offset below the log start is out of range. An
error is answered at once, except for a topic that the client may not read if the request names others.

If a partition is named twice, the last row is fetched. A consumer needs READ of the topic; a request with a replica id
needs CLUSTER_ACTION.

Records are not read: the reply has slices of the files, and the connection sends them when it can be written. Only
small pieces are read, because a system call costs more than copying them.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, cast

from ottla.broker import outbox
from ottla.broker.api.authorization import CLUSTER_ACTION, READ_TOPIC
from ottla.broker.api.context import Api, Broker, Encoded, Reply, Request
from ottla.broker.costs import COPY_BYTE_US, LOOKUP_US, ROW_US
from ottla.broker.log.partition import Partition
from ottla.broker.log.results import FetchIsolation
from ottla.broker.memory import FREE_BYTES
from ottla.broker.turns import Wait
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.requests.fetch_wire import (
    INLINE_BYTES,
    FetchableTopicResponse,
    FetchPartitionData,
    encode_fetch_response,
    fetch_response_steps,
)
from ottla.protocol.values import UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET

READ_COMMITTED = 1
_TXN_COMMITTED: Final = FetchIsolation.TXN_COMMITTED
_HIGH_WATERMARK: Final = FetchIsolation.HIGH_WATERMARK
FULL_FETCH_EPOCHS = (-1, 0)
FIRST_VERSION_FROM_FOLLOWERS = 11
FIRST_VERSION_WITH_LAST_EPOCH = 12
UNDEFINED = (UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET)
_NOT_READ: Final = (READ_TOPIC.error, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Errors of partitions that Kafka does not try to read: their rows have an empty list of aborted transactions."""
MAX_RESPONSE_BYTES = 55 * 1024 * 1024
ROWS_AT_ONCE: Final = 32
"""The rows between two checks of the turn budget; a request with fewer rows continues although it is spent."""
WAITING_ROW_BYTES: Final = 600
"""The approximate memory of one partition of a parked Fetch."""
ROW_BYTES: Final = 40
"""The bytes of one partition in a reply, without its records."""
MOST_READ_BYTES: Final = 32 * 1024
"""The most bytes of one partition that are read; more is sent from its file."""
MOST_HELD_BYTES: Final = 128 * 1024
"""The most bytes that are read for one reply; further records are sent from files where that is possible."""


class FetchPartitionStatus(NamedTuple):
    """A partition of the request. `partition` is None when `error` has the reason.

    Source: Kafka's class of this name, the state that a `DelayedFetch` keeps of each partition.
    """

    offset: int
    max_bytes: int
    partition: Partition | None
    error: ErrorCode
    leader_epoch: int = -1
    """The epoch of the partition at the check."""
    requested_epoch: int = -1
    diverging_epoch: tuple[int, int] | None = None
    """The last epoch that the client and this log can share, and its end, if the client's log is another one."""


FetchStatus = dict[str, dict[int, FetchPartitionStatus]]
"""By topic and partition."""


async def handle(broker: Broker, request: Request) -> Reply:
    """Answer at once if there is enough data or an error, else wait for data or the time limit."""
    version, body = request.api_version, request.body
    if version >= 7 and body.session_epoch not in FULL_FETCH_EPOCHS:
        failed = encode_fetch_response((), version, request.correlation_id, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return Encoded(cast("list[outbox.Part]", failed))
    turns = broker.turns
    status: FetchStatus = {}
    done = 0
    for topic in body.topics:
        rows = status.setdefault(topic.topic, {})
        is_denied = broker.authorizer is not None and not _may_fetch(broker, request, topic.topic)
        for row in topic.partitions:
            turns.charged_us += ROW_US
            done += 1
            if not done % ROWS_AT_ONCE:
                await turns.yield_if_due()
            if is_denied:
                rows[row.partition] = FetchPartitionStatus(row.fetch_offset, 0, None, READ_TOPIC.error)
                continue
            if broker.cluster.is_unopened(topic.topic, row.partition):
                await broker.cluster.get_or_open(topic.topic, row.partition)
            rows[row.partition] = _status_of(broker, version, topic.topic, row)
    isolation = _TXN_COMMITTED if body.isolation_level == READ_COMMITTED else _HIGH_WATERMARK
    min_bytes, max_wait_ms, max_bytes = body.min_bytes, body.max_wait_ms, min(body.max_bytes, MAX_RESPONSE_BYTES)
    quota = request.quota
    if quota is not None and (most := quota.unthrottled_fetch_bytes()) is not None:
        max_bytes = min(max_bytes, int(most))
        min_bytes = min(min_bytes, max_bytes)
    if max_wait_ms > 0 and not await _has_enough(broker, status, isolation, min_bytes):
        if request.reservation is not None:
            topic = row = body = None  # the parked fetch reserves its own memory in `_wait_for_data`
            request.forget_body()
        await _wait_for_data(broker, status, isolation, min_bytes, max_wait_ms)
    errors: dict[int, int] = {}
    topics = await _read(broker, version, status, isolation, max_bytes, errors, counts=quota is None)
    if quota is not None:
        if not quota.may_fetch(_answered_bytes(broker, topics)):
            topics = []  # no records: the client repeats the fetch when it is not throttled any more
        _count(broker, topics)
    parts: list[Any] = []  # buffers, and slices of files from the partitions
    for cost_us in fetch_response_steps(parts, topics, version, request.correlation_id):
        await turns.spend(cost_us)
    return Encoded(parts, row_errors=errors)


def _may_fetch(broker: Broker, request: Request, topic: str) -> bool:
    """Return whether the client may fetch the topic. Only a broker may have a replica id (CVE-2018-1288)."""
    if request.body.replica_id >= 0:
        return broker.may(request, CLUSTER_ACTION)
    return broker.may(request, READ_TOPIC, topic)


def _status_of(broker: Broker, version: int, topic: str, row: object) -> FetchPartitionStatus:
    index, offset = row.partition, row.fetch_offset  # type: ignore[attr-defined]
    max_bytes = row.partition_max_bytes  # type: ignore[attr-defined]
    partition = broker.cluster.partition(topic, index)
    follows = partition is None
    if partition is None:
        partition = broker.cluster.replica(topic, index)
    if partition is None:
        return FetchPartitionStatus(offset, max_bytes, None, broker.cluster.absence(topic, index))
    requested = row.current_leader_epoch if version >= 9 else -1  # type: ignore[attr-defined]
    error, diverging = leader_epoch_error(requested, partition.leader_epoch), None
    if partition.offline is not None:
        error = ErrorCode.KAFKA_STORAGE_ERROR
    elif not error and follows and version < FIRST_VERSION_FROM_FOLLOWERS:
        error = broker.cluster.absence(topic, index)
    elif not error:
        last_fetched = row.last_fetched_epoch if version >= FIRST_VERSION_WITH_LAST_EPOCH else -1  # type: ignore[attr-defined]
        if last_fetched >= 0:
            error, diverging = _compare_epochs(partition, offset, last_fetched)
        if diverging is None and not partition.log.log_start_offset <= offset <= partition.log.log_end_offset:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
    return FetchPartitionStatus(offset, max_bytes, partition, error, partition.leader_epoch, requested, diverging)


def _compare_epochs(
    partition: Partition, offset: int, last_fetched_epoch: int
) -> tuple[ErrorCode, tuple[int, int] | None]:
    """Return the place from which on the client's log is another one, or the error of an unknown epoch
    (`readRecords`)."""
    epoch, end_offset = end = partition.end_offset_for_epoch(last_fetched_epoch)
    if end == UNDEFINED:
        return ErrorCode.OFFSET_OUT_OF_RANGE, None
    return NO_ERROR, end if epoch < last_fetched_epoch or end_offset < offset else None


def _check_again(broker: Broker, version: int, row: FetchPartitionStatus, partition: Partition) -> ErrorCode:
    """Return the error of a row whose partition has a new leader since its check."""
    follows = version >= FIRST_VERSION_FROM_FOLLOWERS
    if not broker.leads(partition) and not (follows and broker.cluster.replica(partition.topic, partition.index)):
        return broker.cluster.absence(partition.topic, partition.index)
    return leader_epoch_error(row.requested_epoch, partition.leader_epoch)


def leader_epoch_error(requested: int, current: int) -> ErrorCode:
    """Return the error for a client that has an older or newer leader epoch (KIP-320); -1 is no epoch."""
    if requested == -1 or requested == current:
        return NO_ERROR
    return ErrorCode.FENCED_LEADER_EPOCH if requested < current else ErrorCode.UNKNOWN_LEADER_EPOCH


async def _has_enough(
    broker: Broker,
    status: FetchStatus,
    isolation: FetchIsolation,
    min_bytes: int,
    on_discard: Callable[[], None] | None = None,
) -> bool:
    turns = broker.turns
    missing, waits = min_bytes, False
    for done, row in enumerate(_each(status), 1):
        turns.charged_us += ROW_US
        if not done % ROWS_AT_ONCE:
            await turns.yield_if_due(on_discard)
        if row.error or row.partition is None or row.partition.offline is not None:
            if row.error is READ_TOPIC.error:
                continue  # a client that keeps asking for it waits for the other partitions, as in Kafka
            return True
        waits = True
        if row.diverging_epoch is not None:
            return True
        if row.partition.leader_epoch != row.leader_epoch:
            return True  # the leader has changed
        if row.offset < row.partition.log.log_start_offset:  # DeleteRecords or retention raised it
            return True
        missing -= row.partition.bytes_available(row.offset, isolation, missing)
        if missing <= 0:
            return True
    return not waits


def _each(status: FetchStatus) -> Iterator[FetchPartitionStatus]:
    for rows in status.values():
        yield from rows.values()


async def _wait_for_data(
    broker: Broker, status: FetchStatus, isolation: FetchIsolation, min_bytes: int, max_wait_ms: int
) -> None:
    """Wait for enough data, the time limit, or an error.

    A check of many partitions yields in between, and must not miss data that arrives at a partition in that time. So
    they are checked while the fetch is parked on them already. Few partitions are checked after the fetch is woken.
    """
    partitions = [row.partition for row in _each(status) if row.partition is not None]
    many = len(partitions) >= ROWS_AT_ONCE
    waits = broker.metrics.waits[_cause(isolation, partitions)]
    began_ms = waits.begin()
    deadline = broker.clock.monotonic_ms() + max_wait_ms
    left_ms = float(max_wait_ms)

    async def check(on_discard: Callable[[], None]) -> bool:
        return await _has_enough(broker, status, isolation, min_bytes, on_discard)

    while left_ms > 0:
        if not await _wait_for_wake(broker, partitions, isolation, left_ms, check if many else None):
            break
        if not many and await _has_enough(broker, status, isolation, min_bytes):
            break
        left_ms = deadline - broker.clock.monotonic_ms()
    waits.end(began_ms)


def _cause(isolation: FetchIsolation, partitions: Sequence[Partition]) -> str:
    """Return the reason for the wait: the end of a transaction if one of the first partitions has records after its
    last stable offset, else data."""
    if isolation is _TXN_COMMITTED:
        for partition in partitions[:ROWS_AT_ONCE]:
            if partition.last_stable_offset < partition.high_watermark:
                return "last_stable_offset"
    return "data"


async def _wait_for_wake(
    broker: Broker,
    partitions: Sequence[Partition],
    isolation: FetchIsolation,
    limit_ms: float,
    check: Callable[[Callable[[], None]], Awaitable[bool]] | None,
) -> bool:
    """Wait until one of the partitions moves or the time is over.

    Returns False to answer at once: memory is short, or `check` finds enough data. `check` gets the function to call if
    it is discarded.
    """
    wait: Wait[None] = Wait(broker.turns)
    goes_on = True

    def recall() -> None:
        nonlocal goes_on
        goes_on = False
        wait.wake(None)

    reservation = None
    held_bytes = len(partitions) * WAITING_ROW_BYTES
    if held_bytes > FREE_BYTES:
        reservation = broker.memory.reserve_recallable(held_bytes, recall)
        if reservation is None:
            return False
    timer = broker.clock.call_later(limit_ms, lambda: wait.wake(None))

    def leave() -> None:
        timer.cancel()
        if reservation is not None:
            reservation.release()
        for partition in partitions:
            partition.remove_waiting_fetch(wait)

    wait.on_discard = leave
    committed = isolation is _TXN_COMMITTED
    for partition in partitions:
        partition.add_waiting_fetch(wait, committed)
    if check is not None and await check(leave):
        goes_on = False
    else:
        await wait
    wait.on_discard = None  # otherwise a reference cycle keeps the request until the next garbage collection
    leave()
    return goes_on


async def _read(
    broker: Broker,
    version: int,
    status: FetchStatus,
    isolation: FetchIsolation,
    max_bytes: int,
    errors: dict[int, int],
    *,
    counts: bool = True,
) -> list[FetchableTopicResponse]:
    """Return the rows of the reply, and add their `errors`. With `counts` their bytes are counted."""
    turns, metrics = broker.turns, broker.metrics
    left = max_bytes
    first = True
    held_bytes = 0
    done = 0
    topics = []
    for topic, rows in status.items():
        fetched = []
        for index, row in rows.items():
            if done and turns.is_spent:
                await turns.yield_if_due()
            done += 1
            most_read = MOST_READ_BYTES if held_bytes < MOST_HELD_BYTES else INLINE_BYTES
            partition = row.partition
            turns.charged_us += ROW_US
            error = row.error
            if partition is not None and partition.leader_epoch != row.leader_epoch:
                error = error or _check_again(broker, version, row, partition)
            if error or partition is None:
                errors[error] = errors.get(error, 0) + 1
                fetched.append(_error_row(index, error, () if error in _NOT_READ else None))
                continue
            if row.diverging_epoch is not None:
                fetched.append(_diverging_row(index, partition, row.diverging_epoch))
                continue
            partition.fetch_requests += 1
            size_bytes = min(row.max_bytes, left)
            found = partition.fetch_at_once(row.offset, size_bytes, most_read, isolation, first)
            if found is None:
                steps = partition.fetch(row.offset, size_bytes, most_read, isolation=isolation, min_one_batch=first)
                found = await broker.long_work.drive(steps)
            error, records, aborted = found
            if error:
                errors[error] = errors.get(error, 0) + 1
                fetched.append(_error_row(index, error, None))
                continue
            offsets = partition.high_watermark, partition.last_stable_offset, partition.log.log_start_offset
            fetched.append(FetchPartitionData(index, NO_ERROR, *offsets, aborted, records))
            if aborted:
                turns.charged_us += len(aborted) * LOOKUP_US  # the cost of encoding them
            if records:
                if counts:
                    partition.bytes_out += len(records)
                    metrics.bytes_out += len(records)
                first = False
                left = max(0, left - len(records))
                if isinstance(records, bytes):
                    turns.charged_us += len(records) * COPY_BYTE_US
                    held_bytes += len(records)
                    if len(records) > most_read and held_bytes > MOST_HELD_BYTES:
                        left = 0  # other replies hold many slices: the client fetches the rest again
        topics.append(FetchableTopicResponse(topic, fetched))
    return topics


def _answered_bytes(broker: Broker, topics: Sequence[FetchableTopicResponse]) -> int:
    """Return the bytes of the records of a reply and, approximately, of its rows."""
    rows = [row for topic in topics for row in topic.partitions]
    broker.turns.charged_us += len(rows) * LOOKUP_US
    return sum(len(row.records or b"") for row in rows) + len(rows) * ROW_BYTES


def _count(broker: Broker, topics: Sequence[FetchableTopicResponse]) -> None:
    """Count the bytes of the reply."""
    for topic in topics:
        for row in topic.partitions:
            if row.records:
                broker.metrics.bytes_out += len(row.records)
                partition = broker.cluster.partition(topic.topic, row.partition)
                if partition is not None:
                    partition.bytes_out += len(row.records)
        broker.turns.charged_us += len(topic.partitions) * LOOKUP_US


def _error_row(index: int, error: ErrorCode, aborted: tuple[()] | None) -> FetchPartitionData:
    return FetchPartitionData(index, error, -1, -1, -1, aborted, b"")


def _diverging_row(index: int, partition: Partition, end: tuple[int, int]) -> FetchPartitionData:
    offsets = partition.high_watermark, partition.last_stable_offset, partition.log.log_start_offset
    return FetchPartitionData(index, NO_ERROR, *offsets, None, b"", diverging_epoch=end)


API: Final = Api(ApiKey.FETCH, 4, 12, handle, (READ_TOPIC, CLUSTER_ACTION))
