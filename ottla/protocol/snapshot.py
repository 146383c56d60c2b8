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
    count = len(body) // _ENTRY.size
    return _HEAD.pack(VERSION, crc32c(body, _crc_of(count)), count) + body


class SnapshotEncoder:
    """A snapshot file of `count` entries in parts: its head, which is known last, and then what `encode` gave."""

    __slots__ = ("_count", "_crc")

    def __init__(self, count: int) -> None:
        self._count = count
        self._crc = _crc_of(count)

    def encode(self, entries: Iterable[ProducerEntry]) -> bytes:
        """The bytes of the next entries."""
        part = b"".join(starmap(_ENTRY.pack, entries))
        self._crc = crc32c(part, self._crc)
        return part

    def head(self) -> bytes:
        """The first bytes of the file, of a size that does not depend on the entries."""
        return _HEAD.pack(VERSION, self._crc, self._count)


def _crc_of(count: int) -> int:
    crc: int = crc32c(_HEAD.pack(VERSION, 0, count)[_CRC_FROM:])
    return crc


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
