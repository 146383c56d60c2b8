"""Walking over the batches of a `.log` file by their headers. shell"""

from collections.abc import Iterator
from struct import Struct

from ottla.broker.ports.disk import File
from ottla.protocol.batch import HEADER_SIZE, MAGIC, BatchHeader, crc_is_valid, read_header
from ottla.protocol.errors import ProtocolError

# base offset, batch length, last offset delta: enough to step from batch to batch.
_PLACE = Struct(">qi11xi")
_LOG_OVERHEAD = 12
_MIN_BATCH_LENGTH = HEADER_SIZE - _LOG_OVERHEAD
# An index entry is due every 4096 bytes, so a walk from one to a batch seldom needs more than this.
_WINDOW_BYTES = 8_192
_CHUNK_BYTES = 1 << 20
_MAX_OFFSET = 2**63 - 1


class BadBatch(ProtocolError):
    """What stands at `position` is no sound batch; `reason` says why."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"{reason} at position {position}")
        self.position = position
        self.reason = reason


def find_offset(file: File, position: int, end: int, offset: int) -> int:
    """Position of the first batch from `position` on whose last offset is at least `offset`; `end` if there is none."""
    unpack_from = _PLACE.unpack_from
    while position < end:
        window = file.pread(min(_WINDOW_BYTES, end - position), position)
        at, last = 0, len(window) - _PLACE.size
        while at <= last:
            base_offset, length, delta = unpack_from(window, at)
            if base_offset + delta >= offset:
                return position + at
            if length < _MIN_BATCH_LENGTH:
                raise BadBatch(position + at, f"batch length {length}")
            at += _LOG_OVERHEAD + length
        if at == 0:
            raise BadBatch(position, "batch header cut short")
        position += at
    return end


def find_boundary(file: File, position: int, end: int, cut: int) -> tuple[int, int]:
    """The last start of a batch that is not behind `cut`, and that batch's base offset.

    `position` is the start of a batch at or before `cut`, and a batch must end behind `cut`.
    """
    unpack_from = _PLACE.unpack_from
    while True:
        window = file.pread(min(_WINDOW_BYTES, end - position), position)
        at, last = 0, len(window) - _PLACE.size
        while at <= last:
            base_offset, length, _ = unpack_from(window, at)
            if length < _MIN_BATCH_LENGTH:
                raise BadBatch(position + at, f"batch length {length}")
            if position + at + _LOG_OVERHEAD + length > cut:
                return position + at, base_offset
            at += _LOG_OVERHEAD + length
        if at == 0:
            raise BadBatch(position, "batch header cut short")
        position += at


def batch_size(file: File, position: int) -> int:
    """Size of the batch at `position`, header included."""
    head = file.pread(_PLACE.size, position)
    if len(head) < _PLACE.size:
        raise BadBatch(position, "batch header cut short")
    size: int = _LOG_OVERHEAD + _PLACE.unpack_from(head)[1]
    return size


def iter_file(
    file: File,
    position: int,
    end: int,
    *,
    least_offset: int = 0,
    most_offset: int = _MAX_OFFSET,
    check_crc: bool = False,
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, bytes) of every batch up to `end`. Raises BadBatch at the first that is not sound.

    Sound: complete, magic 2, offsets that ascend from `least_offset` to `most_offset`, and the CRC if asked for.
    """
    while position < end:
        chunk = memoryview(file.pread(min(_CHUNK_BYTES, end - position), position))
        at = 0
        while at + HEADER_SIZE <= len(chunk):
            header = read_header(chunk, at)
            reason = _fault(header, least_offset, most_offset, end - position - at)
            if reason is not None:
                raise BadBatch(position + at, reason)
            behind = at + header.size_bytes
            if behind > len(chunk):
                break
            if check_crc and not crc_is_valid(chunk, header, at):
                raise BadBatch(position + at, "wrong CRC")
            yield position + at, header, chunk[at:behind]
            least_offset = header.next_offset
            at = behind
        if at == 0:
            chunk = _whole_batch(file, position, end)
            header = read_header(chunk)
            if check_crc and not crc_is_valid(chunk, header):
                raise BadBatch(position, "wrong CRC")
            yield position, header, chunk
            least_offset = header.next_offset
            at = len(chunk)
        position += at


def _whole_batch(file: File, position: int, end: int) -> memoryview:
    """A batch that is larger than a chunk; its header has been looked at unless the file ends inside it."""
    if end - position < HEADER_SIZE:
        raise BadBatch(position, f"batch header cut short: {end - position} bytes")
    return memoryview(file.pread(batch_size(file, position), position))


def _fault(header: BatchHeader, least_offset: int, most_offset: int, left_bytes: int) -> str | None:
    if header.batch_length < _MIN_BATCH_LENGTH:
        return f"batch length {header.batch_length}"
    if header.magic != MAGIC:
        return f"magic {header.magic}"
    if header.size_bytes > left_bytes:
        return f"batch of {header.size_bytes} bytes with {left_bytes} left in the file"
    if not least_offset <= header.base_offset <= header.last_offset <= most_offset:
        return f"offsets {header.base_offset} to {header.last_offset} where {least_offset} is the next"
    return None
