"""Strict readers of messages, generated from the library's own message schemas. pure

kafka-python's decoders are made for clients: on hostile bytes they accept cut bodies, illegal nulls and negative
counts, and a body with many tagged structs costs them quadratic time. `compile_reader` turns one message class and
version into a Python function that walks the body once, checks every byte it passes and fills in the library's message
objects on the way (to walk first and decode afterwards would do the same work twice). It rejects, with ProtocolError:

- anything that exceeds the body; lengths and counts below -1; null where the schema has no null in this version
- a count above `remaining // size of the smallest entry`, before the first entry is read; nothing is preallocated
- more than `max_entries` entries in all arrays together (requests only: each entry costs its reader and its handler)
- varints of more than 5 bytes or 32 bits (padded ones are legal: Kafka reads them)
- strings that are not UTF-8, or longer than 32,767 bytes (Kafka refuses them where a compact length could hold them)
- a nullable struct whose marker is neither -1 nor 1
- more than `MAX_TAGS` tagged fields in one struct, or a known tag whose size is not that of its value

`compile_stepped_reader` makes the same function as a generator, which yields after every `STEP_ENTRIES` entries of
arrays: a body of many entries takes tens of milliseconds, and the caller may serve other requests in between.

Unknown tags are skipped. Fields that the version does not have get the schema's default, as in the library. Time is
linear in the body. A reader costs 1-2 ms to generate, so callers keep it (see `codec`).
"""

from collections.abc import Callable, Iterable
from struct import Struct, unpack_from
from struct import error as StructError
from typing import Any, Final, NoReturn
from uuid import UUID, SafeUUID

from ottla.protocol.errors import ProtocolError
from ottla.protocol.fields import MAX_STRING_BYTES, MAX_TAGS
from ottla.protocol.steps import ENTRY_US, Steps
from ottla.protocol.values import ZERO_UUID
from ottla.protocol.varints import read_unsigned_varint

Reader = Callable[[bytes], tuple[Any, int]]
"""Function from the bytes of a body to (message, number of bytes read)."""

SteppedReader = Callable[[bytes], Steps[tuple[Any, int, int]]]
"""A `Reader` in steps. It returns (message, number of bytes read, number of entries rounded up to whole steps)."""

STEP_ENTRIES: Final = 256
"""Entries of arrays per step; a power of two."""
STEP_US: Final = STEP_ENTRIES * ENTRY_US

FORMATS: Final = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "bool": "?",
}
"""Schema type -> `struct` code."""
_SIZES: Final = {name: Struct(">" + code).size for name, code in FORMATS.items()}
_REFUSALS: Final = (IndexError, StructError, UnicodeDecodeError, ProtocolError)


def compile_reader(message_class: Any, version: int, *, flexible: bool, max_entries: int | None = None) -> Reader:
    """Return the strict reader of `message_class` (one of kafka-python's ApiMessage classes) in `version`."""
    generator = _Generator(message_class.__name__, version, flexible, max_entries, stepped=False)
    walk: Reader = generator.compile(message_class)

    def read(body: bytes) -> tuple[Any, int]:
        try:
            return walk(body)
        except _REFUSALS as error:
            raise generator.to_protocol_error(error, body) from None

    return read


def compile_stepped_reader(
    message_class: Any, version: int, *, flexible: bool, max_entries: int | None
) -> SteppedReader:
    """Return the reader of `compile_reader` in steps, for large bodies."""
    generator = _Generator(message_class.__name__, version, flexible, max_entries, stepped=True)
    walk: SteppedReader = generator.compile(message_class)

    def read(body: bytes) -> Steps[tuple[Any, int, int]]:
        try:
            return (yield from walk(body))
        except _REFUSALS as error:
            raise generator.to_protocol_error(error, body) from None

    return read


def _fail(what: str, position: int) -> NoReturn:
    raise ProtocolError(f"{what} at position {position}")


