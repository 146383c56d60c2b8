"""Topic names by topic id, learned from replies. pure"""

from typing import Any, Final
from uuid import UUID

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ProtocolError
from ottla.protocol.requests import codec

_TELLING: Final = frozenset({ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.DESCRIBE_TOPIC_PARTITIONS})
_MOST_NAMES: Final = 1_000_000


class TopicNames:
    """Topic names by topic id, learned from replies."""

    def __init__(self) -> None:
        self._names: dict[UUID, str] = {}

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of the topic, or None if no reply had it."""
        return self._names.get(topic_id)

    def learn(self, api_key: int, version: int, reply: bytes) -> None:
        """Read the topic ids of a reply frame, given without its size."""
        if api_key not in _TELLING:
            return
        try:
            _, message = codec.decode_response(api_key, version, reply)
        except ProtocolError:
            return  # the client reports an unreadable reply itself
        self._learn(message)

    def _learn(self, message: Any) -> None:
        for row in message.topics or ():
            topic_id = getattr(row, "topic_id", None)
            if row.name and isinstance(topic_id, UUID) and len(self._names) < _MOST_NAMES:
                self._names[topic_id] = row.name
