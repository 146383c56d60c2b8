"""Results of appends and reads of a partition. pure"""

from enum import Enum
from typing import NamedTuple

from ottla.broker.ports.slices import FileSlice
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import NO_TIMESTAMP, UNKNOWN_OFFSET


class FetchIsolation(Enum):
    """Limit of a read: the log end offset, the high watermark or the last stable offset.

    Source: Kafka's `FetchIsolation`.
    """

    LOG_END = "log end offset"
    HIGH_WATERMARK = "high watermark"
    TXN_COMMITTED = "last stable offset"


class AppendResult(NamedTuple):
    """Result of an append. With NONE the batch has these offsets (if `duplicate`, those of the original).

    With any other error the batch was not appended.
    """

    error: ErrorCode
    base_offset: int = UNKNOWN_OFFSET
    last_offset: int = UNKNOWN_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    log_start_offset: int = UNKNOWN_OFFSET
    message: str | None = None
    record_errors: tuple[tuple[int, str], ...] = ()
    duplicate: bool = False


class FetchDataInfo(NamedTuple):
    """Result of a read: whole batches, as bytes or as a slice of their file; none with an error.

    `aborted` are (producer id, first offset) of aborted transactions for TXN_COMMITTED, else None.
    """

    error: ErrorCode
    records: bytes | FileSlice = b""
    aborted: list[tuple[int, int]] | None = None
