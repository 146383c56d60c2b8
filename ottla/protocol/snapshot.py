"""Producer snapshot files, `<20-digit offset>.snapshot`. pure frozen

Source: `org.apache.kafka.storage.internals.log.ProducerStateManager` (writeSnapshot, readSnapshot), schema version 1.
"""

from collections.abc import Iterable
from itertools import starmap
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from ottla.protocol.errors import ProtocolError
from ottla.protocol.varints import Buffer

VERSION = 1
_HEAD = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
# The CRC-32C covers everything behind itself, from the entry count on.
_CRC_FROM = 6


class ProducerEntry(NamedTuple):
    """State of one producer id below the snapshot's offset; only its last batch is kept. -1 (offset_delta: 0) is none.

    `timestamp` is in ms: the largest of the last batch, or that of the last marker.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The content of a snapshot file; no entries are a valid file too."""
    body = b"".join(starmap(_ENTRY.pack, entries))
    out = bytearray(_HEAD.pack(VERSION, 0, len(body) // _ENTRY.size)) + body
    _HEAD.pack_into(out, 0, VERSION, crc32c(memoryview(out)[_CRC_FROM:]), len(body) // _ENTRY.size)
    return bytes(out)


def decode_snapshot(content: Buffer) -> list[ProducerEntry]:
    """The entries of a snapshot file. Raises ProtocolError if version, size or CRC is wrong (try an older one)."""
    if len(content) < _HEAD.size:
        raise ProtocolError(f"producer snapshot of {len(content)} bytes is cut short")
    version, crc, count = _HEAD.unpack_from(content)
    if version != VERSION:
        raise ProtocolError(f"producer snapshot has version {version}, not {VERSION}")
    if crc32c(memoryview(content)[_CRC_FROM:]) != crc:
        raise ProtocolError("producer snapshot fails its CRC")
    if count < 0 or len(content) != _HEAD.size + count * _ENTRY.size:
        raise ProtocolError(f"producer snapshot of {len(content)} bytes cannot hold {count} entries")
    return [ProducerEntry._make(fields) for fields in _ENTRY.iter_unpack(memoryview(content)[_HEAD.size :])]
