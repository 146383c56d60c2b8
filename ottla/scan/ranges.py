"""Cut partitions into ordered ranges of batches, and pack ranges into tasks. shell

Ranges are cut at batch starts in the segment's `.index`. Each one is checked against the batch there, so a stale or
damaged index only reduces parallelism.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ottla.protocol.batch_header import HEADER_SIZE, MAGIC, crc_is_valid, is_legacy, read_header
from ottla.scan import ahead, storage
from ottla.scan.chunks import SegmentPiece
from ottla.scan.index_files import batch_positions
from ottla.scan.listing import PartitionLog, SegmentFile
from ottla.scan.pieces import Piece

MIB = 1024 * 1024
# A task costs a Python worker about 50 ms of CPU, a file a fraction of a millisecond.
FILE_COST_BYTES = MIB
SMALLEST_TASK_BYTES = 32 * MIB


class LogRange(NamedTuple):
    """An ordered part of one partition; `partition` indexes the listing, `ordinal` counts the partition's ranges."""

    partition: int
    ordinal: int
    topic: str
    number: int
    log_start: int
    pieces: tuple[Piece, ...]

    @property
    def segment_pieces(self) -> tuple[SegmentPiece, ...]:
        """The pieces of a partition of a directory; none of a cluster's."""
        return tuple(piece for piece in self.pieces if isinstance(piece, SegmentPiece))

    @property
    def cost_bytes(self) -> int:
        return self.size_bytes + FILE_COST_BYTES * len(self.pieces)

    @property
    def size_bytes(self) -> int:
        return sum(piece.size_bytes for piece in self.pieces)


def plan_tasks(
    logs: Sequence[PartitionLog],
    parallelism: int,
    largest_bytes: int,
    least_tasks: int = 1,
    *,
    cuts_windows: bool = False,
) -> list[tuple[LogRange, ...]]:
    """Return tasks of about equal size, about two per core, none much above `largest_bytes`. Ranges keep their order.

    `least_tasks`: about the smallest number of tasks. Fewer result if the indexes have too few positions to cut at.
    """
    size = sum(log.size_bytes for log in logs)
    total = size + FILE_COST_BYTES * sum(len(log.segments) for log in logs)
    target = min(max(total // (2 * parallelism), SMALLEST_TASK_BYTES), largest_bytes)
    if least_tasks == 1 or total >= target * least_tasks:
        return pack(cut_partitions(logs, target, cuts_windows=cuts_windows), target)
    parts = cut_partitions(logs, max(size // least_tasks, 1), cuts_windows=cuts_windows)
    return pack(parts, max(total // least_tasks, 1))


def cut_partition(index: int, log: PartitionLog, target_bytes: int) -> list[LogRange]:
    """Return ranges of about `target_bytes`: small segments are joined, large ones are split."""
    return [part._replace(partition=index) for part in cut_partitions([log], target_bytes)]


def cut_partitions(
    logs: Sequence[PartitionLog], target_bytes: int, *, cuts_windows: bool = False
) -> Iterator[LogRange]:
    """Yield the ranges of several partitions, in order; a range's `partition` is its index in `logs`.

    A window at brokers is one range, unless `cuts_windows`: a walk over its parts would cost their bytes twice.
    """

    def cut(one: tuple[PartitionLog, SegmentFile]) -> list[SegmentPiece]:
        return cut_segment(one[1], target_bytes, one[0].recovery_point)

    # Many indexes of remote segments are requested at once.
    segments = [(log, segment) for log in logs for segment in log.segments]
    is_remote = any(storage.is_remote(log.path) for log in logs)
    pieces = iter(ahead.each(cut, segments) if is_remote else map(cut, segments))
    for index, log in enumerate(logs):
        if log.window is not None:
            windows = log.window.cut(target_bytes) if cuts_windows else [log.window]
            for ordinal, window in enumerate(windows):
                yield LogRange(index, ordinal, log.topic, log.partition, log.log_start, (window,))
        else:
            yield from _join_pieces(index, log, [next(pieces) for _ in log.segments], target_bytes)


def _join_pieces(
    index: int, log: PartitionLog, segments: Sequence[Sequence[SegmentPiece]], target_bytes: int
) -> list[LogRange]:
    groups: list[list[Piece]] = [[]]
    room = target_bytes
    for pieces in segments:
        for piece in pieces:
            size = piece.size_bytes
            if groups[-1] and size > room:
                groups.append([])
                room = target_bytes
            groups[-1].append(piece)
            room -= size
    return [
        LogRange(index, ordinal, log.topic, log.partition, log.log_start, tuple(pieces))
        for ordinal, pieces in enumerate(groups)
        if pieces
    ]


def cut_segment(segment: SegmentFile, target_bytes: int, recovery_point: int) -> list[SegmentPiece]:
    """Return the segment in pieces of about `target_bytes`; larger ones where its index has no sound positions."""
    cuts = [0]
    if 2 * segment.size_bytes >= 3 * target_bytes:
        cuts += _sound_cuts(segment, target_bytes)
    edges = pairwise([*cuts, segment.size_bytes])
    return [
        SegmentPiece(segment.path, segment.base_offset, start, end, segment.size_bytes, segment.is_last, recovery_point)
        for start, end in edges
        if start < end
    ]


def pack(ranges: Iterable[LogRange], target_bytes: int) -> list[tuple[LogRange, ...]]:
    """Join consecutive ranges into tasks of up to `target_bytes`."""
    tasks: list[list[LogRange]] = []
    room = 0
    for part in ranges:
        if not tasks or part.cost_bytes > room:
            tasks.append([])
            room = target_bytes
        tasks[-1].append(part)
        room -= part.cost_bytes
    return [tuple(task) for task in tasks]


def _sound_cuts(segment: SegmentFile, target_bytes: int) -> list[int]:
    """Return positions about `target_bytes` apart. An entry without a batch at its position is skipped."""
    try:
        entries = batch_positions(segment.path, segment.base_offset, segment.size_bytes)
    except OSError:
        return []
    # The rest of the segment would be less than half a piece.
    entries = entries[: np.searchsorted(2 * entries[:, 1], 2 * segment.size_bytes - target_bytes, side="right")]
    cuts: list[int] = []
    at = int(np.searchsorted(entries[:, 1], target_bytes))
    with closing(storage.open_file(segment.path)) as file:
        while at < len(entries):
            last_offset, position = map(int, entries[at])
            if is_batch_start(file, position, last_offset):
                cuts.append(position)
                at = int(np.searchsorted(entries[:, 1], position + target_bytes))
            else:
                at += 1
    return cuts


def is_batch_start(file: storage.File, position: int, last_offset: int) -> bool:
    """Return whether the batch of an index entry, with this last offset, is at `position`."""
    head = file.read(HEADER_SIZE, position)
    if len(head) < HEADER_SIZE:
        return False
    header = read_header(head)
    if header.last_offset != last_offset:
        return False
    # The records of an old message can begin with the bytes of such a header.
    return header.magic == MAGIC or (
        is_legacy(header.magic) and crc_is_valid(file.read(max(header.size_bytes, 0), position), header)
    )
