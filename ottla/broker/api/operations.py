"""What may be done to a resource, as clients are told it: all of it, because there is no authorizer. pure

Each is the int32 whose bits are the codes of Kafka's `AclOperation`. Source: `AclEntry.supportedOperations`.
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


def _bits(*codes: int) -> int:
    return sum(1 << code for code in codes)


OF_TOPIC: Final = _bits(READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
OF_GROUP: Final = _bits(READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
OF_CLUSTER: Final = _bits(CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE)
NOT_ASKED_FOR: Final = -(1 << 31)