_new: Final = object.__new__
_set: Final = object.__setattr__
_UNKNOWN: Final = SafeUUID.unknown


def _uuid(value: bytes) -> UUID:
    """Return `UUID(bytes=value)` for 16 bytes, in a third of its time."""
    made: UUID = _new(UUID)
    _set(made, "int", int.from_bytes(value))
    _set(made, "is_safe", _UNKNOWN)
    return made


def _bits(value: int) -> set[int] | None:
    """Return authorised operations as the library does: bit numbers, None if not requested (only the highest bit)."""
    if value == 0x80000000:
        return None
    return {bit for bit in range(32) if value >> bit & 1}


class _Generator:
    """Writes the source of one reader: a function for the message and one for each struct that has known tags."""

    def __init__(self, name: str, version: int, flexible: bool, max_entries: int | None, stepped: bool) -> None:
        self._name = f"{name} v{version}"
        self._version = version
        self._flexible = flexible
        self._max_entries = max_entries
        self._stepped = stepped
        self._in_tags = False
        self._functions: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self._names: dict[str, Any] = {
            "new": object.__new__,
            "varint": read_unsigned_varint,
            "fail": _fail,
            "unpack": unpack_from,
            "i16": Struct(">h").unpack_from,
            "i32": Struct(">i").unpack_from,
            "uuid": _uuid,
            "no_uuid": ZERO_UUID,
            "bits": _bits,
        }

    def to_protocol_error(self, error: Exception, body: bytes) -> ProtocolError:
        if isinstance(error, (IndexError, StructError)):
            return ProtocolError(f"{self._name}: cut short, {len(body)} bytes")
        if isinstance(error, UnicodeDecodeError):
            return ProtocolError(f"{self._name}: a string is not UTF-8")
        return ProtocolError(f"{self._name}: {error}")

    def compile(self, message_class: Any) -> Any:
        self._lines = ["def walk(data):", "    end = len(data)", "    pos = 0", f"    left = {self._max_entries}"]
        if self._stepped:
            self._emit(1, "passed = 0")
        self._struct("message", message_class, message_class.fields.values(), 1)
        if self._stepped:
            self._emit(1, "if passed < 0: yield 0.0")  # a generator, also where no array has a loop
        entries = f", (passed | {STEP_ENTRIES - 1}) + 1" if self._stepped else ""
        self._emit(1, f"return message, pos{entries}")
        source = "\n".join([*self._functions, *self._lines])
        exec(compile(source, f"<reader of {self._name}>", "exec"), self._names)
        return self._names["walk"]

    def _emit(self, depth: int, line: str) -> None:
        self._lines.append("    " * depth + line)

    def _name_for(self, prefix: str, value: Any = None) -> str:
        self._count += 1
        name = f"{prefix}{self._count}"
        if value is not None:
            self._names[name] = value
        return name

    def _struct(self, target: str, data_class: Any, fields: Iterable[Any], depth: int) -> None:
        """Read a struct into a new `target`."""
        present = [field for field in fields if field.for_version_q(self._version)]
        untagged = [field for field in present if not field.tagged_field_q(self._version)]
        self._emit(depth, f"{target} = new({self._name_for('C', data_class)})")
        self._emit(depth, f"{target}._version = {self._version}")
        self._emit(depth, f"{target}.tags = {target}.unknown_tags = None")
        run: list[Any] = []
        for field in untagged:
            if _has_fixed_size(field):
                run.append(field)
                continue
            self._fixed_run(target, run, depth)
            run = []
            self._value(f"{target}.{field.name}", field, depth, nullable=field.nullable_for_version_q(self._version))
        self._fixed_run(target, run, depth)
        if self._flexible:
            tagged = [field for field in present if field.tagged_field_q(self._version)]
            self._emit(depth, "if data[pos] == 0:")
            self._emit(depth, "    pos += 1")
            self._emit(depth, "else:")
            self._emit(depth, f"    pos = {self._tag_function(tagged)}(data, pos, end, {target})")

    def _fixed_run(self, target: str, run: list[Any], depth: int) -> None:
        """Unpack neighbouring fields of fixed size together."""
        if run:
            layout = Struct(">" + "".join(FORMATS[field.type_str] for field in run))
            names = "".join(f"{target}.{field.name}, " for field in run)
            self._emit(depth, f"{names}= {self._name_for('unpack', layout.unpack_from)}(data, pos)")
            self._emit(depth, f"pos += {layout.size}")

    def _value(self, target: str, field: Any, depth: int, *, nullable: bool) -> None:
        """Read one field of any type into `target`."""
        if field.is_array():
            self._array(target, field, depth, nullable)
        elif field.is_struct():
            self._nested_struct(target, field, depth, nullable)
        elif field.type_str in ("string", "bytes", "records"):
            self._variable(target, field, depth, nullable)
        elif field.type_str == "uuid":
            raw = self._name_for("raw")
            self._emit(depth, f"{raw} = data[pos:pos + 16]")
            self._emit(depth, f"if len({raw}) != 16: fail('uuid cut short', pos)")
            self._emit(depth, f"{target} = None if {raw} == no_uuid else uuid({raw})")
            self._emit(depth, "pos += 16")
        elif field.type_str == "bitfield":
            self._emit(depth, f"{target} = bits(unpack('>I', data, pos)[0])")
            self._emit(depth, "pos += 4")
        else:
            self._emit(depth, f"{target}, = unpack('>{FORMATS[field.type_str]}', data, pos)")
            self._emit(depth, f"pos += {_SIZES[field.type_str]}")

    def _length(self, depth: int, *, short: bool) -> str:
        """Read a length or count; the variable's value is -1 for null."""
        length = self._name_for("n")
        if self._flexible:
            self._emit(depth, f"{length} = data[pos]")
            self._emit(depth, f"if {length} < 128: pos += 1")
            self._emit(depth, f"else: {length}, pos = varint(data, pos)")
            self._emit(depth, f"{length} -= 1")
        else:
            self._emit(depth, f"{length}, = {'i16' if short else 'i32'}(data, pos)")
            self._emit(depth, f"pos += {2 if short else 4}")
        return length

    def _null_guard(self, target: str, length: str, name: str, depth: int, nullable: bool) -> None:
        """Write the `if` branch for lengths below zero. The caller continues with `elif` or `else`."""
        self._emit(depth, f"if {length} < 0:")
        if nullable:
            self._emit(depth, f"    if {length} != -1: fail('length of {name} is negative', pos)")
            self._emit(depth, f"    {target} = None")
        else:
            self._emit(depth, f"    fail('{name} is null or has a negative length', pos)")

    def _variable(self, target: str, field: Any, depth: int, nullable: bool) -> None:
        text = field.type_str == "string"
        length = self._length(depth, short=text)
        self._null_guard(target, length, field.name, depth, nullable)
        self._emit(depth, f"elif {length} > end - pos: fail('{field.name} exceeds the message', pos)")
        if text and self._flexible:
            self._emit(depth, f"elif {length} > {MAX_STRING_BYTES}: fail('{field.name} is too long for a string', pos)")
        self._emit(depth, "else:")
        self._emit(depth, f"    {target} = data[pos:pos + {length}]{'.decode()' if text else ''}")
        self._emit(depth, f"    pos += {length}")

    def _array(self, target: str, field: Any, depth: int, nullable: bool) -> None:
        entry = field.array_of
        count = self._length(depth, short=False)
        self._null_guard(target, count, field.name, depth, nullable)
        smallest = max(1, self._smallest(entry, nullable=False))
        self._emit(depth, f"elif {count} > (end - pos) // {smallest}:")
        self._emit(depth, f"    fail('{field.name} claims more entries than fit', pos)")
        self._emit(depth, "else:")
        if self._max_entries is not None:
            self._emit(depth, f"    left -= {count}")
            self._emit(depth, f"    if left < 0: fail('more than {self._max_entries} entries', pos)")
        if _has_fixed_size(entry):
            code = FORMATS[entry.type_str]
            self._emit(depth, f"    {target} = list(unpack(f'>{{{count}}}{code}', data, pos))")
            self._emit(depth, f"    pos += {count} * {_SIZES[entry.type_str]}")
            return
        items, item = self._name_for("items"), self._name_for("item")
        self._emit(depth, f"    {target} = {items} = []")
        self._emit(depth, f"    for _ in range({count}):")
        if self._stepped and not self._in_tags:
            self._emit(depth, "        passed += 1")
            self._emit(depth, f"        if passed & {STEP_ENTRIES - 1} == 0: yield {STEP_US}")
        if entry.is_struct():
            self._struct(item, field.data_class, field.fields.values(), depth + 2)
        else:
            self._value(item, entry, depth + 2, nullable=False)
        self._emit(depth, f"        {items}.append({item})")

    def _nested_struct(self, target: str, field: Any, depth: int, nullable: bool) -> None:
        item = self._name_for("item")
        if nullable:  # KIP-893: an int8, -1 for null or 1
            self._emit(depth, "pos += 1")
            self._emit(depth, f"if data[pos - 1] == 255: {item} = None")
            self._emit(depth, f"elif data[pos - 1] != 1: fail('marker of {field.name} is neither -1 nor 1', pos - 1)")
            self._emit(depth, "else:")
        self._struct(item, field.data_class, field.fields.values(), depth + 1 if nullable else depth)
        self._emit(depth, f"{target} = {item}")

    def _tag_function(self, tagged: list[Any]) -> str:
        """Write a function that reads the tag section at `pos` into `target` and returns the position after it."""
        outer, name = self._lines, self._name_for("tags")
        was_in_tags, self._in_tags = self._in_tags, True
        self._lines = [f"def {name}(data, pos, end, target):", f"    left = {self._max_entries}"]
        self._emit(1, "count, pos = varint(data, pos)")
        self._emit(1, f"if count > {MAX_TAGS}: fail('more than {MAX_TAGS} tagged fields', pos)")
        self._emit(1, "for _ in range(count):")
        self._emit(2, "tag, pos = varint(data, pos)")
        self._emit(2, "size, pos = varint(data, pos)")
        self._emit(2, "stop = pos + size")
        self._emit(2, "if stop > end: fail('tagged field exceeds the message', pos)")
        for field in tagged:
            self._emit(2, f"if tag == {field.tag}:")
            self._value(f"target.{field.name}", field, 3, nullable=field.nullable_for_version_q(self._version))
            self._emit(3, f"if pos != stop: fail('size of tagged {field.name} is wrong', pos)")
        self._emit(2, "pos = stop")
        self._emit(1, "return pos")
        self._functions.extend(self._lines)
        self._lines, self._in_tags = outer, was_in_tags
        return name

    def _smallest(self, field: Any, *, nullable: bool) -> int:
        """Return the size in bytes of the smallest legal value of `field`."""
        if field.is_array():
            return 1 if self._flexible else 4
        if field.is_struct():
            if nullable:
                return 1
            present = (f for f in field.fields.values() if f.for_version_q(self._version))
            return int(self._flexible) + sum(
                self._smallest(f, nullable=f.nullable_for_version_q(self._version))
                for f in present
                if not f.tagged_field_q(self._version)
            )
        if field.type_str in ("string", "bytes", "records"):
            return 1 if self._flexible else (2 if field.type_str == "string" else 4)
        return {"uuid": 16, "bitfield": 4}.get(field.type_str) or _SIZES[field.type_str]


def _has_fixed_size(field: Any) -> bool:
    return not field.is_array() and not field.is_struct() and field.type_str in FORMATS
