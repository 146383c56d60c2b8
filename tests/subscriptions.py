"""The bytes of consumers of the classic protocol: subscriptions and assignments, in each version."""

import struct

from ottla.protocol.internal_topics.consumer_protocol import encode_assignment, read_assignment
from ottla.protocol.steps import to_the_end


def write_text(text):
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def write_partitions(partitions):
    rows = [
        write_text(topic) + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
        for topic, indexes in partitions.items()
    ]
    return struct.pack(">i", len(rows)) + b"".join(rows)


def subscribe(*topics, owned=None, rack=None, version=3, user_data=None):
    """Return a subscription; `owned` are partitions by topic."""
    content = struct.pack(">hi", version, len(topics)) + b"".join(map(write_text, topics))
    content += struct.pack(">i", -1) if user_data is None else struct.pack(">i", len(user_data)) + user_data
    if version >= 1:
        content += write_partitions(owned or {})
    if version >= 2:
        content += struct.pack(">i", -1)
    if version >= 3:
        content += struct.pack(">h", -1) if rack is None else write_text(rack)
    return content


def assign(version=3, user_data=None, **partitions):
    """Return an assignment of partitions by topic."""
    content = to_the_end(encode_assignment([(topic, tuple(rows)) for topic, rows in partitions.items()], version))
    return content if user_data is None else content[:-4] + struct.pack(">i", len(user_data)) + user_data


def parse_assignment(content):
    """Return the partitions of an assignment by topic, both in order; an empty one has none."""
    if not content:
        return {}
    partitions = to_the_end(read_assignment(bytes(content))).partitions
    return {topic: sorted(rows) for topic, rows in sorted(partitions.items())}
