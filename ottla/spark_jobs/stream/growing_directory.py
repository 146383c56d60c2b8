"""A log directory that grows: its partitions, and the offsets lost between two updates. shell"""

from collections.abc import Mapping

from ottla.protocol.values import TopicPartition
from ottla.scan import storage
from ottla.scan.growing_partition import GrowingPartition
from ottla.scan.listing import PartitionLog

_TOPIC_ID = "topic_id:"


class GrowingDirectory:
    """The partitions of a directory, updated together."""

    def __init__(self, on_damage: str) -> None:
        self.partitions: dict[TopicPartition, GrowingPartition] = {}
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self._on_damage = on_damage

    def update(self, logs: list[PartitionLog], needed: Mapping[TopicPartition, int]) -> None:
        """Update all partitions. `needed`: the first offset that will be requested; absent: the log start."""
        self.logs = {(log.topic, log.partition): log for log in logs}
        for place, log in self.logs.items():
            first = max(needed.get(place, 0), log.log_start)
            growing = self.partitions.get(place)
            if growing is None or not growing.covers(first):
                growing = self.partitions[place] = GrowingPartition(first, self._on_damage)
            growing.update(log)
        for place in self.partitions.keys() - self.logs.keys():
            del self.partitions[place]


def newest_segments(logs: list[PartitionLog]) -> dict[TopicPartition, int]:
    """Return the base offset of each last segment, which is enough to find the end and the open transactions."""
    return {(log.topic, log.partition): log.segments[-1].base_offset for log in logs if log.segments}


def topic_ids(logs: list[PartitionLog]) -> dict[str, str]:
    """Map topics to their ids, for topics whose directories have them (`partition.metadata`)."""
    ids: dict[str, str] = {}
    for log in logs:
        if log.topic not in ids and (found := _topic_id(storage.join(log.path, "partition.metadata"))):
            ids[log.topic] = found
    return ids


def _topic_id(path: str) -> str:
    try:
        lines = storage.read(path).decode().splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    return next((line.removeprefix(_TOPIC_ID).strip() for line in lines if line.startswith(_TOPIC_ID)), "")
