"""Varints at the ends of their range: valid values read back, others are refused."""

import pytest

from ottla.protocol.errors import ProtocolError
from ottla.protocol.varints import (
    MAX_VARINT_SIZE,
    MAX_VARLONG_SIZE,
    read_unsigned_varint,
    read_varint,
    read_varlong,
    write_unsigned_varint,
    write_varint,
)


def encode(value):
    out = bytearray()
    write_unsigned_varint(out, value)
    return bytes(out)


@pytest.mark.parametrize(("bits", "size"), [(32, MAX_VARINT_SIZE), (64, MAX_VARLONG_SIZE)])
def test_every_width_up_to_the_largest_is_read_and_none_beyond(bits, size):
    for width in range(bits + 1):
        data = b"\xff" + encode((1 << width) - 1) + b"\xff"
        assert read_unsigned_varint(data, 1, size) == ((1 << width) - 1, len(data) - 1)
    for width in range(bits + 1, 7 * size + 1):
        for value in (1 << (width - 1), (1 << width) - 1):
            assert len(encode(value)) == size
            with pytest.raises(ProtocolError, match="does not fit"):
                read_unsigned_varint(encode(value), 0, size)
    with pytest.raises(ProtocolError, match="does not fit"):
        read_unsigned_varint(b"\x80" * size + b"\x01", 0, size)


@pytest.mark.parametrize(("bits", "size"), [(32, MAX_VARINT_SIZE), (64, MAX_VARLONG_SIZE)])
def test_a_truncated_varint_is_refused(bits, size):
    whole = encode((1 << bits) - 1)
    for cut in range(size):
        with pytest.raises(ProtocolError, match="cut short"):
            read_unsigned_varint(whole[:cut], 0, size)


@pytest.mark.parametrize(("read", "bits"), [(read_varint, 32), (read_varlong, 64)])
def test_signed_numbers_are_read_back_to_the_ends_of_their_range(read, bits):
    ends = [0, -1, 1, 63, 64, -64, -65, 8191, 8192, -8192, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))]
    for value in ends:
        out = bytearray(b"\xff")
        write_varint(out, value)
        assert read(bytes(out), 1) == (value, len(out))
    too_large = bytearray()
    write_unsigned_varint(too_large, 1 << bits)
    with pytest.raises(ProtocolError):
        read(too_large, 0)
