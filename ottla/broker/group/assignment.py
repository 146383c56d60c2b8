"""Read the partitions that the leader of a consumer group assigned to a member. pure

Source: `ConsumerProtocol`, `ConsumerProtocolAssignment.json` (version 0, with which every later one begins).
"""

from ottla.protocol.errors import ProtocolError
from ottla.protocol.fields import Reader

INDEX_BYTES = 4
TOPIC_BYTES = 6
"""The least size of a topic in an assignment."""


def decode_assignment(assignment: bytes, most: int) -> list[tuple[str, tuple[int, ...]]]:
    """Return (topic, partitions) for at most `most` topics, with at most `most` partitions each.

    The list is empty if the assignment is not in Kafka's format.
    """
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
