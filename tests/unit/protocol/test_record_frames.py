"""Frames and rebuilt batches against the reader of whole records."""

import pytest

from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import crc_is_valid, read_header
from ottla.protocol.errors import ProtocolError
from ottla.protocol.record_frames import SLICE_RECORDS, empty_batch, iter_frames, raw_records, raw_steps, rebuild_batch
from ottla.protocol.records import iter_records
from ottla.protocol.steps import RECORD_US, to_the_end

CODECS = range(5)
RECORDS = [
    (None if n % 5 == 0 else b"k" * (n % 200), None if n % 3 == 0 else b"v" * (n % 300), (("h", None),), 1_000 + n)
    for n in range(2 * SLICE_RECORDS + 7)
]


def frames_of(batch):
    header = read_header(batch)
    raw = raw_records(batch, header)
    return header, raw, [frame for frames in iter_frames(raw, header.record_count) for frame in frames]


@pytest.mark.parametrize("codec", CODECS)
def test_frames_have_the_keys_and_timestamps_of_the_records(codec):
    batch = build_batch(RECORDS, compression=codec, timestamp_ms=1)
    header, _, frames = frames_of(batch)
    assert to_the_end(raw_steps(batch, header)) == raw_records(batch, header)
    assert [(header.base_timestamp + delta, key, is_null) for _, delta, key, is_null, *_ in frames] == [
        (record.timestamp, record.key, record.value is None) for record in iter_records(batch, header)
    ]


@pytest.mark.parametrize("horizon_ms", [None, 10**13])
@pytest.mark.parametrize("codec", CODECS)
def test_a_rebuilt_batch_holds_the_chosen_records_unchanged(codec, horizon_ms):
    batch = build_batch(RECORDS, base_offset=70, compression=codec, producer_id=5, producer_epoch=1, base_sequence=9)
    header, raw, frames = frames_of(batch)
    assert next(rebuild_batch(header, raw, frames[3::2], horizon_ms)) <= SLICE_RECORDS * RECORD_US
    rebuilt = to_the_end(rebuild_batch(header, raw, frames[3::2], horizon_ms))
    again = read_header(rebuilt)
    assert crc_is_valid(rebuilt, again)
    assert [*iter_records(rebuilt, again)] == [*iter_records(batch, header)][3::2]
    assert again.delete_horizon_ms == horizon_ms
    assert again.last_offset == header.last_offset and again.last_sequence == header.last_sequence
    assert again.max_timestamp == max(record[3] for record in RECORDS[3::2])


def test_an_empty_batch_keeps_offsets_sequences_and_producer():
    header = read_header(build_batch(RECORDS, base_offset=70, producer_id=5, producer_epoch=1, base_sequence=9))
    emptied = read_header(batch := empty_batch(header))
    assert crc_is_valid(batch, emptied) and len(batch) == 61
    for field in ("base_offset", "last_offset", "last_sequence", "producer_id", "producer_epoch", "max_timestamp"):
        assert getattr(emptied, field) == getattr(header, field)


@pytest.mark.parametrize("cut", [1, 5, 60])
def test_frames_that_do_not_fit_are_refused(cut):
    _, raw, frames = frames_of(build_batch(RECORDS[:20]))
    for broken in (raw[:-cut], raw + bytes(cut)):
        with pytest.raises(ProtocolError):
            list(iter_frames(broken, len(frames)))
