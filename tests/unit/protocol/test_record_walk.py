"""The compiled walk, and the same file as Python, return the results of the specification in Python."""

import os
import random
from pathlib import Path

import pytest

from hatch_build import digest
from ottla.protocol import record_walk, walked
from ottla.protocol.errors import ProtocolError
from ottla.protocol.steps import to_the_end
from ottla.protocol.varints import write_unsigned_varint, write_varint
from tests.unit.protocol.hostile_records import section

try:
    from ottla.protocol import record_walk_compiled
except ImportError:
    record_walk_compiled = None

needs_compiled = pytest.mark.skipif(record_walk_compiled is None, reason="no C compiler when the environment was made")
INPUTS = int(os.environ.get("OTTLA_WALKS", "20000"))


@pytest.fixture(params=["python", pytest.param("compiled", marks=needs_compiled)])
def walk(request):
    return (record_walk if request.param == "python" else record_walk_compiled).walk


def verdict(monkeypatch, walk, come_to):
    """Return the result or the error of a check that tries this walk first. None runs the specification alone."""
    monkeypatch.setattr(walked, "walk_compiled", walk)
    try:
        return come_to()
    except (ProtocolError, IndexError) as error:
        return type(error), str(error)


@needs_compiled
def test_the_compiled_walk_matches_the_current_source():
    source = Path(record_walk.__file__).read_text(encoding="utf-8")
    assert digest(source) == record_walk_compiled.SOURCE, "make env compiles it anew"


@pytest.mark.slow
def test_hostile_sections_get_the_same_verdict(walk, monkeypatch, request):
    drawn = random.Random(request.config.getoption("--hypothesis-seed") or 7)
    kinds = set()
    for _ in range(INPUTS):
        data, count = section(drawn)
        raw = memoryview(data)
        for come_to in (
            lambda raw=raw, count=count: walked.walk_at_once(raw, count),
            lambda raw=raw, count=count: to_the_end(walked.walk_steps(raw, count)),
            lambda data=data, count=count: to_the_end(walked.walk_steps(data, count)),
        ):
            expected = verdict(monkeypatch, None, come_to)
            assert verdict(monkeypatch, walk, come_to) == expected, (count, data.hex())
        kinds.add(expected[1].rstrip("0123456789 ") if isinstance(expected[0], type) else "sound")
    assert {"sound"} < kinds and len(kinds) > 6


@pytest.mark.parametrize("window_bytes", [16, 64, 1000])
def test_sections_larger_than_the_window_get_the_same_verdict(walk, monkeypatch, request, window_bytes):
    monkeypatch.setattr(walked, "_WINDOW_BYTES", window_bytes)
    drawn = random.Random(request.config.getoption("--hypothesis-seed") or 7)
    for _ in range(2_000):
        data, count = section(drawn)

        def come_to(data=data, count=count):
            at_once = walked.walk_at_once(memoryview(data), count)
            return at_once, to_the_end(walked.walk_steps(memoryview(data), count))

        assert verdict(monkeypatch, walk, come_to) == verdict(monkeypatch, None, come_to), (count, data.hex())


def test_a_walk_stops_at_the_first_record_that_is_not_plain(walk):
    sound = bytes.fromhex("0c 00 00 00 01 01 00" + "0c 00 03 02 01 01 00")
    assert walk(sound, 0, 0, 3, 0) == (14, 2, 0, -4, 0)
    assert walk(sound, 7, 1, 2, 0) == (14, 2, -4, -4, 1)
    assert walk(sound[:13], 0, 0, 2, 0)[:2] == (7, 1)
    assert walk(sound, 0, 1, 2, 0)[:2] == (0, 1)


def test_no_bytes_are_copied_twice_for_records_that_are_not_plain(walk, monkeypatch):
    """Otherwise a client could make the broker copy a window for each record."""
    monkeypatch.setattr(walked, "walk_compiled", walk)
    data = wide_records(3_000)
    monkeypatch.setattr(walked, "_WINDOW_BYTES", len(data) // 3)
    window = walked._Window(memoryview(data))
    copied = at = index = 0
    while index < 3_000:
        at, index, *_ = window.walk_slice(at, index, min(index + walked.SLICE_RECORDS, 3_000))
        copied += window.take_copied_bytes()
    assert at == len(data) and copied <= 2 * len(data)


def wide_records(count):
    """Return records with the least timestamp delta, which takes ten bytes."""
    out = bytearray()
    for index in range(count):
        body = bytearray(1)
        write_unsigned_varint(body, 2**64 - 1)
        write_varint(body, index)
        body += b"\x01\x01\x00"
        write_varint(out, len(body))
        out += body
    return bytes(out)
