"""CreateTopics 2-7: names, partition counts, configs. free

Partition count and replication factor -1 are the broker's defaults, in every version as in Kafka, although the protocol
has them from version 4 on. The replication factor is at most the number of brokers (`ottla serve --brokers`).

Version notes: 5 is flexible and returns the configs in force to clients that may describe them; others get
TOPIC_AUTHORIZATION_FAILED in their place; 6 may answer THROTTLING_QUOTA_EXCEEDED (KIP-599); 7 returns the topic id.
"""

import logging
from collections.abc import Collection, Container, Iterable, Sequence
from typing import Any, Final

from ottla.broker.api.authorization import CREATE_ANY_TOPIC, CREATE_TOPIC, SEE_TOPIC_CONFIGS, find_denials
from ottla.broker.api.context import Broker
from ottla.broker.api.indexed_rows import index_rows
from ottla.broker.api.reply import ReplyBuilder, ReplyRows
from ottla.broker.api.request import Reply, Request
from ottla.broker.cluster.image import INTERNAL_TOPICS
from ottla.broker.cluster.kraft_log import METADATA_TOPIC
from ottla.broker.cluster.metadata import Cluster
from ottla.broker.config import describe_topic, topic_config_problem
from ottla.broker.costs import CHANGE_US, CONFIG_ENTRY_US, ROW_US
from ottla.broker.quotas.managers import QUOTA_EXCEEDED, ControllerMutationQuota
from ottla.protocol.errors import ApiError, ErrorCode
from ottla.protocol.values import ZERO_UUID

log = logging.getLogger(__name__)

MAX_PARTITIONS: Final = 10_000
"""The partitions of one request, of all its topics together (`ReplicationControlManager.MAX_PARTITIONS_PER_BATCH`)."""

FIRST_STRICT_VERSION: Final = 6

_REFUSED: Final = ApiError(CREATE_TOPIC.error, "Authorization failed.")
_EXCESSIVE: Final = ApiError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
_LOGGED: Final = frozenset((ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICA_ASSIGNMENT))
_DUPLICATE: Final = ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")


async def handle(broker: Broker, request: Request) -> Reply:
    """Create each topic, or only check it when `validate_only`."""
    body = request.body
    first, twice = await index_rows(broker.turns, body.topics, lambda topic: topic.name)
    refused = await _may_not_create(broker, request, (name for name in first if name not in twice))
    excessive = await _are_too_many(broker, body.topics, refused)
    outcomes: dict[str, ApiError | bytes] = dict.fromkeys(refused, _REFUSED)
    outcomes.update(dict.fromkeys(first, _EXCESSIVE) if excessive else dict.fromkeys(twice, _DUPLICATE))
    accepted = [topic for name, topic in first.items() if name not in outcomes]
    quota = request.mutation_quota(FIRST_STRICT_VERSION)
    unplaced: list[str] = []
    try:
        await broker.cluster.controller.in_parts(
            accepted,
            lambda topic: topic.name,
            lambda part: _create(broker, part, body.validate_only, quota, outcomes, unplaced),
        )
    except OSError as error:
        failed = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        for topic in accepted:
            if not isinstance(outcomes.get(topic.name), ApiError):
                outcomes[topic.name] = failed
    if unplaced:
        _log_refused_replicas(request, unplaced, outcomes[unplaced[0]])
    reply = ReplyBuilder(broker, request)
    topics = reply.rows("topics")
    for name, topic in first.items():
        await _add_row(broker, request, topics, topic, outcomes[name])
    return reply.finish(topics=topics)


async def _may_not_create(broker: Broker, request: Request, names: Iterable[str]) -> Collection[str]:
    """Return the topics that this client may not create (`ControllerApis.createTopics`)."""
    if broker.may(request, CREATE_ANY_TOPIC):
        return ()
    return await find_denials(broker, request, CREATE_TOPIC, (name for name in names if name != METADATA_TOPIC))


async def _are_too_many(broker: Broker, topics: Sequence[Any], refused: Container[str]) -> bool:
    """Return whether the request has more partitions than one request may; each mention of a topic counts."""
    count = 0
    for topic in topics:
        count += 0 if topic.name in refused else _partition_count(broker, topic)
        if count > MAX_PARTITIONS:
            return True
        await broker.turns.spend(ROW_US)
    return False


async def _create(
    broker: Broker,
    accepted: Sequence[Any],
    validate_only: bool,
    quota: ControllerMutationQuota | None,
    outcomes: dict[str, ApiError | bytes],
    unplaced: list[str],
) -> None:
    """Decide each topic and log it. `outcomes` get the id or the refusal, `unplaced` names without a broker."""
    for topic in accepted:
        refused = _check_topic(broker, topic)
        if refused is not None:
            outcomes[topic.name] = refused
            if refused.error in _LOGGED:
                unplaced.append(topic.name)
        elif quota is not None and not quota.takes(_partition_count(broker, topic)):
            outcomes[topic.name] = QUOTA_EXCEEDED
        elif validate_only:
            outcomes[topic.name] = b""
        else:
            count = _partition_count(broker, topic)
            outcomes[topic.name] = await broker.cluster.controller.create_topic(
                topic.name, count, _own(topic), _factor(broker, topic), _replicas_of(topic)
            )
        await broker.turns.spend(CHANGE_US)


def _log_refused_replicas(request: Request, names: Sequence[str], refusal: ApiError | bytes) -> None:
    """Log topics that want replicas which one broker cannot have, because few applications print the message of the
    reply."""
    assert isinstance(refusal, ApiError)
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    log.warning(
        "Refused CreateTopics of topic %(topic).100s%(more)s from client %(client_id).100s at %(peer)s: "
        "%(error)s: %(why)s",
        request.about | {"topic": names[0], "more": more, "error": refusal.error.name, "why": refusal.message},
    )


