"""Reader of a partition's records from brokers, in chunks of whole batches, as stored. shell

A window ends at an offset below which the broker serves records, so nothing in it is torn: what does not parse is
damage. Reading continues at the next sound batch of the answer, else at an offset after it that a broker can read.
"""

from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from typing import Final

import numpy as np

from ottla.protocol.batch import ABORT
from ottla.protocol.batch_header import HEADER_SIZE, crc_is_valid, least_size, read_header, read_legacy_header
from ottla.scan import headers
from ottla.scan.chunks import ROWS_PER_CHUNK, Chunk, first_bad_crc
from ottla.scan.cluster.offset_window import OffsetWindow
from ottla.scan.compiled.kernels import Bytes, Forecast, Longs
from ottla.scan.damage_log import Damage, DamageLog
from ottla.scan.legacy import Walked, walk_messages
from ottla.wire.partition_stream import PartitionStream, RecordsUnreadable, open_stream

# After all offsets and all positions of an answer.
_FAR: Final = 2**62
_NO_ROOM: Final = 2**31


class WindowReader:
    """Reads windows one after the other. A chunk is valid until the next one is read."""

    def __init__(self, log: DamageLog, *, check_crc: bool) -> None:
        self._log = log
        self._check_crc = check_crc
        self._rows = headers.header_rows(ROWS_PER_CHUNK)
        self._forecast: Forecast

    def chunks(self, window: OffsetWindow, next_offset: int = 0) -> Iterator[Chunk]:
        """Yield the batches of a window with offsets at or after `next_offset`.

        Raises Unanswered, RecordsGone, DamagedSegment in mode `fail`.
        """
        at = max(next_offset, window.first_offset)
        if at >= window.end_offset:
            return
        self._forecast = Forecast(window.end_offset - window.first_offset, window.size_bytes)
        stable_end = window.end_offset if window.is_committed else None
        where = window.cluster, window.topic, window.topic_id, window.partition
        with open_stream(*where, stable_end, window.replica) as stream:
            least = 0  # the batch that has the first offset may begin below it
            while at < window.end_offset:
                try:
                    records = stream.read(at)
                except RecordsUnreadable as error:
                    least, broken = at, str(error)
                else:
                    if not records:
                        return
                    least, broken = yield from self._walk(window, stream, records, at, least)
                at = least
                if broken:
                    at = _find_readable(stream, window, least)
                    self._log.add(Damage(window.path, least, at, broken, of_offsets=True))

    def _walk(
        self, window: OffsetWindow, stream: PartitionStream, records: memoryview, at: int, least: int
    ) -> Generator[Chunk, None, tuple[int, str]]:
        """Yield the batches of an answer with offsets at or after `at`; base offsets below `least` are damage.

        Return the next offset, and what is broken there if no sound batch follows in the answer.
        """
        buffer: Bytes = np.frombuffer(records, dtype=np.uint8)
        aborted = _Aborted(stream.aborted) if window.is_committed else None
        position, next_offset = 0, least
        while position < len(buffer):
            walked = self._walk_batches(buffer, position, next_offset)
            self._forecast.add(walked.read, walked.next_offset - window.first_offset)
            rows = self._rows[: walked.read]
            ranges = None if aborted is None else aborted.ranges(rows)
            is_last = walked.at == len(buffer) or (walked.cut and walked.at > 0)
            rows = rows[(rows[:, headers.LAST_OFFSET] >= at) & (rows[:, headers.BASE_OFFSET] < window.end_offset)]
            if window.is_continued:
                rows = rows[rows[:, headers.BASE_OFFSET] >= window.first_offset]
            if is_last and at <= walked.next_offset < window.end_offset:
                stream.request(walked.next_offset)
            if len(rows):
                yield Chunk(buffer, rows, 0, walked.is_legacy, ranges)
            position, next_offset = walked.at, walked.next_offset
            if is_last:
                break
            if walked.wrong is not None or walked.cut:
                reason = walked.wrong or headers.REASONS[headers.LENGTH_WRONG]
                position = _find_sound(buffer, position, next_offset, walked.end)
                if position < 0:
                    return max(next_offset, at), reason
                sound = read_header(records, position).base_offset
                self._log.add(Damage(window.path, max(next_offset, at), sound, reason, of_offsets=True))
        if next_offset <= at:
            return at, "the answer of the broker has no batch at or after this offset"
        return next_offset, ""

    def _walk_batches(self, buffer: Bytes, position: int, next_offset: int) -> Walked:
        """Read batches, or messages of magic 0 and 1, into the rows."""
        end = len(buffer)
        where = buffer, position, end, end + _NO_ROOM, end, next_offset, _FAR, self._rows
        count, stopped, why, after = headers.walk_headers(*where)
        is_old = why == headers.MAGIC_OLD or read_legacy_header(buffer.data, position) is not None
        if not count and is_old:
            return walk_messages(*where, self._check_crc)._replace(is_legacy=True)
        sound = first_bad_crc(buffer.data, self._rows[:count]) if self._check_crc else count
        if sound < count:
            row = self._rows[sound]
            start, size, offset = (int(row[at]) for at in (headers.POSITION, headers.SIZE, headers.BASE_OFFSET))
            after = int(self._rows[sound - 1, headers.LAST_OFFSET]) + 1 if sound else next_offset
            reason = f"CRC mismatch in the batch at offset {offset}"
            return Walked(sound, start, after, wrong=reason, end=start + size)
        return Walked(count, stopped, after, cut=why == headers.CUT and stopped < end, wrong=headers.REASONS.get(why))


