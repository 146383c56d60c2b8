"""ListConfigResources 0-1: the names of all resources that have configs. free

Version notes: 0 lists resources of client metrics, and Ottla has none; 1 lists the asked types, all five without a
list, and answers UNSUPPORTED_VERSION to any other type (KIP-1142). A type that is named twice counts once.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from ottla.broker.api.authorization import DESCRIBE_CLUSTER_CONFIGS
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import encode_reply, with_rows
from ottla.broker.api.request import Reply, Request
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.metadata_records import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)

_KINDS: Final = (*(GROUP_RESOURCE, CLIENT_METRICS_RESOURCE, BROKER_LOGGER_RESOURCE, BROKER_RESOURCE, TOPIC_RESOURCE),)
"""The resource types, in the order of the reply."""


async def handle(broker: Broker, request: Request) -> Reply:
    """List the resources of the asked types."""
    if not broker.may(request, DESCRIBE_CLUSTER_CONFIGS):
        return encode_reply(request, error_code=DESCRIBE_CLUSTER_CONFIGS.error)
    supported = {*_KINDS} if request.api_version else {CLIENT_METRICS_RESOURCE}
    asked = {*request.body.resource_types} if request.api_version else supported
    if not asked <= supported:
        return encode_reply(request, error_code=ErrorCode.UNSUPPORTED_VERSION)
    kinds = [kind for kind in _KINDS if kind in (asked or supported)]
    rows = ((name, kind) for kind in kinds for name in _names(broker, request, kind))
    return await with_rows(broker, request, "config_resources", rows)


def _names(broker: Broker, request: Request, kind: int) -> Iterable[str]:
    if kind == GROUP_RESOURCE:
        return list(broker.cluster.image.group_configs)
    if kind == TOPIC_RESOURCE:
        return list(broker.cluster.topics)
    return _brokers(broker, request) if kind in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE) else ()


def _brokers(broker: Broker, request: Request) -> Iterator[str]:
    listener = request.session.listener_name
    for endpoint in (*broker.endpoints_of(listener), *broker.stopped_endpoints_of(listener)):
        yield str(endpoint.node_id)
