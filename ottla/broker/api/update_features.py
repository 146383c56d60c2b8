"""UpdateFeatures 0-2: finalize feature levels, all of them or none. free

The one feature to change is `transaction.version`. A level is raised by an upgrade and lowered by a safe or an unsafe
downgrade; the level that is finalized already is right for each. A refusal is INVALID_UPDATE_VERSION for the whole
request. Of two updates of one feature the last one counts.

Version notes: 0 has no upgrade type: it can only upgrade (its AllowDowngrade has no effect in Kafka 4 either);
1 adds the upgrade type and validate-only; 2 does not list the features in its answer. Clients see a new level with
their next ApiVersions request.
"""

import logging

from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.api.reply import encoded
from ottla.broker.cluster.features import FeatureUpdate, UpgradeType
from ottla.protocol.errors import ErrorCode

log = logging.getLogger("ottla.features")


async def handle(broker: Broker, request: Request) -> Reply:
    """Check all updates, then log them in one batch."""
    version, body = request.api_version, request.body
    asked = [
        FeatureUpdate(each.feature, each.max_version_level, each.upgrade_type if version >= 1 else UpgradeType.UPGRADE)
        for each in body.feature_updates
    ]
    updates = list({update.feature: update for update in asked}.values())
    cluster = broker.cluster
    try:
        problem = await cluster.controller.update_features(updates, version >= 1 and body.validate_only)
    except OSError as failure:
        return _reply(request, ErrorCode.KAFKA_STORAGE_ERROR, str(failure), [])
    if problem is not None:
        log.warning("Refused UpdateFeatures of %s: %s", request.peer, problem)
        return _reply(request, ErrorCode.INVALID_UPDATE_VERSION, problem, [])
    return _reply(request, ErrorCode.NONE, None, asked)


def _reply(request: Request, error: ErrorCode, message: str | None, done: list[FeatureUpdate]) -> Reply:
    results = [(update.feature, ErrorCode.NONE, ErrorCode.NONE.name) for update in done]
    return encoded(request, error_code=error, error_message=message, results=results)
