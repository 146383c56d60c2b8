"""Position of a streaming query, as Spark stores it in its checkpoint. pure

A JSON object: `offsets` by topic and partition, the next to be read, in the format of Spark's own Kafka source, and
`ids`, the id of each topic whose directories have it, which shows that a topic was deleted and created again.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.protocol.values import TopicPartition


class Positions(NamedTuple):
    """The next offset of each partition, and topic ids."""

    offsets: dict[TopicPartition, int]
    ids: dict[str, str]


def to_json(positions: Positions) -> dict[str, Any]:
    """Return the JSON that Spark writes to its checkpoint."""
    offsets: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(positions.offsets.items()):
        offsets.setdefault(topic, {})[str(partition)] = offset
    return {"offsets": offsets, "ids": dict(sorted(positions.ids.items()))}


def from_json(content: Mapping[str, Any]) -> Positions:
    """Return the positions in the JSON that Spark read from its checkpoint."""
    offsets = {
        (topic, int(partition)): int(offset)
        for topic, by_partition in content.get("offsets", {}).items()
        for partition, offset in by_partition.items()
    }
    return Positions(offsets, dict(content.get("ids", {})))


def starting(start: Positions, end: Positions) -> dict[TopicPartition, int]:
    """Return the offsets at which the read up to `end` begins; none for a topic that was created again in between."""
    return {
        (topic, partition): offset
        for (topic, partition), offset in start.offsets.items()
        if start.ids.get(topic, "") == end.ids.get(topic, start.ids.get(topic, ""))
    }


def limit_offsets(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """Return `end` reduced towards `start` to about `most` offsets at most, by the same ratio in each partition."""
    sizes = {place: max(last - start.get(place, 0), 0) for place, last in end.items()}
    total = sum(sizes.values())
    if total <= most:
        return dict(end)
    return {
        place: min(last, start.get(place, 0) + max(sizes[place] * most // total, 1)) if sizes[place] else last
        for place, last in end.items()
    }