def _check_topic(broker: Broker, topic: Any) -> ApiError | None:
    if topic.name in INTERNAL_TOPICS and topic.name not in broker.cluster.topics:
        return ApiError(ErrorCode.INVALID_REQUEST, f"The internal topic {topic.name} is created when it is needed")
    problem = broker.cluster.name_problem(topic.name)
    if problem is not None:
        return ApiError(*problem)
    message = topic_config_problem(_configs(topic))
    if message:
        return ApiError(ErrorCode.INVALID_CONFIG, message)
    return _refuse_assignment(broker, topic) if topic.assignments else _refuse_counts(broker, topic)


def _refuse_counts(broker: Broker, topic: Any) -> ApiError | None:
    """Return the reason why the counts are invalid, or None. Source: `ReplicationControlManager.createTopic`,
    `StripedReplicaPlacer`."""
    factor, brokers = topic.replication_factor, len(broker.cluster.own_ids)
    if factor < -1 or factor == 0:
        return ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        return ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    if factor > brokers:
        return ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be "
            f"reached because only {brokers} broker(s) are registered. {_count(brokers)}: use a replication factor of "
            f"at most {brokers}, or -1, or more brokers (`ottla serve --brokers`).",
        )
    return None


def _refuse_assignment(broker: Broker, topic: Any) -> ApiError | None:
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        return ApiError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, so partitions and replication factor must be -1.",
        )
    indexes = sorted(row.partition_index for row in topic.assignments)
    if indexes != list(range(len(indexes))):
        return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The partitions must be numbered from 0 without a gap.")
    assigned = _replicas_of(topic)
    problem = assignment_problem(broker.cluster, len(assigned[0]), assigned, 0)
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem) if problem else None


def assignment_problem(cluster: Cluster, factor: int, assigned: Sequence[Sequence[int]], first: int) -> str:
    """Return the reason why partitions of a topic with `factor` replicas cannot have these; empty if they can. `first`
    is the number of the first partition."""
    for index, replicas in enumerate(assigned, first):
        if problem := replicas_problem(cluster.own_ids, replicas):
            return problem
        if cluster.stopped_ids.issuperset(replicas):
            return (
                f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
                "controlled shutdown."
            )
        if len(replicas) != factor:
            return (
                f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is "
                f"not consistent with previous partitions, which have {factor} replica(s)."
            )
    return ""


def replicas_problem(brokers: range, replicas: Sequence[int]) -> str:
    """Return the reason why a partition cannot have these replicas; empty if it can.

    Source: `ReplicationControlManager.validateManualPartitionAssignment`.
    """
    if not replicas:
        problem = "an empty replica list."
    elif (unknown := next((replica for replica in sorted(replicas) if replica not in brokers), None)) is not None:
        problem = f"broker {unknown}, but no such broker is registered."
    elif (twice := next((each for each in sorted(replicas) if replicas.count(each) > 1), None)) is not None:
        problem = f"the broker {twice} more than once."
    else:
        return ""
    ids = ", ".join(map(str, brokers))
    return f"The manual partition assignment includes {problem} {_count(len(brokers))}: assign each partition to {ids}."


def _count(brokers: int) -> str:
    return "Ottla is one broker" if brokers == 1 else f"Ottla is {brokers} brokers"


def _partition_count(broker: Broker, topic: Any) -> int:
    """Return the number of partitions that a topic would get; at least 0."""
    if topic.assignments:
        return len(topic.assignments)
    return broker.cluster.default_partitions if topic.num_partitions == -1 else max(0, int(topic.num_partitions))


def _factor(broker: Broker, topic: Any) -> int:
    """Return the replication factor of a topic whose request is valid."""
    if topic.assignments:
        return len(topic.assignments[0].broker_ids)
    return broker.cluster.default_factor if topic.replication_factor == -1 else int(topic.replication_factor)


def _replicas_of(topic: Any) -> list[tuple[int, ...]]:
    """Return the replicas of each partition by its number; none if the request does not assign them."""
    rows = sorted(topic.assignments or (), key=lambda row: row.partition_index)
    return [tuple(row.broker_ids) for row in rows]


def _configs(topic: Any) -> dict[str, str | None]:
    return {config.name: config.value for config in topic.configs or ()}


def _own(topic: Any) -> dict[str, str]:
    return {name: value for name, value in _configs(topic).items() if value is not None}


async def _add_row(broker: Broker, request: Request, topics: ReplyRows, topic: Any, outcome: ApiError | bytes) -> None:
    if isinstance(outcome, ApiError):
        await topics.add(topic.name, ZERO_UUID, outcome.error, outcome.message, configs=None)
        return
    if request.api_version >= 5 and not broker.may(request, SEE_TOPIC_CONFIGS, topic.name):
        created = topic.name, outcome or ZERO_UUID, ErrorCode.NONE, None
        await topics.add(*created, configs=(), topic_config_error_code=SEE_TOPIC_CONFIGS.error)
        return
    entries = sorted(describe_topic(broker.config, _own(topic))) if request.api_version >= 5 else ()
    broker.turns.charge(len(entries) * CONFIG_ENTRY_US)
    await topics.add(
        name=topic.name,
        topic_id=outcome or ZERO_UUID,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=_partition_count(broker, topic),
        replication_factor=_factor(broker, topic),
        configs=[(entry.name, entry.value, entry.read_only, entry.source, False) for entry in entries],
    )
