"""Records of `__cluster_metadata-0` for security: ACLs, SCRAM users, quotas. pure frozen

Source: the schemas of `kafka-metadata` 4.3.1. The codes of an ACL are those of `ottla/protocol/acls.py`.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ottla.protocol.fields import Reader, Writer

QuotaEntity = tuple[tuple[str, str | None], ...]
"""(type, name) pairs, with types like `user` and `client-id`; the name None is the default of the type."""
# Two strings of a length each, and the tags of the struct.
_LEAST_OF_ENTITY: Final = 3


class AccessControlEntryRecord(NamedTuple):
    """An ACL. `id` is 16 random bytes; `principal` is "User:NAME", `host` an address or "*"."""

    id: bytes
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class RemoveAccessControlEntryRecord(NamedTuple):
    id: bytes


class UserScramCredentialRecord(NamedTuple):
    """SCRAM credential of a user for one mechanism (`ScramMechanism`: 1 is SCRAM-SHA-256, 2 SCRAM-SHA-512).

    These keys let their holder impersonate the broker and test passwords, so the text of a record omits them.
    """

    name: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        fields = f"name={self.name!r}, mechanism={self.mechanism}, iterations={self.iterations}"
        return f"{type(self).__name__}({fields})"


class RemoveUserScramCredentialRecord(NamedTuple):
    name: str
    mechanism: int


class ClientQuotaRecord(NamedTuple):
    """Quota of an entity: set to `value`, or removed if `remove` is true."""

    entity: QuotaEntity
    key: str
    value: float
    remove: bool


SecurityRecord = (
    AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | ClientQuotaRecord
)


Field = tuple[Callable[[Reader], Any], Callable[[Writer, Any], None]]
"""Functions that read and write a field."""
INT8: Final[Field] = Reader.int8, Writer.int8
INT16: Final[Field] = Reader.int16, Writer.int16
INT32: Final[Field] = Reader.int32, Writer.int32
INT64: Final[Field] = Reader.int64, Writer.int64
FLOAT64: Final[Field] = Reader.float64, Writer.float64
UUID: Final[Field] = Reader.uuid, Writer.uuid
STRING: Final[Field] = Reader.string, Writer.string
NULLABLE_STRING: Final[Field] = Reader.nullable_string, Writer.string
BYTES: Final[Field] = Reader.blob, Writer.blob
BOOL: Final[Field] = (lambda reader: reader.int8() != 0), Writer.int8


class RecordType(NamedTuple):
    """A type of records: its key, the version that Kafka 4.3.1 writes, and functions that read and write the fields."""

    key: int
    version: int
    read: Callable[[Reader, int], Any]
    write: Callable[[Writer, Any], None]


def plain_type(key: int, kind: Callable[..., Any], *fields: Field) -> RecordType:
    """Return the type of records `kind` that have these fields, in this order, in version 0 and no tagged fields."""

    def read(reader: Reader, _version: int) -> Any:
        record = kind(*[read_field(reader) for read_field, _ in fields])
        reader.tags()
        return record

    def write(writer: Writer, record: Any) -> None:
        for (_, write_field), value in zip(fields, record, strict=True):
            write_field(writer, value)
        writer.tags()

    return RecordType(key, 0, read, write)


def _read_entity(reader: Reader) -> QuotaEntity:
    def pair() -> tuple[str, str | None]:
        part = reader.string(), reader.nullable_string()
        reader.tags()
        return part

    return reader.array(pair, _LEAST_OF_ENTITY)


def _write_entity(writer: Writer, entity: QuotaEntity) -> None:
    def pair(part: tuple[str, str | None]) -> None:
        for text in part:
            writer.string(text)
        writer.tags()

    writer.array(entity, pair)


SECURITY_TYPES: Final[dict[type, RecordType]] = {
    UserScramCredentialRecord: plain_type(11, UserScramCredentialRecord, STRING, INT8, BYTES, BYTES, BYTES, INT32),
    ClientQuotaRecord: plain_type(14, ClientQuotaRecord, (_read_entity, _write_entity), STRING, FLOAT64, BOOL),
    AccessControlEntryRecord: plain_type(
        18, AccessControlEntryRecord, UUID, INT8, STRING, INT8, STRING, STRING, INT8, INT8
    ),
    RemoveAccessControlEntryRecord: plain_type(19, RemoveAccessControlEntryRecord, UUID),
    RemoveUserScramCredentialRecord: plain_type(22, RemoveUserScramCredentialRecord, STRING, INT8),
}
