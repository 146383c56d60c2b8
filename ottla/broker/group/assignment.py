"""What a member of a consumer group was assigned, read from what its leader gave it. pure

Source: `ConsumerProtocol`, `ConsumerProtocolAssignment.json` (version 0, with which every later one begins).
"""

from ottla.protocol.errors import ProtocolError
from ottla.protocol.fields import Reader

INDEX_BYTES = 4
TOPIC_BYTES = 6
"""A topic takes so much at least."""


def assigned(assignment: bytes, most: int) -> list[tuple[str, tuple[int, ...]]]:
    """(topic, partitions) of at most so many topics, with so many partitions each; none if it is not Kafka's."""
    found: list[tuple[str, tuple[int, ...]]] = []
    reader = Reader(assignment)
    try:
        if not assignment or reader.int16() < 0:
            return []
        count = reader.int32()
        if count * TOPIC_BYTES > len(assignment):
            return []
        for _ in range(min(count, most)):
            topic = reader.string()
            indexes = reader.int32()
            if not 0 <= indexes * INDEX_BYTES <= len(assignment):
                return []
            found.append((topic, tuple([reader.int32() for _ in range(min(indexes, most))])))
            reader.raw(max(0, indexes - most) * INDEX_BYTES)
    except ProtocolError:
        return []
    return found
