"""Decoded requests and replies of a journal. pure"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any
from uuid import UUID

from ottla.protocol.errors import ProtocolError
from ottla.protocol.requests import codec
from ottla.protocol.subject import Subject
from ottla.testkit.control.journal import JournalEntry
from ottla.testkit.faults.exchange import Exchange
from ottla.testkit.faults.names import TopicNames

_SIZE_BYTES = 4


class Call:
    """A request and its reply. `message` and `reply` are None if they are missing or cannot be decoded."""

    def __init__(self, entry: JournalEntry, exchange: Exchange, names: TopicNames) -> None:
        self.entry = entry
        self._exchange = exchange
        self._names = names

    @property
    def api_key(self) -> int:
        """API key of the request."""
        return self._exchange.api_key

    @property
    def version(self) -> int:
        """API version of the request."""
        return self._exchange.api_version

    @property
    def title(self) -> str:
        """Kafka's name of the API."""
        return self._exchange.title

    @property
    def client_id(self) -> str:
        """The client id of the request."""
        return self._exchange.client_id

    @property
    def subject(self) -> Subject:
        """Transactional ids, groups and partitions that the request names."""
        return self._exchange.subject

    @cached_property
    def message(self) -> Any:
        """The decoded request."""
        try:
            return self._exchange.message
        except ProtocolError:
            return None

    @cached_property
    def reply(self) -> Any:
        """The decoded reply that was sent."""
        if not self.entry.reply:
            return None
        try:
            return codec.decode_response(self.api_key, self.version, self.entry.reply[_SIZE_BYTES:])[1]
        except ProtocolError:
            return None

    def topic_of(self, row: Any) -> str | None:
        """Return the topic name of a row of the request or reply, or None if it is unknown."""
        for field in ("name", "topic"):
            if field in type(row).fields and (name := getattr(row, field)):
                return str(name)
        topic_id = getattr(row, "topic_id", None) if "topic_id" in type(row).fields else None
        return self._names.name_of(topic_id) if isinstance(topic_id, UUID) else None


def read_calls(entries: Iterable[JournalEntry]) -> Iterator[Call]:
    """Yield the calls in the order of their requests, without those whose header cannot be read."""
    names = TopicNames()
    found = []
    for entry in entries:
        try:
            exchange = Exchange(entry.request, names.name_of)
        except ProtocolError:
            continue
        found.append(Call(entry, exchange, names))
        if entry.reply:
            names.learn(exchange.api_key, exchange.api_version, entry.reply[_SIZE_BYTES:])
    yield from found
