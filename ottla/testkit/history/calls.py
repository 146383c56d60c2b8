"""Decoded requests and replies of a journal. pure"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any
from uuid import UUID

from ottla.protocol.errors import ProtocolError
from ottla.protocol.requests import codec
from ottla.testkit.control.journal import JournalEntry
from ottla.testkit.faults.exchange import Exchange
from ottla.testkit.faults.names import TopicNames

_SIZE_BYTES = 4


class Call(Exchange):
    """A request and its reply. Raises ProtocolError if the header of the request cannot be read."""

    def __init__(self, entry: JournalEntry, names: TopicNames) -> None:
        super().__init__(entry.request, names.name_of)
        self.entry = entry
        self._names = names

    @cached_property
    def message(self) -> Any:
        """The decoded request, or None."""
        try:
            return self.decode()
        except ProtocolError:
            return None

    @cached_property
    def reply(self) -> Any:
        """The decoded reply that was sent, or None."""
        if not self.entry.reply:
            return None
        try:
            return codec.decode_response(self.api_key, self.api_version, self.entry.reply[_SIZE_BYTES:])[1]
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
            call = Call(entry, names)
        except ProtocolError:
            continue
        found.append(call)
        if entry.reply:
            names.learn(call.api_key, call.api_version, entry.reply[_SIZE_BYTES:])
    yield from found
