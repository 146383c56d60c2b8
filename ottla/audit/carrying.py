"""An audit that begins where an earlier one ended: its ranges and facts, and what the next one gets. shell"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np

from ottla.audit.carry import Carried, Carry, CarryRefused, decode, join, match_again, name_decisions
from ottla.audit.checks.across import Marker
from ottla.audit.checks.finding import Finding
from ottla.audit.checks.history import History
from ottla.audit.checks.stale import idle_producers
from ottla.audit.listed import Listed
from ottla.audit.request import Request
from ottla.audit.tasks import RangeFacts
from ottla.protocol.checkpoints import PARTITION_METADATA, decode_partition_metadata
from ottla.protocol.errors import ProtocolError
from ottla.protocol.values import ZERO_UUID
from ottla.scan import headers, storage
from ottla.scan.chunks import SegmentPiece, SegmentReader
from ottla.scan.damage_log import REPORT, DamageLog
from ottla.scan.listing import PartitionLog, UnreadableDirectory, read_cluster_id
from ottla.scan.narrowing import NO_OFFSET, narrowed_range
from ottla.scan.ranges import LogRange, cut_partition, cut_segment
from ottla.scan.records import ReadFilter
from ottla.wire import Unanswered


def load(path: str) -> Carry:
    """Return the carry file; an empty one without the file. Raises CarryRefused."""
    try:
        with closing(storage.open_file(path)) as file:
            content = file.read(file.size_bytes, 0)
    except FileNotFoundError:
        return Carry(path)
    except OSError as error:
        raise CarryRefused(f"--carry {storage.hide_secrets(path)}: {error.strerror or error}") from None
    return decode(path, content)


class Continued(NamedTuple):
    """Carried partitions, by index in the listing. `skipped`: offsets that were deleted before an audit read them.

    `cluster_id` and `settings` are those of this audit.
    """

    cluster_id: str
    settings: str
    carried: Mapping[int, Carried] = {}
    skipped: Mapping[int, tuple[int, int]] = {}

    def starts_at(self, index: int) -> Carried | None:
        """Return where the audit of a partition begins, None for the start of its log."""
        return None if index in self.skipped else self.carried.get(index)

    def match_again(self, listed: Sequence[Listed], known: History) -> dict[int, RangeFacts]:
        """Return the facts below the offsets at which this audit begins, by index in the listing."""
        found = {}
        for index, one in self.carried.items():
            cleaned = listed[index].cleaned_below
            facts = match_again(one, known.for_place(one.place), NO_OFFSET if cleaned is None else cleaned)
            if index in self.skipped:
                facts = facts._replace(findings=(*facts.findings, _report_deletion(one, *self.skipped[index])))
            found[index] = facts
        return found

    def add_earlier(
        self, index: int, earlier: Mapping[int, RangeFacts], parts: Sequence[RangeFacts], request: Request
    ) -> list[RangeFacts]:
        """Return the facts of a partition with those of earlier audits. Without new records its producers are idle."""
        if index not in earlier:
            return [*parts]
        if parts:
            return [earlier[index], *parts]
        rows = self.carried[index].entering.rows
        idle = idle_producers(rows, request.now_ms, request.producer_expiration_ms)
        return [earlier[index]._replace(idle=idle)]

    def markers(self) -> Iterator[Marker]:
        """Yield the markers that earlier audits looked up."""
        for index, one in self.carried.items():
            yield from (marker._replace(partition=index) for marker in one.markers)


def continue_audit(request: Request, listed: Sequence[Listed], chosen: Sequence[int]) -> Continued | None:
    """Return what the audit continues, None without `--carry`. Raises CarryRefused, UnreadableDirectory."""
    carry = request.carry
    if carry is None:
        return None
    now = Continued(_cluster_id(request), _settings(request))
    if not carry.partitions:
        return now
    if carry.cluster_id and now.cluster_id and carry.cluster_id != now.cluster_id:
        raise CarryRefused(
            f"{carry.path} is of cluster {carry.cluster_id}, and this is {now.cluster_id}: name another file"
        )
    if carry.settings != now.settings:
        raise CarryRefused(f"{carry.path} was written with {carry.settings}: use these, or name another file")
    by_place = {(one.directory, one.place): one for one in carry.partitions}
    carried, skipped = {}, {}
    for index in chosen:
        log = listed[index].log
        one = by_place.get((_directory(listed[index]), (log.topic, log.partition)))
        if one is None:
            continue
        _check(carry.path, one, log)
        carried[index] = one
        if log.log_start > one.end_offset:
            skipped[index] = one.end_offset, log.log_start
    return now._replace(carried=carried, skipped=skipped)


def _check(path: str, one: Carried, log: PartitionLog) -> None:
    """Raise CarryRefused if the log is another one, or ends below the offset."""
    topic_id = _topic_id(log)
    if one.topic_id and topic_id and one.topic_id != topic_id:
        raise CarryRefused(
            f"topic {log.topic} was deleted and created again after {path} was written: name another file"
        )
    end = log.window.end_offset if log.window is not None else None if log.segments else log.log_start
    if end is not None and end < one.end_offset:
        raise _describe_truncation(path, one, end)


def _describe_truncation(path: str, one: Carried, end: int) -> CarryRefused:
    return CarryRefused(
        f"{one.name} ends at offset {end:,}, and {path} continues at {one.end_offset:,}: the log was truncated. "
        "Name another file, which begins at the start"
    )


def _report_deletion(one: Carried, first: int, end: int) -> Finding:
    return Finding(
        "gaps",
        "warning",
        *one.place,
        first,
        None,
        None,
        f"offsets {first:,} to {end - 1:,} were deleted before an audit read them",
        "run the audit more often than retention deletes records",
    )


def cut_later(path: str, index: int, log: PartitionLog, one: Carried, target_bytes: int) -> list[LogRange]:
    """Return the ranges of a partition from the offset on at which it continues. Raises CarryRefused, OSError."""
    if log.window is not None:
        window = log.window._replace(first_offset=one.end_offset)
        return cut_partition(index, log._replace(window=window), target_bytes)
    below = [at for at, segment in enumerate(log.segments) if segment.base_offset <= one.end_offset]
    later = log._replace(segments=log.segments[max(below, default=0) :])
    position = _find_start(path, later, one) if below else 0
    first = later.segments[0].path
    ranges: list[LogRange] = []
    for part in cut_partition(index, later, target_bytes):
        pieces = [
            piece._replace(start=max(piece.start, position)) if piece.path == first else piece
            for piece in part.segment_pieces
            if piece.path != first or piece.end > position
        ]
        if pieces:
            ranges.append(part._replace(ordinal=len(ranges), pieces=tuple(pieces)))
    return ranges


def _find_start(path: str, log: PartitionLog, one: Carried) -> int:
    """Return the position after the last batch below the offset, in the first segment. Raises CarryRefused, OSError."""
    segment = log.segments[0]
    position, end = 0, segment.base_offset
    for part in cut_segment(segment, segment.size_bytes + 1, log.recovery_point):
        piece = _narrow(log, part, one.end_offset)
        position = piece.start
        for chunk in SegmentReader(DamageLog(REPORT), check_crc=False).chunks(piece):
            below = chunk.rows[chunk.rows[:, headers.LAST_OFFSET] < one.end_offset]
            if len(below):
                position = chunk.file_position + int(below[-1, headers.POSITION] + below[-1, headers.SIZE])
                end = int(below[-1, headers.LAST_OFFSET]) + 1
            if len(below) < len(chunk.rows):
                if int(chunk.rows[len(below), headers.BASE_OFFSET]) < one.end_offset:
                    raise CarryRefused(
                        f"{one.name} has no batch that begins at offset {one.end_offset:,}, where {path} continues: "
                        "the log was truncated and written again. Name another file, which begins at the start"
                    )
                return position
    if segment.is_last and end < one.end_offset:
        raise _describe_truncation(path, one, end)
    return position


def _narrow(log: PartitionLog, piece: SegmentPiece, offset: int) -> SegmentPiece:
    part = LogRange(0, 0, log.topic, log.partition, log.log_start, (piece,))
    (found,) = narrowed_range(part, ReadFilter(offset, NO_OFFSET)).segment_pieces
    return found


def carry_on(
    request: Request,
    listed: Sequence[Listed],
    now: Continued,
    facts: Mapping[int, Sequence[RangeFacts]],
    markers: Sequence[Marker],
    known: History,
    recent: int,
) -> Carry:
    """Return what the next audit continues; `facts` include those of earlier audits."""
    assert request.carry is not None
    partitions = []
    for index, parts in facts.items():
        earlier = now.starts_at(index)
        leaving = parts[-1].leaving if parts else None
        entering = leaving if leaving is not None else earlier.entering if earlier is not None else None
        if entering is None or entering.next_offset < 0:
            continue  # a log without a batch: the next audit begins at its start
        log = listed[index].log
        place = log.topic, log.partition
        joined = join(parts, recent)
        matched, records = name_decisions(joined.matched, known.for_place(place))
        mine = tuple(marker._replace(partition=0) for marker in markers if marker.partition == index)
        partitions.append(
            Carried(
                _directory(listed[index]),
                place,
                _topic_id(log),
                entering.next_offset,
                entering,
                joined._replace(matched=matched),
                np.ascontiguousarray(records),
                mine,
            )
        )
    return Carry(request.carry.path, now.cluster_id, now.settings, tuple(partitions))


def _directory(one: Listed) -> str:
    """Return the directory of a partition; empty for a cluster, which may be asked at other addresses next time."""
    return "" if one.log.window is not None else one.directory


def _settings(request: Request) -> str:
    return (
        f"--checks {','.join(request.checks)} --producer-id-expiration-ms {request.producer_expiration_ms} on "
        f"{'a cluster' if request.address is not None else 'directories'}"
    )


def _topic_id(log: PartitionLog) -> bytes:
    """Return the id of the topic, empty if it is unknown."""
    if log.window is not None:
        return log.window.topic_id if log.window.topic_id != ZERO_UUID else b""
    try:
        content = storage.read_if_there(storage.join(log.path, PARTITION_METADATA))
        return b"" if content is None else decode_partition_metadata(content)
    except (OSError, ProtocolError):
        return b""  # a broker writes the file again


def _cluster_id(request: Request) -> str:
    if request.address is None:
        ids = (read_cluster_id(directory) for directory in request.directories)
        return next((one for one in ids if one), "")
    from ottla.wire.address import connections_to

    try:
        with connections_to(request.address).borrow() as cluster:
            return cluster.topology([]).cluster_id
    except Unanswered as error:
        raise UnreadableDirectory(f"{request.address}: {error}") from None
