"""Series of consumer groups: members, committed offsets and lag. free"""

from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

from ottla.admin.metrics import families as f
from ottla.admin.metrics.exposition import Exposition, Family, Labels, labels
from ottla.broker.api.context import Broker
from ottla.broker.costs import LOOKUP_US, ROW_US
from ottla.broker.group.consumer.consumer_group import ConsumerGroup, ConsumerGroupState
from ottla.broker.group.shard import GroupMetadata
from ottla.broker.log.partition import Partition
from ottla.protocol.values import TopicPartition

MOST_GROUPS: Final = 2_000
MOST_OFFSETS: Final = 5_000
MOST_NAME_CHARS: Final = 249
"""The limit of a topic's name. A group's name may have 32,767 bytes, and shortened names could become equal."""


class _Offset(NamedTuple):
    row: Labels
    committed: int
    lag: int
    stable_lag: int


class Groups:
    """The groups of one scrape."""

    def __init__(self) -> None:
        self.left_out = 0
        self.offsets_left_out = 0
        self._states: Counter[str] = Counter()
        """Of classic groups."""
        self._consumer_states: Counter[str] = Counter()
        self._members: list[tuple[Labels, int]] = []
        self._offsets: list[_Offset] = []
        self._sums: dict[tuple[str, str], tuple[int, int]] = {}

    async def collect(self, broker: Broker) -> None:
        """Find the groups; none until all are loaded."""
        turns = broker.turns
        groups = broker.list_groups()
        turns.charge(len(groups) * LOOKUP_US)
        for metadata in groups:
            await turns.spend(ROW_US)
            group = metadata.group
            states = self._consumer_states if isinstance(group, ConsumerGroup) else self._states
            states[group.state.value] += 1
            if len(self._members) >= MOST_GROUPS or len(group.group_id) > MOST_NAME_CHARS:
                self.left_out += 1
                continue
            self._members.append((labels(consumergroup=group.group_id), len(group.members)))
            await self._collect_offsets(broker, metadata)

    async def _collect_offsets(self, broker: Broker, metadata: GroupMetadata) -> None:
        turns, offsets, group_id = broker.turns, metadata.offsets, metadata.group.group_id
        left = MOST_OFFSETS - len(self._offsets)
        self.offsets_left_out += max(0, offsets.at_most - left)
        turns.charge(offsets.at_most * LOOKUP_US)
        for place in dict.fromkeys(islice(offsets.places(), left)):
            await turns.spend(ROW_US)
            found = offsets.get(place)
            if found is not None:
                self._add(group_id, place, found.value.offset, _open_partition(broker, place))

    def _add(self, group_id: str, place: TopicPartition, committed: int, partition: Partition | None) -> None:
        topic, index = place
        row = labels(consumergroup=group_id, topic=topic, partition=index)
        lag = stable_lag = -1  # the partition is not there, or not opened yet
        if partition is not None:
            lag = max(0, partition.high_watermark - committed)
            stable_lag = max(0, partition.last_stable_offset - committed)
        self._offsets.append(_Offset(row, committed, lag, stable_lag))
        sums = self._sums.get((group_id, topic), (0, 0))
        self._sums[group_id, topic] = sums[0] + committed, sums[1] + max(0, lag)

    async def write(self, page: Exposition, broker: Broker) -> None:
        """Write all series of the groups."""
        await page.write_one(f.GROUP_COUNT, self._states.total())
        for state, family in f.GROUP_COUNTS.items():
            await page.write_one(family, self._states[state])
        by_protocol = {"classic": self._states.total(), "consumer": self._consumer_states.total()}
        await page.write(f.COUNT_BY_PROTOCOL, ((labels(protocol=name), count) for name, count in by_protocol.items()))
        by_state = ((labels(state=each.value), self._consumer_states[each.value]) for each in ConsumerGroupState)
        await page.write(f.CONSUMER_GROUP_COUNT, by_state)
        await page.write_one(f.CLASSIC_REBALANCES, sum(each.groups.completed_rebalances for each in broker.brokers))
        consumer_groups = [each.groups.consumer_groups for each in broker.brokers]
        await page.write_one(f.CONSUMER_REBALANCES, sum(each.rebalances for each in consumer_groups))
        await page.write(f.GROUP_MEMBERS, self._members)
        await self._each(page, f.GROUP_OFFSET, lambda offset: offset.committed)
        await self._each(page, f.GROUP_LAG, lambda offset: offset.lag)
        await self._each(page, f.STABLE_LAG, lambda offset: offset.stable_lag)
        rows = [(labels(consumergroup=group_id, topic=topic), sums) for (group_id, topic), sums in self._sums.items()]
        await page.write(f.GROUP_OFFSET_SUM, ((row, sums[0]) for row, sums in rows))
        await page.write(f.GROUP_LAG_SUM, ((row, sums[1]) for row, sums in rows))

    async def _each(self, page: Exposition, family: Family, of: Callable[[_Offset], int]) -> None:
        await page.write(family, ((offset.row, of(offset)) for offset in self._offsets))


def _open_partition(broker: Broker, place: TopicPartition) -> Partition | None:
    return None if broker.cluster.is_unopened(*place) else broker.cluster.partition(*place)
