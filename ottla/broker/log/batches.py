"""Reading a `.log` file batch by batch, by the headers. shell"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from ottla.broker.ports.disk import File
from ottla.checksum import crc32c
from ottla.protocol.batch_header import (
    ATTRIBUTES_OFFSET,
    HEADER,
    HEADER_SIZE,
    LEGACY_SMALLEST,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_OFFSET,
    MIN_BATCH_LENGTH,
    BatchHeader,
    crc_is_valid,
    is_legacy,
    least_size,
    read_legacy_header,
)
from ottla.protocol.errors import ProtocolError
from ottla.protocol.legacy_records import is_message
from ottla.protocol.varints import Buffer

# base offset, batch length, magic, last offset delta: enough to step from batch to batch.
_PLACE: Final = Struct(">qi4xb6xi")
# base offset, batch length, magic, last offset delta, largest timestamp: enough to step to a time.
_TIME: Final = Struct(">qi4xb6xi8xq")
_LENGTH: Final = Struct(">8xi")
# An index entry is due every 4096 bytes, so a walk from an entry to a batch rarely needs more than this.
_WINDOW_BYTES: Final = 8_192
_TIME_WINDOW_BYTES: Final = 65_536
_CHUNK_BYTES: Final = 1 << 20
# Headers that are read in one run, about half a millisecond: other requests are served between runs.
_RUN_BATCHES: Final = 256
_MAX_OFFSET: Final = 2**63 - 1


class BadBatch(ProtocolError):
    """The bytes at `position` are not a valid batch, because of `reason`."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"{reason} at position {position}")
        self.position = position
        self.reason = reason


class Run(NamedTuple):
    """Consecutive batches from `position` on: their bytes, and the fields of their headers.

    The fields are those of `BatchHeader`, in its order. `bad` is the error of the bytes that follow, if they are not a
    valid batch.
    """

    position: int
    data: "memoryview"
    headers: list[tuple[int, ...]]
    bad: BadBatch | None


def find_offset(file: File, position: int, end: int, offset: int) -> int:
    """Return the position of the first batch from `position` on whose last offset is at least `offset`, or `end`."""
    unpack_from = _PLACE.unpack_from
    while position < end:
        window = file.pread(min(_WINDOW_BYTES, end - position), position)
        at, last = 0, len(window) - _PLACE.size
        while at <= last:
            base_offset, length, magic, delta = unpack_from(window, at)
            if magic != MAGIC:
                delta = _check_legacy(window, at, position).last_offset_delta
            elif length < MIN_BATCH_LENGTH:
                raise BadBatch(position + at, f"batch length {length}")
            if base_offset + delta >= offset:
                return position + at
            at += LOG_OVERHEAD + length
        if at == 0:
            header = _check_legacy(window, at, position)
            if header.last_offset >= offset:
                return position
            at = header.size_bytes
        position += at
    if position > end:
        raise BadBatch(end, f"a batch that ends {position - end} bytes after the end of the file")
    return end


def find_boundary(file: File, position: int, end: int, cut: int) -> tuple[int, int]:
    """Return (position, base offset) of the last batch that starts at or before `cut`.

    `position` is the start of a batch at or before `cut`, and a batch must end after `cut`.
    """
    unpack_from = _PLACE.unpack_from
    while True:
        window = file.pread(min(_WINDOW_BYTES, end - position), position)
        at, last = 0, len(window) - _PLACE.size
        while at <= last:
            base_offset, length, magic, _ = unpack_from(window, at)
            if magic != MAGIC:
                _check_legacy(window, at, position)
            elif length < MIN_BATCH_LENGTH:
                raise BadBatch(position + at, f"batch length {length}")
            if position + at + LOG_OVERHEAD + length > cut:
                return position + at, base_offset
            at += LOG_OVERHEAD + length
        if at == 0:
            header = _check_legacy(window, at, position)
            if position + header.size_bytes > cut:
                return position, header.base_offset
            at = header.size_bytes
        position += at


class Skipped(NamedTuple):
    """Result of `skip_older`: the position reached, the number of batches passed, whether the batch there matches."""

    position: int
    batches: int
    found: bool


