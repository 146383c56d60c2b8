"""What a partition answers. pure"""

from enum import Enum
from typing import NamedTuple

from ottla.broker.ports.slices import FileSlice
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import NO_TIMESTAMP, UNKNOWN_OFFSET


class FetchIsolation(Enum):
    """How far a reader may see: to the log end offset, the high watermark or the last stable offset.

    Source: Kafka's `FetchIsolation`.
    """

    LOG_END = "log end offset"
    HIGH_WATERMARK = "high watermark"
    TXN_COMMITTED = "last stable offset"


class AppendResult(NamedTuple):
    """NONE: the batch stands at these offsets (of the original, if `duplicate`). Else it was not appended."""

    error: ErrorCode
    base_offset: int = UNKNOWN_OFFSET
    last_offset: int = UNKNOWN_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    log_start_offset: int = UNKNOWN_OFFSET
    message: str | None = None
    record_errors: tuple[tuple[int, str], ...] = ()
    duplicate: bool = False


class FetchDataInfo(NamedTuple):
    """What a read of the log gives: whole batches, as bytes or still in their file; none unless the error is NONE.

    `aborted` is (producer id, first offset) of aborted transactions, None unless read to TXN_COMMITTED.
    """

    error: ErrorCode
    records: bytes | FileSlice = b""
    aborted: list[tuple[int, int]] | None = None
