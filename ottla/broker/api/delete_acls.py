"""DeleteAcls 1-3: delete the entries that filters match, and list them in the answer. free

Version notes: 2 is flexible; 3 knows the resource type USER. All filters see the entries as they were before the
request; an entry that two filters match is listed by both. A filter with an unknown value is INVALID_REQUEST by itself.
No more than 10,000 entries are listed: filters that match more have INVALID_REQUEST and delete nothing.
"""

from collections.abc import Sequence
from typing import Any

from ottla.broker.api.acls import MOST_CHANGED, filter_of, refusal
from ottla.broker.api.authorization import ALTER_CLUSTER
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import ReplyBuilder
from ottla.broker.api.request import Reply, Request
from ottla.broker.cluster.controller import ACLS
from ottla.broker.costs import ACL_MATCH_US, ROW_US
from ottla.protocol.errors import ApiError, ErrorCode
from ottla.protocol.internal_topics.security_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord

_Found = tuple[ApiError, Sequence[AccessControlEntryRecord]]


async def handle(broker: Broker, request: Request) -> Reply:
    """Delete the entries that each filter matches; one row each, in the order of the request."""
    filters = request.body.filters
    refused = refusal(broker, request, ALTER_CLUSTER, "No Authorizer is configured.")
    found: list[_Found] = [(refused or ApiError(), ())] * len(filters)
    if refused is None:
        found = await _delete_matching(broker, filters)
    reply = ReplyBuilder(broker, request)
    results = reply.rows("filter_results")
    for outcome, entries in found:
        matching = reply.rows("filter_results", "matching_acls")
        for entry in entries:
            await matching.add(ErrorCode.NONE, None, *entry[1:])
        await results.add(outcome.error, outcome.message, matching)
    return reply.finish(filter_results=results)


async def _delete_matching(broker: Broker, filters: Sequence[Any]) -> list[_Found]:
    """Delete the entries that the filters match. Return an outcome and the matching entries for each filter."""
    found: list[_Found] = []

    async def decide() -> list[RemoveAccessControlEntryRecord]:
        left = MOST_CHANGED
        removed: dict[bytes, None] = {}
        for row in filters:
            await broker.turns.spend(ROW_US)
            outcome, entries = await _find_matches(broker, row, left)
            left -= len(entries)
            removed |= dict.fromkeys(entry.id for entry in entries)
            found.append((outcome, entries))
        return [RemoveAccessControlEntryRecord(entry_id) for entry_id in removed]

    try:
        await broker.cluster.controller.change_security((ACLS,), decide)
    except OSError as failure:
        failed = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
        found += [(failed, ())] * (len(filters) - len(found))
        return [(outcome, entries) if outcome.error else (failed, ()) for outcome, entries in found]
    return found


async def _find_matches(broker: Broker, row: Any, most: int) -> _Found:
    """Return the entries that a filter matches. Works in turns; no other request changes the entries in between."""
    acl_filter = filter_of(row)
    if acl_filter.problem:
        return ApiError(ErrorCode.INVALID_REQUEST, acl_filter.problem), ()
    entries = []
    for entry in broker.cluster.image.acls.values():
        await broker.turns.spend(ACL_MATCH_US)
        if acl_filter.matches(entry):
            entries.append(entry)
            if len(entries) > most:
                message = f"Cannot remove more than {MOST_CHANGED} acls in a single delete operation."
                return ApiError(ErrorCode.INVALID_REQUEST, message), ()
    return ApiError(), entries
