"""One offset per partition, as a checkpoint file holds them: what changed is encoded, the rest is at hand. pure

Source: Kafka's `OffsetCheckpointFile`.
"""

from collections.abc import Mapping

from ottla.broker.log.checkpoints import encode_lines, encode_offset
from ottla.protocol.values import TopicPartition


class OffsetCheckpointFile:
    """What stands in, say, `recovery-point-offset-checkpoint`: an offset for each partition of a log directory.

    The line of each is kept encoded: with thousands of partitions of which few move, writing the file anew costs little
    more than joining its lines.
    """

    __slots__ = ("_lines", "_offsets")

    def __init__(self) -> None:
        self._offsets: dict[TopicPartition, int] = {}
        self._lines: dict[TopicPartition, bytes] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def __setitem__(self, key: TopicPartition, offset: int) -> None:
        if self._offsets.get(key) != offset:
            self._offsets[key] = offset
            self._lines[key] = encode_offset(key, offset)

    def get(self, key: TopicPartition, default: int) -> int:
        """The offset of a partition."""
        return self._offsets.get(key, default)

    def load(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Take over what a file holds."""
        for key, offset in offsets.items():
            self[key] = offset

    def forget(self, key: TopicPartition) -> int:
        """Leave a partition out; what was known of it, or 0."""
        self._lines.pop(key, None)
        return self._offsets.pop(key, 0)

    def content(self) -> bytes:
        """The checkpoint file."""
        return encode_lines(self._lines.values())
