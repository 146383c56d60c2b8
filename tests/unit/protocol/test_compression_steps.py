"""Compression in steps gives the same bytes as in one call, and no step is long."""

import random
from functools import cache

import cramjam
import lz4.frame
import pytest
import zstandard

from ottla.protocol import compression as c
from ottla.protocol import compression_steps
from ottla.protocol.compression_steps import (
    MEDIUM_BYTES,
    MOST_TABLES_BYTES,
    compress_steps,
    decompress_steps,
    zstd_level,
    zstd_tables_bytes,
)
from ottla.protocol.errors import ProtocolError
from ottla.protocol.steps import RECORD_US, SHORT_BYTES, SHORT_US, Work, to_the_end

TEXT = b"the castle, the trial, the burrow. " * 3000
CODECS = [c.GZIP, c.SNAPPY, c.LZ4, c.ZSTD]
NOISE = random.Random(1).randbytes(4 << 20)
LONG = {
    "gzip": (c.GZIP, lambda: c.compress(NOISE, c.GZIP)),
    "gzip in two": (c.GZIP, lambda: c.compress(NOISE[:-9], c.GZIP) + c.compress(NOISE[-9:], c.GZIP)),
    "gzip bomb": (c.GZIP, lambda: c.compress(bytes(len(NOISE)), c.GZIP)),
    "xerial": (c.SNAPPY, lambda: c.compress(NOISE, c.SNAPPY)),
    "xerial in two": (c.SNAPPY, lambda: c.compress(NOISE[:-9], c.SNAPPY) + c.compress(NOISE[-9:], c.SNAPPY)),
    "raw snappy": (c.SNAPPY, lambda: bytes(cramjam.snappy.compress_raw(NOISE))),
    "lz4": (c.LZ4, lambda: c.compress(NOISE, c.LZ4)),
    "lz4 of large blocks": (
        c.LZ4,
        lambda: lz4.frame.compress(NOISE, block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False, store_size=False),
    ),
    "lz4 of a stated size": (c.LZ4, lambda: lz4.frame.compress(NOISE, block_linked=False, store_size=True)),
    "zstd": (c.ZSTD, lambda: c.compress(NOISE, c.ZSTD)),
    "zstd bomb": (c.ZSTD, lambda: c.compress(bytes(len(NOISE)), c.ZSTD)),
}


@cache
def long(name):
    """Return a codec and a payload of 4 MiB."""
    codec, compress = LONG[name]
    return codec, compress()


def steps_of(steps):
    """Return (the result of the steps, the values that they yielded)."""
    seen, answer, failure = [], None, None
    while True:
        try:
            step = steps.send(answer) if failure is None else steps.throw(failure)
        except StopIteration as stop:
            return stop.value, seen
        seen.append(step)
        answer = failure = None
        if isinstance(step, Work):
            try:
                answer = step.call()
            except Exception as error:
                failure = error


@pytest.mark.parametrize("name", LONG)
def test_decompression_in_steps_gives_the_same_bytes_as_one_call(name):
    codec, payload = long(name)
    content, seen = steps_of(decompress_steps(payload, codec, limit_bytes=len(NOISE)))
    assert content == NOISE or content == bytes(len(NOISE))
    assert content == c.decompress(payload, codec, limit_bytes=len(NOISE))
    assert all(isinstance(step, Work) or step <= SHORT_US for step in seen), "what is done here is short"
    assert max(step.memory_bytes for step in seen if isinstance(step, Work)) == len(NOISE)


@pytest.mark.parametrize("name", LONG)
def test_steps_end_where_the_limit_is_passed(name):
    codec, payload = long(name)
    with pytest.raises(c.TooLarge):
        to_the_end(decompress_steps(payload, codec, limit_bytes=len(NOISE) - 1))


