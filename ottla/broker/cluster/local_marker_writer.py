"""Writer of transaction markers to the partitions of this broker. shell

One broker leads all partitions, so it appends markers itself, without the channel to other brokers that Kafka has
(`TransactionMarkerChannelManager`). `completed_by` has a function for each topic whose leader does more than append:
the group coordinator applies pending offsets.
"""

from collections.abc import Callable

from ottla.broker.cluster.metadata import Cluster
from ottla.broker.log.flusher import Flusher
from ottla.broker.log.partition import Partition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import TransactionMarker


class LocalMarkerWriter:
    """Writes the markers of the transaction coordinator."""

    def __init__(self, cluster: Cluster, flusher: Flusher) -> None:
        self._cluster = cluster
        self._flusher = flusher
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
        """Append a marker to the partition's log. UNKNOWN_TOPIC_OR_PARTITION if the partition does not exist."""
        partition = self._cluster.partition(topic, index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        complete = self.completed_by.get(topic)
        if complete is not None:
            return complete(partition, marker)
        return partition.append_marker(marker).error
