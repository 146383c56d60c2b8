"""Fetch 4-18: bytes of the log as they are, up to the high watermark or the last stable offset. free

Version notes: 4 isolation level, last stable offset and aborted list; 5 log start offset; 7 sessions (KIP-227); 9
leader epoch; 10 zstd; 11 rack, and any replica answers (KIP-392); 12 flexible, and the epoch of the last fetched record
(KIP-595); 13 topic ids; 15 the state of a replica; 16 the reply names the new leader and its address (KIP-951). What 17
and 18 add is for replicas, and ignored.

A fetch that finds less than `min_bytes` is parked on its partitions and woken when a high watermark, a last stable
offset or a log start offset moves, or when `max_wait_ms` has passed. An offset below the log start is out of range. An
error is answered at once, except for a topic that is unknown or that the client may not read if the request names
others.

If a partition is named twice, the last row is fetched. A consumer needs READ of the topic; a request with a replica id
needs CLUSTER_ACTION.

Records are not read: the reply has slices of the files, and the connection sends them when it can be written. Only
small pieces are read, because a system call costs more than copying them.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from ottla.broker.api.context import Broker
from ottla.broker.api.fetch_check import (
    NOT_READ,
    ROWS_AT_ONCE,
    FetchStatus,
    check_again,
    check_request,
    check_session,
    find_session,
    name_of,
)
from ottla.broker.api.request import Encoded, Reply, Request
from ottla.broker.costs import COPY_BYTE_US, LOOKUP_US, ROW_US
from ottla.broker.fetch_sessions import FINAL_EPOCH, NO_SESSION, FetchSession, TopicKey
from ottla.broker.log.partition import Partition
from ottla.broker.log.results import FetchIsolation
from ottla.broker.memory import FREE_BYTES
from ottla.broker.turns import Wait
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.primitives import NodeEndpoint
from ottla.protocol.requests.fetch_wire import (
    INLINE_BYTES,
    FetchableTopicResponse,
    FetchPartitionData,
    fetch_response_steps,
)
from ottla.protocol.values import ZERO_UUID

READ_COMMITTED: Final = 1
_TXN_COMMITTED: Final = FetchIsolation.TXN_COMMITTED
_HIGH_WATERMARK: Final = FetchIsolation.HIGH_WATERMARK
FIRST_VERSION_WITH_SESSIONS: Final = 7
FIRST_VERSION_WITH_LEADERS: Final = 16
_MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""Errors whose rows name the leader."""
MAX_RESPONSE_BYTES: Final = 55 * 1024 * 1024
WAITING_ROW_BYTES: Final = 1_000
"""The approximate memory of one partition of a parked Fetch, with the session that it may begin."""
ROW_BYTES: Final = 40
"""The bytes of one partition in a reply, without its records."""
MOST_READ_BYTES: Final = 32 * 1024
"""The most bytes of one partition that are read; more is sent from its file."""
MOST_HELD_BYTES: Final = 128 * 1024
"""The most bytes that are read for one reply; further records are sent from files where that is possible."""


async def handle(broker: Broker, request: Request) -> Reply:
    """Answer at once if there is enough data or an error, else wait for data or the time limit."""
    version, body, metrics = request.api_version, request.body, broker.metrics
    began_ms = metrics.now_ms() if metrics.measured else 0.0
    session: FetchSession | None = None
    epoch = FINAL_EPOCH
    if version >= FIRST_VERSION_WITH_SESSIONS and (body.session_id or body.session_epoch != FINAL_EPOCH):
        found = await find_session(broker, request)
        if isinstance(found, ErrorCode):
            return await _encode(broker, request, (), error=found)
        session = found
    if session is not None and session.id:
        epoch = session.epoch
        status = await check_session(broker, request, session)
    else:
        status = await check_request(broker, request, session)
    isolation = _TXN_COMMITTED if body.isolation_level == READ_COMMITTED else _HIGH_WATERMARK
    min_bytes, max_wait_ms, max_bytes = body.min_bytes, body.max_wait_ms, min(body.max_bytes, MAX_RESPONSE_BYTES)
    quota = request.quota
    if quota is not None and (most := quota.unthrottled_fetch_bytes()) is not None:
        max_bytes = min(max_bytes, int(most))
        min_bytes = min(min_bytes, max_bytes)
    if max_wait_ms > 0 and not await _has_enough(broker, status, isolation, min_bytes):
        if request.reservation is not None:
            body = None  # the parked fetch reserves its own memory in `_wait_for_data`
            request.forget_body()
        began_ms += await _wait_for_data(broker, status, isolation, min_bytes, max_wait_ms)
    if session is not None and session.id and session.epoch != epoch:  # a duplicate came meanwhile
        error = ErrorCode.INVALID_FETCH_SESSION_EPOCH
        return await _encode(broker, request, (), error=error, session_id=session.id)
    topics, errors = await _read(broker, version, status, isolation, max_bytes, session, counts=quota is None)
    if quota is not None:
        if not quota.may_fetch(_answered_bytes(broker, topics)):
            topics = []  # no records: the client repeats the fetch when it is not throttled any more
            if session is not None:
                session.repeat_answers()
                session = session if session.id else None
        _count(broker, status, topics)
    session_id = NO_SESSION
    if session is not None:
        session_id = session.id or broker.fetch_sessions.add(session, broker.clock.monotonic_ms())
    reply = await _encode(broker, request, topics, errors, session_id=session_id)
    if metrics.measured:
        metrics.fetch_work.observe(metrics.now_ms() - began_ms)
    return reply


