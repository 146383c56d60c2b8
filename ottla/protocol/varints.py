"""Variable-length integers of records (zig-zag) and of flexible messages (unsigned). pure frozen

Source: `org.apache.kafka.common.utils.ByteUtils`. Readers are strict: at most 5 bytes for 32 bits and 10 for 64, and no
bit beyond the width; a cut or overlong varint raises ProtocolError.
"""

from typing import Final

from ottla.protocol.errors import ProtocolError

Buffer = bytes | bytearray | memoryview

MAX_VARINT_SIZE: Final = 5
MAX_VARLONG_SIZE: Final = 10


def read_unsigned_varint(buffer: Buffer, position: int, max_size: int = MAX_VARINT_SIZE) -> tuple[int, int]:
    """Return (value, position after it) of the unsigned varint at `position`, of at most `max_size` bytes."""
    value = shift = 0
    try:
        for at in range(position, position + max_size):
            byte = buffer[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> (32 if max_size == MAX_VARINT_SIZE else 64):
                    break
                return value, at + 1
            shift += 7
    except IndexError:
        raise ProtocolError(f"varint cut short at position {position}") from None
    raise ProtocolError(f"varint at position {position} does not fit {max_size} bytes")


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return (value, position after it) of the zig-zag int32 at `position`."""
    if position < len(buffer) and (raw := buffer[position]) < 0x80:  # almost always
        return (raw >> 1) ^ -(raw & 1), position + 1
    raw, position = read_unsigned_varint(buffer, position, MAX_VARINT_SIZE)
    return (raw >> 1) ^ -(raw & 1), position


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return (value, position after it) of the zig-zag int64 at `position`."""
    if position < len(buffer) and (raw := buffer[position]) < 0x80:  # almost always
        return (raw >> 1) ^ -(raw & 1), position + 1
    raw, position = read_unsigned_varint(buffer, position, MAX_VARLONG_SIZE)
    return (raw >> 1) ^ -(raw & 1), position


def write_unsigned_varint(out: bytearray, value: int) -> None:
    """Append `value` (not negative) to `out`."""
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def write_varint(out: bytearray, value: int) -> None:
    """Append a zig-zag integer (int32 or int64: the bytes are the same) to `out`."""
    if 0 <= value < 64:
        out.append(value << 1)
    elif 0 <= value < 8192:
        out.append((value << 1 & 0x7F) | 0x80)
        out.append(value >> 6)
    else:
        write_unsigned_varint(out, (value << 1) ^ (value >> 63))


def varint_of(value: int) -> bytes:
    """Return the bytes of a zig-zag integer."""
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


SMALL_VARINTS: Final = tuple(map(varint_of, range(512)))
"""Zig-zag varints of the integers from 0 on, made in advance: the sizes of most keys and values."""
