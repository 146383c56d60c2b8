"""Partitions of fetch sessions (KIP-227), learned from requests and their replies. pure"""

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from typing import Final

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ProtocolError
from ottla.protocol.requests.frames import response_header_size
from ottla.protocol.subject import Place, places_of
from ottla.testkit.faults.exchange import Exchange

_FIRST_VERSION: Final = 7
_HEAD: Final = Struct(">ihi").unpack_from
"""The throttle time, the error and the session of a reply."""
_MOST_SESSIONS: Final = 10_000


class Sessions:
    """Partitions of fetch sessions, learned from requests and their replies."""

    def __init__(self) -> None:
        self._places: dict[int, frozenset[Place]] = {}

    def places(self, session_id: int) -> Iterable[Place]:
        """Return the partitions of a session; none of an unknown one."""
        return self._places.get(session_id, ())

    def learn(self, exchange: Exchange, reply: bytes) -> None:
        """Read a Fetch and its reply, a frame without its size."""
        version = exchange.api_version
        if exchange.api_key != ApiKey.FETCH or version < _FIRST_VERSION:
            return
        try:
            message = exchange.decode()
            _, failed, session_id = _HEAD(reply, response_header_size(ApiKey.FETCH, version))
        except (ProtocolError, StructError):
            return  # the client reports an unreadable reply itself
        named = exchange.subject.partitions
        self._places.pop(message.session_id, None)
        if session_id and not failed:
            forgotten = places_of(message.forgotten_topics_data or (), exchange.name_of)
            self._places[session_id] = named.difference(forgotten)
            if len(self._places) > _MOST_SESSIONS:
                del self._places[next(iter(self._places))]
