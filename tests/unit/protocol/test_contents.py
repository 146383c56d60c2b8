"""Comparison of the contents of two batches with any timestamps and codecs."""

from itertools import product

import pytest

from ottla.protocol import contents
from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import HEADER_SIZE, assemble, read_header
from ottla.protocol.contents import differ
from ottla.protocol.errors import ProtocolError
from ottla.protocol.steps import Work, to_the_end

CODECS = range(5)
LIMIT_BYTES = 1 << 24
MOST_STEP_US = 2_000
RECORDS = [(b"k%d" % n, b"v" * (n % 70), (("h", b"1"), ("h", b"2"))) for n in range(1_200)]


def differs(one, other):
    return to_the_end(differ(one, read_header(one), other, read_header(other), LIMIT_BYTES))


def steps(one, other):
    """Yield the steps of the comparison, and make each call when it is yielded."""
    work, answer = differ(one, read_header(one), other, read_header(other), LIMIT_BYTES), None
    while True:
        try:
            step = work.send(answer)
        except StopIteration:
            return
        yield step
        answer = step.call() if isinstance(step, Work) else None


@pytest.mark.parametrize(("codec", "other"), [*product(CODECS, CODECS)])
def test_times_and_codecs_do_not_count(codec, other):
    one = build_batch(RECORDS, timestamp_ms=1, compression=codec)
    again = build_batch([(*record, 5_000_000 * n) for n, record in enumerate(RECORDS)], compression=other)
    assert not differs(one, again)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "changed",
    [
        (b"k", b"", (("h", b"1"), ("i", b""))),
        (b"", b"v", (("h", b"1"), ("i", b""))),
        (None, b"v", (("h", b"1"), ("i", b""))),
        (b"k", None, (("h", b"1"), ("i", b""))),
        (b"kv", b"", (("h", b"1"), ("i", b""))),
        (b"k", b"v", (("i", b""), ("h", b"1"))),
        (b"k", b"v", (("h", b"1"), ("i", None))),
        (b"k", b"v", (("h", b"1"),)),
        (b"k", b"v", (("h", b"1i"), ("", b""))),
    ],
)
def test_keys_values_and_headers_count(codec, changed):
    record = (b"k", b"v", (("h", b"1"), ("i", b"")))
    one = build_batch([record] * 3, timestamp_ms=1, compression=codec)
    assert differs(one, build_batch([record, changed, record], timestamp_ms=1, compression=codec))


@pytest.mark.parametrize("changed", [((None, b""), (b"", b"")), ((b"", None), (b"", b""))], ids=["key", "value"])
def test_null_is_not_empty(changed):
    null, empty = changed
    assert differs(build_batch([null]), build_batch([empty]))


@pytest.mark.parametrize("codec", CODECS)
def test_the_order_of_records_counts(codec):
    one = build_batch(RECORDS, compression=codec)
    assert differs(one, build_batch([RECORDS[1], RECORDS[0], *RECORDS[2:]], compression=codec))


def test_the_same_bytes_are_not_decompressed(monkeypatch):
    one = build_batch(RECORDS, timestamp_ms=1, compression=4)
    header = read_header(one)
    again = assemble(header._replace(max_timestamp=7, attributes=header.attributes | 8), one[HEADER_SIZE:])
    monkeypatch.setattr(contents, "decompress_steps", None)
    assert not differs(one, again)


@pytest.mark.parametrize(
    "records",
    [[(b"k" * 3_000_000, b"v", (("h", bytes(3_000_000)),))], [(None, b"")] * 20_000, [(b"", bytes(3_000))] * 2_000],
    ids=["one large", "many small", "between"],
)
def test_no_step_is_long(records):
    one = build_batch(records, compression=4)
    for other in (build_batch(records), one, build_batch([(b"other", b"")] * len(records))):
        assert all(step <= MOST_STEP_US for step in steps(one, other) if not isinstance(step, Work))


def test_no_call_is_given_bytes_that_are_not_its_own():
    """The bytes are views into the connection's buffer, so a call in a thread gets a copy."""
    one = bytearray(build_batch([(b"k", bytes(3_000_000))], compression=4))
    other = build_batch([(b"k", bytes(3_000_001))], compression=4)
    calls = [step for step in steps(one, other) if isinstance(step, Work) and step.cost_us > 500]
    assert calls
    for call in calls:
        call.call()
    one[:] = bytes(len(one))  # fails while a call has a view of it
    del one[:]


@pytest.mark.parametrize("cut", [1, 5, 60])
def test_records_that_do_not_fit_are_not_compared(cut):
    one = build_batch(RECORDS[:20])
    for payload in (one[HEADER_SIZE:-cut], one[HEADER_SIZE:] + bytes(cut)):
        with pytest.raises(ProtocolError):
            differs(one, assemble(read_header(one), payload))


def test_more_than_the_limit_is_not_compared():
    with pytest.raises(ProtocolError):
        differs(build_batch([(b"k", bytes(LIMIT_BYTES))], compression=4), build_batch([(b"k", b"v")]))
