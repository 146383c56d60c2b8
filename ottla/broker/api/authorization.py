"""Rights that APIs need, and the resources in a request that a client may not access. free

Source: `AuthHelper.filterByAuthorized`, `ConfigHelper.handleDescribeConfigsRequest`,
`ControllerApis.authorizeAlterResource` of Kafka 4.3.1.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ottla.broker.api.context import Broker
from ottla.broker.api.request import Request
from ottla.broker.costs import LOOKUP_US
from ottla.broker.security.authorizer import Need
from ottla.protocol.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.protocol.errors import ApiError, ErrorCode
from ottla.protocol.internal_topics.metadata_records import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)

_ERRORS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_GUARDS: Final = {
    TOPIC_RESOURCE: ResourceType.TOPIC,
    GROUP_RESOURCE: ResourceType.GROUP,
    BROKER_RESOURCE: ResourceType.CLUSTER,
    BROKER_LOGGER_RESOURCE: ResourceType.CLUSTER,
    CLIENT_METRICS_RESOURCE: ResourceType.CLUSTER,
}
"""The resource type of the right to see or change the configs of a resource: of topics and groups by name, of all
others on the cluster."""
MESSAGES: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
"""Kafka's messages, for answers that have a message field (`Errors`)."""


def need_of(operation: AclOperation, resource_type: ResourceType, *, is_quiet: bool = False) -> Need:
    """Return the right to this operation on a resource of this type, with the type's error code."""
    return Need(operation, resource_type, _ERRORS[resource_type], is_quiet)


def config_needs(operation: AclOperation) -> dict[int, Need]:
    """Return the right that this operation needs, by resource type."""
    return {kind: need_of(operation, resource_type) for kind, resource_type in _GUARDS.items()}


READ_TOPIC: Final = need_of(AclOperation.READ, ResourceType.TOPIC)
WRITE_TOPIC: Final = need_of(AclOperation.WRITE, ResourceType.TOPIC)
CREATE_TOPIC: Final = need_of(AclOperation.CREATE, ResourceType.TOPIC)
DELETE_TOPIC: Final = need_of(AclOperation.DELETE, ResourceType.TOPIC)
ALTER_TOPIC: Final = need_of(AclOperation.ALTER, ResourceType.TOPIC)
DESCRIBE_TOPIC: Final = need_of(AclOperation.DESCRIBE, ResourceType.TOPIC)
READ_GROUP: Final = need_of(AclOperation.READ, ResourceType.GROUP)
DELETE_GROUP: Final = need_of(AclOperation.DELETE, ResourceType.GROUP)
DESCRIBE_GROUP: Final = need_of(AclOperation.DESCRIBE, ResourceType.GROUP)
WRITE_ID: Final = need_of(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
TWO_PHASE_COMMIT_ID: Final = need_of(AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_ID: Final = need_of(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
ALTER_CLUSTER: Final = need_of(AclOperation.ALTER, ResourceType.CLUSTER)
DESCRIBE_CLUSTER: Final = need_of(AclOperation.DESCRIBE, ResourceType.CLUSTER)
CLUSTER_ACTION: Final = need_of(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
ALTER_CLUSTER_CONFIGS: Final = need_of(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS: Final = need_of(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
# Rights whose lack is not logged, because it only decides the content of the reply, or because another right suffices.
SEE_TOPIC: Final = need_of(AclOperation.DESCRIBE, ResourceType.TOPIC, is_quiet=True)
SEE_ID: Final = need_of(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, is_quiet=True)
SEE_GROUP: Final = need_of(AclOperation.DESCRIBE, ResourceType.GROUP, is_quiet=True)
SEE_CLUSTER: Final = need_of(AclOperation.DESCRIBE, ResourceType.CLUSTER, is_quiet=True)
SEE_TOPIC_CONFIGS: Final = need_of(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, is_quiet=True)
CREATE_ANY_TOPIC: Final = need_of(AclOperation.CREATE, ResourceType.CLUSTER, is_quiet=True)
DELETE_ANY_TOPIC: Final = need_of(AclOperation.DELETE, ResourceType.CLUSTER, is_quiet=True)
IDEMPOTENT_WRITE: Final = need_of(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, is_quiet=True)
WRITE_ANY_TOPIC: Final = Need(AclOperation.WRITE, ResourceType.TOPIC, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
ACT_AS_BROKER: Final = need_of(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, is_quiet=True)
ALTER_OR_ACT: Final = need_of(AclOperation.ALTER, ResourceType.CLUSTER, is_quiet=True)
ALTER_CONFIGS: Final = config_needs(AclOperation.ALTER_CONFIGS)
DESCRIBE_CONFIGS: Final = config_needs(AclOperation.DESCRIBE_CONFIGS)


async def find_denials(broker: Broker, request: Request, need: Need, names: Iterable[str]) -> Collection[str]:
    """Return the names for which the client lacks this right. Each name is checked once, in turns."""
    if broker.authorizer is None:
        return ()
    found: dict[str, bool] = {}
    turns = broker.turns
    for name in names:
        if name not in found:
            found[name] = broker.may(request, need, name)
        turns.charged_us += LOOKUP_US
        if turns.must_yield:
            await turns.pause()
    return {name for name, may in found.items() if not may}


def refuse_configs(
    broker: Broker, request: Request, needs: Mapping[int, Need], kind: int, name: str
) -> ApiError | None:
    """Return the reason why the client may not access the configs, or None. Unknown types give None: every client is
    refused later."""
    need = needs.get(kind)
    if need is None:
        return None
    resource = CLUSTER_NAME if need.resource_type is ResourceType.CLUSTER else name
    return None if broker.may(request, need, resource) else ApiError(need.error, MESSAGES[need.error])
