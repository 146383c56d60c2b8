"""Read the topics to which the members of a consumer group are subscribed. pure

Source: `ClassicGroup.computeSubscribedTopics` of Kafka 4.3.1.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from ottla.protocol.errors import ProtocolError
from ottla.protocol.fields import Reader
from ottla.protocol.internal_topics.consumer_protocol import read_topics, read_version


class Subscriptions:
    """The topics of all members of one generation. They are read on demand, because a member may name very many.

    `read` reads some of the names; `topics` reads all that are left.
    """

    __slots__ = ("_names", "_topics")

    def __init__(self, subscriptions: Iterable[bytes]) -> None:
        self._names: Iterator[str] | None = (name for each in subscriptions for name in _topics(each))
        self._topics: set[str] | None = set()

    def read(self, most: int) -> bool:
        """Read the next `most` names; return True when none are left."""
        if self._names is None or self._topics is None:
            self._names = None
            return True
        before = most
        try:
            for name in islice(self._names, most):
                self._topics.add(name)
                before -= 1
        except ProtocolError:
            self._topics = None
        if before:
            self._names = None
        return self._names is None

    @property
    def topics(self) -> set[str] | None:
        """Return all topics; None if a member's subscription is not in the format of Kafka's consumers."""
        while not self.read(1_000):
            pass
        return self._topics


def _topics(subscription: bytes) -> Iterator[str]:
    read_version(subscription)
    yield from read_topics(Reader(subscription, 2))
