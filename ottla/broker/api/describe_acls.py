"""DescribeAcls 1-3: the entries that a filter matches, grouped by pattern. free

Version notes: 2 is flexible; 3 knows the resource type USER. A filter with an unknown value is INVALID_REQUEST; Kafka
closes the connection or answers with no entry. Among very many entries a pattern may occur more than once.
"""

from typing import Final

from ottla.broker.api.acls import filter_of, refusal
from ottla.broker.api.authorization import DESCRIBE_CLUSTER
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import ReplyBuilder, ReplyRows, encode_reply
from ottla.broker.api.request import Reply, Request
from ottla.broker.costs import ACL_MATCH_US
from ottla.protocol.errors import ApiError, ErrorCode
from ottla.protocol.internal_topics.security_records import AccessControlEntryRecord

GROUPED_AT_ONCE: Final = 10_000
"""The entries that are grouped by pattern at a time; no more are held in addition to the reply."""

_Pattern = tuple[int, str, int]


async def handle(broker: Broker, request: Request) -> Reply:
    """Visit all entries, in turns. Entries that are created or deleted in between may be missing or present."""
    acl_filter = filter_of(request.body)
    refused = refusal(broker, request, DESCRIBE_CLUSTER, "No Authorizer is configured on the broker")
    if refused is None and acl_filter.problem:
        refused = ApiError(ErrorCode.INVALID_REQUEST, acl_filter.problem)
    if refused is not None:
        return encode_reply(request, error_code=refused.error, error_message=refused.message, resources=())
    reply = ReplyBuilder(broker, request)
    resources = reply.rows("resources")
    patterns: dict[_Pattern, list[AccessControlEntryRecord]] = {}
    count = 0
    for entry in list(broker.cluster.image.acls.values()):
        await broker.turns.spend(ACL_MATCH_US)
        if not acl_filter.matches(entry):
            continue
        patterns.setdefault((entry.resource_type, entry.resource_name, entry.pattern_type), []).append(entry)
        count += 1
        if count == GROUPED_AT_ONCE:
            await _write(reply, resources, patterns)
            patterns, count = {}, 0
    await _write(reply, resources, patterns)
    return reply.finish(error_code=ErrorCode.NONE, error_message="", resources=resources)


async def _write(
    reply: ReplyBuilder, resources: ReplyRows, patterns: dict[_Pattern, list[AccessControlEntryRecord]]
) -> None:
    for pattern, entries in patterns.items():
        acls = reply.rows("resources", "acls")
        for entry in entries:
            await acls.add(entry.principal, entry.host, entry.operation, entry.permission_type)
        await resources.add(*pattern, acls)
