"""Fetch requests and responses of one partition, whose records stay where they were received. pure

`codec` reads any Fetch response, and copies its records. Here only the fields before them are read, so that a reader of
whole logs pays for each byte once. Only with `read_committed` a field before
the records grows with the log: the aborted transactions.
"""

from functools import partial
from typing import Any, Final, NamedTuple

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.fields import Reader
from ottla.protocol.requests import codec

LOWEST_VERSION: Final = 4
NAMED_VERSION: Final = 12
"""Highest version that names topics; later versions have their ids."""
HIGHEST_VERSION: Final = 13

_LOG_START: Final = 5
_SESSIONS: Final = 7
_PREFERRED_REPLICA: Final = 11
_FLEXIBLE: Final = 12
# A response has at most this many bytes before its records: the numbers, one topic name, tagged fields, and the aborted
# transactions of its records.
_HEAD_BYTES: Final = 64 * 1024
_COMMITTED_HEAD_BYTES: Final = 16 * 1024 * 1024
_ABORTED_BYTES: Final = 16
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1


class Fetched(NamedTuple):
    """The answer for one partition. Its records are `frame[records_start:records_end]`.

    `is_named`: whether the answer has the partition: a broker over its quota leaves it out. `preferred_replica`: the
    broker to read from instead, -1 for this one (KIP-392). `aborted`: (producer id, first offset) of the aborted
    transactions with records in the answer, if the request asked for committed records.
    """

    error: int
    throttle_ms: int
    is_named: bool = False
    high_watermark: int = -1
    log_start: int = -1
    records_start: int = 0
    records_end: int = 0
    stable_offset: int = -1
    preferred_replica: int = -1
    aborted: tuple[tuple[int, int], ...] = ()


def fetch_request(
    topic: str,
    topic_id: Any,
    partition: int,
    offset: int,
    version: int,
    *,
    max_bytes: int,
    max_wait_ms: int,
    rack: str,
    isolation: int = READ_UNCOMMITTED,
) -> Any:
    """Return a Fetch request for the records of one partition from `offset` on, aborted ones too.

    With READ_COMMITTED they end at the last stable offset, and the answer names the aborted transactions.
    """
    request = codec.request_class(ApiKey.FETCH)
    row = request.FetchTopic.FetchPartition(
        partition=partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )
    name = {"topic": topic} if version <= NAMED_VERSION else {"topic_id": topic_id}
    return request(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=0,
        session_epoch=-1,
        topics=[request.FetchTopic(**name, partitions=[row])],
        forgotten_topics_data=[],
        rack_id=rack,
    )


def read_fetch_response(frame: memoryview, version: int, isolation: int = READ_UNCOMMITTED) -> Fetched:
    """Read the answer to a request for one partition: a frame without its size. Raises ProtocolError."""
    head_bytes = _COMMITTED_HEAD_BYTES if isolation == READ_COMMITTED else _HEAD_BYTES
    reader = Reader(frame[:head_bytes], 4, flexible=version >= _FLEXIBLE)
    reader.tags()
    throttle_ms = reader.int32()
    error = int(ErrorCode.NONE)
    if version >= _SESSIONS:
        error = reader.int16()
        reader.int32()
    if error or not _is_one(reader, "topics"):
        return Fetched(error, throttle_ms)
    if version <= NAMED_VERSION:
        reader.string()
    else:
        reader.uuid()
    if not _is_one(reader, "partitions"):
        return Fetched(error, throttle_ms)
    reader.int32()
    error, high_watermark = reader.int16(), reader.int64()
    stable_offset = reader.int64()
    log_start = reader.int64() if version >= _LOG_START else -1
    aborted = reader.nullable_array(partial(_read_aborted_transaction, reader), _ABORTED_BYTES) or ()
    preferred = reader.int32() if version >= _PREFERRED_REPLICA else -1
    size = max(reader.count(), 0)
    end = reader.position + size
    if end > len(frame):
        raise ProtocolError(f"records cut short: {size} bytes in a response of {len(frame)}")
    start = reader.position
    return Fetched(error, throttle_ms, True, high_watermark, log_start, start, end, stable_offset, preferred, aborted)


def _read_aborted_transaction(reader: Reader) -> tuple[int, int]:
    found = reader.int64(), reader.int64()
    reader.tags()
    return found


def _is_one(reader: Reader, what: str) -> bool:
    """Read the length of an array of at most one entry, and return whether there is one. Raises ProtocolError."""
    count = reader.count()
    if count > 1:
        raise ProtocolError(f"{count} {what} in the answer for one partition")
    return count == 1
