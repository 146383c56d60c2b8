"""Common parts of DescribeAcls, CreateAcls and DeleteAcls: authorization, filters, checks of an entry. free

Source: `AclApis`, `AclControlManager` of Kafka 4.3.1.
"""

from typing import Any, Final

from ottla.broker.api.context import Broker
from ottla.broker.api.request import Request
from ottla.broker.security.acl_filter import AclFilter, is_unknown
from ottla.broker.security.authorizer import Need
from ottla.protocol.acls import CLUSTER_NAME, AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.errors import ApiError, ErrorCode
from ottla.protocol.internal_topics.security_records import AccessControlEntryRecord

MOST_CHANGED: Final = 10_000
"""The entries that one request may create or delete (`QuorumController.MAX_RECORDS_PER_USER_OP`)."""
_ANY: Final = 1


def refusal(broker: Broker, request: Request, need: Need, disabled: str) -> ApiError | None:
    """Return the reason why the request is refused, or None. `disabled` is Kafka's message without an authorizer."""
    if broker.authorizer is None:
        return ApiError(ErrorCode.SECURITY_DISABLED, disabled)
    if not broker.may(request, need):
        return ApiError(need.error, "Cluster authorization failed.")
    return None


def filter_of(body: Any) -> AclFilter:
    """Return the filter in a request."""
    return AclFilter(
        body.resource_type_filter,
        body.resource_name_filter,
        body.pattern_type_filter,
        body.principal_filter,
        body.host_filter,
        body.operation,
        body.permission_type,
    )


def entry_problem(entry: AccessControlEntryRecord) -> str:
    """Return the reason why the entry is invalid, or an empty string; in Kafka's words where Kafka refuses it too.

    An empty host matches no client. Kafka accepts it, but the entry then has no effect, without any message to its
    author.
    """
    if entry.resource_type == ResourceType.CLUSTER and entry.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not entry.resource_name:
        return "Invalid empty resource name"
    if is_unknown(ResourceType, entry.resource_type) or entry.resource_type == _ANY:
        return f"Invalid resourceType {_word(entry.resource_type)}"
    if entry.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {_pattern_word(entry.pattern_type)}"
    if is_unknown(AclOperation, entry.operation) or entry.operation == _ANY:
        return f"Invalid operation {_word(entry.operation)}"
    if entry.permission_type not in (PermissionType.DENY, PermissionType.ALLOW):
        return f"Invalid permissionType {_word(entry.permission_type)}"
    if ":" not in entry.principal:
        return (
            f"Could not parse principal from `{entry.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )
    if not entry.host:
        return 'The host must be an IP address, or "*" for every host'
    return ""


def _word(code: int) -> str:
    return "ANY" if code == _ANY else "UNKNOWN"


def _pattern_word(code: int) -> str:
    return "UNKNOWN" if is_unknown(PatternType, code) else PatternType(code).name
