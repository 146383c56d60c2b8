"""Producer snapshot files, `<20-digit offset>.snapshot`. pure frozen

Source: `org.apache.kafka.storage.internals.log.ProducerStateManager` (writeSnapshot, readSnapshot), schema version 1.
"""

from collections.abc import Iterable
from itertools import starmap
from struct import Struct
from typing import Final, NamedTuple

from ottla.checksum import crc32c
from ottla.protocol.errors import ProtocolError
from ottla.protocol.varints import Buffer

VERSION: Final = 1
_HEAD: Final = Struct(">hIi")
_ENTRY: Final = Struct(">qhiqiqiq")
HEAD_BYTES: Final = _HEAD.size
ENTRY_BYTES: Final = _ENTRY.size
# The CRC-32C covers all bytes after it, from the entry count on.
_CRC_FROM: Final = 6


class ProducerEntry(NamedTuple):
    """State of one producer id below the snapshot's offset, with only its last batch. -1 (offset_delta: 0) is none.

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
    """Return the content of a snapshot file. A file without entries is valid."""
    known = list(entries)
    encoder = SnapshotEncoder(len(known))
    body = encoder.encode(known)
    return encoder.head() + body


class SnapshotEncoder:
    """Encoder of a snapshot file of `count` entries in parts. The file is the head, known last, and then the parts."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._crc: int = crc32c(_HEAD.pack(VERSION, 0, count)[_CRC_FROM:])

    def encode(self, entries: Iterable[ProducerEntry]) -> bytes:
        """Return the bytes of the next entries."""
        part = b"".join(starmap(_ENTRY.pack, entries))
        self._crc = crc32c(part, self._crc)
        return part

    def head(self) -> bytes:
        """Return the first bytes of the file, whose size does not depend on the entries."""
        return _HEAD.pack(VERSION, self._crc, self._count)


class SnapshotDecoder:
    """Decoder of a snapshot file in parts. Use the entries only after `finish` has checked the CRC."""

    def __init__(self, head: Buffer, size_bytes: int) -> None:
        """`head` is the first `HEAD_BYTES` of a file of `size_bytes`. Raises ProtocolError if they do not fit."""
        if len(head) < HEAD_BYTES:
            raise ProtocolError(f"producer snapshot of {size_bytes} bytes is cut short")
        version, self._expected_crc, count = _HEAD.unpack_from(head)
        if version != VERSION:
            raise ProtocolError(f"producer snapshot has version {version}, not {VERSION}")
        if count < 0 or size_bytes != HEAD_BYTES + count * ENTRY_BYTES:
            raise ProtocolError(f"producer snapshot of {size_bytes} bytes cannot hold {count} entries")
        self._crc: int = crc32c(bytes(head)[_CRC_FROM:HEAD_BYTES])

    def decode(self, part: Buffer) -> list[ProducerEntry]:
        """Return the next entries, from a part of whole entries. Raises ProtocolError if the last is cut short."""
        if len(part) % ENTRY_BYTES:
            raise ProtocolError("producer snapshot is cut short")
        self._crc = crc32c(part, self._crc)
        return [ProducerEntry._make(fields) for fields in _ENTRY.iter_unpack(part)]

    def finish(self) -> None:
        """Raise ProtocolError if the CRC is wrong."""
        if self._crc != self._expected_crc:
            raise ProtocolError("producer snapshot fails its CRC")


def decode_snapshot(content: Buffer) -> list[ProducerEntry]:
    """Return the entries of a snapshot file. Raises ProtocolError for a bad version, size or CRC (try an older one)."""
    decoder = SnapshotDecoder(content, len(content))
    entries = decoder.decode(memoryview(content)[HEAD_BYTES:])
    decoder.finish()
    return entries
