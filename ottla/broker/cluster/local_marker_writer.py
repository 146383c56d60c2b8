"""Writing transaction markers to the leaders of partitions, which are all here. shell

One broker leads everything, so a marker is appended where it stands: there is no channel to other brokers, as there is
in Kafka (`TransactionMarkerChannelManager`). Topics whose leader does more than append (the
group coordinator applies pending offsets) have one who completes the transaction in `completed_by`.
"""

from collections.abc import Callable

from ottla.broker.cluster.metadata import Cluster
from ottla.broker.log.flusher import Flusher
from ottla.broker.log.partition import Partition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import TransactionMarker


class LocalMarkerWriter:
    """The `MarkerSink` over a cluster of one broker."""

    def __init__(self, cluster: Cluster, flusher: Flusher) -> None:
        self._cluster = cluster
        self._flusher = flusher
        self.completed_by: dict[str, Callable[[Partition, TransactionMarker], ErrorCode]] = {}

    @property
    def flushing(self) -> bool:
        """Whether a marker that was written may not be durable yet."""
        return self._flusher.busy

    def when_durable(self, topic: str, index: int, callback: Callable[[ErrorCode], None]) -> None:
        """Call back when everything that the partition holds now is durable, or with the reason why it never will."""
        partition = self._cluster.partition(topic, index)
        if partition is None:
            callback(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            partition.when_durable(partition.log_end_offset - 1, callback)

    def write_marker(self, topic: str, index: int, marker: TransactionMarker) -> ErrorCode:
        """Append to the partition's log; UNKNOWN_TOPIC_OR_PARTITION when it does not exist (any more)."""
        partition = self._cluster.partition(topic, index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        complete = self.completed_by.get(topic)
        if complete is not None:
            return complete(partition, marker)
        return partition.append_marker(marker).error
