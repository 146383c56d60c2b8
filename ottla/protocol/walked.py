"""Walk over the records of a produced batch, which checks that they are whole and finds their timestamps. pure

`walk_slice` decides whether records are sound. If the package was built with a C compiler, `record_walk` walks first,
about twenty times as fast, and leaves records that are not plain to `walk_slice`.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from ottla.protocol import varints
from ottla.protocol.errors import ProtocolError
from ottla.protocol.steps import BYTE_US, RECORD_US, Steps
from ottla.protocol.varints import MAX_VARLONG_SIZE, Buffer, read_unsigned_varint

try:
    from ottla.protocol.record_walk_compiled import walk as _walk_compiled
except ImportError:
    _walk_compiled = None

SLICE_RECORDS: Final = 1_000
"""Most records, or headers of one record, that are walked in one step."""
_WINDOW_BYTES: Final = 64 * 1024
"""Bytes copied at once for the compiled walk. They stay in a processor's cache, and the allocator does not map and
unmap memory of this size each time (`MAPPED_BYTES` of `broker/ports/machine.py`)."""
_STEP_BYTES: Final = 2 << 20
"""Most bytes copied in one step. A batch of 1 MiB, which is checked at once, stays below it."""

# Length, attributes, timestamp delta, offset delta, key length, value length, header count: one byte each.
_MIN_RECORD_SIZE: Final = 7
_FAR: Final = 1 << 70

Walked: TypeAlias = tuple[int, int, int]
"""Twice the largest and the smallest timestamp delta, and the index of the first null key, -1 without one."""

Slice: TypeAlias = tuple[int, int, int, int, int, int, int]
"""Result for walked records: position and index after them, twice the largest and the smallest timestamp delta, index
of the first null key. If the next record has too many headers for the same step, then the number of its headers, which
begin at the position, and the end of the record; else 0, 0. It is a plain tuple, because each batch has one."""

Plain: TypeAlias = tuple[int, int, int, int, int]
"""The first five fields of a `Slice`."""

_NOTHING: Final = (-_FAR, _FAR, -1)

walk_compiled: Callable[[bytes, int, int, int, int], Plain] | None = _walk_compiled


def describe_build() -> str:
    """Return which part of Ottla is machine code here, for logs: it may explain why a broker is slow."""
    if not str(varints.__file__).endswith(".py"):
        return "compiled engine"
    return "plain Python" if walk_compiled is None else "compiled walk over records"


def _check_count(raw: Buffer, count: int) -> None:
    if count * _MIN_RECORD_SIZE > len(raw):
        raise ProtocolError(f"{count} records cannot be in {len(raw)} bytes")


def _check_end(raw: Buffer, at: int) -> None:
    if at != len(raw):
        raise ProtocolError(f"{len(raw) - at} bytes after the last record")


def _combine(one: Walked, other: Walked) -> Walked:
    """Merge the results of two consecutive runs of records."""
    return max(one[0], other[0]), min(one[1], other[1]), one[2] if one[2] >= 0 else other[2]


def walk_at_once(raw: Buffer, count: int) -> Walked | None:
    """Walk the `count` records of the decompressed section, at most `SLICE_RECORDS`. Return None if they have too many
    headers for one step. Raises ProtocolError or IndexError if they do not fit.
    """
    _check_count(raw, count)
    if walk_compiled is not None:
        if len(raw) <= _WINDOW_BYTES:
            walked = walk_compiled(bytes(raw), 0, 0, count, SLICE_RECORDS)
        else:
            walked = _Window(raw).walk(0, 0, count)
        at, index, high, low, first_null_key = walked
        if index == count and at == len(raw):
            return high, low, first_null_key
    at, _, high, low, first_null_key, _, many_headers = walk_slice(raw, 0, 0, count)
    if many_headers:
        return None
    _check_end(raw, at)
    return high, low, first_null_key


def walk_steps(raw: Buffer, count: int) -> Steps[Walked]:
    """Walk the `count` records of the decompressed section; raises ProtocolError or IndexError if they do not fit."""
    _check_count(raw, count)
    window = None if walk_compiled is None else _Window(raw)
    found = _NOTHING
    at = index = 0
    while index < count:
        first = index
        end_index = min(index + SLICE_RECORDS, count)
        walked = walk_slice(raw, at, index, end_index) if window is None else window.walk_slice(at, index, end_index)
        at, index, high, low, first_null_key, headers, stop = walked
        found = _combine(found, (high, low, first_null_key))
        copied_bytes = 0 if window is None else window.take_copied_bytes()
        yield max((index - first) * RECORD_US, copied_bytes * BYTE_US)
        if stop:
            for left in range(headers, 0, -SLICE_RECORDS):
                at = _walk_headers(raw, at, min(left, SLICE_RECORDS))
                yield SLICE_RECORDS * RECORD_US
            if at != stop:
                raise ProtocolError(f"record {index} is not as long as its fields")
            index += 1
    _check_end(raw, at)
    return found


class _Window:
    """Copied part of a section for the compiled walk, which reads only `bytes`. A section may be any buffer.

    The Python walk checks the records at which the compiled walk stops.
    """

    __slots__ = ("_copied_bytes", "_data", "_raw", "_start")

    def __init__(self, raw: Buffer) -> None:
        self._raw = raw
        self._data = raw if isinstance(raw, bytes) else b""
        self._start = 0
        self._copied_bytes = 0

    def take_copied_bytes(self) -> int:
        """Return the bytes copied since the last call."""
        copied_bytes, self._copied_bytes = self._copied_bytes, 0
        return copied_bytes

    def walk(self, at: int, index: int, end_index: int) -> Plain:
        """Walk up to the first record that is not plain, or until `_STEP_BYTES` are copied."""
        assert walk_compiled is not None
        found = _NOTHING
        while index < end_index and self._copied_bytes < _STEP_BYTES:
            self._move(at)
            start = self._start
            walked = walk_compiled(self._data, at - start, index, end_index, SLICE_RECORDS)
            near, reached, high, low, first_null_key = walked
            if reached == index:
                break
            at, index = start + near, reached
            found = _combine(found, (high, low, first_null_key))
        return at, index, *found

    def walk_slice(self, at: int, first: int, end_index: int) -> Slice:
        """Walk like the function `walk_slice`, but possibly stop before `end_index`."""
        walked = self.walk(at, first, end_index)
        return (*walked, 0, 0) if walked[1] > first else walk_slice(self._raw, at, first, end_index)

    def _move(self, at: int) -> None:
        """Move the window to `at` if less than half a window is left, so that no byte is copied many times."""
        end = self._start + len(self._data)
        if end < len(self._raw) and end - at < _WINDOW_BYTES // 2:
            self._data = bytes(self._raw[at : at + _WINDOW_BYTES])
            self._start = at
            self._copied_bytes += len(self._data)


# The hot loop of Produce: varints of one or two bytes are read in place and compared in zig-zag form (even is not
# negative, 1 is -1), longer ones by a call. Lengths are never negative here, so the position only grows and the one
# comparison with `stop` bounds every field of a record.
def walk_slice(raw: Buffer, at: int, first: int, end_index: int) -> Slice:
    """Walk the records from index `first` to `end_index - 1` at position `at`, or fewer if they have many headers."""
    end, headers_left = len(raw), SLICE_RECORDS
    high, low, first_null_key = -_FAR, _FAR, -1  # the first two are twice the timestamp deltas
    for index in range(first, end_index):
        x = raw[at]
        at += 1
        if x > 127:
            if (y := raw[at]) < 128:
                x += (y << 7) - 128
                at += 1
            else:
                x, at = read_unsigned_varint(raw, at - 1)
        stop = at + (x >> 1)
        if x & 1 or stop > end:
            raise ProtocolError(f"record {index} overruns the batch")
        x = raw[at + 1]  # after the attributes, which have no meaning yet
        at += 2
        if x > 127:
            x, at = read_unsigned_varint(raw, at - 1, MAX_VARLONG_SIZE)
        if x & 1:
            x = -x - 1
        if x > high:
            high = x
        if x < low:
            low = x
        x = raw[at]
        at += 1
        if x > 127:
            if (y := raw[at]) < 128:
                x += (y << 7) - 128
                at += 1
            else:
                x, at = read_unsigned_varint(raw, at - 1)
        if x != index << 1:
            raise ProtocolError(f"record {index} has a wrong offset delta")
        x = raw[at]
        at += 1
        if x > 127:
            x, at = read_unsigned_varint(raw, at - 1)
        if not x & 1:
            at += x >> 1
        elif x != 1:
            raise ProtocolError(f"record {index} has a negative key length")
        elif first_null_key < 0:
            first_null_key = index
        x = raw[at]
        at += 1
        if x > 127:
            if (y := raw[at]) < 128:
                x += (y << 7) - 128
                at += 1
            else:
                x, at = read_unsigned_varint(raw, at - 1)
        if not x & 1:
            at += x >> 1
        elif x != 1:
            raise ProtocolError(f"record {index} has a negative value length")
        x = raw[at]
        at += 1
        if x:
            count, at = _count_headers(raw, at - 1, stop)
            headers_left -= count
            if headers_left < 0:
                return at, index, high, low, first_null_key, count, stop
            at = _walk_headers(raw, at, count)
        if at != stop:
            raise ProtocolError(f"record {index} is not as long as its fields")
    return at, end_index, high, low, first_null_key, 0, 0


def _count_headers(raw: Buffer, at: int, stop: int) -> tuple[int, int]:
    """Return (number of headers, position after that number) of a record that ends at `stop`."""
    count, at = read_unsigned_varint(raw, at)
    if count & 1 or count >> 1 > stop - at:
        raise ProtocolError("a record with an impossible number of headers")
    return count >> 1, at


def _walk_headers(raw: Buffer, at: int, count: int) -> int:
    """Return the position after the `count` headers at `at`."""
    for _ in range(count):
        size, at = read_unsigned_varint(raw, at)
        if size & 1:
            raise ProtocolError("a header without key")
        size, at = read_unsigned_varint(raw, at + (size >> 1))
        if not size & 1:
            at += size >> 1
        elif size != 1:
            raise ProtocolError("a header with a negative value length")
    return at
