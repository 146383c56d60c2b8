"""The throttle time of a reply is at the place that its schema gives, in every API and version that is served."""

import pytest

from ottla.broker.api.table import TABLE
from ottla.protocol.requests import codec
from ottla.protocol.requests.fetch_wire import encode_fetch_response
from ottla.protocol.requests.produce_wire import PartitionResponse, encode_produce_response
from ottla.protocol.requests.throttle_times import with_throttle_time

SERVED = [(api.key, version) for api in TABLE.values() for version in range(api.min_version, api.max_version + 1)]
ROWS = {"ApiVersions": {"api_keys": [(key, 0, key % 5) for key in range(150)]}}


def _frame(key, version):
    if key.title == "Produce":
        rows = [PartitionResponse("topic", index, 0, topic_id=bytes(16)) for index in range(3)]
        return [encode_produce_response(rows, version, 7)]
    if key.title == "Fetch":
        return encode_fetch_response((), version, 7)
    return codec.response_encoder(key, version)(7, **ROWS.get(key.title, {}))


@pytest.mark.parametrize(("key", "version"), SERVED, ids=[f"{key.title}-{version}" for key, version in SERVED])
def test_the_time_is_put_where_the_schema_has_it(key, version):
    buffers = _frame(key, version)
    plain = b"".join(buffers)
    _, before = codec.decode_response(key, version, plain[4:])

    frame = b"".join(with_throttle_time(buffers, key, version, 123_456))

    _, after = codec.decode_response(key, version, frame[4:])
    assert len(frame) == len(plain)
    if not _has_time(key, version):
        assert frame == plain
        return
    assert after.throttle_time_ms == 123_456
    after.throttle_time_ms = 0
    assert after == before


def _has_time(key, version):
    fields = codec.response_class(key).fields.values()
    return any(field.name == "throttle_time_ms" and field.for_version_q(version) for field in fields)


def test_bytes_that_cannot_be_changed_are_copied():
    first, rest = b"\0" * 20, b"rest"

    buffers = with_throttle_time([first, rest], 8, 8, 5)

    assert first == b"\0" * 20
    assert buffers[0][9:13] == b"\0\0\0\x05"
    assert buffers[1] is rest
