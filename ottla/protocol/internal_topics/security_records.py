"""Records of `__cluster_metadata-0` for security: ACLs, SCRAM users, quotas. pure frozen

Source: the schemas of `kafka-metadata` 4.3.1. The codes of an ACL are those of `ottla/protocol/acls.py`.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

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


def _encode_acl(writer: Writer, record: AccessControlEntryRecord) -> None:
    writer.uuid(record.id)
    writer.int8(record.resource_type)
    writer.string(record.resource_name)
    writer.int8(record.pattern_type)
    writer.string(record.principal)
    writer.string(record.host)
    writer.int8(record.operation)
    writer.int8(record.permission_type)
    writer.tags()


def _decode_acl(reader: Reader, _version: int) -> AccessControlEntryRecord:
    record = AccessControlEntryRecord(
        reader.uuid(),
        reader.int8(),
        reader.string(),
        reader.int8(),
        reader.string(),
        reader.string(),
        reader.int8(),
        reader.int8(),
    )
    reader.tags()
    return record


def _encode_remove_acl(writer: Writer, record: RemoveAccessControlEntryRecord) -> None:
    writer.uuid(record.id)
    writer.tags()


def _decode_remove_acl(reader: Reader, _version: int) -> RemoveAccessControlEntryRecord:
    record = RemoveAccessControlEntryRecord(reader.uuid())
    reader.tags()
    return record


def _encode_scram(writer: Writer, record: UserScramCredentialRecord) -> None:
    writer.string(record.name)
    writer.int8(record.mechanism)
    for secret in (record.salt, record.stored_key, record.server_key):
        writer.blob(secret)
    writer.int32(record.iterations)
    writer.tags()


def _decode_scram(reader: Reader, _version: int) -> UserScramCredentialRecord:
    record = UserScramCredentialRecord(
        reader.string(), reader.int8(), reader.blob(), reader.blob(), reader.blob(), reader.int32()
    )
    reader.tags()
    return record


def _encode_remove_scram(writer: Writer, record: RemoveUserScramCredentialRecord) -> None:
    writer.string(record.name)
    writer.int8(record.mechanism)
    writer.tags()


def _decode_remove_scram(reader: Reader, _version: int) -> RemoveUserScramCredentialRecord:
    record = RemoveUserScramCredentialRecord(reader.string(), reader.int8())
    reader.tags()
    return record


def _encode_quota(writer: Writer, record: ClientQuotaRecord) -> None:
    def element(part: tuple[str, str | None]) -> None:
        for text in part:
            writer.string(text)
        writer.tags()

    writer.array(record.entity, element)
    writer.string(record.key)
    writer.float64(record.value)
    writer.int8(record.remove)
    writer.tags()


def _decode_quota(reader: Reader, _version: int) -> ClientQuotaRecord:
    def element() -> tuple[str, str | None]:
        part = reader.string(), reader.nullable_string()
        reader.tags()
        return part

    record = ClientQuotaRecord(
        reader.array(element, _LEAST_OF_ENTITY), reader.string(), reader.float64(), reader.int8() != 0
    )
    reader.tags()
    return record


SECURITY_ENCODERS: Final[dict[type, tuple[int, int, Callable[..., None]]]] = {
    UserScramCredentialRecord: (11, 0, _encode_scram),
    ClientQuotaRecord: (14, 0, _encode_quota),
    AccessControlEntryRecord: (18, 0, _encode_acl),
    RemoveAccessControlEntryRecord: (19, 0, _encode_remove_acl),
    RemoveUserScramCredentialRecord: (22, 0, _encode_remove_scram),
}
"""By type of record: its key, the version that Kafka 4.3.1 writes, and the function that writes its fields."""
SECURITY_DECODERS: Final[dict[int, tuple[int, Callable[[Reader, int], SecurityRecord]]]] = {
    11: (0, _decode_scram),
    14: (0, _decode_quota),
    18: (0, _decode_acl),
    19: (0, _decode_remove_acl),
    22: (0, _decode_remove_scram),
}
"""By key of record: its highest version, and the function that reads its fields."""
