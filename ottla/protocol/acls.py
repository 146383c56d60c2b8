"""The values of ACLs: codes of resources and operations on the wire and in `__cluster_metadata-0`. pure

Source: `ResourceType`, `PatternType`, `AclOperation`, `AclPermissionType` of Kafka 4.3.1, and `Resource.CLUSTER_NAME`.
UNKNOWN, ANY and MATCH are only for filters.
"""

from enum import IntEnum
from typing import Final

from ottla.protocol.api_keys import title_of

CLUSTER_NAME: Final = "kafka-cluster"
WILDCARD: Final = "*"
"""The name of a LITERAL pattern that matches every resource, and the host of an entry for every address."""
WILDCARD_PRINCIPAL: Final = "User:*"


class ResourceType(IntEnum):
    """Types of resources that an ACL entry names."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Ways in which the resource name of an entry matches names."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """Operations that an entry allows or denies."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class PermissionType(IntEnum):
    """Effect of an entry."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


RESOURCE_TYPE_NAMES: Final = {kind: title_of(kind) for kind in ResourceType}
"""Names of types as in `kafka-acls` and Kafka's logs (`SecurityUtils.resourceTypeName`): Topic, TransactionalId."""
OPERATION_NAMES: Final = {operation: title_of(operation) for operation in AclOperation}
"""Names of operations as in `kafka-acls` (`SecurityUtils.operationName`): Write, IdempotentWrite."""
