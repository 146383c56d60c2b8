"""Small replies that transactions and commits wait for, encoded by hand. pure

To build and encode one of these from the library's objects costs 4-25 us; here it costs 0.2-5. The bytes are the same.
All functions return one framed response (size, header, body).
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.frames import is_flexible, response_prefix
from ottla.protocol.primitives import write_count, write_string

_PLAIN: Final = Struct(">iiih").pack
_FLEXIBLE: Final = Struct(">iiBihB").pack
_PLAIN_WITH_PRODUCER: Final = Struct(">iiihqh").pack
_FLEXIBLE_WITH_PRODUCER: Final = Struct(">iiBihqhB").pack
_INT32: Final = Struct(">i").pack
_INT64: Final = Struct(">q").pack
_THROTTLE_AND_ERROR: Final = Struct(">ih").pack
_ROW: Final = Struct(">ih").pack
_FLEXIBLE_ROW: Final = Struct(">ihB").pack
_PRODUCER: Final = Struct(">qiiqiqB").pack

END_TXN_WITH_PRODUCER: Final = 5
"""From this version on an EndTxn response carries the producer id and epoch to go on with (KIP-890)."""


def encode_error_reply(api_key: int, version: int, correlation_id: int, error: int, throttle_time_ms: int = 0) -> bytes:
    """Throttle time and error: AddOffsetsToTxn, EndTxn below version 5, Heartbeat from version 1."""
    if is_flexible(api_key, version):
        return _FLEXIBLE(12, correlation_id, 0, throttle_time_ms, error, 0)
    return _PLAIN(10, correlation_id, throttle_time_ms, error)


def encode_producer_reply(
    api_key: int,
    version: int,
    correlation_id: int,
    error: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    throttle_time_ms: int = 0,
) -> bytes:
    """Throttle time, error, producer id and epoch: InitProducerId below version 6, EndTxn from version 5."""
    if is_flexible(api_key, version):
        return _FLEXIBLE_WITH_PRODUCER(22, correlation_id, 0, throttle_time_ms, error, producer_id, producer_epoch, 0)
    return _PLAIN_WITH_PRODUCER(20, correlation_id, throttle_time_ms, error, producer_id, producer_epoch)


def encode_partition_errors(
    api_key: int,
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str, Sequence[tuple[int, int]]]],
    throttle_time_ms: int = 0,
) -> bytes:
    """One error per partition: AddPartitionsToTxn below version 4, TxnOffsetCommit, OffsetCommit below version 10.

    `topics` is [(name, [(partition, error)])].
    """
    flexible = is_flexible(api_key, version)
    body = bytearray()
    if api_key != ApiKey.OFFSET_COMMIT or version >= 3:
        body += _INT32(throttle_time_ms)
    write_count(body, len(topics), flexible)
    for name, rows in topics:
        write_string(body, name, flexible)
        write_count(body, len(rows), flexible)
        _write_rows(body, rows, flexible)
    if flexible:
        body.append(0)
    return response_prefix(api_key, version, correlation_id, len(body)) + body


def _write_rows(body: bytearray, rows: Iterable[tuple[int, int]], flexible: bool) -> None:
    if flexible:
        for partition, error in rows:
            body += _FLEXIBLE_ROW(partition, error, 0)
        body.append(0)
    else:
        for partition, error in rows:
            body += _ROW(partition, error)


def write_listed_transaction(out: bytearray, transactional_id: str, producer_id: int, state: str) -> None:
    """Append one row of a ListTransactions response."""
    encoded = transactional_id.encode()
    if len(encoded) < 127:
        out.append(len(encoded) + 1)
        out += encoded
    else:
        write_string(out, transactional_id, True)
    out += _INT64(producer_id)
    write_string(out, state, True)
    out.append(0)


def encode_transaction_list(
    version: int,
    correlation_id: int,
    error: int,
    unknown_states: Sequence[str],
    rows: Sequence[bytearray],
    row_count: int,
    throttle_time_ms: int = 0,
) -> list[bytes | bytearray]:
    """A ListTransactions response in pieces: it may be tens of megabytes, and `rows` are not copied."""
    head = bytearray(_THROTTLE_AND_ERROR(throttle_time_ms, error))
    write_count(head, len(unknown_states), True)
    for state in unknown_states:
        write_string(head, state, True)
    write_count(head, row_count, True)
    size_bytes = len(head) + sum(map(len, rows)) + 1
    prefix = response_prefix(ApiKey.LIST_TRANSACTIONS, version, correlation_id, size_bytes)
    return [prefix + head, *rows, b"\0"]


def begin_producers_of_partition(
    out: bytearray, partition: int, error: int, message: str | None, producer_count: int
) -> None:
    """Append what stands before the producers of one partition in a DescribeProducers response; a 0 ends them."""
    out += _ROW(partition, error)
    write_string(out, message, True)
    write_count(out, producer_count, True)


def write_producer(
    out: bytearray,
    producer_id: int,
    producer_epoch: int,
    last_sequence: int,
    last_timestamp_ms: int,
    coordinator_epoch: int,
    transaction_start: int,
) -> None:
    """Append one producer of a DescribeProducers response."""
    out += _PRODUCER(
        producer_id, producer_epoch, last_sequence, last_timestamp_ms, coordinator_epoch, transaction_start, 0
    )
