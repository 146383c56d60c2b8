"""Durability that comes later than the append, as where every append is flushed before it is acknowledged. free

A kill still loses nothing: the bytes are written. But the high watermark stands still until the flush ends, so
requests wait, records of the coordinator are pending, and what is asked meanwhile meets both.
"""

from collections.abc import Callable, Sequence
from random import Random

from ottla.broker.assembly import Assembly
from ottla.broker.cluster.metadata import METADATA_TOPIC
from ottla.broker.log.partition import Partition
from ottla.testkit.simulation.schedule import VirtualClock


class Flushes:
    """The flushes of one life of the broker: one under way per log, each as long as `delay_ms` draws."""

    def __init__(self, clock: VirtualClock, delay_ms: Callable[[], float]) -> None:
        self._clock = clock
        self._delay_ms = delay_ms
        self._under_way: dict[Partition, int] = {}

        class FlushedPartition(Partition):
            """A partition whose high watermark follows its flushes."""

            __slots__ = ()

            def _advance(partition, end_offset: int) -> None:
                self.written(partition)

        self._partition_class = FlushedPartition

    def take_over(self, partition: Partition) -> None:
        """From now on what is appended to this log waits for its flush."""
        partition.__class__ = self._partition_class

    def written(self, partition: Partition) -> None:
        """Flush what is there, unless a flush is under way: then the next one takes it."""
        if partition in self._under_way or partition.offline is not None:
            return
        self._under_way[partition] = partition.log_end_offset
        self._clock.call_later(self._delay_ms(), lambda: self._flushed(partition))

    @property
    def busy(self) -> bool:
        """Whether something is not durable yet."""
        return bool(self._under_way)

    def finish(self) -> None:
        """End every flush now, and those that come of it."""
        while self._under_way:
            self._flushed(next(iter(self._under_way)))

    def _flushed(self, partition: Partition) -> None:
        end_offset = self._under_way.pop(partition, None)
        if end_offset is None or partition.offline is not None:
            return  # `finish` was faster
        Partition._advance(partition, end_offset)
        if partition.log_end_offset > partition.high_watermark:
            self.written(partition)


def flush_later(assembly: Assembly, clock: VirtualClock, random: Random, flush_ms: Sequence[float]) -> Flushes | None:
    """Let durability lag (least, most) ms behind the append, mostly little; None for an empty `flush_ms`.

    Metadata stays as it is: its appends are synced before anything follows from them.
    """
    if not flush_ms:
        return None
    least_ms, most_ms = flush_ms
    flushes = Flushes(clock, lambda: least_ms + (most_ms - least_ms) * random.random() ** 2)
    for partition in assembly.broker.cluster.partitions():
        if partition.topic != METADATA_TOPIC:
            flushes.take_over(partition)
    return flushes
