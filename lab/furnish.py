"""Creation of a large broker state over the protocol, as input for greedy requests. free

    state = furnish(ask, pause, Size(topics=2_000, partitions=10_000, groups=3_000, ids=10_000))

`ask(api_key, version, message)` sends and returns the reply; `pause()` is called before a retry.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from lab.greedy import State
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import NewRecord
from ottla.testkit.in_memory.wire import message

WIDE: Final = "wide"
CREATED_AT_ONCE: Final = 500
OFFSETS_AT_ONCE: Final = 200
ATTEMPTS: Final = 600
RECORD_BYTES: Final = 40
_FOR_GROUPS, _FOR_TRANSACTIONS = 0, 1

Send = Callable[[int, int, Any], Any]


class Size(NamedTuple):
    """Size of the state.

    Each topic has one partition, and the first one has all others. The first group has `offsets` offsets with
    `metadata_bytes` each. Each of the first `logs` partitions has a batch of `records`.
    """

    topics: int
    partitions: int
    groups: int
    ids: int
    offsets: int
    metadata_bytes: int
    logs: int
    records: int
    start_ms: int


def furnish(send: Send, pause: Callable[[], None], size: Size) -> State:
    """Create the state. Raises RuntimeError if a part of it cannot be created."""
    topics = [WIDE, *(f"topic-{number:05d}" for number in range(size.topics - 1))]
    _create(send, [(WIDE, size.partitions - size.topics + 1), *((name, 1) for name in topics[1:])])
    start_ms = size.start_ms - size.records
    records = [NewRecord(None, b"x" * RECORD_BYTES, (), start_ms + number) for number in range(size.records)]
    large = bytes(build_batch(records))
    for index in range(size.logs):
        _produce(send, index, large)
    groups = [f"group-{number:05d}" for number in range(size.groups)]
    _find(send, pause, groups[0], _FOR_GROUPS)
    for number, group in enumerate(groups):
        _commit(send, pause, group, *((size.offsets, size.metadata_bytes) if number == 0 else (1, 0)))
    ids = [f"transactional-id-{number:05d}" for number in range(size.ids)]
    _find(send, pause, ids[0], _FOR_TRANSACTIONS)
    producer_ids = [_init(send, pause, name) for name in ids]
    small = bytes(build_batch([(b"k", b"v")], timestamp_ms=start_ms))
    topic_ids = list(_topic_ids(send, topics))
    return State(topics, topic_ids, groups, ids, producer_ids, start_ms + size.records - 1, small, large)


def _create(send: Send, topics: list[tuple[str, int]]) -> None:
    for start in range(0, len(topics), CREATED_AT_ONCE):
        rows = [
            {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": [], "configs": []}
            for name, count in topics[start : start + CREATED_AT_ONCE]
        ]
        request = message(ApiKey.CREATE_TOPICS, 4, topics=rows, timeout_ms=60_000, validate_only=False)
        for topic in send(ApiKey.CREATE_TOPICS, 4, request).topics:
            _check(topic.error_code, f"create {topic.name}")


def _produce(send: Send, index: int, batch: bytes) -> None:
    rows = [{"name": WIDE, "partition_data": [{"index": index, "records": batch}]}]
    request = message(ApiKey.PRODUCE, 8, transactional_id=None, acks=-1, timeout_ms=60_000, topic_data=rows)
    _check(send(ApiKey.PRODUCE, 8, request).responses[0].partition_responses[0].error_code, "produce")


def _find(send: Send, pause: Callable[[], None], key: str, key_type: int) -> None:
    request = message(ApiKey.FIND_COORDINATOR, 3, key=key, key_type=key_type)
    _until_done(lambda: send(ApiKey.FIND_COORDINATOR, 3, request).error_code, pause, "find a coordinator")


def _commit(send: Send, pause: Callable[[], None], group: str, offsets: int, metadata_bytes: int) -> None:
    text = "m" * metadata_bytes
    for start in range(0, offsets, OFFSETS_AT_ONCE):
        rows = [
            {"partition_index": index, "committed_offset": 1, "committed_metadata": text}
            for index in range(start, min(offsets, start + OFFSETS_AT_ONCE))
        ]
        request = message(
            ApiKey.OFFSET_COMMIT,
            2,
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            retention_time_ms=-1,
            topics=[{"name": WIDE, "partitions": rows}],
        )
        _until_done(partial(_commit_offset, send, request), pause, f"commit for {group}")


def _commit_offset(send: Send, request: Any) -> int:
    return int(send(ApiKey.OFFSET_COMMIT, 2, request).topics[0].partitions[0].error_code)


def _init(send: Send, pause: Callable[[], None], transactional_id: str) -> int:
    request = message(
        ApiKey.INIT_PRODUCER_ID,
        4,
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=-1,
        producer_epoch=-1,
    )
    found: list[int] = []

    def attempt() -> int:
        answer = send(ApiKey.INIT_PRODUCER_ID, 4, request)
        found[:] = [answer.producer_id]
        return int(answer.error_code)

    _until_done(attempt, pause, f"init {transactional_id}")
    return found[0]


def _topic_ids(send: Send, topics: list[str]) -> Iterator[UUID]:
    for start in range(0, len(topics), CREATED_AT_ONCE):
        rows = [{"name": name} for name in topics[start : start + CREATED_AT_ONCE]]
        request = message(ApiKey.METADATA, 12, topics=rows, allow_auto_topic_creation=False)
        yield from (topic.topic_id for topic in send(ApiKey.METADATA, 12, request).topics)


def _until_done(attempt: Callable[[], int], pause: Callable[[], None], what: str) -> None:
    for _ in range(ATTEMPTS):
        error = attempt()
        if not error or not ErrorCode(error).retriable:
            _check(error, what)
            return
        pause()
    raise RuntimeError(f"cannot {what}: it never ends")


def _check(error: int, what: str) -> None:
    if error:
        raise RuntimeError(f"cannot {what}: {ErrorCode(error).name}")
