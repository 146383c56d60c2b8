"""Classification of the end of a log: a torn write, or damage. shell

Kafka cuts a log at the first bad batch and deletes all that follows. This is right for a write that a crash has torn,
and wrong for a damaged sector. Ottla cuts a log only if no valid batch follows the bad one, or if the bad batch has
pages that never reached the device. `log_loader.LogLoader` does the cutting.
"""

import re
from collections.abc import Iterator
from enum import Enum
from typing import Final

from ottla.broker.log.batches import BadBatch
from ottla.broker.ports.disk import File
from ottla.protocol.batch_header import (
    HEADER_SIZE,
    LEGACY_SMALLEST,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    crc_is_valid,
    least_size,
    read_header,
)
from ottla.protocol.errors import ProtocolError

_PAGE_BYTES: Final = 4_096
_WINDOW_BYTES: Final = 4 << 20
_BASE_OFFSET_SIZE: Final = 8
# Offsets in one segment span less than this.
_MAX_AHEAD: Final = 2**31
# Bytes that may follow the upper half of an offset: its lower half, a size, CRC or leader epoch, a magic.
_REST: Final = rb".{4}(?!\x00{3}[\x00-\x0d])[\x00-\x7f].{7}[\x00-\x02]"
_ZEROS: Final = 64
_NO_ZERO: Final = re.compile(rb"[^\x00]")


class TailKind(Enum):
    """Kind of the bytes from a bad batch to the end of its file. It decides whether recovery may cut the log there."""

    TORN = "a write that was cut short"
    LOST_PAGES = "pages of zeros that a power loss left"
    DAMAGE = "damage that no crash leaves"


def classify_tail(file: File, bad: BadBatch, least_offset: int) -> TailKind:
    """Classify the bytes from `bad.position` on; later batches count if their offsets are at least `least_offset`."""
    if _has_lost_page(file, bad.position):
        return TailKind.LOST_PAGES
    # Complete, with a right CRC, but a wrong offset, which the CRC does not cover: no torn write leaves that.
    if _sound_at(file, file.pread(HEADER_SIZE, bad.position), 0, bad.position) is not None:
        return TailKind.DAMAGE
    if next(sound_batches(file, bad.position + 1, least_offset), None) is not None:
        return TailKind.DAMAGE
    return TailKind.TORN


def _has_lost_page(file: File, position: int) -> bool:
    """Return whether the bad batch has zeros from its start, or from a page boundary, to the end of that page.

    A page that was never written leaves these zeros, and so does one that was written before the batch was added to it.
    If the length of the batch is not known, only its header is checked. From the start of the batch, eight zeros are
    enough where little of the page is left: base offset 0 is impossible there, because every log begins at a page.
    """
    end = min(file.size_bytes, position + _stated_size(file, position))
    start = position
    while start < end:
        page_end = min((start // _PAGE_BYTES + 1) * _PAGE_BYTES, file.size_bytes)
        page = file.pread(page_end - start, start)
        least = _BASE_OFFSET_SIZE if start == position and page_end < file.size_bytes else HEADER_SIZE
        if page.count(0) == len(page) and len(page) >= least:
            return True
        start = page_end
    return False


def _stated_size(file: File, position: int) -> int:
    head = file.pread(HEADER_SIZE, position)
    if len(head) < HEADER_SIZE:
        return len(head)
    header = read_header(head)
    return header.size_bytes if _has_size(header) else HEADER_SIZE


def _has_size(header: BatchHeader) -> bool:
    return 0 <= header.magic <= MAGIC and header.size_bytes >= least_size(header.magic)


def sound_batches(file: File, position: int, least_offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield the complete batches with a right CRC and a possible offset from `position` on, wherever they begin."""
    most_offset = least_offset + _MAX_AHEAD
    candidates = _candidates(least_offset, most_offset)
    skip_hole = getattr(file, "next_data", None)  # of files that commands read
    while position + LEGACY_SMALLEST <= file.size_bytes:
        if skip_hole is not None:
            position = max(position, skip_hole(position) - HEADER_SIZE + 1)
        window = file.pread(_WINDOW_BYTES, position)
        at = 0
        while found := candidates.search(window, at):
            at = found.start()
            if found.end() - at == _ZEROS:  # the first size that is not zero is at the end of the zeros or later
                nonzero = _NO_ZERO.search(window, at)
                at = (len(window) if nonzero is None else nonzero.start()) - LOG_OVERHEAD + 1
                continue
            batch = _sound_at(file, window, at, position + at)
            if batch is None or not least_offset <= batch[0].base_offset <= most_offset:
                at += 1
                continue
            yield batch
            at += len(batch[1])
        position += max(at, len(window) - HEADER_SIZE + 1, 1)


def _candidates(least_offset: int, most_offset: int) -> re.Pattern[bytes]:
    """Return a pattern for the start of a batch of any magic, or for zeros that can be skipped.

    It begins with fixed bytes, which are found quickly, unless the upper half of the offset may vary.
    """
    lower, upper = (offset.to_bytes(8, "big")[:4] for offset in (least_offset, most_offset))
    if lower != upper:
        return re.compile(rb"(?s)(?:%s|%s)%s" % (re.escape(lower), re.escape(upper), _REST))
    rest = rb"(?:\x00{%d}|%s)" % (_ZEROS - 4, _REST) if not any(lower) else _REST
    return re.compile(rb"(?s)%s%s" % (re.escape(lower), rest))


def _sound_at(file: File, window: bytes, at: int, position: int) -> tuple[BatchHeader, bytes] | None:
    """Return the whole batch at `at` of a window, which is byte `position` of the file; None if there is none."""
    try:
        header = read_header(window, at)
    except ProtocolError:
        return None
    if not _has_size(header) or header.last_offset_delta < 0 or position + header.size_bytes > file.size_bytes:
        return None
    batch = file.pread(header.size_bytes, position)
    return (header, batch) if crc_is_valid(batch, header) else None
