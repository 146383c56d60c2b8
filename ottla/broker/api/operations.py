"""Authorized operations of a client on a resource, as replies report them. free

Each is the int32 whose bits are the codes of `AclOperation`. Without an authorizer it has all operations of the
resource type. Source: `AclEntry.supportedOperations`, `AuthHelper.authorizedOperations` of Kafka 4.3.1.
"""

from collections.abc import Iterable
from typing import Final

from ottla.broker.api.context import Broker
from ottla.broker.api.request import Request
from ottla.broker.security.authorizer import Need
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.errors import NO_ERROR

_DESCRIBE_CONFIGS, _ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS


def _needs(resource_type: ResourceType, *operations: AclOperation) -> tuple[Need, ...]:
    return tuple(Need(operation, resource_type, NO_ERROR, is_quiet=True) for operation in operations)


def _bits(needs: Iterable[Need]) -> int:
    return sum(1 << need.operation for need in needs)


TOPIC_NEEDS: Final = _needs(
    ResourceType.TOPIC,
    *(AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER),
    *(AclOperation.DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS),
)
GROUP_NEEDS: Final = _needs(
    ResourceType.GROUP,
    *(AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS),
)
CLUSTER_NEEDS: Final = _needs(
    ResourceType.CLUSTER,
    *(AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION),
    *(_DESCRIBE_CONFIGS, _ALTER_CONFIGS, AclOperation.IDEMPOTENT_WRITE),
)
OF_TOPIC: Final = _bits(TOPIC_NEEDS)
OF_GROUP: Final = _bits(GROUP_NEEDS)
OF_CLUSTER: Final = _bits(CLUSTER_NEEDS)
NOT_REQUESTED: Final = -(1 << 31)


def of_topic(broker: Broker, request: Request, name: str) -> int:
    """Return the operations that the client may do on this topic, which need not exist."""
    if broker.authorizer is None:
        return OF_TOPIC
    return _bits(need for need in TOPIC_NEEDS if broker.may(request, need, name))


def of_group(broker: Broker, request: Request, name: str) -> int:
    """Return the operations that the client may do on this group, which need not exist."""
    if broker.authorizer is None:
        return OF_GROUP
    return _bits(need for need in GROUP_NEEDS if broker.may(request, need, name))


def of_cluster(broker: Broker, request: Request) -> int:
    """Return the operations that the client may do on the cluster."""
    if broker.authorizer is None:
        return OF_CLUSTER
    return _bits(need for need in CLUSTER_NEEDS if broker.may(request, need))
