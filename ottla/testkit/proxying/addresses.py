"""Replacement of broker addresses in replies, and the API versions for which the proxy can do that. pure

Replies with addresses are decoded and encoded again, so hosts may be of any length. A reply without addresses stays
the same, byte by byte, in any version. Addresses are in Metadata, FindCoordinator and DescribeCluster, and in later
versions of Produce and Fetch, which return the new leader with an error (KIP-951). ShareFetch and ShareAcknowledge of
share groups have addresses too. Their messages are unknown here, so the proxy removes these APIs from ApiVersions.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.requests import codec
from ottla.protocol.values import ZERO_UUID

Address = tuple[str, int]
Replace = Callable[[Address], Address]

_ARRAYS: Final = {
    ApiKey.METADATA: (0, "brokers"),
    ApiKey.FIND_COORDINATOR: (0, "coordinators"),
    ApiKey.DESCRIBE_CLUSTER: (0, "brokers"),
    ApiKey.PRODUCE: (10, "node_endpoints"),
    ApiKey.FETCH: (16, "node_endpoints"),
}
"""For each API: the first version with addresses, and the field that holds them."""
SHARE_FETCH, SHARE_ACKNOWLEDGE = 78, 79
HIDDEN: Final = frozenset({SHARE_FETCH, SHARE_ACKNOWLEDGE})
"""APIs whose replies have addresses that cannot be replaced."""
_NO_BITS: Final = -(1 << 31)
_SASL_WITH_HEADERS: Final = 1
"""From this version of SaslHandshake on, the tokens are sent in requests with headers (KIP-152)."""


def names_brokers(api_key: int, version: int) -> bool:
    """Return whether replies of this API and version can have addresses."""
    first, _ = _ARRAYS.get(api_key, (None, ""))  # type: ignore[call-overload]
    return first is not None and version >= first


def rewritten(api_key: int, version: int, reply: bytes, replace: Replace) -> bytes:
    """Return a reply frame, without its size, with replaced addresses. ProtocolError if it is unreadable."""
    if api_key == ApiKey.API_VERSIONS:
        return _hide_apis(version, reply)
    if not names_brokers(api_key, version):
        return reply
    correlation_id, message = codec.decode_response(api_key, version, reply)
    changed = False
    for row in _rows(api_key, message):
        if row.host and row.port > 0:  # a row with an error has no address
            address = row.host, row.port
            row.host, row.port = replace(address)
            changed |= (row.host, row.port) != address
    return _encode_frame(api_key, version, correlation_id, message) if changed else reply


def refused_api_versions(version: int, correlation_id: int) -> bytes | None:
    """Return the UNSUPPORTED_VERSION reply, without its size, to an unknown ApiVersions version; else None."""
    lowest, highest = codec.schema_versions(ApiKey.API_VERSIONS)
    if version <= highest:
        return None
    return codec.encode_unsupported_api_versions(correlation_id, lowest, highest)[4:]


def _rows(api_key: int, message: Any) -> Iterator[Any]:
    yield from getattr(message, _ARRAYS[ApiKey(api_key)][1], None) or ()
    if api_key == ApiKey.FIND_COORDINATOR:
        yield message


def _hide_apis(version: int, reply: bytes) -> bytes:
    correlation_id, message = codec.decode_response(ApiKey.API_VERSIONS, version, reply)
    rows = [row for row in message.api_keys if row.api_key not in HIDDEN]
    changed = len(rows) < len(message.api_keys)
    for row in rows:
        lowest, highest = readable_versions(row.api_key, row.min_version, row.max_version)
        changed |= (lowest, highest) != (row.min_version, row.max_version)
        row.min_version, row.max_version = lowest, highest
    if not changed:
        return reply
    message.api_keys = rows
    answered_in = 0 if message.error_code == ErrorCode.UNSUPPORTED_VERSION else version
    return _encode_frame(ApiKey.API_VERSIONS, answered_in, correlation_id, message)


def readable_versions(api_key: int, lowest: int, highest: int) -> tuple[int, int]:
    """Return the part of a version range that the proxy can read, for the APIs that it must read."""
    if api_key == ApiKey.SASL_HANDSHAKE:
        return max(lowest, min(_SASL_WITH_HEADERS, highest)), highest
    if api_key not in _ARRAYS and api_key != ApiKey.API_VERSIONS:
        return lowest, highest
    return lowest, max(lowest, min(highest, codec.schema_versions(api_key)[1]))


def _encode_frame(api_key: int, version: int, correlation_id: int, message: Any) -> bytes:
    """Return the frame without its size. Uses Ottla's writer: the library's omits the tagged fields of rows."""
    framed = codec.response_encoder(api_key, version)(correlation_id, *_values(message, type(message).fields))
    return b"".join(framed)[4:]


def _values(struct: Any, fields: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the field values of a message, in the form that writers take."""
    return tuple(_value(getattr(struct, name), field) for name, field in fields.items())


def _value(value: Any, field: Any) -> Any:
    if field.is_array():
        if value is None:
            return None
        entry = field.array_of
        return [_values(row, field.fields) if entry.is_struct() else _plain(row, entry) for row in value]
    if field.is_struct():
        return None if value is None else _values(value, field.fields)
    return _plain(value, field)


def _plain(value: Any, field: Any) -> Any:
    if field.type_str == "uuid":
        return ZERO_UUID if value is None else value.bytes
    if field.type_str == "bitfield":
        return _NO_BITS if value is None else sum(1 << bit if bit < 31 else _NO_BITS for bit in value)
    return value


def parse_address(given: str) -> Address:
    """Parse `HOST:PORT` or `[::1]:9092`. Raises ProtocolError."""
    host, colon, port = given.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise ProtocolError(f"{given!r} is not HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)
