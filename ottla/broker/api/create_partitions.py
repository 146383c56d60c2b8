"""CreatePartitions 0-3: more partitions for topics that exist. free

Version notes: 2 is flexible. A new partition has this broker as its one replica, also where a client assigns it. The
internal topics keep their number: it decides which partition an id or a group belongs to.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.api.reply import ReplyBuilder
from ottla.broker.cluster.image import Topic
from ottla.broker.costs import CHANGE_US
from ottla.protocol.errors import ErrorCode

MAX_PARTITIONS = 10_000
"""That one request may add (`QuorumController.MAX_RECORDS_PER_USER_OP`)."""


class Refused(NamedTuple):
    """Why a topic gets no partitions."""

    error: ErrorCode
    message: str | None = None


async def handle(broker: Broker, request: Request) -> Reply:
    """Add partitions to each topic, or only check the request when `validate_only`."""
    body = request.body
    times = Counter(asked.name for asked in body.topics)
    first = {asked.name: asked for asked in reversed(body.topics)}
    duplicate = Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    outcomes: dict[str, Refused | None] = {name: duplicate if count > 1 else None for name, count in times.items()}
    wanted = [asked for name, asked in first.items() if times[name] == 1]
    try:
        change = _add(broker, wanted, body.validate_only, outcomes)
        await broker.cluster.controller.exclusively([asked.name for asked in wanted], change)
    except OSError as failure:
        failed = Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
        outcomes = {name: outcome or failed for name, outcome in outcomes.items()}
    reply = ReplyBuilder(broker, request)
    results = reply.rows("results")
    for name in times:
        error, message = outcomes[name] or (ErrorCode.NONE, None)
        await results.add(name, error, message)
    return reply.finish(results=results)


async def _add(broker: Broker, wanted: Sequence[Any], validate_only: bool, outcomes: dict[str, Refused | None]) -> None:
    """Decide on each topic and log its partitions; `outcomes` get what is refused."""
    left = MAX_PARTITIONS
    for asked in wanted:
        topic = broker.cluster.topics.get(asked.name)
        refused = outcomes[asked.name] = _refuse(broker.cluster.node_id, topic, asked, left)
        if topic is not None and refused is None:
            left -= asked.count - topic.partition_count
            if not validate_only:
                await broker.cluster.controller.add_partitions(topic, asked.count)
        broker.turns.charge(CHANGE_US)
        await broker.turns.share()


def _refuse(node_id: int, topic: Topic | None, asked: Any, left: int) -> Refused | None:
    """Source: `ReplicationControlManager.createPartitions`."""
    if topic is None:
        return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.internal:
        return Refused(ErrorCode.INVALID_REQUEST, f"The number of partitions of {topic.name} cannot be changed")
    added = asked.count - topic.partition_count
    if added == 0:
        return Refused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {topic.partition_count} partition(s).")
    if added < 0:
        return Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {topic.partition_count} partition(s); {asked.count} would not be an "
            "increase.",
        )
    if asked.assignments is not None:
        problem = _assignment_problem(node_id, added, [row.broker_ids for row in asked.assignments])
        if problem:
            return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    if added > left:
        return Refused(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    return None


def _assignment_problem(node_id: int, added: int, assignments: Sequence[Sequence[int]]) -> str:
    if len(assignments) != added:
        found = f"only {len(assignments)} assignment(s) were specified."
        return f"Attempted to add {added} additional partition(s), but {found}"
    for replicas in assignments:
        if not replicas:
            return "The manual partition assignment includes an empty replica list."
        stranger = next((replica for replica in sorted(replicas) if replica != node_id), None)
        if stranger is not None:
            return f"The manual partition assignment includes broker {stranger}, but no such broker is registered."
        if len(replicas) > 1:
            return f"The manual partition assignment includes the broker {node_id} more than once."
    return ""
