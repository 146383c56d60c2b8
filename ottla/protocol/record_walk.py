"""The walk over the frames of records that is compiled to machine code where a C compiler is at hand. pure

It goes as far as records are plain, and decides nothing about those that are not: `walked` walks the record that it
stopped at, in Python, and tells what is wrong with it. So there is one specification, and what is compiled may give up
wherever that is simpler: at varints of the greatest length, at the end of the window, at many headers.

mypyc compiles this file as it is (`hatch_build.py`): its integers are then 64 bits wide, so what is read is bounded
before it is added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from mypy_extensions import i64

    Walked: TypeAlias = tuple[i64, i64, i64, i64, i64]

_MOST: Final = 0xFFFFFFFF  # of an unsigned varint of 32 bits


def varint(window: bytes, at: i64, stop: i64, bits: i64) -> tuple[i64, i64]:
    """(value, position behind it) of the unsigned varint at `at`, whose bytes have no more than so many `bits`.

    Both are -1 if it does not end before `stop`, or `at` is -1.
    """
    x: i64
    value: i64 = 0
    shift: i64 = 0
    if at < 0:
        return -1, -1
    while at < stop and shift < bits:
        x = window[at]
        at += 1
        if x < 128:
            return value | (x << shift), at
        value |= (x & 127) << shift
        shift += 7
    return -1, -1


def behind_bytes(size: i64, at: i64) -> i64:
    """The position behind bytes of this zig-zag size, which may be -1; -1 if it may not be."""
    if size == 1:
        return at
    if size < 0 or size & 1 or size > _MOST:
        return -1
    return at + (size >> 1)


def behind_headers(window: bytes, at: i64, stop: i64, count: i64) -> i64:
    """The position behind so many headers; -1 if they are not plain."""
    size: i64
    while count > 0:
        size, at = varint(window, at, stop, 35)
        if size & 1:  # without a key
            return -1
        size, at = varint(window, behind_bytes(size, at), stop, 35)
        at = behind_bytes(size, at)
        count -= 1
    return at


def walk(window: bytes, at: i64, index: i64, behind: i64, headers: i64) -> Walked:
    """Walk the records of index `index` to `behind - 1` that stand in the window from position `at` on, while they are
    plain and have no more than so many headers together.

    Comes to (position, index) of the first that was not walked, twice the largest and the smallest timestamp delta of
    those that were, if any, and the first of them without key, or -1.
    """
    high: i64 = -(1 << 62) * 2
    low: i64 = (1 << 62) - 1 + (1 << 62)
    first_null_key: i64 = -1
    key: i64
    x: i64
    delta: i64
    stop: i64
    ahead: i64
    size: i64 = len(window)
    while index < behind:
        x, ahead = varint(window, at, size, 35)
        stop = behind_bytes(x, ahead)
        if x & 1 or stop < 0 or stop > size:
            break
        delta, ahead = varint(window, ahead + 1, stop, 63)  # behind the attributes
        x, ahead = varint(window, ahead, stop, 35)
        if ahead < 0 or x != index << 1:
            break
        key, ahead = varint(window, ahead, stop, 35)
        x, ahead = varint(window, behind_bytes(key, ahead), stop, 35)
        x, ahead = varint(window, behind_bytes(x, ahead), stop, 35)
        if x & 1 or x >> 1 > headers:
            break
        headers -= x >> 1
        if behind_headers(window, ahead, stop, x >> 1) != stop:
            break
        if delta & 1:
            delta = -delta - 1
        if delta > high:
            high = delta
        if delta < low:
            low = delta
        if key == 1 and first_null_key < 0:
            first_null_key = index
        at = stop
        index += 1
    return at, index, high, low, first_null_key
