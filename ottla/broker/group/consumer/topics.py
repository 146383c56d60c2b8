"""The subscribed topics of a consumer group: their ids and sizes, and a hash of them. pure"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from ottla.broker.costs import ASSIGNED_TOPIC_US
from ottla.protocol.steps import Steps

AT_ONCE: Final = 1_000
"""Topics that are looked up or hashed in one step."""

T = TypeVar("T")


class TopicInfo(NamedTuple):
    """A topic of the cluster, as far as an assignment needs it."""

    topic_id: bytes
    partition_count: int


FindTopic = Callable[[str], TopicInfo | None]
"""Return the topic of this name; None if there is none."""


def find_topics(names: Iterable[str], find_topic: FindTopic) -> Steps[list[TopicInfo]]:
    """Return the topics of these names that exist."""
    found: list[TopicInfo] = []
    for some in _portions(names):
        found += [topic for topic in map(find_topic, some) if topic is not None]
        yield len(some) * ASSIGNED_TOPIC_US
    return found


def compute_metadata_hash(names: Iterable[str], find_topic: FindTopic) -> Steps[int]:
    """Return a hash of the ids and sizes of these topics; 0 if none of them exists. It is compared with itself alone.

    The hashes of the topics are added, which needs no order of the topics. Kafka computes another one, so that a group
    of a directory of Kafka's begins with one more epoch.
    """
    total = 0
    for topics in _portions(set((yield from find_topics(names, find_topic)))):
        for topic in topics:
            content = topic.topic_id + topic.partition_count.to_bytes(4, "big")
            total += int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")
        yield len(topics) * ASSIGNED_TOPIC_US
    return (total + (1 << 63)) % (1 << 64) - (1 << 63)


def _portions(values: Iterable[T]) -> Iterator[Sequence[T]]:
    rest = iter([*values])
    while some := [*islice(rest, AT_ONCE)]:
        yield some
