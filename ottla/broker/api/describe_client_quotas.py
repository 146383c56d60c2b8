"""DescribeClientQuotas 0-1: the quotas of the entities that a filter matches. free

Version notes: 1 is flexible. An invalid filter is answered with an error for the whole request and no entries. Source:
`ClientQuotasImage.describe`, `KafkaApis.handleDescribeClientQuotasRequest`.
"""

from collections.abc import Iterator
from typing import Any

from ottla.broker.api.authorization import DESCRIBE_CLUSTER_CONFIGS, MESSAGES
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import ReplyBuilder, encode_reply
from ottla.broker.api.request import Reply, Request
from ottla.broker.costs import LOOKUP_US
from ottla.broker.quotas.filters import Component, read_filter
from ottla.protocol.errors import ApiError, ErrorCode


async def handle(broker: Broker, request: Request) -> Reply:
    """Return an entry for each entity that has quotas and matches."""
    body = request.body
    if not broker.may(request, DESCRIBE_CLUSTER_CONFIGS):
        return _refuse(request, ApiError(DESCRIBE_CLUSTER_CONFIGS.error, MESSAGES[DESCRIBE_CLUSTER_CONFIGS.error]))
    quota_filter = read_filter(_components(body.components), body.strict)
    if isinstance(quota_filter, ApiError):
        return _refuse(request, quota_filter)
    reply = ReplyBuilder(broker, request)
    entries = reply.rows("entries")
    for entity, values in list(broker.cluster.image.client_quotas.items()):
        if quota_filter.matches(entity):
            await entries.add(entity, list(values.items()))
        await broker.turns.spend(5 * LOOKUP_US)
    return reply.finish(error_code=ErrorCode.NONE, error_message="", entries=entries)


def _components(rows: list[Any]) -> Iterator[Component]:
    for row in rows:
        yield Component(row.entity_type, row.match_type, row.match)


def _refuse(request: Request, refusal: ApiError) -> Reply:
    return encode_reply(request, error_code=refusal.error, error_message=refusal.message, entries=None)