@pytest.mark.parametrize("name", LONG)
def test_steps_over_a_stream_that_is_cut_or_damaged_are_refused(name):
    codec, payload = long(name)
    for broken in (payload[:-1], payload[: len(payload) // 3], b"\0" + payload):
        with pytest.raises(ProtocolError):
            to_the_end(decompress_steps(broken, codec, limit_bytes=len(NOISE) + 1))


@pytest.mark.parametrize("codec", CODECS)
def test_short_payloads_take_short_steps_and_little_memory(codec):
    content, seen = steps_of(decompress_steps(c.compress(TEXT[:9_000], codec), codec, limit_bytes=1 << 20))
    assert content == TEXT[:9_000]
    for step in seen:
        assert not isinstance(step, Work) or (step.cost_us <= SHORT_US and step.memory_bytes <= SHORT_BYTES)


@pytest.mark.parametrize("codec", [c.GZIP, c.ZSTD])
def test_decompression_requests_memory_in_growing_amounts(codec):
    """A batch of usual size does not wait until the memory for the largest batch is free."""
    _, seen = steps_of(decompress_steps(c.compress(bytes(1 << 20), codec), codec, limit_bytes=1 << 25))
    assert seen[-1].memory_bytes == MEDIUM_BYTES
    _, seen = steps_of(decompress_steps(c.compress(bytes(3 << 20), codec), codec, limit_bytes=1 << 25))
    assert [step.memory_bytes for step in seen][-2:] == [MEDIUM_BYTES, 1 << 25]


def test_a_call_for_another_thread_reads_no_memory_of_the_connection():
    received = bytearray(c.compress(NOISE, c.ZSTD))
    steps = decompress_steps(received, c.ZSTD, limit_bytes=1 << 25)
    work = next(steps)
    assert work.cost_us > SHORT_US
    received[:] = bytes(len(received))
    content, _ = steps_of(rest_of(steps, work.call()))
    assert content == NOISE


def rest_of(steps, answer):
    """Return the steps after the first one, whose call gave this answer."""
    try:
        step = steps.send(answer)
        while True:
            step = steps.send((yield step))
    except StopIteration as stop:
        return stop.value


@pytest.mark.parametrize("codec", [c.NONE, *CODECS])
@pytest.mark.parametrize("size", [0, 100, 65_536, 65_537, 700_001])
def test_compression_in_steps_round_trips(codec, size):
    payload = (bytes(range(251)) * (size // 251 + 1))[:size]
    packed, seen = steps_of(compress_steps(payload, codec))
    assert c.decompress(packed, codec, limit_bytes=1_000_000) == payload
    assert all(isinstance(step, Work) or step <= SHORT_US for step in seen)


@pytest.mark.parametrize("level", [1, 3, 12, 17])
def test_lz4_of_every_level_has_blocks_that_kafka_reads(level):
    packed = to_the_end(compress_steps(NOISE[:300_000], c.LZ4, level))
    assert c.decompress(packed, c.LZ4, limit_bytes=300_000) == NOISE[:300_000]


def test_zstd_at_a_high_level_states_the_content_size():
    """Without it the frame names a window of 128 MiB, which readers must have too, and costs twenty times as much."""
    packed = bytes(to_the_end(compress_steps(TEXT, c.ZSTD, 22)))
    assert packed[:4] == b"\x28\xb5\x2f\xfd" and packed[4] >> 6, "the header says how much comes out"


@pytest.mark.parametrize("level", range(1, 23))
@pytest.mark.parametrize("size", [300_000, 1_000_000, 1 << 22, 10_000_000, 100_000_000])
def test_the_zstd_memory_estimate_matches_the_library(level, size):
    parameters = zstandard.ZstdCompressionParameters.from_level(level, source_size=size)
    said = parameters.estimated_compression_context_size()
    assert said / 2 < zstd_tables_bytes(level, size) + (1 << 20) < 2 * said + (1 << 20)
    if said > MOST_TABLES_BYTES:
        assert zstd_tables_bytes(level, size) > said - (2 << 20)


@pytest.mark.parametrize("level", [None, -5, *range(1, 23)])
def test_large_records_get_a_level_that_takes_no_more_than_there_is(level):
    for size in (1, 300_000, 1_000_000, 2_000_000, 10_000_000, 100_000_000):
        assert zstd_tables_bytes(zstd_level(level, size), size) <= MOST_TABLES_BYTES
    assert zstd_level(level, 2_000_000) == (3 if level is None else level), "no batch of the usual size is touched"


def test_a_zstd_step_reports_its_scratch_memory():
    payload = bytes(5 << 20)
    packed, (work,) = steps_of(compress_steps(payload, c.ZSTD, 22))
    assert work.memory_bytes == len(payload)
    assert work.scratch_bytes == zstd_tables_bytes(zstd_level(22, len(payload)), len(payload)) > 32 << 20
    assert c.decompress(packed, c.ZSTD, limit_bytes=len(payload)) == payload


@pytest.mark.parametrize("codec", [c.SNAPPY, c.LZ4])
def test_many_tiny_blocks_are_walked_in_slices(codec):
    if codec == c.LZ4:
        frame = c.compress(b"x", c.LZ4)
        payload = frame[:7] + frame[7:16] * 20_000 + bytes(4)
    else:
        payload = c.XERIAL_HEADER + c.compress(b"x", c.SNAPPY)[16:] * 20_000
    content, seen = steps_of(decompress_steps(payload, codec, limit_bytes=1 << 20))
    assert content == b"x" * 20_000
    walked = [step for step in seen if not isinstance(step, Work)]
    assert max(walked) <= 2 * compression_steps._BLOCKS * RECORD_US and sum(walked) >= 19_000 * RECORD_US


def test_an_unknown_codec_is_refused():
    with pytest.raises(ProtocolError, match="unknown compression type 7"):
        to_the_end(decompress_steps(b"", 7, limit_bytes=10))
