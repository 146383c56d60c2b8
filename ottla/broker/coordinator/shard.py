"""One partition of a coordinator's topic, and what the coordinator needs of the log beneath. pure

Source: `CoordinatorShard` of Kafka's coordinator-common.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from ottla.protocol.batch_header import BatchHeader
from ottla.protocol.errors import ErrorCode


class AppendOutcome(Protocol):
    """What a coordinator reads of the log's answer."""

    @property
    def error(self) -> ErrorCode: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...


class StateLog(Protocol):
    """The log of one partition."""

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
        """Append a batch that the broker itself has built."""

    def when_durable(self, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        """Call back once the record at `offset` is below the high watermark, or with the reason why it never will."""

    def scan(self, from_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch from `from_offset` to the log end."""


class CoordinatorShard(Protocol):
    """What the records of one partition say.

    It is built empty, is given every batch of its log in order, and then serves.
    """

    @property
    def log(self) -> StateLog: ...

    def replay(self, header: BatchHeader, batch: memoryview) -> None:
        """Apply the records, or the marker, of one batch of the log."""


class KnownTopic(Protocol):
    @property
    def partition_count(self) -> int: ...


class ClusterView(Protocol):
    """Where the shards of a coordinator are found."""

    @property
    def topics(self) -> Mapping[str, KnownTopic]: ...

    def partition(self, topic: str, index: int) -> StateLog | None:
        """The partition if this broker leads it."""

    async def opened(self, topic: str, index: int) -> StateLog | None:
        """`partition`, opened in shares if it is not open yet."""
