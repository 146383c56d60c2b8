"""Random messages of any API and version, built from the schemas and encoded by kafka-python itself."""

import uuid
from importlib import import_module

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from ottla.protocol.requests.frames import response_prefix

NUMBERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TEXTS = ("", "t", "payments", "grüße-漢字", "x" * 130)
BLOBS = (b"", b"\x00", b"\xff" * 130)


def every_message():
    """Yield (message class, API key, version) of every message that Ottla knows."""
    for api_key in ApiKey:
        lowest, highest = codec.schema_versions(api_key)
        for version in range(lowest, highest + 1):
            yield codec.request_class(api_key), api_key, version
            yield codec.response_class(api_key), api_key, version


class MessageMaker:
    """Builds messages. `null_at` picks one of the fields that may not be null, and it is null all the same; `sites`
    counts them. Without `tags`, no tagged field is set."""

    def __init__(self, rng, version, null_at=None, tags=True):
        self._rng = rng
        self._version = version
        self._null_at = null_at
        self._tags = tags
        self.sites = 0

    def make(self, message_class):
        return self._struct(message_class, message_class.fields.values())

    def _struct(self, data_class, fields):
        present = [field for field in fields if field.for_version_q(self._version)]
        values = {field.name: self._value(field) for field in present if self._chosen(field)}
        return data_class(**values)

    def _chosen(self, field):
        return not field.tagged_field_q(self._version) or (self._tags and self._rng.random() < 0.7)

    def _value(self, field, entry=False):
        nullable = field.nullable_for_version_q(self._version) and not entry
        variable = field.is_array() or (not field.is_struct() and field.type_str in ("string", "bytes", "records"))
        if nullable and self._rng.random() < 0.25:
            return None
        if variable and not nullable:
            self.sites += 1
            if self.sites - 1 == self._null_at:
                return None
        if field.is_struct_array():
            inner = list(field.fields.values())
            return [self._struct(field.data_class, inner) for _ in range(self._rng.choice((0, 1, 1, 2, 3)))]
        if field.is_array():
            return [self._value(field.array_of, entry=True) for _ in range(self._rng.choice((0, 1, 2, 3)))]
        if field.is_struct():
            return self._struct(field.data_class, field.fields.values())
        return self._simple(field.type_str)

    def _simple(self, kind):
        rng = self._rng
        if kind in NUMBERS:
            half = 1 << (NUMBERS[kind] - 1)
            return rng.choice((0, 1, -1, half - 1, -half, rng.randrange(-half, half)))
        return {
            "uint16": lambda: rng.randrange(65536),
            "bool": lambda: rng.random() < 0.5,
            "float64": lambda: rng.uniform(-1e9, 1e9),
            "uuid": lambda: rng.choice((None, uuid.UUID(int=rng.getrandbits(128)))),
            "bitfield": lambda: rng.choice((None, set(), {0, 3, 8}, {31, 0})),
            "string": lambda: rng.choice(TEXTS),
            "bytes": lambda: rng.choice(BLOBS),
            "records": lambda: rng.choice(BLOBS),
        }[kind]()


def library_bytes(message, message_class, version):
    """Return the body as the library encodes it, without the extras of some classes' `encode`."""
    flexible = message_class.flexible_version_q(version)
    encode = message_class._struct.compiled_encode_into(version, compact=flexible, tagged=flexible)
    out = import_module("kafka.protocol.schemas.fields.codecs.encode_buffer").EncodeBuffer()
    encode(message, out)
    return bytes(out.result())


def framed_by_library(message, api_key, version, correlation_id):
    """Return the framed response with the body that the library encodes."""
    body = library_bytes(message, type(message), version)
    return response_prefix(api_key, version, correlation_id, len(body)) + body


def library_message(body, message_class, version):
    """Return (message, bytes read) from the library's decoder."""
    flexible = message_class.flexible_version_q(version)
    decode = message_class._struct.compiled_decode_from(
        version, compact=flexible, tagged=flexible, data_class=message_class
    )
    return decode(memoryview(body), 0)
