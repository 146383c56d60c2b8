"""Sections of records as hostile clients write them: valid ones, and ones with errors in any field. free"""

import random

from ottla.protocol.varints import write_unsigned_varint

EDGES = [0, 1, 2, 3, 63, 64, 127, 128, 129, 8191, 8192, 16383, 16384, 2**20, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**33]
WIDE_EDGES = [*EDGES, 2**35, 2**62, 2**62 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**69]


def section(draw: random.Random):
    """Return (bytes, the number of records that they claim to hold)."""
    count = draw.choice((1, 1, 2, 3, 5, 40))
    spoils = draw.choice((0.0, 0.0, 0.02, 0.1, 0.5))
    out = bytearray()
    for index in range(count):
        out += record(draw, index, spoils)
    if draw.random() < 0.3:
        out = spoil(draw, out)
    return bytes(out), count + (draw.choice((-1, 1, 2)) if count > 1 and draw.random() < 0.1 else 0)


def record(draw, index, spoils):
    body = bytearray([draw.choice((0, 0, 0, 255))])
    varint(draw, body, draw.choice((0, 2, 5, 200, draw.choice(WIDE_EDGES))), spoils, 10)
    varint(draw, body, index << 1, spoils)
    append_bytes(draw, body, spoils)
    append_bytes(draw, body, spoils)
    headers = draw.choice((0, 0, 0, 1, 3))
    varint(draw, body, headers << 1, spoils)
    for _ in range(headers):
        append_bytes(draw, body, spoils, null=False)
        append_bytes(draw, body, spoils)
    out = bytearray()
    varint(draw, out, (len(body) + (draw.choice((-1, 1)) if draw.random() < spoils / 4 else 0)) << 1, spoils / 4)
    return out + body


def append_bytes(draw, out, spoils, null=True):
    """Append bytes after their length, or null."""
    if null and draw.random() < 0.2:
        varint(draw, out, 1, spoils)
        return
    data = bytes(draw.choice((0, 1, 7, 63, 64, 200)))
    varint(draw, out, len(data) << 1, spoils)
    out += data


def varint(draw, out, value, spoils, most_bytes=5):
    """Append the value, mostly correct; else another value, too many bytes, or no end."""
    if draw.random() >= spoils:
        write_unsigned_varint(out, value)
        return
    kind = draw.randrange(4)
    if kind == 0:
        write_unsigned_varint(out, draw.choice(WIDE_EDGES))
    elif kind == 1:
        write_unsigned_varint(out, max(0, value + draw.choice((-2, -1, 1, 2))))
    else:
        written = bytearray()
        write_unsigned_varint(written, value)
        padded = draw.randint(len(written), most_bytes + 1)
        out += written[:-1]
        out.append(written[-1] | (0x80 if padded > len(written) or kind == 3 else 0))
        if padded > len(written):
            out += b"\x80" * (padded - len(written) - 1) + bytes([0x80 if kind == 3 else 0])


def spoil(draw, data):
    """Return the bytes cut, longer, or with another byte."""
    at = draw.randrange(len(data) + 1)
    kind = draw.randrange(4)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data + draw.randbytes(draw.randint(1, 12))
    if kind == 2:
        return data[:at] + draw.randbytes(1) + data[at + 1 :]
    return data[:at] + draw.choice((b"\xff", b"\x80", b"\x00", b"\x01")) * draw.randint(1, 11) + data[at:]
