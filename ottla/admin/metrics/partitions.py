"""Series of topics and their partitions. free"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ottla.admin.metrics import families as f
from ottla.admin.metrics.exposition import Exposition, Family, Labels, Row, labels
from ottla.admin.metrics.recent import Meters
from ottla.broker.api.context import Broker
from ottla.broker.costs import LOOKUP_US, ROW_US
from ottla.broker.log.partition import Partition

MOST_PARTITIONS: Final = 2_000
"""Partitions with series of their own: clients choose the names and the number of topics."""

_Counted = Callable[[Partition], int]


class _Topic(NamedTuple):
    name: str
    row: Labels
    size: int
    partitions: list[Partition]

    def total(self, of: _Counted) -> int:
        return sum(map(of, self.partitions))


class Partitions:
    """The topics and partitions of one scrape."""

    def __init__(self) -> None:
        self.left_out = 0
        self.offline = 0
        self._topics: list[_Topic] = []
        self._rows: list[tuple[Labels, Partition]] = []

    async def collect(self, broker: Broker) -> None:
        """Find the partitions. A topic is included as a whole or left out; unopened partitions stay unopened."""
        turns, cluster = broker.turns, broker.cluster
        names = [*cluster.topics]
        turns.charge(len(names) * LOOKUP_US)
        for name in names:
            await turns.yield_if_due()
            topic = cluster.topics.get(name)
            if topic is None:  # it was deleted meanwhile
                continue
            count = topic.partition_count
            if len(self._rows) + count > MOST_PARTITIONS:
                self.left_out += count
                continue
            found = []
            for index in range(count):
                turns.charge(ROW_US)
                partition = None if cluster.is_unopened(name, index) else cluster.partition(name, index)
                if partition is not None:
                    found.append(partition)
                    self._rows.append((labels(topic=name, partition=index), partition))
                    self.offline += partition.offline is not None
            self._topics.append(_Topic(name, labels(topic=name), count, found))

    async def write(self, page: Exposition, broker: Broker, ages: "Ages", meters: Meters, at_ms: float) -> None:
        """Write all series of the partitions."""
        await page.write(f.PARTITIONS, ((topic.row, topic.size) for topic in self._topics))
        await self._each(page, f.CURRENT_OFFSET, lambda partition: partition.high_watermark)
        await self._each(page, f.OLDEST_OFFSET, lambda partition: partition.log_start_offset)
        node_id = broker.cluster.node_id
        await self._each(page, f.LEADER, lambda partition: node_id)
        for family in (f.REPLICAS, f.IN_SYNC, f.PREFERRED, f.REPLICAS_COUNT):
            await self._each(page, family, lambda partition: 1)
        await self._each(page, f.UNDER_REPLICATED, lambda partition: 0)
        await self._each(page, f.LOG_SIZE, lambda partition: partition.log.size_bytes)
        await self._each(page, f.LOG_START, lambda partition: partition.log_start_offset)
        await self._each(page, f.LOG_END, lambda partition: partition.log_end_offset)
        await self._each(page, f.LAST_STABLE_OFFSET, lambda partition: partition.last_stable_offset)
        await page.write(f.STABLE_AGE, ages.collect(self._rows, at_ms))
        await page.write(f.OPEN_IN_PARTITION, self._list_open())
        metrics = broker.metrics
        await self._write_counter(page, f.MESSAGES_IN, metrics.records_in, lambda partition: partition.records_in)
        await self._write_counter(page, f.BYTES_IN, metrics.bytes_in, lambda partition: partition.bytes_in)
        await self._write_counter(page, f.BYTES_OUT, metrics.bytes_out, lambda partition: partition.bytes_out)
        await self._write_counter(page, f.PRODUCE_REQUESTS, None, lambda partition: partition.produce_requests)
        await self._write_counter(page, f.FETCH_REQUESTS, None, lambda partition: partition.fetch_requests)
        await page.write(f.FIFTEEN_MINUTE_RATE, self._rates(broker, meters, at_ms))

    async def _each(self, page: Exposition, family: Family, of: Callable[[Partition], float]) -> None:
        await page.write(family, ((row, of(partition)) for row, partition in self._rows))

    async def _write_counter(
        self, page: Exposition, families: tuple[Family, Family], total: int | None, of: _Counted
    ) -> None:
        for family in families:
            await page.write(family, self._totals(total, of))

    def _totals(self, total: int | None, of: _Counted) -> Iterator[Row]:
        if total is not None:
            yield "", total
        for topic in self._topics:
            yield topic.row, topic.total(of)

    def _list_open(self) -> Iterator[Row]:
        for row, partition in self._rows:
            count = len(partition.log.producer_state.ongoing_txns)
            if count:
                yield row, count

    def _rates(self, broker: Broker, meters: Meters, at_ms: float) -> Iterator[Row]:
        """Return the rates. The label `name` is first, because kafka-ui reads only the first label."""
        for name, total, of in (
            ("BytesInPerSec", broker.metrics.bytes_in, _bytes_in),
            ("BytesOutPerSec", broker.metrics.bytes_out, _bytes_out),
        ):
            yield labels(name=name), meters.rate((name, ""), total, at_ms)
            for topic in self._topics:
                yield labels(name=name, topic=topic.name), meters.rate((name, topic.name), topic.total(of), at_ms)


def _bytes_in(partition: Partition) -> int:
    return partition.bytes_in


def _bytes_out(partition: Partition) -> int:
    return partition.bytes_out


class Ages:
    """The times since scrapes first found a last stable offset at its place, below the high watermark."""

    def __init__(self) -> None:
        self._since: dict[Labels, tuple[int, float]] = {}

    def collect(self, rows: list[tuple[Labels, Partition]], at_ms: float) -> Iterator[Row]:
        """Yield the age in seconds of each last stable offset that is below the high watermark."""
        since = self._since
        if len(since) > MOST_PARTITIONS:  # some of them are gone
            since.clear()
        for row, partition in rows:
            offset = partition.last_stable_offset
            if offset >= partition.high_watermark:
                since.pop(row, None)
                continue
            known = since.get(row)
            if known is None or known[0] != offset:
                known = since[row] = offset, at_ms
            yield row, (at_ms - known[1]) / 1000
