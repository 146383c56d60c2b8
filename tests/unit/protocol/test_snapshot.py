import pytest

from ottla.protocol.errors import ProtocolError
from ottla.protocol.snapshot import (
    ENTRY_BYTES,
    HEAD_BYTES,
    ProducerEntry,
    SnapshotDecoder,
    decode_snapshot,
    encode_snapshot,
)

ENTRY = ProducerEntry(4000, 3, -1, -1, 0, 1700000000000, 7, 42)
KAFKA = bytes.fromhex(
    "0001 fcb9a9b9 00000001 0000000000000fa0 0003 ffffffff ffffffffffffffff 00000000 0000018bcfe56800 00000007"
    "000000000000002a"
)


def test_snapshot_has_the_bytes_that_kafka_writes():
    assert encode_snapshot([ENTRY]) == KAFKA
    assert decode_snapshot(KAFKA) == [ENTRY]


def test_empty_snapshot_is_a_valid_file():
    assert decode_snapshot(encode_snapshot([])) == []


def test_every_damaged_byte_is_noticed():
    for at in range(len(KAFKA)):
        damaged = bytearray(KAFKA)
        damaged[at] ^= 0x40
        with pytest.raises(ProtocolError):
            decode_snapshot(damaged)


def test_cut_or_longer_file_is_corrupt():
    for content in [KAFKA[:cut] for cut in range(len(KAFKA))] + [KAFKA + b"\0"]:
        with pytest.raises(ProtocolError):
            decode_snapshot(content)


def test_parts_make_the_whole_and_their_crc_is_known_at_the_end():
    entries = [ENTRY._replace(producer_id=number) for number in range(10)]
    content = encode_snapshot(entries)
    for damage in (0, 1):
        body = bytearray(content[HEAD_BYTES:])
        body[-1] ^= damage
        decoder = SnapshotDecoder(content[:HEAD_BYTES], len(content))
        found = decoder.decode(body[: 3 * ENTRY_BYTES]) + decoder.decode(body[3 * ENTRY_BYTES :])
        assert len(found) == len(entries)
        if damage:
            with pytest.raises(ProtocolError, match="CRC"):
                decoder.finish()
        else:
            decoder.finish()
            assert found == entries
