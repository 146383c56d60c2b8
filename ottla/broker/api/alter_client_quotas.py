"""AlterClientQuotas 0-1: set and remove the quotas of users, client ids and addresses. free

Version notes: 1 is flexible. One entity is changed completely or not at all. All changes of a request are logged
together: when it is answered they are durable and in force. Source: `ControllerApis.handleAlterClientQuotas`,
`ClientQuotaControlManager`.

Stricter than Apache Kafka 4.3.1: an entity that has two rows is not changed; Kafka applies the first row and answers
with an error.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.broker.api.authorization import ALTER_CLUSTER_CONFIGS, MESSAGES
from ottla.broker.api.context import Broker
from ottla.broker.api.indexed_rows import index_rows
from ottla.broker.api.reply import with_rows
from ottla.broker.api.request import Reply, Request
from ottla.broker.cluster.controller import CLIENT_QUOTAS
from ottla.broker.costs import LOOKUP_US, ROW_US
from ottla.broker.quotas.alteration import decide, named_twice
from ottla.protocol.errors import ApiError, ErrorCode
from ottla.protocol.internal_topics.security_records import QuotaEntity, SecurityRecord

MOST_RECORDS: Final = 10_000
"""The most records of one request (`QuorumController.MAX_RECORDS_PER_USER_OP`)."""
_REFUSED: Final = ApiError(ALTER_CLUSTER_CONFIGS.error, MESSAGES[ALTER_CLUSTER_CONFIGS.error])
_EXCESSIVE: Final = ApiError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
_NOTHING: Final[Mapping[str, float]] = {}


async def handle(broker: Broker, request: Request) -> Reply:
    """Change the quotas, or only check the changes when `validate_only`; one row for each entity, as it was named."""
    body = request.body
    first, twice = await index_rows(broker.turns, body.entries, _entity)
    if broker.may(request, ALTER_CLUSTER_CONFIGS):
        outcomes = await _alter(broker, first, twice, body.validate_only)
    else:
        outcomes = dict.fromkeys(first, _REFUSED)
    return await with_rows(broker, request, "entries", ((*outcomes[entity], entity) for entity in first))


def _entity(row: Any) -> QuotaEntity:
    """Return the entity of a row, sorted by type. If a type is named twice, the last one counts."""
    return tuple(sorted({pair.entity_type: pair.entity_name for pair in row.entity}.items()))


async def _alter(
    broker: Broker, rows: Mapping[QuotaEntity, Any], twice: Any, validate_only: bool
) -> dict[QuotaEntity, ApiError]:
    outcomes = dict.fromkeys(rows, ApiError())

    async def changes() -> Sequence[SecurityRecord]:
        records: list[SecurityRecord] = []
        for entity, row in rows.items():
            names = dict(entity)
            if entity in twice:
                outcomes[entity] = named_twice(names)
                continue
            ops = [(op.key, None if op.remove else op.value) for op in row.ops]
            decided = decide(names, ops, broker.cluster.image.client_quotas.get(entity, _NOTHING))
            if isinstance(decided, ApiError):
                outcomes[entity] = decided
            else:
                records += decided
            await broker.turns.spend(ROW_US + len(ops) * ROW_US + len(entity) * LOOKUP_US)
        if len(records) > MOST_RECORDS:
            outcomes.update(dict.fromkeys(rows, _EXCESSIVE))
            return ()
        return () if validate_only else records

    try:
        await broker.cluster.controller.change_security((CLIENT_QUOTAS,), changes)
    except OSError as failure:
        failed = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
        outcomes = {entity: outcome if outcome.error else failed for entity, outcome in outcomes.items()}
    return outcomes
