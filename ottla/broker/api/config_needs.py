"""Rights to see or change the configs of a resource: of topics and groups by name, of all others on the cluster. free

Source: `ConfigHelper.handleDescribeConfigsRequest`, `ControllerApis.authorizeAlterResource` of Kafka 4.3.1.
"""

from collections.abc import Mapping
from typing import Final

from ottla.broker.api.authorization import MESSAGES, need_of
from ottla.broker.api.context import Broker, Request
from ottla.broker.security.authorizer import Need
from ottla.protocol.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.protocol.errors import ApiError
from ottla.protocol.internal_topics.metadata_records import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)

_GUARDED: Final = {
    TOPIC_RESOURCE: ResourceType.TOPIC,
    GROUP_RESOURCE: ResourceType.GROUP,
    BROKER_RESOURCE: ResourceType.CLUSTER,
    BROKER_LOGGER_RESOURCE: ResourceType.CLUSTER,
    CLIENT_METRICS_RESOURCE: ResourceType.CLUSTER,
}


def config_needs(operation: AclOperation) -> dict[int, Need]:
    """Return the right that this operation needs, by resource type."""
    return {kind: need_of(operation, resource_type) for kind, resource_type in _GUARDED.items()}


def refusal(broker: Broker, request: Request, needs: Mapping[int, Need], kind: int, name: str) -> ApiError | None:
    """Return the reason why the client may not access the configs, or None. Unknown types give None: every client is
    refused later."""
    need = needs.get(kind)
    if need is None:
        return None
    resource = CLUSTER_NAME if need.resource_type is ResourceType.CLUSTER else name
    return None if broker.may(request, need, resource) else ApiError(need.error, MESSAGES[need.error])
