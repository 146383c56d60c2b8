"""Rights that APIs need, and the resources in a request that a client may not access. free

Source: `AuthHelper.filterByAuthorized` of Kafka 4.3.1.
"""

from collections.abc import Collection, Iterable
from typing import Final

from ottla.broker.api.context import Broker, Request
from ottla.broker.costs import LOOKUP_US
from ottla.broker.security.authorizer import Need
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.errors import ErrorCode

_ERRORS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
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
