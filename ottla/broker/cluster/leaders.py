"""The leaders of partitions, as transaction markers reach them. shell

One broker leads everything, so a marker is appended where it stands. Topics whose leader does more than append (the
group coordinator applies pending offsets) register a sink of their own.
"""

from ottla.broker.cluster.metadata import Cluster
from ottla.broker.cluster.sinks import MarkerSink, TransactionMarker
from ottla.protocol.errors import ErrorCode


class Leaders:
    """The `MarkerSink` over a cluster of one broker."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.sinks: dict[str, MarkerSink] = {}

    def write_marker(self, topic: str, index: int, marker: TransactionMarker) -> ErrorCode:
        """Append to the partition's log; UNKNOWN_TOPIC_OR_PARTITION when it does not exist (any more)."""
        sink = self.sinks.get(topic)
        if sink is not None:
            return sink.write_marker(topic, index, marker)
        partition = self._cluster.partition(topic, index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return partition.append_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.commit,
            marker.coordinator_epoch,
            marker.transaction_version,
        ).error
