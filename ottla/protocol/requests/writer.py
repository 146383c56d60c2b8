"""Writers of structs, generated from the library's own message schemas: the other half of `walker`. pure

`compile_writer` turns the fields of one struct of a response (the response itself, or an entry of one of its arrays) in
one version into a Python function

    write(rows, first_field, second_field, ...) -> number of structs and strings of arrays written, itself included

which appends the struct to `rows`, and `compile_response` the whole response into

    encode(correlation_id, first_field, second_field, ...) -> the framed response, in pieces

Both take every field that the schema has in any version, in the schema's order or by name in snake_case, with the
schema's defaults. Fields that the version does not have are not written. Values:

- ids are 16 bytes, bit fields an int32, as on the wire
- an array of structs is a sequence of tuples with all fields in order, or `Rows` that were written before (large ones
  are not copied); a struct outside an array is one tuple of this kind
- None is null if the field is nullable in the version, else a bug of the caller

A tagged field is written if it differs from its default. Unwritable is raised for a string of over 32,767 bytes, as
Kafka's writers do in every version, and for a response that is too long for the int32 of its frame; an `error_message`
is cut short instead. A writer costs 1 ms to generate, so callers keep it (see `codec`).
"""

from collections.abc import Callable, Iterable, Sequence
from struct import Struct, pack
from typing import Any, Final, NoReturn

from ottla.protocol.errors import Unwritable
from ottla.protocol.values import ZERO_UUID
from ottla.protocol.varints import write_unsigned_varint
from ottla.protocol.walker import FORMATS

Writer = Callable[..., int]
Encoder = Callable[..., Sequence[bytes | bytearray]]

MAX_RESPONSE_BYTES: Final = (1 << 31) - 1
"""Largest size of a frame; clients set no lower limit."""

MOST_CHARS: Final = 1_000
"""Most characters of an `error_message`, which may quote a client's request."""

SPLICED_BYTES: Final = 4_096
"""Rows of fewer bytes are copied into the piece before them: to send a piece costs as much as to copy this much."""

_FORMATS: Final = {**FORMATS, "uuid": "16s", "bitfield": "i"}
_LENGTHS: Final = {"string": Struct(">h").pack, "bytes": Struct(">i").pack, "records": Struct(">i").pack}
_SIZE: Final = Struct(">i").pack_into
_NO_BITS: Final = -(1 << 31)


class Rows:
    """Encoded structs of one array: their number, and their bytes in pieces that are not joined."""

    __slots__ = ("count", "out", "pieces", "sealed_bytes")

    def __init__(self) -> None:
        self.count = 0
        self.out = bytearray()
        """The last piece, which is written to."""
        self.pieces = [self.out]
        self.sealed_bytes = 0
        """Size of the pieces before the last one."""

    @property
    def size_bytes(self) -> int:
        """Size of all pieces."""
        return self.sealed_bytes + len(self.out)

    def seal(self) -> None:
        """Begin a new piece."""
        self.sealed_bytes += len(self.out)
        self.out = bytearray()
        self.pieces.append(self.out)

    def splice(self, rows: "Rows") -> bytearray:
        """Append the bytes of `rows`, which must not change any more. Return the piece to continue with."""
        if rows.sealed_bytes + len(rows.out) < SPLICED_BYTES:
            for piece in rows.pieces:
                self.out += piece
        else:
            self.pieces += rows.pieces
            self.sealed_bytes += rows.size_bytes
            self.seal()
        return self.out


def compile_writer(name: str, fields: Iterable[Any], version: int, *, flexible: bool) -> Writer:
    """Return the writer of a struct with these fields of kafka-python's schemas in `version`. `name` is for errors."""
    return _Generator(f"{name} v{version}", list(fields), version, flexible).writer()


def compile_response(name: str, fields: Iterable[Any], version: int, *, flexible: bool, header_size: int) -> Encoder:
    """Return the encoder of a response with these fields and a header of 4 bytes, or of 5 with empty tag section."""
    return _Generator(f"{name} v{version}", list(fields), version, flexible).response(header_size)


def _frame(rows: Rows) -> list[bytearray]:
    """Write the frame size at the start of the first piece of a response, where room is left, and return the pieces."""
    size_bytes = rows.sealed_bytes + len(rows.out) - 4
    if size_bytes > MAX_RESPONSE_BYTES:
        raise Unwritable(f"a response of {size_bytes} bytes: a frame holds at most {MAX_RESPONSE_BYTES}")
    _SIZE(rows.pieces[0], 0, size_bytes)
    return rows.pieces


def _too_long(name: str, size_bytes: int) -> NoReturn:
    raise Unwritable(f"{name} of {size_bytes} bytes: a string holds at most 32767")


def _shorten(message: str) -> str:
    """Return an error message, cut short if it is very long, because it may quote a long name."""
    return message if len(message) <= MOST_CHARS else f"{message[:MOST_CHARS]}... ({len(message)} characters)"