def skip_older(file: File, position: int, end: int, timestamp_ms: int) -> Skipped:
    """Pass batches from `position` on whose records are all older than `timestamp_ms`, at most those of one window."""
    unpack_from = _TIME.unpack_from
    window = file.pread(min(_TIME_WINDOW_BYTES, end - position), position)
    at, last, batches = 0, len(window) - _TIME.size, 0
    while at <= last:
        _, length, magic, _, largest_ms = unpack_from(window, at)
        if magic != MAGIC:
            largest_ms = _check_legacy(window, at, position).max_timestamp
        elif length < MIN_BATCH_LENGTH:
            raise BadBatch(position + at, f"batch length {length}")
        if largest_ms >= timestamp_ms:
            return Skipped(position + at, batches, found=True)
        at += LOG_OVERHEAD + length
        batches += 1
    if at == 0:
        header = _check_legacy(window, at, position)
        if header.max_timestamp >= timestamp_ms:
            return Skipped(position, batches, found=True)
        at, batches = header.size_bytes, 1
    if position + at > end:
        raise BadBatch(end, f"a batch that ends {position + at - end} bytes after the end of the file")
    return Skipped(position + at, batches, found=False)


def batch_size(file: File, position: int) -> int:
    """Return the size of the batch at `position`, including its header."""
    head = file.pread(LEGACY_SMALLEST, position)
    if len(head) < LEGACY_SMALLEST:
        raise BadBatch(position, "batch header cut short")
    size: int = LOG_OVERHEAD + _LENGTH.unpack_from(head)[0]
    return size


def _check_legacy(window: Buffer, at: int, position: int) -> BatchHeader:
    """Return the header of the message of magic 0 or 1 at `at` of a window. Raises BadBatch if there is none."""
    header = read_legacy_header(window, at)
    if header is None:
        left = len(window) - at
        raise BadBatch(position + at, "batch header cut short" if left < HEADER_SIZE else _magic_fault(window, at))
    if header.size_bytes < least_size(header.magic):
        raise BadBatch(position + at, f"batch length {header.batch_length}")
    return header


def _magic_fault(window: Buffer, at: int) -> str:
    return f"magic {window[at + MAGIC_OFFSET]}"


