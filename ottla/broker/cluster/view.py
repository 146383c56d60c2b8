"""The cluster as one of several brokers of a process sees it. shell"""

from ottla.broker.cluster.metadata import Cluster
from ottla.broker.cluster.producer_id_manager import ProducerIdManager
from ottla.broker.log.partition import Partition


class View(Cluster):
    """All metadata of the cluster, and the partitions that this broker leads or has a replica of."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        vars(self).update(vars(cluster))  # all state is the cluster's
        self.node_id = node_id
        self.producer_id_manager = ProducerIdManager(cluster.reserve_producer_ids, cluster._turns, node_id)
        self._whole = cluster

    def replica(self, topic: str, index: int) -> Partition | None:
        """Return the partition if this broker has a replica of it, else None."""
        return self._whole.partition(topic, index) if self.has_replica(topic, index) else None

    def partition(self, topic: str, index: int) -> Partition | None:
        """Return the partition, or None if the cluster has no such topic or index, or this broker does not lead it."""
        return self._whole.partition(topic, index) if self._leads(topic, index) else None

    def is_unopened(self, topic: str, index: int) -> bool:
        """Return whether this broker has a replica of the partition, and it is not open yet."""
        return self.has_replica(topic, index) and self._whole.is_unopened(topic, index)

    async def size_bytes(self, topic: str, index: int) -> int | None:
        """Return the size of the segments of a partition that this broker has a replica of, else None."""
        return await self._whole.size_bytes(topic, index) if self.has_replica(topic, index) else None

    def _leads(self, topic: str, index: int) -> bool:
        return self.leader_of(topic, index)[0] == self.node_id

    def has_replica(self, topic: str, index: int) -> bool:
        """Return whether this broker has a replica of the partition. Opens nothing."""
        if not self.has_partition(topic, index):
            return False
        return self.node_id in self.image.topics[topic].registrations[index].replicas
