"""Interfaces of a coordinator: the shard of one partition, and the log below it. pure

Source: `CoordinatorShard` of Kafka's coordinator-common.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from ottla.protocol.batch_header import BatchHeader
from ottla.protocol.errors import ErrorCode


class AppendOutcome(Protocol):
    """Result of an append, as far as a coordinator reads it."""

    @property
    def error(self) -> ErrorCode: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...


class StateLog(Protocol):
    """The log of one partition of a coordinator's topic."""

    @property
    def index(self) -> int: ...
    @property
    def offline(self) -> str | None: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...

    def append_own(self, batch: bytearray) -> AppendOutcome:
        """Append a batch that the broker built."""

    def when_durable(self, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        """Call `callback` with NONE once `offset` is below the high watermark, or with the error that prevents it."""

    def scan(self, from_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield (header, bytes) of every batch from `from_offset` to the log end."""


class CoordinatorShard(Protocol):
    """State that is built from the records of one partition.

    A new shard is empty. It replays every batch of its log in order, and then serves requests.
    """

    @property
    def log(self) -> StateLog: ...

    def replay(self, header: BatchHeader, batch: memoryview) -> None:
        """Apply the records, or the marker, of one batch of the log."""


class KnownTopic(Protocol):
    @property
    def partition_count(self) -> int: ...


class ClusterView(Protocol):
    """Topics and partitions of the cluster, as far as a coordinator needs them."""

    @property
    def topics(self) -> Mapping[str, KnownTopic]: ...

    def partition(self, topic: str, index: int) -> StateLog | None:
        """Return the partition if this broker leads it, else None."""

    async def get_or_open(self, topic: str, index: int) -> StateLog | None:
        """Return the same as `partition`. Open it first, over several turns, if it is not open yet."""
