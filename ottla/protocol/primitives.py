"""Strings, counts and shared structs of hand-written messages, in the plain and the flexible form. pure

Plain: int16 length of a string, int32 of bytes and arrays, -1 for null. Flexible (KIP-482): an unsigned varint of
length + 1, 0 for null, and tagged fields after each struct. Writers append to a bytearray.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from ottla.protocol.varints import write_unsigned_varint

_INT16: Final = Struct(">h").pack
_INT32: Final = Struct(">i").pack
_TAGGED_LEADER: Final = Struct(">BBiiB").pack


class NodeEndpoint(NamedTuple):
    """Address of a leader in a response."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def write_string(out: bytearray, text: str | None, flexible: bool) -> None:
    """Append a string; None is null."""
    if text is None:
        out += b"\0" if flexible else b"\xff\xff"
        return
    encoded = text.encode()
    if flexible:
        write_unsigned_varint(out, len(encoded) + 1)
    else:
        out += _INT16(len(encoded))
    out += encoded


def write_count(out: bytearray, count: int, flexible: bool) -> None:
    """Append the count of an array or the length of bytes; -1 is null."""
    if flexible:
        write_unsigned_varint(out, count + 1)
    else:
        out += _INT32(count)


def write_tagged_leader(out: bytearray, tag: int, leader: tuple[int, int]) -> None:
    """Append tag, size and value of a LeaderIdAndEpoch."""
    out += _TAGGED_LEADER(tag, 9, *leader, 0)


def write_endpoint_tags(out: bytearray, endpoints: Sequence[NodeEndpoint]) -> None:
    """Append the tag section that ends a response: NodeEndpoints as tag 0, or no tag."""
    if not endpoints:
        out.append(0)
        return
    value = bytearray()
    write_count(value, len(endpoints), True)
    for endpoint in endpoints:
        value += _INT32(endpoint.node_id)
        write_string(value, endpoint.host, True)
        value += _INT32(endpoint.port)
        write_string(value, endpoint.rack, True)
        value.append(0)
    out += b"\1\0"
    write_unsigned_varint(out, len(value))
    out += value
