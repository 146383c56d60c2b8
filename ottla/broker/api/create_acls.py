"""CreateAcls 1-3: create ACL entries; an entry that exists already is not created again. free

Version notes: 2 is flexible; 3 knows the resource type USER. Each invalid row is INVALID_REQUEST by itself, also where
Kafka closes the connection. The other entries are created, all or none, before the answer. Stricter than Kafka: an
entry needs a host.
"""

from collections.abc import Sequence
from typing import Any, Final

from ottla.broker.api.acls import ALTER, MOST_CHANGED, entry_problem, refusal
from ottla.broker.api.context import Api, Broker, Reply, Request
from ottla.broker.api.reply import ReplyBuilder
from ottla.broker.cluster.controller import ACLS
from ottla.broker.costs import ROW_US
from ottla.broker.security.acl import AclAuthorizer
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ApiError, ErrorCode
from ottla.protocol.internal_topics.security_records import AccessControlEntryRecord


async def handle(broker: Broker, request: Request) -> Reply:
    """Create the entries; one row each, in the order of the request."""
    creations = request.body.creations
    outcomes = [refusal(broker, request, ALTER, "No Authorizer is configured.") or ApiError()] * len(creations)
    if broker.authorizer is not None and not any(outcome.error for outcome in outcomes[:1]):
        creating = _Creating(broker, broker.authorizer, creations)
        outcomes = await creating.create()
    reply = ReplyBuilder(broker, request)
    results = reply.rows("results")
    for outcome in outcomes:
        await results.add(outcome.error, outcome.message)
    return reply.finish(results=results)


class _Creating:
    """A CreateAcls request in progress."""

    def __init__(self, broker: Broker, authorizer: AclAuthorizer, creations: Sequence[Any]) -> None:
        self._broker = broker
        self._authorizer = authorizer
        self._creations = creations
        self._outcomes: list[ApiError] = []

    async def create(self) -> list[ApiError]:
        """Return an outcome for each row."""
        try:
            await self._broker.cluster.controller.change_security((ACLS,), self._decide)
        except OSError as failure:
            return self._fail_rest(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)))
        return self._outcomes

    async def _decide(self) -> list[AccessControlEntryRecord]:
        turns, controller = self._broker.turns, self._broker.cluster.controller
        made: dict[tuple[int | str, ...], AccessControlEntryRecord] = {}
        for row in self._creations:
            await turns.spend(ROW_US)
            entry = _entry(row, controller.new_id())
            problem = entry_problem(entry)
            self._outcomes.append(ApiError(ErrorCode.INVALID_REQUEST, problem) if problem else ApiError())
            if not problem and not self._authorizer.has(entry):
                made.setdefault(entry[1:], entry)
        if len(made) > MOST_CHANGED:
            too_many = "Unable to perform excessively large batch operation."
            self._outcomes = self._fail_rest(ApiError(ErrorCode.POLICY_VIOLATION, too_many))
            return []
        return list(made.values())

    def _fail_rest(self, failed: ApiError) -> list[ApiError]:
        """Set the error of all valid rows, because they fail together."""
        self._outcomes += [ApiError()] * (len(self._creations) - len(self._outcomes))
        return [outcome if outcome.error else failed for outcome in self._outcomes]


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


API: Final = Api(ApiKey.CREATE_ACLS, 1, 3, handle, (ALTER,))