class _Aborted:
    """The aborted transactions of an answer, whose batches are passed in order."""

    def __init__(self, listed: Sequence[tuple[int, int]]) -> None:
        self._left = sorted(listed)

    def ranges(self, rows: Longs) -> Longs:
        """Return rows (producer id, first offset, marker offset) of those that have not ended before these batches."""
        markers: dict[int, list[int]] = {}
        for row in rows[rows[:, headers.CONTROL_TYPE] == ABORT]:
            markers.setdefault(int(row[headers.PRODUCER_ID]), []).append(int(row[headers.BASE_OFFSET]))
        found, left = [], []
        for producer_id, first in self._left:
            ends = markers.get(producer_id, [])
            at = bisect_left(ends, first)
            found.append((producer_id, first, ends[at] if at < len(ends) else _FAR))
            if at == len(ends):
                left.append((producer_id, first))
        self._left = left
        return np.array(found, dtype=np.int64).reshape(-1, 3)


def _find_sound(buffer: Bytes, broken: int, next_offset: int, own_end: int | None) -> int:
    """Return the position of the first sound batch after the one at `broken`, -1 if the answer has none.

    `own_end`: the end of the broken batch by its own length.
    """
    if own_end is not None and _is_sound(buffer, own_end, next_offset):
        return own_end
    position, end, row = broken + 1, len(buffer), headers.header_rows(1)[0]
    while (position := headers.find_header(buffer, position, end, end, next_offset, _FAR, row)) >= 0:
        if _is_sound(buffer, position, next_offset):
            return int(position)
        position += 1
    return -1


def _is_sound(buffer: Bytes, position: int, least: int) -> bool:
    """Return whether a whole batch with a right CRC, and a base offset from `least` on, is at `position`."""
    room = len(buffer) - position
    legacy = read_legacy_header(buffer.data, position)
    if legacy is not None:
        is_whole = least_size(legacy.magic) <= legacy.size_bytes <= room
        return is_whole and legacy.base_offset >= least and crc_is_valid(buffer.data, legacy, position)
    row = headers.header_rows(1)[0]
    if room < HEADER_SIZE or headers.check_header(buffer, position, room, least, _FAR, row) != headers.CUT:
        return False
    return crc_is_valid(buffer.data, read_header(buffer.data, position), position)


def _find_readable(stream: PartitionStream, window: OffsetWindow, broken: int) -> int:
    """Return the first offset after `broken` at which the broker sends a sound batch, else the end of the window."""

    def find(offset: int) -> int | None:
        """Return the base offset of the sound batch that the broker sends for an offset; None for another answer."""
        try:
            records = stream.read(offset)
        except RecordsUnreadable:
            return None
        is_sound = bool(records) and _is_sound(np.frombuffer(records, dtype=np.uint8), 0, broken + 1)
        return read_header(records).base_offset if is_sound else None

    below, step = broken, 1
    found = None
    while found is None:
        if below + step >= window.end_offset:
            return window.end_offset
        below, step = below + step, 2 * step
        found = find(below)
    low, high = below - step // 2, below
    while high - low > 1:
        middle = (low + high) // 2
        if (nearer := find(middle)) is None:
            low = middle
        else:
            high, found = middle, nearer
    return min(found, window.end_offset)
