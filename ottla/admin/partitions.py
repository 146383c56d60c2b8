"""`GET /v1/partitions`: the offsets of each partition, and the open transactions that hold back its readers. free"""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from ottla.admin.fields import NUMBER, NUMBER_OR_NULL, TEXT_OR_NULL, a_list, an_object
from ottla.admin.listing import LIMIT_MEANS, JsonRows, SmallestRows, limit_of
from ottla.admin.routes import AdminRequest, AdminResponse, Route
from ottla.admin.transactions import PLACE
from ottla.broker.api.context import Broker
from ottla.broker.cluster.image import INTERNAL_TOPICS
from ottla.broker.costs import LOOKUP_US
from ottla.broker.events import shorten
from ottla.broker.log.partition import Partition

MOST_OPEN: Final = 20
"""Open transactions in a row, the earliest first."""
MOST_OPEN_OF_ALL: Final = 5_000

_OPEN: Final = an_object(
    {
        "transactional_id": TEXT_OR_NULL,
        "producer_id": NUMBER,
        "producer_epoch": NUMBER,
        "first_offset": NUMBER,
        "started_ms": NUMBER_OR_NULL,
    }
)
_PARTITION: Final = an_object(
    {
        **PLACE,
        "log_start_offset": NUMBER,
        "high_watermark": NUMBER,
        "last_stable_offset": NUMBER,
        "log_end_offset": NUMBER,
        "bytes": NUMBER,
        "offline": {**TEXT_OR_NULL, "description": "Why the partition is offline; null if it is online."},
        "open": a_list(_OPEN, description=f"The first {MOST_OPEN} open transactions."),
        "open_left_out": NUMBER,
        "waiting_fetches": {**NUMBER, "description": "Fetches that wait for more records."},
        "waiting_committed": {**NUMBER, "description": "Waiting fetches with read_committed."},
    }
)
SCHEMA: Final = an_object(
    {
        "partitions": a_list(_PARTITION),
        "total": NUMBER,
        "left_out": NUMBER,
        "unopened": {**NUMBER, "description": "Partitions that no client has used since the start."},
    }
)

HOLDER: Final = {
    **an_object({"first_offset": NUMBER, "producer_id": NUMBER, "transactional_id": TEXT_OR_NULL}),
    "type": ["object", "null"],
    "description": "The open transaction at the last stable offset, which holds read_committed consumers back there.",
}

Owners = Mapping[int, tuple[str, int]]
"""Producer id -> (transactional id, start of its transaction in ms since 1970)."""


def partitions_route(broker: Broker) -> Route:
    """Return the route."""

    async def show(request: AdminRequest) -> AdminResponse:
        found, unopened = await _found(broker, limit_of(request), request.query.get("prefix", ""))
        chosen = found.rows()
        left, producer_ids = MOST_OPEN_OF_ALL, set[int]()
        for partition in chosen:
            producer_ids.update(islice(partition.log.producer_state.ongoing_txns.values(), MOST_OPEN))
        owners = await owners_of(broker, producer_ids)
        rows = JsonRows("partitions", broker.turns)
        for partition in chosen:
            row = _partition_row(partition, owners, min(left, MOST_OPEN))
            left -= len(row["open"])
            await rows.add(row, len(row["open"]) + partition.waiting // 10)
        return rows.finish(total=found.total, left_out=found.left_out, unopened=unopened)

    query = {"prefix": "Only topics whose names begin with this text.", "limit": LIMIT_MEANS}
    summary = "Show partitions, first those whose readers an open transaction holds back"
    return Route("GET", "/v1/partitions", show, summary, query=query, response_schema=SCHEMA)


async def _found(
    broker: Broker, limit: int, prefix: str
) -> tuple[SmallestRows[tuple[bool, bool, str, int], Partition], int]:
    """Return the open partitions, those held back first, internal topics after others; and the number of unopened."""
    found: SmallestRows[tuple[bool, bool, str, int], Partition] = SmallestRows(limit)
    unopened = 0
    cluster, turns = broker.cluster, broker.turns
    for topic in list(cluster.topics):
        if not topic.startswith(prefix):
            await turns.spend(LOOKUP_US)
            continue
        known = cluster.topics.get(topic)
        for index in range(0 if known is None else known.partition_count):
            await turns.spend(5 * LOOKUP_US)
            if cluster.is_unopened(topic, index):
                unopened += 1
                continue
            partition = cluster.partition(topic, index)
            if partition is not None:
                is_held = partition.last_stable_offset < partition.high_watermark
                found.add((not is_held, topic in INTERNAL_TOPICS, topic, index), partition)
    return found, unopened


async def owners_of(broker: Broker, producer_ids: set[int]) -> dict[int, tuple[str, int]]:
    """Find the transactional ids of these producer ids: among the open ones first, then among all."""
    owners: dict[int, tuple[str, int]] = {}
    for is_all in (False, True):
        for shard in broker.transaction_shards():
            if len(owners) == len(producer_ids):
                return owners
            for transactional_id in list(shard.states if is_all else {**shard.open, **shard.transient}):
                await broker.turns.spend(2 * LOOKUP_US)
                state = shard.states.get(transactional_id)
                if state is not None and state.producer_id in producer_ids:
                    owners[state.producer_id] = transactional_id, state.start_ms
    return owners


def find_holder(partition: Partition) -> tuple[int, int] | None:
    """Return (first offset, producer id) of the open transaction that holds the last stable offset back, or None."""
    first = next(iter(partition.log.producer_state.ongoing_txns.items()), None)
    return first if first is not None and first[0] <= partition.last_stable_offset < partition.high_watermark else None


def holder_row(holder: tuple[int, int] | None, owners: Owners) -> dict[str, Any] | None:
    """Return the fields of `find_holder`."""
    if holder is None:
        return None
    name = owner_name(holder[1], owners)
    return {"first_offset": holder[0], "producer_id": holder[1], "transactional_id": name}


def owner_name(producer_id: int, owners: Owners) -> str | None:
    """Return the transactional id of a producer, shortened; None if it is not known."""
    return shorten(owners[producer_id][0]) if producer_id in owners else None


def _partition_row(partition: Partition, owners: Owners, most: int) -> dict[str, Any]:
    ongoing = partition.log.producer_state.ongoing_txns
    opened = [
        {
            "transactional_id": shorten(owners[producer_id][0]) if producer_id in owners else None,
            "producer_id": producer_id,
            "producer_epoch": None if (producer := partition.producer_of(producer_id)) is None else producer.epoch,
            "first_offset": first_offset,
            "started_ms": owners[producer_id][1] if producer_id in owners else None,
        }
        for first_offset, producer_id in islice(ongoing.items(), most)
    ]
    return {
        "topic": partition.topic,
        "partition": partition.index,
        "log_start_offset": partition.log_start_offset,
        "high_watermark": partition.high_watermark,
        "last_stable_offset": partition.last_stable_offset,
        "log_end_offset": partition.log_end_offset,
        "bytes": partition.log.size_bytes,
        "offline": partition.offline,
        "open": opened,
        "open_left_out": len(ongoing) - len(opened),
        "waiting_fetches": partition.waiting,
        "waiting_committed": partition.waiting_committed,
    }