def iter_file(
    file: File,
    position: int,
    end: int,
    *,
    least_offset: int = 0,
    most_offset: int = _MAX_OFFSET,
    check_crc: bool = False,
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield (position, header, bytes) of every batch up to `end`. Raises BadBatch at the first invalid one.

    A valid batch is complete, has magic 0 to 2, ascending offsets from `least_offset` to `most_offset`, and with
    `check_crc` the right CRC.
    """
    for run in iter_runs(file, position, end, least_offset, most_offset, check_crc):
        at = 0
        for fields in run.headers:
            header = BatchHeader._make(fields)
            batch_end = at + header.size_bytes
            yield run.position + at, header, run.data[at:batch_end]
            at = batch_end
        if run.bad is not None:
            raise run.bad


def iter_runs(
    file: File, position: int, end: int, least_offset: int, most_offset: int, check_crc: bool
) -> Iterator[Run]:
    """Yield the batches of `iter_file` in runs of at most a MiB and `_RUN_BATCHES`, for files with millions of batches.

    Raises no BadBatch: the last run has it as `bad`, with the valid batches before it.
    """
    chunk = memoryview(b"")
    while position < end:
        run = _check_run(chunk, position, end, least_offset, most_offset, check_crc)
        if not run.headers and run.bad is None:
            chunk = memoryview(file.pread(min(_CHUNK_BYTES, end - position), position))
            run = _check_run(chunk, position, end, least_offset, most_offset, check_crc)
        if not run.headers and run.bad is None:
            # A batch that is larger than a chunk, or a header that the file cuts short.
            if end - position < HEADER_SIZE:
                bad = BadBatch(position, f"batch header cut short: {end - position} bytes")
                run = Run(position, run.data, [], bad)
            else:
                chunk = memoryview(file.pread(batch_size(file, position), position))
                run = _check_run(chunk, position, end, least_offset, most_offset, check_crc)
                if not run.headers and run.bad is None:
                    run = run._replace(bad=BadBatch(position, f"batch cut short: {len(chunk)} bytes"))
        yield run
        if run.bad is not None:
            return
        base_offset, _, _, _, _, _, delta = run.headers[-1][:7]
        least_offset = base_offset + delta + 1
        position += len(run.data)
        chunk = chunk[len(run.data) :]


def iter_memory(data: memoryview, least_offset: int, most_offset: int, *, check_crc: bool = False) -> Iterator[Run]:
    """Yield the batches of `data` in runs, up to the first that is invalid, or that the end of `data` cuts short."""
    position = 0
    while position < len(data):
        run = _check_run(data[position:], position, _MAX_OFFSET, least_offset, most_offset, check_crc)
        if run.headers or run.bad is not None:
            yield run
        if not run.headers or run.bad is not None:
            return
        base_offset, _, _, _, _, _, delta = run.headers[-1][:7]
        least_offset = base_offset + delta + 1
        position += len(run.data)


def _check_run(chunk: memoryview, position: int, end: int, least_offset: int, most_offset: int, check_crc: bool) -> Run:
    """Return the complete batches at the start of `chunk`, up to the first invalid one, and at most `_RUN_BATCHES`.

    `chunk` starts at `position` of the file.
    """
    if len(chunk) >= LEGACY_SMALLEST and is_legacy(chunk[MAGIC_OFFSET]):
        return _check_legacy_run(chunk, position, end, least_offset, most_offset, check_crc)
    unpack_from = HEADER.unpack_from
    headers: list[tuple[int, ...]] = []
    at, size, last = 0, len(chunk), len(chunk) - HEADER_SIZE
    while at <= last:
        header = unpack_from(chunk, at)
        base_offset, length, _, magic, crc, _, delta, _, _, _, _, _, _ = header
        batch_end = at + LOG_OVERHEAD + length
        next_offset = base_offset + delta + 1
        if not (
            magic == MAGIC
            and length >= MIN_BATCH_LENGTH
            and least_offset <= base_offset < next_offset <= most_offset + 1
            and position + batch_end <= end
        ):
            if is_legacy(magic):
                break  # they are a run of their own
            reason = _fault(BatchHeader._make(header), least_offset, end - position - at)
            return Run(position, chunk[:at], headers, BadBatch(position + at, reason))
        if batch_end > size:
            break
        if check_crc and crc32c(chunk[at + ATTRIBUTES_OFFSET : batch_end]) != crc:
            return Run(position, chunk[:at], headers, BadBatch(position + at, "wrong CRC"))
        headers.append(header)
        least_offset = next_offset
        at = batch_end
        if len(headers) == _RUN_BATCHES:
            break
    return Run(position, chunk[:at], headers, None)


def _check_legacy_run(
    chunk: memoryview, position: int, end: int, least_offset: int, most_offset: int, check_crc: bool
) -> Run:
    """Do the same as `_check_run` for the messages of magic 0 and 1 at the start of `chunk`."""
    headers: list[tuple[int, ...]] = []
    at = 0
    while len(headers) < _RUN_BATCHES:
        header = read_legacy_header(chunk, at)
        if header is None:
            break
        reason = None
        if (
            header.size_bytes < least_size(header.magic)
            or position + at + header.size_bytes > end
            or not least_offset <= header.base_offset <= most_offset
        ):
            reason = _fault(header, least_offset, end - position - at)
        elif at + header.size_bytes > len(chunk):
            break
        elif check_crc and not crc_is_valid(chunk, header, at):
            reason = "wrong CRC"
        elif not is_message(chunk, header, at):
            reason = f"magic {header.magic}, which is not a message"
        if reason is not None:
            return Run(position, chunk[:at], headers, BadBatch(position + at, reason))
        headers.append(header)
        least_offset = header.next_offset
        at += header.size_bytes
    return Run(position, chunk[:at], headers, None)


def _fault(header: BatchHeader, least_offset: int, left_bytes: int) -> str:
    """Return the error of an invalid header."""
    if header.size_bytes < least_size(header.magic):
        is_cut = left_bytes < HEADER_SIZE
        return f"batch header cut short: {left_bytes} bytes" if is_cut else f"batch length {header.batch_length}"
    if not 0 <= header.magic <= MAGIC:
        return f"magic {header.magic}"
    if header.size_bytes > left_bytes:
        return f"batch of {header.size_bytes} bytes with {left_bytes} left in the file"
    return f"offsets {header.base_offset} to {header.last_offset} where {least_offset} is expected"
