"""Messages of magic 0 and 1, the formats before Kafka 0.11, made by hand, and a log with all kinds of them.

Nothing writes them any more: Kafka 4 refuses to, and so does Ottla.
"""

import struct
import zlib
from typing import NamedTuple

from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import assign_offsets
from ottla.protocol.compression import GZIP, LZ4, NONE, SNAPPY, compress

NO_TIMESTAMP_TYPE, CREATE_TIME, LOG_APPEND_TIME = -1, 0, 1
APPEND_TIME = 0x08


class Expected(NamedTuple):
    """A record as a consumer has it; `timestamp_type` is Kafka's id."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None


def message(offset, key, value, *, magic, attributes=0, timestamp=0):
    """Return a message with its offset; `attributes` are the codec and, in magic 1, the timestamp type."""
    covered = struct.pack(">bB", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        covered += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", offset, 4 + len(covered), zlib.crc32(covered)) + covered


def wrapper(records, *, magic, codec, append_time=None):
    """The (offset, timestamp, key, value) in `records` compressed into one message, as brokers stored it."""
    first, last = records[0][0], records[-1][0]
    inner = b"".join(
        message(offset - first if magic else offset, key, value, magic=magic, timestamp=timestamp)
        for offset, timestamp, key, value in records
    )
    payload = bytearray(compress(inner, codec))
    if codec == LZ4 and magic == 0:
        payload[6] ^= 0x55  # clients of that time computed the checksum of the header wrongly
    timestamp = max(record[1] for record in records) if append_time is None else append_time
    attributes = codec if append_time is None else codec | APPEND_TIME
    return message(last, None, bytes(payload), magic=magic, attributes=attributes, timestamp=timestamp)


def at_offset(base_offset, records, **fields):
    """Return a batch of magic 2 at `base_offset`."""
    batch = build_batch(records, **fields)
    assign_offsets(batch, base_offset, 0)
    return bytes(batch)


CODECS = (NONE, GZIP, SNAPPY, LZ4)
KINDS = (
    *((0, codec, False) for codec in CODECS),
    *((1, codec, append_time) for codec in CODECS for append_time in (False, True)),
)
"""(magic, codec, whether the timestamps are those of the append) of all old messages."""
WITHOUT_OLD_LZ4 = tuple(kind for kind in KINDS if kind[:2] != (0, LZ4))
"""kafka-python needs a library of its own for LZ4 in messages of magic 0."""


def legacy_log(kinds=KINDS):
    """(bytes of a segment that begins at offset 0, the records in it): messages of these kinds, then a batch."""
    log, expected, offset = [], [], 0
    stamp = 1_500_000_000_000
    for magic, codec, append_time in kinds:
        time = stamp + 1_000 * offset
        kind = NO_TIMESTAMP_TYPE if magic == 0 else LOG_APPEND_TIME if append_time else CREATE_TIME
        about = f"magic {magic} codec {codec}{' appended' if append_time else ''}".encode()
        some = [
            (offset, time + 5, b"key %d" % offset, about),
            (offset + 1, time, None, b"no key, " + about * 40),
            (offset + 2, time + 9, b"gone %d" % (offset % 2), None),
            (offset + 3, time + 7, b"", b""),
        ]
        if codec == NONE:
            attributes = APPEND_TIME if append_time else 0
            log += [message(o, k, v, magic=magic, attributes=attributes, timestamp=t) for o, t, k, v in some]
        else:
            log.append(wrapper(some, magic=magic, codec=codec, append_time=time + 50 if append_time else None))
            if append_time:
                some = [(o, time + 50, k, v) for o, _, k, v in some]
        expected += [Expected(o, -1 if magic == 0 else t, kind, k, v) for o, t, k, v in some]
        offset += len(some)
    new = [(b"new %d" % number, b"magic 2") for number in range(3)]
    log.append(at_offset(offset, new, timestamp_ms=stamp + 100_000_000))
    expected += [Expected(offset + at, stamp + 100_000_000, CREATE_TIME, *pair) for at, pair in enumerate(new)]
    return b"".join(log), expected
