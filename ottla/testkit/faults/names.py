"""The names of topics by their ids, as replies tell them. pure"""

from typing import Any, Final
from uuid import UUID

from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ProtocolError

_TELLING: Final = frozenset({ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.DESCRIBE_TOPIC_PARTITIONS})
_MOST_NAMES: Final = 1_000_000


class TopicNames:
    """Learns from the replies that pass."""

    def __init__(self) -> None:
        self._names: dict[UUID, str] = {}

    def name_of(self, topic_id: UUID) -> str | None:
        """The name of the topic; None if nobody has told it."""
        return self._names.get(topic_id)

    def learn(self, api_key: int, version: int, reply: bytes) -> None:
        """Look at a reply frame, without its size."""
        if api_key not in _TELLING:
            return
        try:
            _, message = codec.decode_response(api_key, version, reply)
        except ProtocolError:
            return  # whoever must read it will say so
        self._learn(message)

    def _learn(self, message: Any) -> None:
        for row in message.topics or ():
            topic_id = getattr(row, "topic_id", None)
            if row.name and isinstance(topic_id, UUID) and len(self._names) < _MOST_NAMES:
                self._names[topic_id] = row.name
