"""Telling a torn tail from damage. shell

Kafka cuts a log at the first bad batch and deletes all that follows, which is right for a write that a crash tore and
wrong for a sector that rotted. Here a log is cut only if nothing sound stands behind the bad batch, or if the bad
batch shows pages that never reached the device. Who cuts is `log_loader.LogLoader`.
"""

from enum import Enum

from ottla.broker.log.batches import BadBatch
from ottla.broker.ports.disk import File
from ottla.protocol.batch_header import HEADER_SIZE, MAGIC, BatchHeader, crc_is_valid, read_header

_PAGE_BYTES = 4_096
_WINDOW_BYTES = 4 << 20
_MAGIC_AT = 16
_BASE_OFFSET_SIZE = 8
_MIN_BATCH_LENGTH = HEADER_SIZE - 12
# Offsets in one segment span less than this.
_MAX_AHEAD = 2**31


class TailKind(Enum):
    """What stands from a bad batch to the end of its file: it decides whether recovery may cut the log there."""

    TORN = "a write that was cut short"
    LOST_PAGES = "pages of zeros that a power loss left"
    DAMAGE = "damage that no crash leaves"


def classify_tail(file: File, bad: BadBatch, least_offset: int) -> TailKind:
    """Judge the bytes from `bad.position` on; batches behind it count if their offsets are at least `least_offset`."""
    if _has_lost_page(file, bad.position):
        return TailKind.LOST_PAGES
    # Complete, with a right CRC, and yet out of place: no torn write looks so. The base offset is outside the CRC.
    head = file.pread(HEADER_SIZE, bad.position)
    if len(head) == HEADER_SIZE and _is_sound(file, read_header(head), bad.position):
        return TailKind.DAMAGE
    if _has_sound_batch(file, bad.position + 1, least_offset):
        return TailKind.DAMAGE
    return TailKind.TORN


def _has_lost_page(file: File, position: int) -> bool:
    """Whether the bad batch holds zeros from its start, or from a page boundary, to the end of that page.

    That is what a page leaves that was never written, or was written before the batch was added to it. A batch whose
    length is not known is judged by its header alone. Zeros from the start of the batch may be few, where little of the
    page is left: a whole base offset of them is one that cannot be there, for every log begins at a page.
    """
    end = min(file.size_bytes, position + _claimed_size(file, position))
    start = position
    while start < end:
        page_end = min((start // _PAGE_BYTES + 1) * _PAGE_BYTES, file.size_bytes)
        page = file.pread(page_end - start, start)
        least = _BASE_OFFSET_SIZE if start == position and page_end < file.size_bytes else HEADER_SIZE
        if page.count(0) == len(page) and len(page) >= least:
            return True
        start = page_end
    return False


def _claimed_size(file: File, position: int) -> int:
    head = file.pread(HEADER_SIZE, position)
    if len(head) < HEADER_SIZE:
        return len(head)
    header = read_header(head)
    return header.size_bytes if header.magic == MAGIC and header.batch_length >= _MIN_BATCH_LENGTH else HEADER_SIZE


def _has_sound_batch(file: File, position: int, least_offset: int) -> bool:
    """Whether a complete batch with a right CRC and a possible offset begins anywhere from `position` on."""
    while position + HEADER_SIZE <= file.size_bytes:
        window = file.pread(_WINDOW_BYTES, position)
        at = window.find(MAGIC, _MAGIC_AT)
        while 0 <= at <= len(window) - HEADER_SIZE + _MAGIC_AT:
            header = read_header(window, at - _MAGIC_AT)
            if least_offset <= header.base_offset <= least_offset + _MAX_AHEAD and _is_sound(
                file, header, position + at - _MAGIC_AT
            ):
                return True
            at = window.find(MAGIC, at + 1)
        position += max(1, len(window) - HEADER_SIZE + 1)
    return False


def _is_sound(file: File, header: BatchHeader, position: int) -> bool:
    if header.magic != MAGIC or header.batch_length < _MIN_BATCH_LENGTH or header.last_offset_delta < 0:
        return False
    if position + header.size_bytes > file.size_bytes:
        return False
    return crc_is_valid(file.pread(header.size_bytes, position), header)
