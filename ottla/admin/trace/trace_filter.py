"""The filter of a listener: the requests that it wants to receive. pure

Each request is checked while there are listeners, so the check uses the bytes where it can: a body contains an id after
its length. Where another field may have the same bytes, `is_about` decides later, after the body is decoded.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.admin.routes import AdminError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests.frames import RequestHeader, is_flexible
from ottla.protocol.subject import Subject
from ottla.protocol.varints import write_unsigned_varint
from ottla.suggestion import did_you_mean

QUERY: Final[Mapping[str, str]] = {
    "client_id": "Requests of this client.",
    "transactional_id": "Requests that name this transactional id.",
    "group": "Requests that name this group.",
    "api": "Requests of this API, by Kafka's name for it.",
    "verbose": "true: all fields and rows, not only the important ones.",
}
_K: Final = ApiKey
_SHARED: Final = frozenset({_K.FIND_COORDINATOR, _K.ADD_OFFSETS_TO_TXN, _K.TXN_OFFSET_COMMIT})
_WITH_TRANSACTIONAL_ID: Final = _SHARED | {
    _K.PRODUCE,
    _K.INIT_PRODUCER_ID,
    _K.ADD_PARTITIONS_TO_TXN,
    _K.END_TXN,
    _K.DESCRIBE_TRANSACTIONS,
}
_WITH_GROUP: Final = _SHARED | {
    _K.OFFSET_COMMIT,
    _K.OFFSET_FETCH,
    _K.JOIN_GROUP,
    _K.HEARTBEAT,
    _K.LEAVE_GROUP,
    _K.SYNC_GROUP,
    _K.DESCRIBE_GROUPS,
    _K.DELETE_GROUPS,
    _K.OFFSET_DELETE,
    _K.CONSUMER_GROUP_HEARTBEAT,
    _K.CONSUMER_GROUP_DESCRIBE,
}


class TraceFilter(NamedTuple):
    """Conditions of a filter. All that are not None must hold."""

    client_id: str | None = None
    transactional_id: str | None = None
    group: str | None = None
    api_key: int | None = None

    def may_fit(self, header: RequestHeader, body: memoryview) -> bool:
        """Return whether a request can match, by its bytes."""
        if self.api_key is not None and header.api_key != self.api_key:
            return False
        if self.client_id is not None and header.client_id != self.client_id:
            return False
        if self.transactional_id is not None and not _holds(
            header, body, self.transactional_id, _WITH_TRANSACTIONAL_ID
        ):
            return False
        return self.group is None or _holds(header, body, self.group, _WITH_GROUP)

    @property
    def needs_subject(self) -> bool:
        """Whether `is_about` must be called too."""
        return self.transactional_id is not None or self.group is not None

    def is_about(self, subject: Subject) -> bool:
        """Return whether a request for which `may_fit` is true matches, by its decoded body."""
        return (self.transactional_id is None or self.transactional_id in subject.transactional_ids) and (
            self.group is None or self.group in subject.groups
        )


def read_filter(query: Mapping[str, str]) -> TraceFilter:
    """Return the filter in a request to the admin port. AdminError 400 for an unknown API."""
    name, key = query.get("api"), None
    if name is not None:
        keys = {api.title.lower(): api for api in ApiKey}
        key = keys.get(name.lower())
        if key is None:
            raise AdminError(400, f"There is no API {name:.100}: {did_you_mean(name, [api.title for api in ApiKey])}")
    return TraceFilter(query.get("client_id"), query.get("transactional_id"), query.get("group"), key)


def _holds(header: RequestHeader, body: memoryview, text: str, api_keys: frozenset[ApiKey]) -> bool:
    """Return whether the body contains a string anywhere; in a Produce, at the place of the transactional id."""
    if header.api_key not in api_keys:
        return False
    content, written = text.encode(), bytearray()
    if is_flexible(header.api_key, header.api_version):
        write_unsigned_varint(written, len(content) + 1)
    else:
        written += len(content).to_bytes(2, "big")
    written += content
    if header.api_key == _K.PRODUCE:
        return body[: len(written)] == written
    return written in bytes(body)
