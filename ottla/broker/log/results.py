"""What a partition answers. pure"""

from enum import Enum
from typing import NamedTuple

from ottla.broker.ports.slices import FileSlice
from ottla.protocol.errors import ErrorCode


class Limit(Enum):
    """How far a reader may see."""

    HIGH_WATERMARK = "high watermark"
    STABLE = "last stable offset"
    END = "log end offset"


class AppendResult(NamedTuple):
    """NONE: the batch stands at these offsets (of the original, if `duplicate`). Else it was not appended."""

    error: ErrorCode
    base_offset: int = -1
    last_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    message: str | None = None
    record_errors: tuple[tuple[int, str], ...] = ()
    duplicate: bool = False


class Slice(NamedTuple):
    """Whole batches; `aborted` is (producer id, first offset) of aborted transactions, None unless read to STABLE."""

    error: ErrorCode
    records: bytes = b""
    aborted: list[tuple[int, int]] | None = None


class Fetched(NamedTuple):
    """A `Slice` whose records may still be in their file."""

    error: ErrorCode
    records: bytes | FileSlice = b""
    aborted: list[tuple[int, int]] | None = None
