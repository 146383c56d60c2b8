"""Entries of `.index`, `.timeindex` and `.txnindex` files. pure frozen

Source: `org.apache.kafka.storage.internals.log.OffsetIndex`, `TimeIndex`, `AbortedTxn`. All integers are big endian.
After a crash the first two files still have their preallocated size. The zero tail starts where the entries stop
ascending, so `iter_offset_entries` and `iter_time_entries` end there.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from ottla.protocol.errors import ProtocolError
from ottla.protocol.varints import Buffer

OFFSET_ENTRY: Final = Struct(">ii")
TIME_ENTRY: Final = Struct(">qi")
TXN_ENTRY: Final = Struct(">hqqqq")
TXN_VERSION: Final = 0


class OffsetEntry(NamedTuple):
    """Last offset of a batch (minus the segment's base offset) and the position of that batch in the segment."""

    relative_offset: int
    position: int


class TimeEntry(NamedTuple):
    """The largest timestamp (ms) up to this entry and the last offset (minus base) of the batch that holds it."""

    timestamp: int
    relative_offset: int


class AbortedTxn(NamedTuple):
    """An aborted transaction: offsets of its first record and its marker, and the LSO when the marker was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def pack_aborted_txn(entry: AbortedTxn) -> bytes:
    """Return an entry's 34 bytes."""
    return TXN_ENTRY.pack(TXN_VERSION, *entry)


def pack_aborted_txns(entries: Iterable[AbortedTxn]) -> bytes:
    """Return the content of a `.txnindex` file."""
    return b"".join(map(pack_aborted_txn, entries))


def iter_offset_entries(buffer: Buffer) -> Iterator[OffsetEntry]:
    """Yield entries until offsets or positions stop ascending (the first may be 0) or an entry is cut short."""
    whole = len(buffer) - len(buffer) % OFFSET_ENTRY.size
    last_offset, last_position = -1, -1
    for offset, position in OFFSET_ENTRY.iter_unpack(memoryview(buffer)[:whole]):
        if offset <= last_offset or position <= last_position or (offset == 0 and position == 0):
            return
        yield OffsetEntry(offset, position)
        last_offset, last_position = offset, position


def iter_time_entries(buffer: Buffer) -> Iterator[TimeEntry]:
    """Yield entries until timestamps stop ascending, offsets descend, or an entry is cut short."""
    whole = len(buffer) - len(buffer) % TIME_ENTRY.size
    last_timestamp, last_offset = -(2**63), 0
    for timestamp, offset in TIME_ENTRY.iter_unpack(memoryview(buffer)[:whole]):
        if timestamp <= last_timestamp or offset < last_offset or (timestamp == 0 and offset == 0):
            return
        yield TimeEntry(timestamp, offset)
        last_timestamp, last_offset = timestamp, offset


def iter_aborted_txns(buffer: Buffer, after: int = -1) -> Iterator[AbortedTxn]:
    """Yield all entries of a `.txnindex`, which is never preallocated, or of a part with markers `after` an offset.

    Raises ProtocolError for a cut entry, an unknown version, or marker offsets that do not ascend. The file is then
    damaged, and recovery rebuilds it from the segment.
    """
    if len(buffer) % TXN_ENTRY.size:
        raise ProtocolError(f"transaction index of {len(buffer)} bytes ends inside an entry")
    last = after
    at = 0
    for version, producer_id, first_offset, last_offset, last_stable_offset in TXN_ENTRY.iter_unpack(buffer):
        entry = AbortedTxn(producer_id, first_offset, last_offset, last_stable_offset)
        if version != TXN_VERSION:
            raise ProtocolError(f"transaction index entry at {at} has version {version}")
        if last_offset <= last or not 0 <= first_offset <= last_offset:
            raise ProtocolError(f"transaction index entry at {at} is out of order: {entry}")
        last = last_offset
        at += TXN_ENTRY.size
        yield entry
