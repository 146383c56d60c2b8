"""Writer of transaction markers: to the partitions of this broker, and over channels to those of other brokers. shell

`completed_by` has a function for each topic whose leader does more than append: the group coordinator applies pending
offsets.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.cluster.metadata import Cluster
from ottla.broker.log.flusher import Flusher
from ottla.broker.log.partition import Partition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.metadata_records import NO_LEADER
from ottla.protocol.values import TransactionMarker

if TYPE_CHECKING:
    from ottla.broker.cluster.marker_channels import MarkerAnswer, MarkerChannels


class MarkerWriter:
    """Writes the markers of the transaction coordinator of a broker."""

    def __init__(self, cluster: Cluster, flusher: Flusher, channels: "MarkerChannels | None" = None) -> None:
        """`cluster` has all partitions of the process. `channels` lead to its other brokers if it has several."""
        self._cluster = cluster
        self._flusher = flusher
        self._channels = channels
        self.completed_by: dict[str, Callable[[Partition, TransactionMarker], ErrorCode]] = {}

    @property
    def flushing(self) -> bool:
        """Return whether a written marker may not be durable yet."""
        return self._flusher.busy

    @property
    def awaits_answers(self) -> bool:
        """Return whether the answer of another broker, which can be reached, is still to come."""
        return self._channels is not None and self._channels.awaits_answers

    def when_durable(self, topic: str, index: int, callback: Callable[[ErrorCode], None]) -> None:
        """Call `callback` when all current records of the partition are durable, or with the error if that fails."""
        partition = self._cluster.partition(topic, index)
        if partition is None:
            callback(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            partition.when_durable(partition.log_end_offset - 1, callback)

    def write_marker(self, topic: str, index: int, marker: TransactionMarker) -> "ErrorCode | MarkerAnswer":
        """Append a marker to the partition's log, or send it to the partition's leader and return the coming answer.

        UNKNOWN_TOPIC_OR_PARTITION if the partition does not exist; REQUEST_TIMED_OUT if the leader cannot be reached.
        """
        if self._channels is not None and (answer := self._send(self._channels, topic, index, marker)) is not None:
            return answer
        partition = self._cluster.partition(topic, index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        complete = self.completed_by.get(topic)
        if complete is not None:
            return complete(partition, marker)
        return partition.append_marker(marker).error

    def stop(self) -> None:
        """End the connections to other brokers. Markers on their way get no answer."""
        if self._channels is not None:
            self._channels.close()

    def _send(
        self, channels: "MarkerChannels", topic: str, index: int, marker: TransactionMarker
    ) -> "ErrorCode | MarkerAnswer | None":
        """Send a marker to the leader. Return None if this broker leads the partition."""
        leader, _ = self._cluster.leader_of(topic, index)
        if leader == NO_LEADER:
            return self._cluster.absence(topic, index)
        return None if leader == channels.node_id else channels.send(leader, topic, index, marker)
