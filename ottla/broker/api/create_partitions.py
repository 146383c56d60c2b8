"""CreatePartitions 0-3: add partitions to existing topics. free

Version notes: 2 is flexible; 3 may answer THROTTLING_QUOTA_EXCEEDED (KIP-599). A new partition has as many replicas as
partition 0, also where a client assigns them. The internal topics keep their number of partitions, because it
determines the partition of each id or group.
"""

from collections.abc import Sequence
from typing import Any, Final

from ottla.broker.api.authorization import ALTER_TOPIC, find_denials
from ottla.broker.api.context import Broker
from ottla.broker.api.create_topics import assignment_problem
from ottla.broker.api.indexed_rows import index_rows
from ottla.broker.api.reply import with_rows
from ottla.broker.api.request import Reply, Request
from ottla.broker.cluster.image import TopicImage
from ottla.broker.cluster.metadata import Cluster
from ottla.broker.costs import CHANGE_US
from ottla.broker.quotas.managers import QUOTA_EXCEEDED, ControllerMutationQuota
from ottla.protocol.errors import ApiError, ErrorCode

FIRST_STRICT_VERSION: Final = 3
MAX_PARTITIONS: Final = 10_000
"""The partitions that one request may add (`QuorumController.MAX_RECORDS_PER_USER_OP`)."""


async def handle(broker: Broker, request: Request) -> Reply:
    """Add partitions to each topic, or only check the request when `validate_only`."""
    body = request.body
    first, twice = await index_rows(broker.turns, body.topics, lambda item: item.name)
    outcomes: dict[str, ApiError | None] = dict.fromkeys(first)
    outcomes.update(dict.fromkeys(twice, ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")))
    refused = await find_denials(broker, request, ALTER_TOPIC, (name for name in first if name not in twice))
    outcomes.update(dict.fromkeys(refused, ApiError(ALTER_TOPIC.error)))
    accepted = [item for name, item in first.items() if outcomes[name] is None]
    adding = _Adding(broker, body.validate_only, request.mutation_quota(FIRST_STRICT_VERSION), outcomes)
    try:
        await broker.cluster.controller.in_parts(accepted, lambda item: item.name, adding.add)
    except OSError as failure:
        failed = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
        outcomes = {name: outcome or failed for name, outcome in outcomes.items()}
    return await with_rows(broker, request, "results", ((name, *(outcomes[name] or ApiError())) for name in first))


class _Adding:
    """A CreatePartitions request in progress. Refusals are set in `outcomes`."""

    def __init__(
        self,
        broker: Broker,
        validate_only: bool,
        quota: ControllerMutationQuota | None,
        outcomes: dict[str, ApiError | None],
    ) -> None:
        self._broker = broker
        self._quota = quota
        self._validate_only = validate_only
        self._outcomes = outcomes
        self._left = MAX_PARTITIONS

    async def add(self, accepted: Sequence[Any]) -> None:
        """Decide on each topic and log its partitions."""
        cluster, turns = self._broker.cluster, self._broker.turns
        for item in accepted:
            topic = cluster.topics.get(item.name)
            refused = _check_growth(cluster, topic, item, self._left)
            if refused is None and topic is not None and self._quota is not None:
                refused = None if self._quota.takes(item.count - topic.partition_count) else QUOTA_EXCEEDED
            self._outcomes[item.name] = refused
            if topic is not None and refused is None:
                self._left -= item.count - topic.partition_count
                if not self._validate_only:
                    await cluster.controller.add_partitions(topic, item.count, _replicas_of(item))
            await turns.spend(CHANGE_US)


def _check_growth(cluster: Cluster, topic: TopicImage | None, item: Any, left: int) -> ApiError | None:
    """Return the reason why partitions cannot be added, or None. Source:
    `ReplicationControlManager.createPartitions`."""
    if topic is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.internal:
        return ApiError(ErrorCode.INVALID_REQUEST, f"The number of partitions of {topic.name} cannot be changed")
    added = item.count - topic.partition_count
    if added == 0:
        return ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {topic.partition_count} partition(s).")
    if added < 0:
        return ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {topic.partition_count} partition(s); {item.count} would not be an "
            "increase.",
        )
    if item.assignments is not None:
        problem = _assignment_problem(cluster, topic, added, _replicas_of(item))
        if problem:
            return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    if added > left:
        return ApiError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    return None


def _replicas_of(item: Any) -> list[tuple[int, ...]]:
    """Return the replicas of each new partition; none if the request does not assign them."""
    return [tuple(row.broker_ids) for row in item.assignments or ()]


def _assignment_problem(cluster: Cluster, topic: TopicImage, added: int, assignments: Sequence[Sequence[int]]) -> str:
    if len(assignments) != added:
        found = f"only {len(assignments)} assignment(s) were specified."
        return f"Attempted to add {added} additional partition(s), but {found}"
    return assignment_problem(cluster, topic.replication_factor, assignments, topic.partition_count)
