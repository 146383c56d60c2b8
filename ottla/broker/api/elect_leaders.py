"""ElectLeaders 0-2: let the first replica of partitions lead, or any one that runs. free

Version notes: 0 only elects the first (preferred) replica; 1 adds the election type: 0 preferred, 1 unclean; 2 is
flexible. An unclean election loses no records, because the brokers of the process share one log. Without a list every
partition is meant, and the reply leaves out those that need no election. A partition that is named twice is answered
once. The leaders are durable before the reply.

Source: `ReplicationControlManager.electLeaders` of Kafka 4.3.1.
"""

from typing import Final

from ottla.broker.api.authorization import ALTER_CLUSTER, MESSAGES
from ottla.broker.api.context import Broker
from ottla.broker.api.partition_rows import (
    MOST_CHANGED,
    TOO_MANY,
    MergedTopics,
    all_partitions,
    merge_partitions,
    tabulate,
)
from ottla.broker.api.reply import with_tables
from ottla.broker.api.request import Reply, Request
from ottla.broker.cluster.leadership import Leadership
from ottla.broker.costs import ROW_US
from ottla.protocol.errors import ApiError, ErrorCode
from ottla.protocol.values import TopicPartition

PREFERRED: Final = 0
UNCLEAN: Final = 1


async def handle(broker: Broker, request: Request) -> Reply:
    """Elect a leader for each partition."""
    asked = request.body.topic_partitions
    refused = _check_election(broker, request)
    named: MergedTopics = {}
    if asked is not None:
        named = await merge_partitions(broker.turns, ((row.topic, row.partitions) for row in asked))
    elif refused is None:
        named = all_partitions(broker)
    election = _Election(broker, is_unclean=_kind(request) == UNCLEAN)
    refused = refused or await election.hold(named)

    def outcome_of(key: TopicPartition) -> ApiError | None:
        outcome = refused or election.outcome_of(key)
        return None if asked is None and outcome.error == ErrorCode.ELECTION_NOT_NEEDED else outcome

    tables = await tabulate(broker.turns, named, outcome_of)
    error = ErrorCode.NONE if refused is None else refused.error
    return await with_tables(broker, request, "replica_election_results", "partition_result", tables, error_code=error)


def _kind(request: Request) -> int:
    return int(request.body.election_type) if request.api_version else PREFERRED


def _check_election(broker: Broker, request: Request) -> ApiError | None:
    if not broker.may(request, ALTER_CLUSTER):
        return ApiError(ALTER_CLUSTER.error, MESSAGES[ALTER_CLUSTER.error])
    kind = _kind(request)
    if kind not in (PREFERRED, UNCLEAN):
        return ApiError(ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}")
    return None


class _Election:
    """The election of a request, and its outcomes."""

    def __init__(self, broker: Broker, *, is_unclean: bool) -> None:
        self._broker = broker
        self._is_unclean = is_unclean
        self._outcomes: dict[TopicPartition, ApiError] = {}

    async def hold(self, named: MergedTopics) -> ApiError | None:
        """Elect the leaders, or return why the whole request is refused. Locks only partitions that get a leader."""
        leadership = Leadership(self._broker.cluster)
        wanted: list[TopicPartition] = []
        for topic, indexes in named.items():
            for index in indexes:
                await self._broker.turns.spend(ROW_US)
                if not self._broker.cluster.has_partition(topic, index):
                    continue
                problem = leadership.election_problem((topic, index), is_unclean=self._is_unclean)
                if problem is None:
                    wanted.append((topic, index))
                else:
                    self._outcomes[topic, index] = problem
        if len(wanted) > MOST_CHANGED:
            return TOO_MANY
        try:
            self._outcomes |= await leadership.elect(wanted, is_unclean=self._is_unclean)
        except OSError as failure:
            self._outcomes |= dict.fromkeys(wanted, ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)))
        return None

    def outcome_of(self, key: TopicPartition) -> ApiError:
        """Return the outcome; that of an unknown partition if it was deleted meanwhile."""
        return self._outcomes.get(key) or self._absence(*key)

    def _absence(self, topic: str, index: int) -> ApiError:
        known = topic in self._broker.cluster.topics
        absent = f"partition as {topic}-{index}" if known else f"topic as {topic}"
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such {absent}")
