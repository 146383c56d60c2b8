"""Bad input as cases: bytes, the answer they get, and the frames that carry them."""

import struct
from typing import Any, NamedTuple

import pytest
from rig import CLOSED, PRODUCE

from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import BatchHeader, assemble
from ottla.protocol.compression import compress
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import NewRecord, encode_record
from ottla.protocol.requests import codec
from ottla.protocol.requests.frames import RequestHeader, encode_request_header, is_flexible
from ottla.protocol.varints import write_unsigned_varint

CORRELATION_ID = 7
CLIENT_ID = "hostile"


class Case(NamedTuple):
    """`data` is the bytes, or a function of the rig that makes them; `answer` is CLOSED, an ErrorCode, or a function
    of the reply. The only log line about it contains `says`: the API, or the reason why it was not read so far."""

    name: str
    data: Any
    answer: Any = CLOSED
    alike: bool = True
    says: str = ""


def cases(*rows):
    """Parametrise with `case`: against ours, and the `alike` ones also against Apache Kafka."""
    apache = (pytest.mark.maven, pytest.mark.conformance)
    params = [pytest.param("ottla", row, id=f"{row.name}-ottla") for row in rows]
    params += [pytest.param("apache", row, id=f"{row.name}-apache", marks=apache) for row in rows if row.alike]
    return pytest.mark.parametrize(("rig", "case"), params, indirect=["rig"])


def bytes_of(rig, case):
    return case.data(rig) if callable(case.data) else case.data


def encode_frame(payload):
    return struct.pack(">i", len(payload)) + payload


def request(api_key, version, body, client_id=CLIENT_ID):
    """A framed request with any body."""
    return encode_frame(encode_request_header(RequestHeader(api_key, version, CORRELATION_ID, client_id)) + body)


def body_of(message, version):
    """Return a valid body."""
    return bytes(message.encode(version=version))


def sound(api_key, version, **fields):
    """Return a framed request that matches its schema."""
    return request(api_key, version, body_of(codec.request_class(api_key)(**fields), version))


def text(value, flexible):
    """Encode a string in either form; bytes are not changed."""
    raw = value.encode() if isinstance(value, str) else value
    return count(len(raw), flexible, ">h") + raw


def nullable_text(value, flexible):
    return (b"\0" if flexible else b"\xff\xff") if value is None else text(value, flexible)


def count(number, flexible, layout=">i"):
    if not flexible:
        return struct.pack(layout, number)
    out = bytearray()
    write_unsigned_varint(out, number + 1)
    return bytes(out)


def produce(*topics, version=9, acks=-1, transactional_id=None, client_id=CLIENT_ID):
    """A framed Produce request; `topics` are (name, [(partition, records or None), ...])."""
    flexible = is_flexible(PRODUCE, version)
    tags = b"\0" if flexible else b""
    body = bytearray(nullable_text(transactional_id, flexible) + struct.pack(">hi", acks, 10_000))
    body += count(len(topics), flexible)
    for name, rows in topics:
        body += text(name, flexible) + count(len(rows), flexible)
        for index, records in rows:
            size = -1 if records is None else len(records)
            body += struct.pack(">i", index) + count(size, flexible) + (records or b"") + tags
        body += tags
    return request(PRODUCE, version, bytes(body + tags), client_id)


def record(index, *, key=b"k", value=b"v", timestamp_delta=0):
    """The bytes of one sound record."""
    out = bytearray()
    encode_record(out, index, timestamp_delta, key, value)
    return bytes(out)


def batch(payload=None, *, records=1, compression=0, **fields):
    """A batch with any record section and any header field; size and CRC are right, the caller sets the rest."""
    if payload is None:
        payload = b"".join(record(index) for index in range(records))
    header = {
        "base_offset": 0,
        "batch_length": 0,
        "partition_leader_epoch": -1,
        "magic": 2,
        "crc": 0,
        "attributes": compression,
        "last_offset_delta": records - 1,
        "base_timestamp": -1,
        "max_timestamp": -1,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "record_count": records,
    }
    return bytes(assemble(BatchHeader(**(header | fields)), payload))


def compress_batch(compression, payload, **fields):
    return batch(compress(payload, compression), compression=compression, **fields)


def replace(data, position, value):
    """Return `data` with the bytes `value` at `position`."""
    return data[:position] + value + data[position + len(value) :]


def records_at(timestamp_ms, keys=(b"k",)):
    return bytes(build_batch([NewRecord(key, b"v", (), timestamp_ms) for key in keys]))


def expect(error):
    """A reply with one row, this error and no offset."""

    def check(reply):
        row = reply.responses[0].partition_responses[0]
        assert (ErrorCode(row.error_code), row.base_offset) == (error, -1)

    return check
