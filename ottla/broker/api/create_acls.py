"""CreateAcls 1-3: create ACL entries; an entry that exists already is not created again. free

Version notes: 2 is flexible; 3 knows the resource type USER. Each invalid row is INVALID_REQUEST by itself, also where
Kafka closes the connection. The other entries are created, all or none, before the answer. Stricter than Kafka: an
entry needs a host.
"""

from collections.abc import Sequence
from typing import Any

from ottla.broker.api.acls import MOST_CHANGED, entry_problem, refusal
from ottla.broker.api.authorization import ALTER_CLUSTER
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import with_rows
from ottla.broker.api.request import Reply, Request
from ottla.broker.cluster.controller import ACLS
from ottla.broker.costs import ROW_US
from ottla.broker.security.acl import AclAuthorizer
from ottla.protocol.errors import ApiError, ErrorCode
from ottla.protocol.internal_topics.security_records import AccessControlEntryRecord


async def handle(broker: Broker, request: Request) -> Reply:
    """Create the entries; one row each, in the order of the request."""
    creations = request.body.creations
    refused = refusal(broker, request, ALTER_CLUSTER, "No Authorizer is configured.")
    if refused is not None or broker.authorizer is None:
        outcomes = [refused or ApiError()] * len(creations)
    else:
        outcomes = await _create(broker, broker.authorizer, creations)
    return await with_rows(broker, request, "results", outcomes)


async def _create(broker: Broker, authorizer: AclAuthorizer, creations: Sequence[Any]) -> list[ApiError]:
    """Create the valid entries, all or none. Return an outcome for each row."""
    controller = broker.cluster.controller
    outcomes: list[ApiError] = []
    failed = ApiError(message="")  # as Kafka: a text that is empty, and not null

    async def decide() -> Sequence[AccessControlEntryRecord]:
        nonlocal failed
        made: dict[tuple[int | str, ...], AccessControlEntryRecord] = {}
        for row in creations:
            await broker.turns.spend(ROW_US)
            entry = _entry(row, controller.new_id())
            problem = entry_problem(entry)
            outcomes.append(ApiError(ErrorCode.INVALID_REQUEST, problem) if problem else ApiError())
            if not problem and not authorizer.has(entry):
                made.setdefault(entry[1:], entry)
        if len(made) > MOST_CHANGED:
            failed = ApiError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
            return ()
        return list(made.values())

    try:
        await controller.change_security((ACLS,), decide)
    except OSError as failure:
        failed = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
    outcomes += [failed] * (len(creations) - len(outcomes))
    return [outcome if outcome.error else failed for outcome in outcomes]


def _entry(row: Any, new_id: bytes) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        new_id,
        row.resource_type,
        row.resource_name,
        row.resource_pattern_type,
        row.principal,
        row.host,
        row.operation,
        row.permission_type,
    )
