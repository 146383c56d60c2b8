"""The writers: in every API and version they write the same bytes as the library for the same values."""

import random

import pytest

from ottla.protocol.requests.writer import SPLICED_BYTES, Rows, compile_writer
from tests.wire.messages import MessageMaker, every_message, library_bytes

RESPONSES = [each for each in every_message() if each[0].__name__.endswith("Response")]
SEEDS = range(8)


def writer_of(message_class, version, fields=None):
    fields = message_class.fields.values() if fields is None else fields
    return compile_writer("message", fields, version, flexible=message_class.flexible_version_q(version))


def values_of(struct, fields, convert):
    """All fields of a struct of the library's in the form that writers take; `convert` makes arrays of structs."""
    return [value_of(getattr(struct, field.name), field, convert) for field in fields]


def value_of(value, field, convert):
    if field.is_struct_array():
        return value if value is None else convert(value, field)
    if field.is_array():
        return value if value is None else [value_of(each, field.array_of, convert) for each in value]
    if field.is_struct():
        return value if value is None else tuple(values_of(value, field.fields.values(), convert))
    if field.type_str == "uuid":
        return bytes(16) if value is None else value.bytes
    if field.type_str == "bitfield":
        bits = {31} if value is None else value
        return sum(1 << bit for bit in bits) - (1 << 32 if 31 in bits else 0)
    return value


def as_tuples(structs, field):
    return [tuple(values_of(each, field.fields.values(), as_tuples)) for each in structs]


class AsRows:
    """Makes `Rows` of arrays outside of tags, with writers of their own; some of them are cut into many pieces."""

    def __init__(self, message_class, version, rng):
        self._message_class, self._version, self._rng = message_class, version, rng

    def __call__(self, structs, field):
        if field.tagged_field_q(self._version) or not field.for_version_q(self._version):
            return as_tuples(structs, field)
        fields = field.fields.values()
        write, rows = writer_of(self._message_class, self._version, fields), Rows()
        for each in structs:
            write(rows, *values_of(each, fields, self))
            rows.count += 1
            if self._rng.random() < 0.3:
                rows.seal()
        return rows


def samples():
    for message_class, api_key, version in RESPONSES:
        for seed in SEEDS:
            maker = MessageMaker(random.Random(f"{api_key} {version} {seed}"), version)
            message = maker.make(message_class)
            yield message_class, version, message, library_bytes(message, message_class, version)


def written(rows):
    assert rows.size_bytes == sum(map(len, rows.pieces))
    return b"".join(rows.pieces)


@pytest.mark.slow
def test_writers_agree_with_the_library_on_tuples():
    for message_class, version, message, expected in samples():
        rows = Rows()
        writer_of(message_class, version)(rows, *values_of(message, message_class.fields.values(), as_tuples))
        assert written(rows) == expected, (message_class.__name__, version)


@pytest.mark.slow
@pytest.mark.parametrize("spliced_bytes", [0, 30, SPLICED_BYTES])
def test_writers_agree_with_the_library_on_rows_written_before(spliced_bytes, monkeypatch):
    monkeypatch.setattr("ottla.protocol.requests.writer.SPLICED_BYTES", spliced_bytes)
    rng = random.Random(spliced_bytes)
    for message_class, version, message, expected in samples():
        rows = Rows()
        as_rows = AsRows(message_class, version, rng)
        writer_of(message_class, version)(rows, *values_of(message, message_class.fields.values(), as_rows))
        assert written(rows) == expected, (message_class.__name__, version)


def test_missing_fields_have_the_default_of_the_schema():
    for message_class, _, version in RESPONSES:
        rows = Rows()
        writer_of(message_class, version)(rows)
        expected = library_bytes(message_class(), message_class, version)
        assert written(rows) == expected, (message_class.__name__, version)