async def _encode(
    broker: Broker,
    request: Request,
    topics: Sequence[FetchableTopicResponse],
    errors: "_Errors | None" = None,
    *,
    error: ErrorCode = NO_ERROR,
    session_id: int = NO_SESSION,
) -> Reply:
    """Return the reply with these rows."""
    parts: list[Any] = []  # buffers, and slices of files from the partitions
    endpoints: Sequence[NodeEndpoint] = ()
    if errors is not None and errors.leaders:
        endpoints = broker.endpoints_of(request.session.listener_name, errors.leaders)
    rest = error, session_id, 0, endpoints
    for cost_us in fetch_response_steps(parts, topics, request.api_version, request.correlation_id, *rest):
        await broker.turns.spend(cost_us)
    return Encoded(parts, error_code=error, row_errors=() if errors is None else errors.count)


async def _has_enough(
    broker: Broker,
    status: FetchStatus,
    isolation: FetchIsolation,
    min_bytes: int,
    on_discard: Callable[[], None] | None = None,
) -> bool:
    turns = broker.turns
    missing, waits = min_bytes, False
    for done, row in enumerate(status.values(), 1):
        turns.charged_us += ROW_US
        if not done % ROWS_AT_ONCE:
            await turns.yield_if_due(on_discard)
        if row.error or row.partition is None or row.partition.offline is not None:
            if row.error in NOT_READ:
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


async def _wait_for_data(
    broker: Broker, status: FetchStatus, isolation: FetchIsolation, min_bytes: int, max_wait_ms: int
) -> float:
    """Wait for enough data, the time limit, or an error. Return the time in milliseconds if it is measured, else 0.

    A check of many partitions yields in between, and must not miss data that arrives at a partition in that time. So
    they are checked while the fetch is parked on them already. Few partitions are checked after the fetch is woken.
    """
    partitions = [row.partition for row in status.values() if row.partition is not None]
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
    return waits.end(began_ms)


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


class _Errors:
    """The errors of a reply by code, and the ids of the brokers that it names as leaders."""

    __slots__ = ("count", "leaders")

    def __init__(self) -> None:
        self.count: dict[int, int] = {}
        self.leaders: set[int] = set()

    def add(self, broker: Broker, version: int, key: TopicKey, index: int, error: ErrorCode) -> FetchPartitionData:
        """Count an error and return its row."""
        self.count[error] = self.count.get(error, 0) + 1
        leader = None
        if version >= FIRST_VERSION_WITH_LEADERS and error in _MOVED and (topic := name_of(broker, key)) is not None:
            leader = broker.cluster.leader_of(topic, index)
            self.leaders.add(leader[0])
        aborted = () if error in NOT_READ else None
        return FetchPartitionData(index, error, -1, -1, -1, aborted, b"", current_leader=leader)


async def _read(
    broker: Broker,
    version: int,
    status: FetchStatus,
    isolation: FetchIsolation,
    max_bytes: int,
    session: FetchSession | None,
    *,
    counts: bool = True,
) -> tuple[list[FetchableTopicResponse], "_Errors | None"]:
    """Return the rows of the reply, in a session those with news, and their errors. With `counts` their bytes are
    counted."""
    turns, metrics = broker.turns, broker.metrics
    left = max_bytes
    first = True
    held_bytes = 0
    done = 0
    topics: list[FetchableTopicResponse] = []
    fetched: list[FetchPartitionData] = []
    last_key: TopicKey | None = None
    answer: _Errors | None = None
    for place, row in status.items():
        if done and turns.is_spent:
            await turns.yield_if_due()
        done += 1
        key, index = place
        partition = row.partition
        turns.charged_us += ROW_US
        error, records, aborted = row.error, None, None
        if partition is not None and partition.leader_epoch != row.leader_epoch:
            error = error or check_again(broker, version, row, partition)
        if not error and partition is not None and row.diverging_epoch is None:
            partition.fetch_requests += 1
            size_bytes = min(row.max_bytes, left)
            most_read = MOST_READ_BYTES if held_bytes < MOST_HELD_BYTES else INLINE_BYTES
            found = partition.fetch_at_once(row.offset, size_bytes, most_read, isolation, first)
            if found is None:
                steps = partition.fetch(row.offset, size_bytes, most_read, isolation=isolation, min_one_batch=first)
                found = await broker.long_work.drive(steps)
            error, records, aborted = found
        if error or partition is None:
            if answer is None:
                answer = _Errors()
            data = answer.add(broker, version, key, index, error)
        else:
            offsets = partition.high_watermark, partition.last_stable_offset, partition.log.log_start_offset
            data = FetchPartitionData(
                index, NO_ERROR, *offsets, aborted, records or b"", diverging_epoch=row.diverging_epoch
            )
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
        if session is not None and not session.take_answer(place, data):
            continue
        if key != last_key:
            last_key, fetched = key, []
            topic, topic_id = (key, ZERO_UUID) if isinstance(key, str) else ("", key)
            topics.append(FetchableTopicResponse(topic, fetched, topic_id))
        fetched.append(data)
    return topics, answer


def _answered_bytes(broker: Broker, topics: Sequence[FetchableTopicResponse]) -> int:
    """Return the bytes of the records of a reply and, approximately, of its rows."""
    rows = [row for topic in topics for row in topic.partitions]
    broker.turns.charged_us += len(rows) * LOOKUP_US
    return sum(len(row.records or b"") for row in rows) + len(rows) * ROW_BYTES


def _count(broker: Broker, status: FetchStatus, topics: Sequence[FetchableTopicResponse]) -> None:
    """Count the bytes of the reply."""
    for topic in topics:
        for row in topic.partitions:
            if row.records:
                broker.metrics.bytes_out += len(row.records)
                partition = status[topic.topic or topic.topic_id, row.partition].partition
                if partition is not None:
                    partition.bytes_out += len(row.records)
        broker.turns.charged_us += len(topic.partitions) * LOOKUP_US