class _Generator:
    """Writes the source of one writer. Its own names begin with an underscore; names of fields never do."""

    def __init__(self, name: str, fields: list[Any], version: int, flexible: bool) -> None:
        self._name = name
        self._fields = fields
        self._version = version
        self._flexible = flexible
        self._out = "_out"
        self._lines: list[str] = []
        self._count = 0
        self._names: dict[str, Any] = {
            "_varint": write_unsigned_varint,
            "_shorten": _shorten,
            "_too_long": _too_long,
            "_pack": pack,
            "_int32": Struct(">i").pack,
            "_Rows": Rows,
            "_frame": _frame,
        }

    def writer(self) -> Writer:
        self._emit(1, "_out = _rows.out")
        self._emit(1, "_written = 1")
        self._struct(self._fields, {field.name: field.name for field in self._fields}, 1)
        self._emit(1, "return _written")
        return self._compile("_rows")

    def response(self, header_size: int) -> Encoder:
        header = "ii" if header_size == 4 else "iix"
        present = [field for field in self._fields if field.for_version_q(self._version)]
        if all(map(_has_fixed_size, present)):
            formats = "".join(_FORMATS[field.type_str] for field in present)
            layout = Struct(f">{header}{formats}{'x' * self._flexible}")
            values = ", ".join(field.name for field in present)
            self._emit(1, f"return [{self._constant('pack', layout.pack)}({layout.size - 4}, _correlation, {values})]")
        else:
            self._emit(1, "_rows = _Rows()")
            self._emit(1, "_out = _rows.out")
            self._emit(1, f"_out += {self._constant('pack', Struct('>' + header).pack)}(0, _correlation)")
            self._emit(1, "_written = 0")
            self._struct(self._fields, {field.name: field.name for field in self._fields}, 1)
            self._emit(1, "return _frame(_rows)")
        return self._compile("_correlation")

    def _compile(self, first: str) -> Callable[..., Any]:
        """Compile the lines so far as the body of a function of `first` and the fields."""
        parameters = "".join(f", {field.name}={self._constant('d', _default(field))}" for field in self._fields)
        source = "\n".join([f"def write({first}{parameters}):", *self._lines])
        exec(compile(source, f"<writer of {self._name}>", "exec"), self._names)
        write: Callable[..., Any] = self._names["write"]
        return write

    def _emit(self, depth: int, line: str) -> None:
        self._lines.append("    " * depth + line)

    def _fresh(self, prefix: str) -> str:
        self._count += 1
        return f"_{prefix}{self._count}"

    def _constant(self, prefix: str, value: Any) -> str:
        name = self._fresh(prefix)
        self._names[name] = value
        return name

    def _struct(self, fields: Iterable[Any], names: dict[str, str], depth: int) -> None:
        """Write a struct whose values are in the variables `names`."""
        present = [field for field in fields if field.for_version_q(self._version)]
        tagged = [field for field in present if field.tagged_field_q(self._version)]
        run: list[Any] = []
        for field in present:
            if field in tagged:
                continue
            if _has_fixed_size(field):
                run.append(field)
                continue
            self._fixed_run(run, names, depth)
            run = []
            self._value(names[field.name], field, depth, nullable=field.nullable_for_version_q(self._version))
        ends = self._flexible and not tagged  # the empty tag section is a padding byte after the last run
        self._fixed_run(run, names, depth, "x" if ends else "")
        if self._flexible and tagged:
            self._tags(tagged, names, depth)

    def _fixed_run(self, run: list[Any], names: dict[str, str], depth: int, end: str = "") -> None:
        """Pack neighbouring fields of fixed size together."""
        if run or end:
            layout = Struct(">" + "".join(_FORMATS[field.type_str] for field in run) + end)
            values = ", ".join(names[field.name] for field in run)
            self._emit(depth, f"{self._out} += {self._constant('pack', layout.pack)}({values})")

    def _value(self, value: str, field: Any, depth: int, *, nullable: bool) -> None:
        """Write one field of any type."""
        if nullable:
            self._emit(depth, f"if {value} is None:")
            self._null(field, depth + 1)
            self._emit(depth, "else:")
            depth += 1
        if field.is_array():
            self._array(value, field, depth)
        elif field.is_struct():
            if nullable:  # KIP-893: an int8, -1 for null or 1
                self._emit(depth, f"{self._out}.append(1)")
            names = self._unpack_names(field.fields.values())
            self._emit(depth, f"{', '.join(names.values())}, = {value}")
            self._struct(field.fields.values(), names, depth)
        elif _has_fixed_size(field):
            self._fixed_run([field], {field.name: value}, depth)
        else:
            self._variable(value, field, depth)

    def _null(self, field: Any, depth: int) -> None:
        if field.is_struct() and not field.is_array():
            null = b"\xff"
        elif self._flexible:
            null = b"\0"
        else:
            null = b"\xff" * (2 if not field.is_array() and field.type_str == "string" else 4)
        self._emit(depth, f"{self._out} += {null!r}")

    def _unpack_names(self, fields: Iterable[Any]) -> dict[str, str]:
        return {field.name: self._fresh("v") for field in fields}

    def _compact_length(self, length: str, depth: int) -> None:
        """Write a length or count of a flexible version: an unsigned varint of length + 1, mostly a byte."""
        self._emit(depth, f"if {length} < 127: {self._out}.append({length} + 1)")
        self._emit(depth, f"else: _varint({self._out}, {length} + 1)")

    def _variable(self, value: str, field: Any, depth: int) -> None:
        text = field.type_str == "string"
        if text:
            content = self._fresh("s")
            written = f"_shorten({value})" if field.name == "error_message" else value
            self._emit(depth, f"{content} = {written}.encode()")
        else:
            content = value
        length = self._fresh("n")
        self._emit(depth, f"{length} = len({content})")
        if text:
            self._emit(depth, f"if {length} > 32767: _too_long({field.name!r}, {length})")
        if self._flexible:
            self._compact_length(length, depth)
        else:
            self._emit(depth, f"{self._out} += {self._constant('pack', _LENGTHS[field.type_str])}({length})")
        self._emit(depth, f"{self._out} += {content}")

    def _array(self, value: str, field: Any, depth: int) -> None:
        entry = field.array_of
        count = self._fresh("n")
        rows_fit = entry.is_struct() and self._out == "_out"
        if rows_fit:
            kept = self._fresh("kept")
            self._emit(depth, f"{kept} = isinstance({value}, _Rows)")
            self._emit(depth, f"{count} = {value}.count if {kept} else len({value})")
        else:
            self._emit(depth, f"{count} = len({value})")
        if self._flexible:
            self._compact_length(count, depth)
        else:
            self._emit(depth, f"{self._out} += _int32({count})")
        if not entry.is_struct() and entry.type_str in _FORMATS:
            self._fixed_array(value, count, _FORMATS[entry.type_str], depth)
            return
        if rows_fit:
            self._emit(depth, f"if {kept}: _out = _rows.splice({value})")
            self._emit(depth, "else:")
            depth += 1
        self._emit(depth, f"_written += {count}")
        if entry.is_struct():
            names = self._unpack_names(field.fields.values())
            self._emit(depth, f"for {', '.join(names.values())}, in {value}:")
            self._struct(field.fields.values(), names, depth + 1)
        else:
            item = self._fresh("v")
            self._emit(depth, f"for {item} in {value}:")
            self._value(item, entry, depth + 1, nullable=False)

    def _fixed_array(self, value: str, count: str, code: str, depth: int) -> None:
        """Write an array of numbers. Most have one entry (this broker) or none."""
        one = self._constant("pack", Struct(">" + code).pack)
        self._emit(depth, f"if {count} == 1: {self._out} += {one}({value}[0])")
        if code != "16s":
            self._emit(depth, f"elif {count}: {self._out} += _pack(f'>{{{count}}}{code}', *{value})")
        else:
            self._emit(depth, f"else: {self._out} += b''.join({value})")

    def _tags(self, tagged: list[Any], names: dict[str, str], depth: int) -> None:
        """Write the tag section. Each value is encoded separately, because its size precedes it."""
        outer, count, section = self._out, self._fresh("n"), self._fresh("tags")
        self._emit(depth, f"{count} = 0")
        self._emit(depth, f"{section} = bytearray()")
        for field in tagged:
            value = names[field.name]
            differs = "" if field.default == [] else f" != {self._constant('d', _default(field))}"
            self._emit(depth, f"if {value}{differs}:")
            self._out = self._fresh("tag")
            self._emit(depth + 1, f"{count} += 1")
            self._emit(depth + 1, f"{self._out} = bytearray()")
            self._value(value, field, depth + 1, nullable=field.nullable_for_version_q(self._version))
            self._emit(depth + 1, f"_varint({section}, {field.tag})")
            self._emit(depth + 1, f"_varint({section}, len({self._out}))")
            self._emit(depth + 1, f"{section} += {self._out}")
        self._out = outer
        self._emit(depth, f"_varint({outer}, {count})")
        self._emit(depth, f"{outer} += {section}")


def _default(field: Any) -> Any:
    """Return the schema's default as a value for writers; None for a struct that must be given."""
    if field.is_struct() and field.tag is None and not field.nullable_for_version_q(field.max_version):
        return None
    if not field.is_array() and not field.is_struct():
        if field.type_str == "bitfield":
            return _NO_BITS if field.default is None else sum(1 << bit for bit in field.default)
        if field.type_str == "uuid":
            return ZERO_UUID
    return field.default


def _has_fixed_size(field: Any) -> bool:
    return not field.is_array() and not field.is_struct() and field.type_str in _FORMATS
