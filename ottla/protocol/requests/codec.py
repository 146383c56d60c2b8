"""Encode and decode messages. Only this module imports kafka-python's codecs. pure

Messages are kafka-python's objects: attributes in snake_case, nested structs as classes on the message class
(`codec.request_class(METADATA).MetadataRequestTopic(...)`), ids as `uuid.UUID` (None for the zero id). For responses
the broker makes no objects: it writes their values.

Produce bodies and Fetch responses have their own zero-copy codecs in `produce_wire` and `fetch_wire`; these work too.
A module of the library is imported on the first use of one of its messages (1-10 ms each), and so is the code that
generates readers and writers.
Readers and writers are compiled on the first use of a version (1-2 ms each) and kept for the process.
"""

from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.requests.frames import (
    MAX_ENTRIES,
    MAX_SMALL_REQUEST_BYTES,
    RequestHeader,
    encode_request_header,
    is_flexible,
    response_header_size,
    response_prefix,
    skip_tags,
)
from ottla.protocol.requests.library import import_messages
from ottla.protocol.steps import Steps

if TYPE_CHECKING:
    from ottla.protocol.requests.writer import Encoder, Writer
    from ottla.protocol.walker import SteppedReader

_UNSUPPORTED: Final = Struct(">hihhh")
_UNSUPPORTED_VERSION: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


def _title(api_key: int) -> str:
    try:
        return ApiKey(api_key).title
    except ValueError:
        raise ProtocolError(f"no messages are known for API key {api_key}") from None


@cache
def _message_class(api_key: int, suffix: str) -> Any:
    title = _title(api_key)
    return getattr(import_messages(title), title + suffix)


def request_class(api_key: int) -> Any:
    """Return kafka-python's request class. Raises ProtocolError for keys without one."""
    return _message_class(api_key, "Request")


def response_class(api_key: int) -> Any:
    """Return kafka-python's response class. Raises ProtocolError for keys without one."""
    return _message_class(api_key, "Response")


def load_messages(api_key: int) -> None:
    """Import both messages of an API, unless they are imported already."""
    request_class(api_key)
    response_class(api_key)


@cache
def schema_versions(api_key: int) -> tuple[int, int]:
    """Return the lowest and highest version for which both messages of the API have a schema."""
    lowest, highest = request_class(api_key).valid_versions
    return int(lowest), int(highest)


@cache
def _reader(api_key: int, version: int, suffix: str) -> Any:
    from ottla.protocol.walker import compile_reader

    return _compile(compile_reader, api_key, version, suffix)


@cache
def _stepped_reader(api_key: int, version: int, suffix: str) -> Any:
    from ottla.protocol.walker import compile_stepped_reader

    return _compile(compile_stepped_reader, api_key, version, suffix)


def _compile(compile_it: Callable[..., Any], api_key: int, version: int, suffix: str) -> Any:
    _check_version(api_key, version)
    return compile_it(
        _message_class(api_key, suffix),
        version,
        flexible=is_flexible(api_key, version),
        max_entries=MAX_ENTRIES if suffix == "Request" else None,
    )


def _check_version(api_key: int, version: int) -> None:
    lowest, highest = schema_versions(api_key)
    if not lowest <= version <= highest:
        raise ProtocolError(f"{_title(api_key)} v{version} is not in {lowest}..{highest}")


def read_request(
    api_key: int, version: int, body: memoryview | bytes, limit_bytes: int = MAX_SMALL_REQUEST_BYTES
) -> tuple[Any, int]:
    """Return the request message and the number of bytes after it, which Kafka ignores.

    The message owns its data: the frame may be released at once. Raises ProtocolError for an unknown key or version, a
    body that does not fit the schema, or a body above `limit_bytes` (not applied to Produce).
    """
    if len(body) > limit_bytes:
        _check_size(api_key, body, limit_bytes)
    message, taken = _reader(api_key, version, "Request")(bytes(body))
    return message, len(body) - taken


def read_request_in_steps(
    api_key: int, version: int, body: memoryview | bytes, limit_bytes: int = MAX_SMALL_REQUEST_BYTES
) -> Steps[tuple[Any, int, int]]:
    """Do the work of `read_request`, and return the number of entries too (see `SteppedReader`). `body` is copied."""
    _check_size(api_key, body, limit_bytes)
    return _read_in_steps(_stepped_reader(api_key, version, "Request"), bytes(body))


def _read_in_steps(read: "SteppedReader", body: bytes) -> Steps[tuple[Any, int, int]]:
    message, taken, entries = yield from read(body)
    return message, len(body) - taken, entries


def _check_size(api_key: int, body: memoryview | bytes, limit_bytes: int) -> None:
    if len(body) > limit_bytes and api_key != ApiKey.PRODUCE:
        raise ProtocolError(f"body of {len(body)} bytes for API {api_key} exceeds {limit_bytes}")


