"""Which topics the members of a consumer group have subscribed to, read from what they gave when they joined. pure

Source: `ConsumerProtocol`, `ConsumerProtocolSubscription.json` (version 0, with which every later one begins),
`ClassicGroup.computeSubscribedTopics` of Kafka 4.3.1.
"""

from collections.abc import Iterable

from ottla.protocol.errors import ProtocolError
from ottla.protocol.fields import Reader


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members; None if one of them does not say them as Kafka's consumers do."""
    try:
        return frozenset(topic for subscription in subscriptions for topic in _topics(subscription))
    except ProtocolError:
        return None


def _topics(subscription: bytes) -> tuple[str, ...]:
    reader = Reader(subscription)
    if reader.int16() < 0:
        raise ProtocolError("a subscription of a negative version")
    topics = reader.array(reader.string, 2)
    user_data_bytes = reader.int32()
    reader.raw(max(user_data_bytes, 0))  # of its assignor; -1 is null
    return topics
