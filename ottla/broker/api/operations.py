"""What may be done to a resource, as clients are told it: all of it, because there is no authorizer. pure

Each is the set of bits of Kafka's `AclOperation`. Source: `AclEntry.supportedOperations`.
"""

from typing import Final

READ: Final = 3
WRITE: Final = 4
CREATE: Final = 5
DELETE: Final = 6
ALTER: Final = 7
DESCRIBE: Final = 8
CLUSTER_ACTION: Final = 9
DESCRIBE_CONFIGS: Final = 10
ALTER_CONFIGS: Final = 11
IDEMPOTENT_WRITE: Final = 12

OF_TOPIC: Final = frozenset({READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS})
OF_GROUP: Final = frozenset({READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS})
OF_CLUSTER: Final = frozenset(
    {CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE}
)


def bits(allowed: frozenset[int] | None) -> int:
    """The int32 of a reply; None is for what was not asked for."""
    return -(1 << 31) if allowed is None else sum(1 << operation for operation in allowed)
