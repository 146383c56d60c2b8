"""`GET /v1/transactions`: the transactional ids of this broker, those with open transactions first. free"""

from collections.abc import Callable
from typing import Any, Final

from ottla.admin.fields import NUMBER, NUMBER_OR_NULL, TEXT, TEXT_OR_NULL, a_list, an_object
from ottla.admin.listing import LIMIT_MEANS, JsonRows, SmallestRows, limit_of
from ottla.admin.routes import AdminError, AdminRequest, AdminResponse, Route
from ottla.broker.api.context import Broker
from ottla.broker.costs import LOOKUP_US
from ottla.broker.events import Events, shorten
from ottla.broker.txn.shard import Shard
from ottla.broker.txn.states import ONGOING, PREPARED
from ottla.broker.txn.values import NO_PENDING, TransactionState, TransientState
from ottla.protocol.times import duration
from ottla.protocol.values import NEVER_TIMES_OUT_MS, UNKNOWN_OFFSET, TopicPartition

MOST_PARTITIONS: Final = 100
"""Of one transaction."""
MOST_PARTITIONS_OF_ALL: Final = 10_000

PLACE: Final = {"topic": TEXT, "partition": NUMBER}
_TRANSACTION: Final = an_object(
    {
        "transactional_id": TEXT,
        "producer_id": NUMBER,
        "producer_epoch": NUMBER,
        "state": {**TEXT, "description": "Kafka's name: Ongoing, PrepareCommit, ..."},
        "started_ms": {**NUMBER, "description": "Milliseconds since 1970; -1 if the id never began a transaction."},
        "last_update_ms": NUMBER,
        "timeout_ms": NUMBER,
        "partitions": a_list(an_object({**PLACE, "first_offset": NUMBER_OR_NULL})),
        "partitions_left_out": NUMBER,
        "records": {**NUMBER_OR_NULL, "description": "null if the transaction began before the broker started."},
        "bytes": NUMBER_OR_NULL,
        "waits_for": {**TEXT_OR_NULL, "description": "What the transaction needs to end."},
    }
)
SCHEMA: Final = an_object({"transactions": a_list(_TRANSACTION), "total": NUMBER, "left_out": NUMBER})


def transactions_route(broker: Broker, events: Events) -> Route:
    """Return the route. `events` has the records and bytes of open transactions."""

    async def show(request: AdminRequest) -> AdminResponse:
        limit, prefix = limit_of(request), request.query.get("prefix", "")
        state = request.query.get("state", "open")
        if state not in ("open", "all"):
            raise AdminError(400, "state must be open or all")
        found = await _found(broker, limit, lambda name: name.startswith(prefix), state == "all")
        rows = JsonRows("transactions", broker.turns)
        left = MOST_PARTITIONS_OF_ALL
        for shard, transactional_id in found.rows():
            row = _transaction_row(broker, events, shard, transactional_id, min(left, MOST_PARTITIONS))
            if row is not None:
                left -= len(row["partitions"])
                await rows.add(row, len(row["partitions"]))
        return rows.finish(total=found.total, left_out=found.left_out)

    query = {
        "state": "open (the default): transactions that have begun and not ended; all: every known transactional id.",
        "prefix": "Only transactional ids that begin with this text.",
        "limit": LIMIT_MEANS,
    }
    return Route("GET", "/v1/transactions", show, "Show transactions", query=query, response_schema=SCHEMA)


async def _found(
    broker: Broker, limit: int, keep: Callable[[str], bool], is_all: bool
) -> SmallestRows[tuple[int, int, str], tuple[Shard, str]]:
    """Find the ids whose transaction is open or is ending, the oldest first; then the others, the latest first."""
    found: SmallestRows[tuple[int, int, str], tuple[Shard, str]] = SmallestRows(limit)
    for shard in broker.transaction_shards():
        # A prepared transaction has transient state too: its markers.
        for transactional_id in list(shard.states if is_all else {**shard.open, **shard.transient}):
            await broker.turns.spend(5 * LOOKUP_US)
            state = shard.states.get(transactional_id)
            if state is None or not keep(transactional_id):
                continue
            if state.status is ONGOING or state.status in PREPARED:
                found.add((0, state.start_ms, transactional_id), (shard, transactional_id))
            elif is_all:
                found.add((1, -state.last_update_ms, transactional_id), (shard, transactional_id))
    return found


def _transaction_row(
    broker: Broker, events: Events, shard: Shard, transactional_id: str, most: int
) -> dict[str, Any] | None:
    state = shard.states.get(transactional_id)
    if state is None:
        return None
    transient = shard.transient.get(transactional_id, NO_PENDING)
    partitions = [
        {"topic": topic, "partition": index, "first_offset": first_offset(broker, topic, index, state.producer_id)}
        for (topic, index), _ in zip(state.partitions, range(most), strict=False)
    ]
    written = events.written(transactional_id)
    return {
        "transactional_id": shorten(transactional_id),
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "state": state.status.wire_name,
        "started_ms": state.start_ms,
        "last_update_ms": state.last_update_ms,
        "timeout_ms": state.timeout_ms,
        "partitions": partitions,
        "partitions_left_out": len(state.partitions) - len(partitions),
        "records": None if written is None else written[0],
        "bytes": None if written is None else written[1],
        "waits_for": waits_for(state, transient, broker.clock.now_ms()),
    }


def first_offset(broker: Broker, topic: str, index: int, producer_id: int) -> int | None:
    """Return the first offset of the producer's open transaction in a partition; None if it wrote nothing there."""
    if broker.cluster.is_unopened(topic, index):
        return None
    partition = broker.cluster.partition(topic, index)
    producer = None if partition is None else partition.producer_of(producer_id)
    if producer is None or producer.current_txn_first_offset == UNKNOWN_OFFSET:
        return None
    return producer.current_txn_first_offset


def waits_for(state: TransactionState, transient: TransientState, now_ms: int) -> str | None:
    """Return the event that a transaction needs to end, in words; None for an id without an open transaction."""
    if state.status in PREPARED:
        return _markers(list(transient.awaiting)[:1], len(transient.awaiting))
    if state.status is not ONGOING:
        return None
    if transient.pending is not None:
        return "its next record, which is not durable yet"
    if state.timeout_ms == NEVER_TIMES_OUT_MS:
        return "its producer: it never times out"
    left_ms = state.start_ms + state.timeout_ms - now_ms
    if left_ms < 0:
        return "the coordinator, which aborts it at its next check: it has timed out"
    return f"its producer, or the timeout in {duration(left_ms)}"


def _markers(first: list[TopicPartition], count: int) -> str:
    if not first:
        return "its last record, which is not durable yet"
    topic, index = first[0]
    more = f" and of {count - 1} more" if count > 1 else ""
    return f"the marker of {topic}-{index}{more}"
