"""Log texts for changes of ACLs, SCRAM users and quotas. pure"""

from collections.abc import Mapping

from ottla.broker.security.scram import SCRAM_MECHANISMS, ScramMechanism
from ottla.protocol.acls import AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.checkpoints import encode_id
from ottla.protocol.internal_topics.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    SecurityRecord,
    UserScramCredentialRecord,
)


def describe_change(record: SecurityRecord, acls: Mapping[bytes, AccessControlEntryRecord]) -> str:
    """Describe the change of a record, without secrets, in the words of `kafka-acls` and `kafka-configs`.

    `acls` are those before the change.
    """
    match record:
        case AccessControlEntryRecord():
            return _acl(record)
        case RemoveAccessControlEntryRecord():
            return (_acl(acls[record.id]) if record.id in acls else f"ACL {encode_id(record.id)}") + " removed"
        case UserScramCredentialRecord():
            return f"{_mechanism(record.mechanism)} of user {record.name} with {record.iterations} iterations"
        case RemoveUserScramCredentialRecord():
            return f"{_mechanism(record.mechanism)} of user {record.name} removed"
        case ClientQuotaRecord():
            entity = ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in record.entity)
            return f"quota {record.key} of {entity} " + ("removed" if record.remove else f"= {record.value}")


def _acl(entry: AccessControlEntryRecord) -> str:
    return (
        f"ACL {encode_id(entry.id)} (principal={entry.principal}, host={entry.host}, "
        f"operation={_name(AclOperation, entry.operation)}, "
        f"permissionType={_name(PermissionType, entry.permission_type)}) on "
        f"(resourceType={_name(ResourceType, entry.resource_type)}, name={entry.resource_name}, "
        f"patternType={_name(PatternType, entry.pattern_type)})"
    )


def _name(kind: type[AclOperation | PermissionType | PatternType | ResourceType], code: int) -> str:
    return kind(code).name if code in kind._value2member_map_ else str(code)


def _mechanism(code: int) -> str:
    return ScramMechanism(code).mechanism_name if code in SCRAM_MECHANISMS else f"mechanism {code}"
