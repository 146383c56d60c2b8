"""Batches of a window as a pull writes them: checked, in runs of consecutive ones, as stored. shell

Sound batches are read without the scan's arrays, because its libraries take as long to load as a pull of 200 MiB. The
scan reads on at the first batch that is damaged, or older than Kafka 0.11.
"""

from collections.abc import Generator, Iterator
from typing import Final

from ottla.broker.log.batches import Run, iter_memory
from ottla.protocol.batch import read_marker
from ottla.protocol.batch_header import (
    COMPRESSION_MASK,
    CONTROL,
    LOG_OVERHEAD,
    MAGIC,
    MIN_BATCH_LENGTH,
    BatchHeader,
)
from ottla.protocol.errors import ProtocolError
from ottla.scan.cluster.offset_window import OffsetWindow
from ottla.scan.damage_log import DamageLog
from ottla.wire.partition_stream import RecordsUnreadable, open_stream

_MOST_OFFSET: Final = 2**62 - 1
_LAST_CODEC: Final = 4
_SMALLEST_RECORD: Final = 7


def read_runs(window: OffsetWindow, log: DamageLog) -> Iterator[Run]:
    """Yield the sound batches of a window. A run is valid until the next one is read.

    Damage is in `log` before the run that follows it. Raises Unanswered, RecordsGone.
    """
    at = yield from _read_sound(window)
    if at < window.end_offset:
        yield from _scan(window._replace(first_offset=at), log)


def _read_sound(window: OffsetWindow) -> Generator[Run, None, int]:
    """Yield the batches up to the first that the scan must read; return the offset from which on it is to read."""
    at, least = window.first_offset, 0  # the batch that has the first offset may begin below it
    with open_stream(window.cluster, window.topic, window.topic_id, window.partition) as stream:
        while at < window.end_offset:
            try:
                records = stream.read(at)
            except RecordsUnreadable:
                return at
            runs, is_sound = [], True
            for run in iter_memory(records, least, _MOST_OFFSET, check_crc=True):
                sound = _cut_unsound(run)
                is_sound = is_sound and sound is run and run.bad is None
                if sound.headers:
                    least = next_offset(sound)
                    runs.append(_cut_to(sound, at, window.end_offset))
                if not is_sound:
                    break
            if least <= at:
                return at
            at = least
            if is_sound and at < window.end_offset:
                stream.request(at)
            yield from (run for run in runs if run.headers)
            if not is_sound:
                return at
    return at


def _scan(window: OffsetWindow, log: DamageLog) -> Iterator[Run]:
    from ottla.scan import headers
    from ottla.scan.windows import WindowReader

    for chunk in WindowReader(log, check_crc=True).chunks(window):
        start = int(chunk.rows[0, headers.POSITION])
        end = int(chunk.rows[-1, headers.POSITION] + chunk.rows[-1, headers.SIZE])
        yield from iter_memory(chunk.buffer[start:end].data, 0, _MOST_OFFSET)


def next_offset(run: Run) -> int:
    """Return the offset after the last batch of a run."""
    return _end_of(run.headers[-1])


def take(run: Run, start: int, end: int) -> Run:
    """Return the batches [start, end) of a run."""
    if (start, end) == (0, len(run.headers)):
        return run
    before, headers = _size(run.headers[:start]), run.headers[start:end]
    return Run(run.position + before, run.data[before : before + _size(headers)], headers, None)


def _end_of(fields: tuple[int, ...]) -> int:
    base_offset, _, _, _, _, _, delta = fields[:7]
    return base_offset + delta + 1


def _size(headers: list[tuple[int, ...]]) -> int:
    return sum(fields[1] for fields in headers) + len(headers) * LOG_OVERHEAD


def _cut_to(run: Run, first_offset: int, end_offset: int) -> Run:
    """Return the batches that have offsets in [first_offset, end_offset)."""
    start, end = 0, len(run.headers)
    while start < end and _end_of(run.headers[start]) <= first_offset:
        start += 1
    while end > start and run.headers[end - 1][0] >= end_offset:
        end -= 1
    return take(run, start, end)


def _cut_unsound(run: Run) -> Run:
    """Return the batches before the first that the scan must read, by the fields that the scan checks, too."""
    position = 0
    for index, fields in enumerate(run.headers):
        _, length, _, magic, _, attributes, delta, _, _, _, _, _, count = fields
        codec = attributes & COMPRESSION_MASK
        if (
            magic != MAGIC
            or codec > _LAST_CODEC
            or not 0 <= count <= delta + 1
            or (not codec and count * _SMALLEST_RECORD > length - MIN_BATCH_LENGTH)
            or (attributes & CONTROL and not _is_marker(run.data, BatchHeader._make(fields), position))
        ):
            return take(run, 0, index)
        position += LOG_OVERHEAD + length
    return run


def _is_marker(data: memoryview, header: BatchHeader, position: int) -> bool:
    try:
        read_marker(data, header, position)
    except ProtocolError:
        return False
    return True
