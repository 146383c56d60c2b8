"""AlterPartitionReassignments 0-1: change the replicas of partitions, or cancel a change in progress. free

Version notes: 1 can refuse another number of replicas. A new replica is in sync at once if its broker runs, because the
brokers of the process share one log; otherwise the change is complete when the broker starts. A partition that is named
twice is answered once, and its last target counts. A request for more than 10,000 partitions is refused
(POLICY_VIOLATION); those that do not exist or whose targets are not valid do not count. The change is durable before
the reply.

Source: `ReplicationControlManager.alterPartitionReassignments` of Kafka 4.3.1.
"""

from ottla.broker.api.authorization import ALTER_CLUSTER, MESSAGES
from ottla.broker.api.context import Broker
from ottla.broker.api.create_topics import replicas_problem
from ottla.broker.api.partition_rows import MOST_CHANGED, TOO_MANY, merge_partitions, tabulate
from ottla.broker.api.reply import with_tables
from ottla.broker.api.request import Reply, Request
from ottla.broker.cluster.leadership import Leadership
from ottla.broker.costs import LOOKUP_US, ROW_US
from ottla.protocol.errors import ApiError, ErrorCode
from ottla.protocol.values import TopicPartition

Targets = dict[TopicPartition, list[int] | None]
"""partition -> new replicas; None cancels a change in progress."""
Outcomes = dict[TopicPartition, ApiError]


async def handle(broker: Broker, request: Request) -> Reply:
    """Change the replicas of each partition."""
    targets: Targets = {}
    for topic in request.body.topics:
        for row in topic.partitions:
            targets[topic.name, row.partition_index] = row.replicas
            await broker.turns.spend(ROW_US + len(row.replicas or ()) * LOOKUP_US)
    may_change = request.api_version == 0 or bool(request.body.allow_replication_factor_change)
    refused = None
    outcomes: Outcomes = {}
    if not broker.may(request, ALTER_CLUSTER):
        refused = ApiError(ALTER_CLUSTER.error, MESSAGES[ALTER_CLUSTER.error])
    else:
        await _validate(broker, targets, outcomes)
        if len(targets) - len(outcomes) > MOST_CHANGED:
            refused = TOO_MANY
        else:
            await _reassign(broker, targets, outcomes, may_change_factor=may_change)
    named = await merge_partitions(
        broker.turns,
        ((topic.name, [row.partition_index for row in topic.partitions]) for topic in request.body.topics),
    )
    tables = await tabulate(broker.turns, named, lambda key: refused or outcomes.get(key) or _absence(broker, *key))
    error, message = refused or ApiError(message=None if request.body.topics else "")
    return await with_tables(
        *(broker, request, "responses", "partitions", tables),
        allow_replication_factor_change=may_change or refused is not None or not tables,
        error_code=error,
        error_message=message,
    )


async def _validate(broker: Broker, targets: Targets, outcomes: Outcomes) -> None:
    """Add the outcomes of partitions that do not exist, or whose targets are not valid."""
    cluster = broker.cluster
    for key, target in targets.items():
        await broker.turns.spend(ROW_US + len(target or ()) * LOOKUP_US)
        if not cluster.has_partition(*key):
            outcomes[key] = _absence(broker, *key)
        elif target is not None and (problem := replicas_problem(cluster.own_ids, target)):
            outcomes[key] = ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


async def _reassign(broker: Broker, targets: Targets, outcomes: Outcomes, *, may_change_factor: bool) -> None:
    """Reassign the partitions without an outcome, and add theirs."""
    valid = {key: target for key, target in targets.items() if key not in outcomes}
    try:
        reassigned = await Leadership(broker.cluster).reassign(valid, may_change_factor=may_change_factor)
    except OSError as failure:
        reassigned = dict.fromkeys(valid, ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)))
    outcomes |= reassigned


def _absence(broker: Broker, topic: str, index: int) -> ApiError:
    known = topic in broker.cluster.topics
    absent = f"partition {topic}:{index}" if known else f"a topic named {topic}"
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find {absent}.")
