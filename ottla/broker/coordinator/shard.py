"""Interface of a coordinator's shard: the state of one partition. pure

Source: `CoordinatorShard` of Kafka's coordinator-common.
"""

from typing import Protocol, TypeAlias

from ottla.broker.log.partition import Partition
from ottla.protocol.batch_header import BatchHeader

StateLog: TypeAlias = Partition
"""The log of one partition of a coordinator's topic."""


class CoordinatorShard(Protocol):
    """State that is built from the records of one partition.

    A new shard is empty. It replays every batch of its log in order, and then serves requests, until it has `resigned`
    because another broker leads its partition. A resigned shard accepts no change.
    """

    resigned: bool

    @property
    def log(self) -> StateLog: ...

    def replay(self, header: BatchHeader, batch: memoryview) -> None:
        """Apply the records, or the marker, of one batch of the log."""
