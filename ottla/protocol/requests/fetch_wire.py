"""Fetch responses, versions 4-18, as a list of buffers that contains the records without a copy. pure

The buffers, in order, are one frame for `writelines`. Records up to `INLINE_BYTES` are copied into the buffer before
them, because a short copy is cheaper than one more buffer. Larger records are passed on without a copy, so they must
not change before the transport has written them. A part of a file (`InFile`) of any size is passed on too. `codec`
reads Fetch requests (about 2 us for three partitions).
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from struct import Struct
from typing import Final, NamedTuple, Protocol

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.primitives import NodeEndpoint, write_count, write_endpoint_tags, write_string, write_tagged_leader
from ottla.protocol.requests.frames import response_header_size
from ottla.protocol.values import ZERO_UUID
from ottla.protocol.varints import Buffer

_FETCH: Final = ApiKey.FETCH
LOWEST_VERSION: Final = 4
HIGHEST_VERSION: Final = 18
INLINE_BYTES: Final = 2048
_FLEXIBLE: Final = 12
_TOPIC_IDS: Final = 13

_SIZE_AND_CORRELATION: Final = Struct(">ii").pack_into
_HEAD_V4: Final = Struct(">i").pack
_HEAD_V7: Final = Struct(">ihi").pack
_ROW_V4: Final = Struct(">ihqq").pack
_ROW_V5: Final = Struct(">ihqqq").pack
_ABORTED_AT_ONCE: Final = 256
_ROWS_AT_ONCE: Final = 128
_ROW_US: Final = 2.0
_PLAIN_ROW_V11: Final = Struct(">ihqqqiii").pack
_PLAIN_ROW_V12: Final = Struct(">ihqqqBi").pack
_ABORTED: Final = {
    # By whether the version is flexible: packs one entry, or many.
    False: (Struct(">qq").pack, Struct(f">{'qq' * _ABORTED_AT_ONCE}").pack),
    True: (Struct(">qqx").pack, Struct(f">{'qqx' * _ABORTED_AT_ONCE}").pack),
}
_INT32: Final = Struct(">i").pack
_DIVERGING: Final = Struct(">BBiqB").pack


class InFile(Protocol):
    """Records whose bytes are read from their file when they are sent."""

    def __len__(self) -> int: ...


Part = Buffer | InFile
"""A part of a framed response."""


class FetchPartitionData(NamedTuple):
    """Partition row of a Fetch response.

    `aborted` is None (read_uncommitted) or a sequence of (producer id, first offset). `records`
    is None, bytes-like or `InFile`. `diverging_epoch` is (epoch, end offset), `current_leader` (node id, leader epoch);
    both are sent from version 12.
    """

    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[tuple[int, int]] | None
    records: Part | None
    preferred_read_replica: int = -1
    diverging_epoch: tuple[int, int] | None = None
    current_leader: tuple[int, int] | None = None


class FetchableTopicResponse(NamedTuple):
    """Topic row of a Fetch response. Versions below 13 send the name, later ones the id (16 bytes)."""

    topic: str
    partitions: Sequence[FetchPartitionData]
    topic_id: bytes = ZERO_UUID


def encode_fetch_response(
    topics: Sequence[FetchableTopicResponse],
    version: int,
    correlation_id: int,
    error: int = 0,
    session_id: int = 0,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Part]:
    """Return the framed response. Versions from 7 on send `error` and `session_id`."""
    buffers: list[Part] = []
    rest = error, session_id, throttle_time_ms, node_endpoints
    for _ in fetch_response_steps(buffers, topics, version, correlation_id, *rest):
        pass
    return buffers


def fetch_response_steps(
    buffers: list[Part],
    topics: Sequence[FetchableTopicResponse],
    version: int,
    correlation_id: int,
    error: int = 0,
    session_id: int = 0,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> Iterator[float]:
    """Write the response of `encode_fetch_response` into `buffers`, which are empty. Yields the cost in microseconds
    after every few topics and partitions, because there may be 16,384 of them."""
    flexible = version >= _FLEXIBLE
    first = out = bytearray(4 + response_header_size(_FETCH, version))
    buffers.append(first)
    out += _HEAD_V7(throttle_time_ms, error, session_id) if version >= 7 else _HEAD_V4(throttle_time_ms)
    write_count(out, len(topics), flexible)
    written = 0
    for topic in topics:
        if version >= _TOPIC_IDS:
            out += topic.topic_id
        else:
            write_string(out, topic.topic, flexible)
        write_count(out, len(topic.partitions), flexible)
        for partition in topic.partitions:
            _write_row(out, partition, version, flexible)
            records = partition.records
            if records is not None:
                if isinstance(records, (bytes, memoryview, bytearray)) and len(records) <= INLINE_BYTES:
                    out += records
                else:
                    out = bytearray()
                    buffers += (records, out)
            if flexible:
                _write_row_tags(out, partition)
            written += 1
            if written >= _ROWS_AT_ONCE:
                yield written * _ROW_US
                written = 0
        if flexible:
            out.append(0)
        written += 1
        if written >= _ROWS_AT_ONCE:
            yield written * _ROW_US
            written = 0
    if flexible:
        write_endpoint_tags(out, node_endpoints if version >= 16 else ())
    elif not out:
        buffers.pop()
    _SIZE_AND_CORRELATION(first, 0, sum(map(len, buffers)) - 4, correlation_id)


def _write_row(out: bytearray, row: FetchPartitionData, version: int, flexible: bool) -> None:
    """Append all fields of a partition up to the size of its records."""
    aborted = row.aborted
    if version >= 11 and not aborted:  # the usual case, packed in one piece
        head = row.partition, row.error, row.high_watermark, row.last_stable_offset, row.log_start_offset
        size_bytes = -1 if row.records is None else len(row.records)
        if flexible:
            out += _PLAIN_ROW_V12(*head, aborted is not None, row.preferred_read_replica)
            write_count(out, size_bytes, True)
        else:
            out += _PLAIN_ROW_V11(*head, -1 if aborted is None else 0, row.preferred_read_replica, size_bytes)
        return
    if version < 5:
        out += _ROW_V4(row.partition, row.error, row.high_watermark, row.last_stable_offset)
    else:
        out += _ROW_V5(row.partition, row.error, row.high_watermark, row.last_stable_offset, row.log_start_offset)
    if aborted is None:
        write_count(out, -1, flexible)
    else:
        write_count(out, len(aborted), flexible)
        one, many = _ABORTED[flexible]
        whole = len(aborted) - len(aborted) % _ABORTED_AT_ONCE
        for start in range(0, whole, _ABORTED_AT_ONCE):
            out += many(*chain.from_iterable(aborted[start : start + _ABORTED_AT_ONCE]))
        for entry in aborted[whole:]:
            out += one(*entry)
    if version >= 11:
        out += _INT32(row.preferred_read_replica)
    write_count(out, -1 if row.records is None else len(row.records), flexible)


def _write_row_tags(out: bytearray, row: FetchPartitionData) -> None:
    if row.diverging_epoch is None and row.current_leader is None:
        out.append(0)
        return
    out.append((row.diverging_epoch is not None) + (row.current_leader is not None))
    if row.diverging_epoch is not None:
        out += _DIVERGING(0, 13, *row.diverging_epoch, 0)
    if row.current_leader is not None:
        write_tagged_leader(out, 1, row.current_leader)