def decode_request(
    api_key: int, version: int, body: memoryview | bytes, limit_bytes: int = MAX_SMALL_REQUEST_BYTES
) -> Any:
    """Return the message of `read_request`, without the count of trailing bytes."""
    return read_request(api_key, version, body, limit_bytes)[0]


@cache
def row_writer(api_key: int, version: int, *path: str) -> "Writer":
    """Return the writer of the structs in the response's array at `path`, or without a path of the response itself."""
    from ottla.protocol.requests.writer import compile_writer

    _check_version(api_key, version)
    fields = response_class(api_key).fields
    for name in path:
        fields = fields[name].fields
    name = ".".join((_title(api_key), *path))
    return compile_writer(name, fields.values(), version, flexible=is_flexible(api_key, version))


@cache
def error_place(api_key: int, *path: str) -> int | None:
    """Return the position of the error code among the values of `row_writer` for this array; None if it has none."""
    fields = response_class(api_key).fields
    for name in path:
        fields = fields[name].fields
    return next((at for at, name in enumerate(fields) if name.endswith("error_code")), None)


@cache
def response_encoder(api_key: int, version: int) -> "Encoder":
    """Return the encoder of the framed response from its correlation id and fields."""
    from ottla.protocol.requests.writer import compile_response

    _check_version(api_key, version)
    return compile_response(
        _title(api_key),
        response_class(api_key).fields.values(),
        version,
        flexible=is_flexible(api_key, version),
        header_size=response_header_size(api_key, version),
    )


def encode_unsupported_api_versions(correlation_id: int, lowest: int, highest: int) -> bytes:
    """Encode the reply to a too new ApiVersions request: header and body v0, with the versions served of this API."""
    body = _UNSUPPORTED.pack(ErrorCode.UNSUPPORTED_VERSION, 1, ApiKey.API_VERSIONS, lowest, highest)
    return response_prefix(ApiKey.API_VERSIONS, 0, correlation_id, len(body)) + body


def encode_request(message: Any, version: int, correlation_id: int, client_id: str) -> bytes:
    """Return the framed request: size, header, body."""
    api_key = message.API_KEY
    _check_version(api_key, version)
    return frame_request(api_key, version, correlation_id, client_id, message.encode(version=version))


@cache
def _request_writer(api_key: int, version: int) -> "Writer":
    from ottla.protocol.requests.writer import compile_writer

    _check_version(api_key, version)
    fields = request_class(api_key).fields.values()
    return compile_writer(f"{_title(api_key)}Request", fields, version, flexible=is_flexible(api_key, version))


def encode_values(api_key: int, version: int, correlation_id: int, client_id: str, *values: Any) -> bytes:
    """Return the framed request of plain values, with tuples in place of structs. A tenth of the time of a message."""
    from ottla.protocol.requests.writer import Rows

    rows = Rows()
    _request_writer(api_key, version)(rows, *values)
    return frame_request(api_key, version, correlation_id, client_id, b"".join(rows.pieces))


def frame_request(api_key: int, version: int, correlation_id: int, client_id: str, body: bytes | bytearray) -> bytes:
    """Return the framed request of an encoded body: size, header, body."""
    header = encode_request_header(RequestHeader(api_key, version, correlation_id, client_id))
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


def decode_response(api_key: int, version: int, frame: memoryview | bytes) -> tuple[int, Any]:
    """Return (correlation id, response message) of a frame without its size. Raises ProtocolError for other bytes."""
    correlation_id, version, body = _response_body(api_key, version, frame)
    message, taken = _reader(api_key, version, "Response")(body)
    _check_end(api_key, version, body, taken)
    return correlation_id, message


def read_response_in_steps(api_key: int, version: int, frame: memoryview | bytes) -> Steps[Any]:
    """Return the message of `decode_response`."""
    _, version, body = _response_body(api_key, version, frame)
    message, taken, _ = yield from _stepped_reader(api_key, version, "Response")(body)
    _check_end(api_key, version, body, taken)
    return message


def _response_body(api_key: int, version: int, frame: memoryview | bytes) -> tuple[int, int, bytes]:
    """Return (correlation id, version of the body, body). Raises ProtocolError for a header that is cut short."""
    data = bytes(frame)
    if len(data) < 4:
        raise ProtocolError(f"response header cut short: {len(data)} bytes")
    correlation_id = int.from_bytes(data[:4], "big", signed=True)
    start = 4
    if response_header_size(api_key, version) == 5:
        start = skip_tags(memoryview(data), 4)
    body = data[start:]
    if api_key == ApiKey.API_VERSIONS and body[:2] == _UNSUPPORTED_VERSION:
        version = 0  # this reply comes in version 0, whatever was asked (KIP-511)
    return correlation_id, version, body


def _check_end(api_key: int, version: int, body: bytes, taken: int) -> None:
    if taken != len(body):
        raise ProtocolError(f"{_title(api_key)} v{version}: {len(body) - taken} bytes after the response")
