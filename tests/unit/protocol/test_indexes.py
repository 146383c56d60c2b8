from itertools import starmap

import pytest

from ottla.protocol import indexes as ix
from ottla.protocol.errors import ProtocolError


def test_entries_are_big_endian_and_8_12_and_34_bytes():
    assert ix.OFFSET_ENTRY.pack(3, 4096).hex() == "0000000300001000"
    assert ix.TIME_ENTRY.pack(1700000000000, 3).hex() == "0000018bcfe5680000000003"
    packed = ix.pack_aborted_txn(ix.AbortedTxn(4000, 10, 12, 13))
    assert packed.hex() == "00000000000000000fa0000000000000000a000000000000000c000000000000000d"


def test_offset_entries_end_at_the_preallocated_tail():
    entries = [ix.OffsetEntry(9, 4200), ix.OffsetEntry(30, 9000)]
    content = b"".join(starmap(ix.OFFSET_ENTRY.pack, entries))
    assert list(ix.iter_offset_entries(content + bytes(800))) == entries
    assert list(ix.iter_offset_entries(content + b"\0\0\1")) == entries
    assert list(ix.iter_offset_entries(bytes(64))) == []


def test_time_entries_end_at_the_preallocated_tail():
    entries = [ix.TimeEntry(100, 0), ix.TimeEntry(200, 0), ix.TimeEntry(300, 7)]
    content = b"".join(starmap(ix.TIME_ENTRY.pack, entries))
    assert list(ix.iter_time_entries(content + bytes(1200))) == entries
    assert list(ix.iter_time_entries(bytes(120))) == []


def test_aborted_transactions_read_back():
    entries = [ix.AbortedTxn(1, 0, 5, 3), ix.AbortedTxn(2, 3, 9, 10)]
    assert list(ix.iter_aborted_txns(ix.pack_aborted_txns(entries))) == entries


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (ix.pack_aborted_txn(ix.AbortedTxn(1, 0, 5, 3))[:-1], "inside an entry"),
        (b"\0\1" + bytes(32), "version 1"),
        (ix.pack_aborted_txns([ix.AbortedTxn(1, 0, 5, 3), ix.AbortedTxn(1, 0, 5, 3)]), "out of order"),
        (ix.pack_aborted_txn(ix.AbortedTxn(1, 6, 5, 3)), "out of order"),
    ],
)
def test_damaged_transaction_index_is_refused(content, message):
    with pytest.raises(ProtocolError, match=message):
        list(ix.iter_aborted_txns(content))
