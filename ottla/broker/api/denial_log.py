"""Denied requests: in the log and in the event history. free

The line is that of `kafka.authorizer.logger` (`StandardAuthorizerData.buildAuditMessage` of Kafka 4.3.1), so that tools
for Kafka's lines can read it. Each principal, resource and operation has one line a minute. Kafka counts how often a
request names the resource; here the count is always 1, because each mention is checked where it occurs.
"""

import logging
from typing import Final, NamedTuple

from ottla.broker.api.context import Broker
from ottla.broker.api.fencing_log import sender_fields
from ottla.broker.api.request import Request
from ottla.broker.costs import LOG_DENIAL_US
from ottla.broker.events import shorten
from ottla.broker.log_limiter import LogLimiter, describe_repeats
from ottla.broker.security.acl import AclAuthorizer, Decision
from ottla.broker.security.authorizer import Need
from ottla.protocol.acls import RESOURCE_TYPE_NAMES, AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.api_keys import ApiKey

log = logging.getLogger(__name__)

_FIELDS: Final[dict[int, str]] = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.TRANSACTIONAL_ID: "transactional_id",
}


class Denial(NamedTuple):
    """A denied operation of a principal on a resource."""

    principal: str
    host: str
    operation: int
    resource_type: int
    name: str


class DenialLog:
    """Logs the denials of one broker's authorizer."""

    def __init__(self, broker: Broker, authorizer: AclAuthorizer) -> None:
        self._broker = broker
        self._authorizer = authorizer
        self._limiters = LogLimiter()

    def log(self, request: Request, need: Need, name: str) -> None:
        """Log that the client lacks the right to the resource of that name."""
        broker, session = self._broker, request.session
        denial = Denial(session.principal, session.host, need.operation, need.resource_type, shorten(name))
        times = self._limiters.count(denial, broker.clock.monotonic_ms())
        if not times and broker.events is None:
            return
        broker.turns.charge(LOG_DENIAL_US)
        sentence = _sentence(denial, request, self._authorizer.why(*denial[:4], name))
        if broker.events is not None:
            api, transactional_id = ApiKey(request.api_key).title, sender_fields(request.body).get("transactional_id")
            broker.events.record_refusal(
                api, need.error.name, request.client_id or "", request.peer, transactional_id, sentence
            )
        if times:
            again = describe_repeats(times)
            log.info("%(sentence)s%(again)s", _fields(denial, request, need) | {"sentence": sentence, "again": again})


def _sentence(denial: Denial, request: Request, decision: Decision) -> str:
    resource = f"{RESOURCE_TYPE_NAMES[ResourceType(denial.resource_type)]}:LITERAL:{denial.name}"
    return (
        f"Principal = {denial.principal} is Denied operation = {AclOperation(denial.operation).name} "
        f"from host = {denial.host} on resource = {resource} for request = {ApiKey(request.api_key).title} "
        f"with resourceRefCount = 1 based on rule {_rule(decision)}"
    )


def _rule(decision: Decision) -> str:
    """Return the rule as Kafka formats it."""
    entry = decision.entry
    if entry is None:
        return decision.rule
    return (
        f"MatchingAcl(acl=StandardAcl(resourceType={ResourceType(entry.resource_type).name}, "
        f"resourceName={entry.resource_name}, patternType={PatternType(entry.pattern_type).name}, "
        f"principal={entry.principal}, host={entry.host}, operation={AclOperation(entry.operation).name}, "
        f"permissionType={PermissionType(entry.permission_type).name}))"
    )


def _fields(denial: Denial, request: Request, need: Need) -> dict[str, object]:
    """Return the fields of the log line, with the names that all lines share."""
    fields = request.about | {
        "principal": denial.principal,
        "operation": AclOperation(denial.operation).name,
        "error": need.error.name,
    }
    kind = _FIELDS.get(denial.resource_type)
    return fields if kind is None else fields | {kind: denial.name}
