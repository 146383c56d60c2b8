"""Writer of transaction markers to the partitions of this process. shell

The brokers of one process append markers themselves, without the channel to other brokers that Kafka has
(`TransactionMarkerChannelManager`). `completed_by` has a function for each topic whose leader does more than append:
the group coordinator applies pending offsets.
"""

from collections.abc import Callable

from ottla.broker.cluster.links import Links
from ottla.broker.cluster.metadata import Cluster
from ottla.broker.log.flusher import Flusher
from ottla.broker.log.partition import Partition
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.internal_topics.metadata_records import NO_LEADER
from ottla.protocol.values import TransactionMarker


class LocalMarkerWriter:
    """Writes the markers of the transaction coordinator of broker `node_id`."""

    def __init__(self, cluster: Cluster, flusher: Flusher, node_id: int, links: Links | None = None) -> None:
        """`cluster` has all partitions of the process. `links` are those between its brokers if it has several."""
        self._cluster = cluster
        self._flusher = flusher
        self._node_id = node_id
        self._links = links
        self.completed_by: dict[str, Callable[[Partition, TransactionMarker], ErrorCode]] = {}

    @property
    def flushing(self) -> bool:
        """Return whether a written marker may not be durable yet."""
        return self._flusher.busy

    def when_durable(self, topic: str, index: int, callback: Callable[[ErrorCode], None]) -> None:
        """Call `callback` when all current records of the partition are durable, or with the error if that fails."""
        partition = self._cluster.partition(topic, index)
        if partition is None:
            callback(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            partition.when_durable(partition.log_end_offset - 1, callback)

    def write_marker(self, topic: str, index: int, marker: TransactionMarker) -> ErrorCode:
        """Append a marker to the partition's log, at its leader. UNKNOWN_TOPIC_OR_PARTITION if the partition does not
        exist; REQUEST_TIMED_OUT if the leader does not answer this broker."""
        if self._links is not None and (error := self._reach_leader(self._links, topic, index)):
            return error
        partition = self._cluster.partition(topic, index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        complete = self.completed_by.get(topic)
        if complete is not None:
            return complete(partition, marker)
        return partition.append_marker(marker).error

    def _reach_leader(self, links: Links, topic: str, index: int) -> ErrorCode:
        leader, _ = self._cluster.leader_of(topic, index)
        if leader == NO_LEADER:
            return self._cluster.absence(topic, index)
        return NO_ERROR if links.reaches(self._node_id, leader) else ErrorCode.REQUEST_TIMED_OUT
