"""Partitions that a request names by topic, and the outcome of each in the reply. free"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from ottla.broker.api.context import Broker
from ottla.broker.costs import LOOKUP_US, ROW_US
from ottla.broker.turns import Turns
from ottla.protocol.errors import ApiError, ErrorCode
from ottla.protocol.values import TopicPartition

TOO_MANY: Final = ApiError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
MOST_CHANGED: Final = 10_000
"""The partitions that one request may change (`QuorumController.MAX_RECORDS_PER_USER_OP`)."""

MergedTopics = Mapping[str, Iterable[int]]
"""topic -> partitions, each once, in the order of their first mention."""
Tables = list[tuple[str, list[tuple[int, ErrorCode, str | None]]]]
"""(topic, [(partition, error, message)]), as replies have them."""


async def merge_partitions(turns: Turns, topics: Iterable[tuple[str, Sequence[int]]]) -> MergedTopics:
    """Merge the mentions of each topic. Works in turns, because a request may have 16,384 rows."""
    merged: dict[str, dict[int, None]] = {}
    for name, indexes in topics:
        merged.setdefault(name, {}).update(dict.fromkeys(indexes))
        await turns.spend(ROW_US + len(indexes) * LOOKUP_US)
    return merged


def all_partitions(broker: Broker) -> MergedTopics:
    """Return the partitions of all topics, for a request without a list."""
    topics = broker.cluster.topics
    broker.turns.charge(len(topics) * LOOKUP_US)
    return {name: range(topic.partition_count) for name, topic in topics.items()}


async def tabulate(
    turns: Turns, named: MergedTopics, outcome_of: Callable[[TopicPartition], ApiError | None]
) -> Tables:
    """Return the outcomes of partitions by topic, without those that are None."""
    tables: Tables = []
    for name, indexes in named.items():
        rows: list[tuple[int, ErrorCode, str | None]] = []
        for index in indexes:
            outcome = outcome_of((name, index))
            if outcome is not None:
                rows.append((index, *outcome))
            await turns.spend(LOOKUP_US)
        tables.append((name, rows))
    return tables
