"""A request on its way to the broker, decoded only when needed. pure"""

from typing import Any

from ottla.protocol.api_keys import api_title
from ottla.protocol.errors import ProtocolError
from ottla.protocol.requests import codec
from ottla.protocol.requests.frames import parse_request_header
from ottla.protocol.subject import NameOf, SessionOf, Subject, no_session, producer_ids_of, subject_of
from ottla.testkit.faults.fault import Fault

_NO_SUBJECT = Subject(frozenset(), frozenset(), frozenset())


class Exchange:
    """A request to broker `node_id`. `frame` is without its size. ProtocolError if the header cannot be read."""

    __slots__ = (
        "_message",
        "_node_id",
        "_session_of",
        "_subject",
        "api_key",
        "api_version",
        "client_id",
        "correlation_id",
        "frame",
        "name_of",
    )

    def __init__(
        self, frame: bytes, name_of: NameOf, node_id: int | None = None, session_of: SessionOf = no_session
    ) -> None:
        header, _ = parse_request_header(memoryview(frame))
        self.api_key, self.api_version, self.correlation_id, self.client_id = header
        self.frame = frame
        self.name_of = name_of
        self._session_of = session_of
        self._node_id = node_id
        self._message: Any = None
        self._subject: Subject | None = None

    @property
    def title(self) -> str:
        """Kafka's name of the API, or its number."""
        return api_title(self.api_key)

    def decode(self) -> Any:
        """Return the decoded request. Raises ProtocolError."""
        if self._message is None:
            _, body = parse_request_header(memoryview(self.frame))
            self._message = codec.decode_request(self.api_key, self.api_version, body)
        return self._message

    @property
    def subject(self) -> Subject:
        """Transactional ids, groups and partitions of the request; empty if it cannot be decoded."""
        if self._subject is None:
            try:
                self._subject = subject_of(self.api_key, self.decode(), self.name_of, self._session_of)
            except ProtocolError:
                self._subject = _NO_SUBJECT
        return self._subject

    @property
    def producer_ids(self) -> frozenset[int]:
        """Producer ids of the request; empty if it cannot be decoded. Not cached, as few faults use them."""
        try:
            return producer_ids_of(self.decode())
        except ProtocolError:
            return frozenset()

    def blame(self, fault: Fault) -> str:
        """Return the reason for closing the connection at this request."""
        return f"{self.title} v{self.api_version}: injected by fault {fault.id} ({fault.describe()})"

    def answers_to(self, name: str, value: object) -> bool:
        """Return whether a condition of a fault holds. Topic and partition are checked separately."""
        if name == "broker":
            return self._node_id == value
        if name == "client_id":
            return self.client_id == value
        if name == "transactional_id":
            return value in self.subject.transactional_ids
        if name == "group":
            return value in self.subject.groups
        if name == "producer_id":
            return value in self.producer_ids
        if name == "topic":
            return any(topic == value for topic, _ in self.subject.partitions)
        return name == "partition" and any(index == value for _, index in self.subject.partitions)
