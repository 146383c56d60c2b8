"""Read and write the field types of Kafka's messages, as the records of the internal topics use them. pure frozen

Source: `org.apache.kafka.common.protocol.Readable`, `Writable`. `flexible` selects compact lengths (unsigned varint of
length + 1, 0 is null) over int16 and int32 lengths (-1 is null). Bytes that do not fit raise ProtocolError.
"""

from collections.abc import Callable, Collection, Sequence
from struct import Struct, pack
from struct import error as StructError
from typing import Final, TypeVar

from ottla.protocol.errors import ProtocolError
from ottla.protocol.varints import Buffer, read_unsigned_varint, write_unsigned_varint

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_FLOAT64: Final = Struct(">d")
UUID_SIZE: Final = 16
MAX_STRING_BYTES: Final = 0x7FFF
"""Limit of any string in any version. Kafka refuses to read or write a longer one, even with a compact length."""
MAX_TAGS: Final = 64
"""Most tagged fields that one struct may carry."""

T = TypeVar("T")


class UnknownVersion(ProtocolError):
    """The value has a version that Ottla cannot read. Kafka's coordinators warn and skip the record."""


def fits_a_string(text: str) -> bool:
    """Return whether a string field can hold the text."""
    return 4 * len(text) <= MAX_STRING_BYTES or len(text.encode()) <= MAX_STRING_BYTES


class Reader:
    """A position in `buffer`. Each method reads one field and moves to the position after it."""

    __slots__ = ("_buffer", "flexible", "position")

    def __init__(self, buffer: Buffer, position: int = 0, *, flexible: bool = False) -> None:
        self._buffer = bytes(buffer)
        self.position = position
        self.flexible = flexible

    @property
    def remaining(self) -> int:
        """The number of bytes after the position."""
        return len(self._buffer) - self.position

    def _number(self, kind: Struct) -> int:
        try:
            value: int = kind.unpack_from(self._buffer, self.position)[0]
        except StructError:
            raise ProtocolError(f"field cut short at position {self.position}") from None
        self.position += kind.size
        return value

    def int8(self) -> int:
        return self._number(_INT8)

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def float64(self) -> float:
        value: float = _FLOAT64.unpack(self.raw(_FLOAT64.size))[0]
        return value

    def unsigned_varint(self) -> int:
        value, self.position = read_unsigned_varint(self._buffer, self.position)
        return value

    def raw(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self._buffer):
            raise ProtocolError(f"field of {size} bytes at position {self.position} overruns its message")
        value = self._buffer[self.position : end]
        self.position = end
        return value

    def uuid(self) -> bytes:
        return self.raw(UUID_SIZE)

    def _length(self, classic: Struct) -> int:
        return self.unsigned_varint() - 1 if self.flexible else self._number(classic)

    def nullable_string(self) -> str | None:
        size = self._length(_INT16)
        if size == -1:
            return None
        try:
            return self.raw(size).decode()
        except UnicodeDecodeError:
            raise ProtocolError(f"string before position {self.position} is not UTF-8") from None

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise ProtocolError(f"null string before position {self.position}")
        return value

    def blob(self) -> bytes:
        size = self._length(_INT32)
        if size < 0:
            raise ProtocolError(f"bytes of length {size} before position {self.position}")
        return self.raw(size)

    def count(self) -> int:
        """Read the length of an array, or of bytes whose content stays where it is; -1 for null."""
        return self._length(_INT32)

    def nullable_array(self, element: Callable[[], T], min_size: int) -> tuple[T, ...] | None:
        """Read a count and that many `element()`. A count that exceeds the rest at `min_size` bytes each is refused."""
        count = self._length(_INT32)
        if count == -1:
            return None
        if count < 0 or count * min_size > self.remaining:
            raise ProtocolError(f"array of {count} elements before position {self.position}")
        return tuple([element() for _ in range(count)])

    def array(self, element: Callable[[], T], min_size: int) -> tuple[T, ...]:
        value = self.nullable_array(element, min_size)
        if value is None:
            raise ProtocolError(f"null array before position {self.position}")
        return value

    def tags(self) -> dict[int, "Reader"]:
        """Read the tagged fields and return a Reader of each by tag; none if not flexible. Tags must ascend."""
        found: dict[int, Reader] = {}
        if not self.flexible:
            return found
        count = self.unsigned_varint()
        if count > MAX_TAGS:
            raise ProtocolError(f"{count} tagged fields")
        last = -1
        for _ in range(count):
            tag = self.unsigned_varint()
            if tag <= last:
                raise ProtocolError(f"tag {tag} after tag {last}")
            found[tag] = Reader(self.raw(self.unsigned_varint()), flexible=True)
            last = tag
        return found

    def end(self) -> None:
        """Raise ProtocolError if bytes are left."""
        if self.position != len(self._buffer):
            raise ProtocolError(f"{self.remaining} bytes after the end of the message")


class Writer:
    """Appends fields to `out`."""

    __slots__ = ("flexible", "out")

    def __init__(self, *, flexible: bool = False) -> None:
        self.out = bytearray()
        self.flexible = flexible

    def int8(self, value: int) -> None:
        self.out += _INT8.pack(value)

    def int16(self, value: int) -> None:
        self.out += _INT16.pack(value)

    def int32(self, value: int) -> None:
        self.out += _INT32.pack(value)

    def int64(self, value: int) -> None:
        self.out += _INT64.pack(value)

    def float64(self, value: float) -> None:
        self.out += _FLOAT64.pack(value)

    def unsigned_varint(self, value: int) -> None:
        write_unsigned_varint(self.out, value)

    def uuid(self, value: bytes) -> None:
        if len(value) != UUID_SIZE:
            raise ValueError(f"an id of {len(value)} bytes")
        self.out += value

    def _length(self, classic: Struct, size: int) -> None:
        if self.flexible:
            write_unsigned_varint(self.out, size + 1)
        else:
            self.out += classic.pack(size)

    def string(self, value: str | None) -> None:
        if value is None:
            self._length(_INT16, -1)
        else:
            content = value.encode()
            self._length(_INT16, len(content))
            self.out += content

    def blob(self, value: bytes) -> None:
        self._length(_INT32, len(value))
        self.out += value

    def array(self, values: Sequence[T] | None, element: Callable[[T], None]) -> None:
        if values is None:
            self._length(_INT32, -1)
        else:
            self._length(_INT32, len(values))
            for value in values:
                element(value)

    def int32_array(self, values: Collection[int]) -> None:
        """Append an array of int32, in one call: it may have very many."""
        self._length(_INT32, len(values))
        self.out += pack(f">{len(values)}i", *values)

    def tags(self, *fields: tuple[int, bytes] | None) -> None:
        """Append the tagged fields that are not None, in ascending order; nothing if the message is not flexible."""
        if not self.flexible:
            return
        present = [field for field in fields if field is not None]
        write_unsigned_varint(self.out, len(present))
        for tag, content in present:
            write_unsigned_varint(self.out, tag)
            write_unsigned_varint(self.out, len(content))
            self.out += content
