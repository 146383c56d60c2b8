"""Copies of a partition on several brokers have the same records, and none lacks records that were acknowledged. pure

All records below the high watermark of a copy were on all in-sync replicas. A later leader has them, except after an
unclean election: then its leader epoch begins below that high watermark. Copies may lag, begin at different offsets,
end differently above their high watermarks, and compaction may have left other records in each.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.audit.checks.finding import Finding
from ottla.audit.checks.words import count, span
from ottla.protocol.values import TopicPartition

if TYPE_CHECKING:
    from ottla.protocol.batch_header import BatchHeader
    from ottla.protocol.records import Record
    from ottla.scan.pieces import Piece


class Copy(NamedTuple):
    """A copy of a partition, in a directory or at a broker.

    `high_watermark`: records below it were acknowledged; 0 if that is not known. `folder`: the path of the partition,
    empty at a broker. `epochs`: (leader epoch, first offset), ascending; empty if not known.
    """

    name: str
    folder: str
    pieces: "tuple[Piece, ...]"
    log_start: int
    high_watermark: int
    epochs: tuple[tuple[int, int], ...] = ()


Place = tuple[str | None, int | None]
NO_PLACE: Place = (None, None)


class Span(NamedTuple):
    """Offsets `first` to `last` with a number of records and of markers, and facts on the first batch.

    `epochs`: its leader epochs in the two copies, -1 if not known. `places`: its files in them, with positions, as far
    as they are known. `reason`: why a batch cannot be read.
    """

    first: int
    last: int
    records: int
    markers: int
    epochs: tuple[int, int]
    places: tuple[Place, Place] = (NO_PLACE, NO_PLACE)
    reason: str = ""

    def extend(self, other: "Span") -> "Span":
        """Return the span with a later one."""
        return self._replace(
            last=max(self.last, other.last),
            records=self.records + other.records,
            markers=self.markers + other.markers,
        )

    @property
    def size_words(self) -> str:
        """Return `40 records, offsets 60 to 99`, or `40 records and 1 marker, offsets 60 to 100`."""
        markers = f" and {count(self.markers, 'marker')}" if self.markers else ""
        return f"{count(self.records, 'record')}{markers}, {span('offset', self.first, self.last)}"


class Compared(NamedTuple):
    """Results for the copies of a partition, by their indexes.

    `differing`: spans by pairs of copies. `damaged`: by (damaged copy, a copy that has the records). `lost`: by the
    leader epoch of the unclean election, -1 if the copy has no epochs, then by (a copy that has the records, a copy
    without them). `unread`: copies that could not be read to their end, with the reason.
    """

    differing: Mapping[tuple[int, int], Span]
    damaged: Mapping[tuple[int, int], Span]
    lost: Mapping[int, Mapping[tuple[int, int], Span]]
    unread: Mapping[int, str]


Decoded = tuple["BatchHeader", "dict[int, Record]"]


def find_unequal(one: Decoded, other: Decoded) -> list[int]:
    """Return the offsets at which both batches have a record, but not the same one."""
    header, records = one
    other_header, others = other
    has_same_records = bool(records) and records.keys() == others.keys()
    is_other = has_same_records and header.max_timestamp != other_header.max_timestamp
    if is_other or _flags(header) != _flags(other_header):
        return sorted(records.keys() & others.keys()) or [max(header.base_offset, other_header.base_offset)]
    return sorted(offset for offset, record in records.items() if others.get(offset, record) != record)


def _flags(header: "BatchHeader") -> tuple[int, int, bool, bool]:
    return header.producer_id, header.producer_epoch, header.is_transactional, header.is_control


def findings(place: TopicPartition, copies: Sequence[Copy], found: Compared) -> list[Finding]:
    """Return an error for each span of records that copies have differently, or that an unclean election lost."""
    return [
        *(finding for _, lost in sorted(found.lost.items()) for finding in _describe_lost(place, copies, lost)),
        *_describe_damage(place, copies, found.damaged),
        *_describe_differing(place, copies, found.differing),
    ]


def describe_unread(place: TopicPartition, name: str, reason: str) -> Finding:
    """Return a warning about a copy that was not compared completely."""
    message = f"{name} is not compared completely: {reason}"
    return Finding("replicas", "warning", *place, None, None, None, message, "correct this, and audit again")


def _describe_lost(
    place: TopicPartition, copies: Sequence[Copy], lost: Mapping[tuple[int, int], Span]
) -> Iterable[Finding]:
    """Yield a finding for each copy that still has records that an election lost, and all copies that lost them."""
    for (holder, losers), one in _group(lost).items():
        here, there = copies[holder], _names(copies, losers)
        begins = _epoch_start(copies[losers[0]], one)
        yield _finding(
            place,
            one,
            f"lost in {there}: {one.size_words}, acknowledged by the high watermark {here.high_watermark:,} of "
            f"{here.name}, which still has them (leader epoch {one.epochs[0]}); leader epoch {one.epochs[1]} begins in "
            f"{there} at offset {begins:,}",
            f"copy them out of {here.name} before its broker follows the new leader and truncates them: "
            f"`ottla dump {here.folder or 'FOLDER'} --records` prints them",
        )


def _epoch_start(copy: Copy, one: Span) -> int:
    """Return the offset at which the epoch of the copy begins that lost the span."""
    starts = [start for epoch, start in copy.epochs if epoch == one.epochs[1]]
    return starts[0] if starts else one.first


def _describe_damage(
    place: TopicPartition, copies: Sequence[Copy], damaged: Mapping[tuple[int, int], Span]
) -> Iterable[Finding]:
    """Yield a finding for each damaged copy, and all copies that have the records."""
    for (broken, holders), one in _group(damaged).items():
        name = copies[broken].name
        yield _finding(
            place,
            one,
            f"damaged in {name}: {one.size_words} ({one.reason}); sound in {_names(copies, holders)} "
            f"(leader epoch {one.epochs[1]})",
            _replace(name),
        )


def _describe_differing(
    place: TopicPartition, copies: Sequence[Copy], differing: Mapping[tuple[int, int], Span]
) -> Iterable[Finding]:
    """Yield a finding for each copy that differs from others in the same way."""
    both = {**differing, **{(other, one): _turn(found) for (one, other), found in differing.items()}}
    named: set[tuple[int, int]] = set()
    for (one, every), found in sorted(_group(both).items(), key=lambda item: -len(item[0][1])):
        others = [other for other in every if (other, one) not in named]
        named |= {(one, other) for other in others}
        if not others:
            continue
        name, names = copies[one].name, _names(copies, others)
        first, second = found.epochs
        facts = [f"leader epoch {first}" if first == second else f"leader epochs {first} and {second}", found.reason]
        yield _finding(
            place,
            found,
            f"different in {name} and {names}: {found.size_words}, below both high watermarks "
            f"({'; '.join(filter(None, facts))}); no CRC shows which copy is wrong",
            f"compare them by `ottla dump --records`, then: {_replace('the wrong copy')}",
        )


def _turn(one: Span) -> Span:
    return one._replace(epochs=one.epochs[::-1], places=one.places[::-1])


def _group(spans: Mapping[tuple[int, int], Span]) -> dict[tuple[int, tuple[int, ...]], Span]:
    """Group pairs with the same first copy and the same span; return (first copy, second copies) -> span."""
    groups: dict[tuple[int, Span], list[int]] = {}
    for (one, other), found in sorted(spans.items()):
        groups.setdefault((one, found._replace(places=(NO_PLACE, NO_PLACE))), []).append(other)
    return {(one, tuple(others)): spans[one, others[0]] for (one, _), others in groups.items()}


def _names(copies: Sequence[Copy], indexes: Iterable[int]) -> str:
    return ", ".join(copies[index].name for index in indexes)


def _replace(name: str) -> str:
    return (
        f"stop the broker of {name}, move the folder of the partition away, and start: it copies the leader's records"
    )


def _finding(place: TopicPartition, one: Span, message: str, action: str) -> Finding:
    return Finding("replicas", "error", *place, one.first, None, None, message, action, *one.places[0])
