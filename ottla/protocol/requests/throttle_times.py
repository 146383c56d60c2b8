"""Position of `throttle_time_ms` in an encoded response, to set it after encoding. pure

The field is mostly the first one. In Produce it is the last; in ApiVersions it follows the APIs, and in OffsetDelete
the error. Old versions, and WriteTxnMarkers, do not have it.
"""

from collections.abc import Sequence
from functools import cache
from struct import Struct
from typing import Any, Final

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from ottla.protocol.requests.frames import is_flexible, response_header_size
from ottla.protocol.varints import read_unsigned_varint

_FIELD: Final = "throttle_time_ms"
_SIZE_BYTES: Final = 4
_INT16_BYTES: Final = 2
_INT32: Final = Struct(">i")
_COUNT_AT: Final = 10
"""Position of the count of APIs in ApiVersions, after the frame's size, the correlation id and the error."""


def with_throttle_time(buffers: Sequence[Any], api_key: int, version: int, throttle_ms: int) -> Sequence[Any]:
    """Set the throttle time in a frame, in place if possible. Return it unchanged if the version has no such field."""
    place = _place(api_key, version)
    if place is None:
        return buffers
    if api_key == ApiKey.API_VERSIONS:
        place = _end_of_apis(buffers[0], version)
    which = 0 if place >= 0 else -1
    buffer = buffers[which]
    if not isinstance(buffer, bytearray):
        buffer = bytearray(buffer)
        buffers = [buffer, *buffers[1:]] if which == 0 else [*buffers[:-1], buffer]
    _INT32.pack_into(buffer, place if place >= 0 else len(buffer) + place, throttle_ms)
    return buffers


@cache
def _place(api_key: int, version: int) -> int | None:
    """Return the field's position in the first buffer, if negative from the end of the last; None without the field."""
    fields = [field for field in codec.response_class(api_key).fields.values() if field.for_version_q(version)]
    names = [field.name for field in fields]
    if _FIELD not in names:
        return None
    if api_key == ApiKey.PRODUCE:  # only the empty tag section follows
        return -_INT32.size - is_flexible(api_key, version)
    before = _INT16_BYTES if names[0] == "error_code" else 0
    return _SIZE_BYTES + response_header_size(api_key, version) + before


def _end_of_apis(buffer: Any, version: int) -> int:
    """Return the position after the count and the rows of three numbers per API, with tags in flexible versions."""
    if version < 3:
        apis = int.from_bytes(buffer[_COUNT_AT : _COUNT_AT + 4], "big")
        return _COUNT_AT + 4 + apis * 6
    count, at = read_unsigned_varint(buffer, _COUNT_AT)
    return at + max(0, count - 1) * 7
