"""A range of offsets of a partition of a cluster, without what reads it. pure"""

from itertools import pairwise
from typing import NamedTuple

from ottla.wire.address import KafkaAddress
from ottla.wire.partition_stream import ANY_REPLICA


class OffsetWindow(NamedTuple):
    """The records of a partition of a cluster with offsets in [first_offset, end_offset).

    `topic_id`: zeros from brokers without topic ids. `size_bytes`: an estimate, 0 if unknown. `stable_offset`: all
    transactions that began below it had ended when the partition was listed. `is_committed`: the window ends there or
    below, and its chunks have the aborted transactions. `is_continued`: the batch that has the first offset belongs to
    another window if it begins below. `replica`: the broker to read from, -1 for any.
    """

    cluster: KafkaAddress
    topic: str
    topic_id: bytes
    partition: int
    first_offset: int
    end_offset: int
    size_bytes: int = 0
    stable_offset: int = 0
    is_committed: bool = False
    is_continued: bool = False
    replica: int = ANY_REPLICA

    @property
    def path(self) -> str:
        return f"{self.cluster}/{self.topic}-{self.partition}"

    @property
    def segment(self) -> None:
        """No base offset of a segment: brokers do not show their files."""

    @property
    def base_offset(self) -> int:
        return self.first_offset

    def narrow(self, first_offset: int, end_offset: int) -> "OffsetWindow":
        """Return the part of the window with these offsets, which may be empty."""
        first, end = max(self.first_offset, first_offset), min(self.end_offset, end_offset)
        size = self.size_bytes * max(end - first, 0) // max(self.end_offset - self.first_offset, 1)
        return self._replace(first_offset=first, end_offset=end, size_bytes=size)

    def cut(self, target_bytes: int) -> "list[OffsetWindow]":
        """Return windows of about `target_bytes`, if batches have about equal sizes; none if there are no offsets."""
        first, end = self.first_offset, self.end_offset
        count = min(max(round(self.size_bytes / target_bytes), 1), max(end - first, 0))
        edges = [first + (end - first) * number // count for number in range(count)] + [end]
        windows = [self.narrow(*edge) for edge in pairwise(edges)]
        return [one._replace(is_continued=number > 0) for number, one in enumerate(windows)]
