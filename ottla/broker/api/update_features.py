"""UpdateFeatures 0-2: finalize feature levels, all of them or none. free

The only feature that can be changed is `transaction.version`. A level is raised by an upgrade and lowered by a safe or
an unsafe downgrade; the current level is valid for each type. A refusal is INVALID_UPDATE_VERSION for the whole
request. Of two updates of one feature the last one counts.

Version notes: 0 has no upgrade type: it can only upgrade (its AllowDowngrade has no effect in Kafka 4 either); 1 adds
the upgrade type and validate-only; 2 does not list the features in its answer. Clients see a new level with their next
ApiVersions request.
"""

import logging

from ottla.broker.api.authorization import ALTER_CLUSTER, MESSAGES
from ottla.broker.api.context import Broker
from ottla.broker.api.indexed_rows import index_last_rows
from ottla.broker.api.reply import ReplyBuilder, encode_reply
from ottla.broker.api.request import Reply, Request
from ottla.broker.cluster.features import FeatureUpdate, UpgradeType
from ottla.broker.costs import ROW_US
from ottla.protocol.errors import ErrorCode

log = logging.getLogger(__name__)


async def handle(broker: Broker, request: Request) -> Reply:
    """Check all updates, then log them in one batch."""
    version, body = request.api_version, request.body
    if not broker.may(request, ALTER_CLUSTER):
        return _refusal(request, ALTER_CLUSTER.error, MESSAGES[ALTER_CLUSTER.error])
    cluster, updates = broker.cluster, []
    for update in (await index_last_rows(broker.turns, body.feature_updates, lambda update: update.feature)).values():
        upgrade_type = update.upgrade_type if version >= 1 else UpgradeType.UPGRADE
        updates.append(FeatureUpdate(update.feature, update.max_version_level, upgrade_type))
        await broker.turns.spend(ROW_US)
    try:
        problem = await cluster.controller.update_features(updates, version >= 1 and body.validate_only)
    except OSError as failure:
        return _refusal(request, ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
    if problem is not None:
        log.warning("Refused UpdateFeatures of %(peer)s: %(why)s", request.about | {"why": problem})
        return _refusal(request, ErrorCode.INVALID_UPDATE_VERSION, problem)
    if version >= 2:
        return encode_reply(request, error_code=ErrorCode.NONE, error_message=None)
    reply = ReplyBuilder(broker, request)
    results = reply.rows("results")
    for update in body.feature_updates:
        await results.add(update.feature, ErrorCode.NONE, ErrorCode.NONE.name)
    return reply.finish(error_code=ErrorCode.NONE, error_message=None, results=results)


def _refusal(request: Request, error: ErrorCode, message: str) -> Reply:
    return encode_reply(request, error_code=error, error_message=message, results=())
