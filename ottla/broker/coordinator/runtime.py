"""The shards of one coordinator: which serve, and why another does not. shell

What a shard is of, transactional ids or groups, is not known here: who asks names a partition.

Source: `CoordinatorRuntime` of Kafka's coordinator-common.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from ottla.broker.coordinator.loader import CoordinatorLoader
from ottla.broker.coordinator.shard import ClusterView, CoordinatorShard, StateLog
from ottla.broker.turns import Handler, Turns
from ottla.protocol.errors import ErrorCode

S = TypeVar("S", bound=CoordinatorShard)


class CoordinatorRuntime(Generic[S]):
    """The partitions of one internal topic. Each serves once its log is replayed.

    `shards` has those; `loading` the indexes of those that are being replayed. For the other parameters see
    `CoordinatorLoader`.
    """

    def __init__(
        self,
        topic: str,
        cluster: ClusterView,
        turns: Turns,
        new_shard: Callable[[StateLog], S],
        loaded: Callable[[S], Handler[None]],
        settle: Callable[[], Handler[None]] | None = None,
    ) -> None:
        self.topic = topic
        self._cluster = cluster
        self._loader = CoordinatorLoader(topic, cluster, turns, new_shard, loaded, settle)
        self.shards = self._loader.shards
        self.loading = self._loader.loading

    def start(self) -> None:
        """Replay every partition that there is, over as many turns as it takes."""
        topic = self._cluster.topics.get(self.topic)
        if topic is not None:
            self._loader.load(range(topic.partition_count))

    def stop(self) -> None:
        """Read nothing any more."""
        self._loader.stop()

    def shard_at(self, index: int) -> S | ErrorCode:
        """The shard of a partition, or why it cannot answer. One that came into being since the start is empty."""
        if index in self.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        shard = self.shards.get(index)
        if shard is not None:
            return shard if shard.log.offline is None else ErrorCode.NOT_COORDINATOR
        partition = self._cluster.partition(self.topic, index)
        if index in self._loader.broken or partition is None or partition.offline is not None:
            return ErrorCode.NOT_COORDINATOR
        self._loader.load((index,))
        return self.shards.get(index, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
