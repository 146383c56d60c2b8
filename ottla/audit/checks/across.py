"""Find torn transactions without a known decision by comparing the partitions of a transaction. pure

The producer id and marker epoch identify a transaction whose marker has the epoch after that of its data
(transactions V2, KIP-890, and aborts by fencing): no other transaction has both. So a COMMIT in one partition and an
ABORT in another prove a torn transaction. A transaction that is open in one partition and has a marker in another lacks
its marker in the first. Many transactions share an epoch where marker and data have the same one (V1): they stay
unverifiable. If an open transaction has data of a newer epoch, the partition lacks the earlier transaction's marker.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, overload

import numpy as np

from ottla.audit.checks.finding import Finding, Severity
from ottla.audit.checks.history import History
from ottla.audit.checks.words import KINDS, count, name_producer
from ottla.protocol.times import at_time
from ottla.protocol.values import TopicPartition
from ottla.scan import events
from ottla.scan.compiled.kernels import Longs
from ottla.scan.fates import OpenTransaction

# At most this many transactions have a finding of their own.
MOST_REPORTED = 1_000
# At most this many markers are compared at once.
MOST_AT_ONCE = 8_000_000
_NONE = np.empty(0, dtype=np.int64)
# Transactions without a marker, proved by a newer epoch: V2 (KIP-890), or after fencing.
MESSAGES: dict[int, tuple[Severity, str, str]] = {
    events.EPOCH_IN_TRANSACTION: (
        "error",
        "torn: data of epoch {found} while the transaction of epoch {expected} is open: the marker of epoch {expected} "
        "is missing here, so its records end with the transaction of epoch {found}",
        "restore this partition from a replica, or check how the earlier transaction ended in its other partitions, "
        "and correct the data of consumers by hand",
    ),
}


class Ends(NamedTuple):
    """Markers as numbers of producer id, marker epoch and kind, packed to about a byte each: sorted in each stream."""

    packed: bytes = b""
    many: int = 0


def numbers(ended: Longs) -> Longs:
    """Return the number of the transaction of each row of a walk's `ended`; the last bit is 1 for a commit."""
    named = (ended[:, events.ENDED_FIRST_OFFSET] >= 0) & (
        ended[:, events.ENDED_MARKER_EPOCH] == ended[:, events.ENDED_EPOCH] + 1
    )
    rows = ended[named]
    found: Longs = _number(
        rows[:, events.ENDED_PRODUCER_ID], rows[:, events.ENDED_MARKER_EPOCH], rows[:, events.ENDED_FATE]
    )
    return found


def pack(parts: Sequence[Longs]) -> Ends:
    """Pack the `numbers` of one range."""
    if not (some := [part for part in parts if len(part)]):
        return Ends()
    found = np.unique(np.concatenate(some))
    return Ends(zlib.compress(np.diff(found, prepend=0).tobytes(), 1), len(found))


def join(parts: Sequence[Ends]) -> Ends:
    """Return the markers of all parts. A number may be in several."""
    return Ends(b"".join(part.packed for part in parts), sum(part.many for part in parts))


def unpack(ends: Ends) -> Longs:
    found, packed = [_NONE], ends.packed
    while packed:
        stream = zlib.decompressobj()
        found.append(np.cumsum(np.frombuffer(stream.decompress(packed), dtype=np.int64)))
        packed = stream.unused_data
    return np.concatenate(found)


def of_open(one: OpenTransaction) -> tuple[int, int]:
    """Return the numbers that an abort marker and a commit marker of an open transaction would have."""
    return _number(one.producer_id, one.producer_epoch + 1, 0), _number(one.producer_id, one.producer_epoch + 1, 1)


def find_ambiguous(parts: Iterable[Ends], opened: Iterable[OpenTransaction]) -> tuple[Longs, int]:
    """Return the numbers to look up: of transactions with both kinds of marker, and of open ones that ended elsewhere.

    Also return the number of transactions with both kinds that are above the limit of reported ones.
    """
    parts = list(parts)
    awaited = np.unique(np.array([number for one in opened for number in of_open(one)], dtype=np.int64))
    buckets = sum(ends.many for ends in parts) // MOST_AT_ONCE + 1
    both, ended = [_NONE], [_NONE]
    for bucket in range(buckets):
        chosen = [_NONE]
        for ends in parts:
            every = unpack(ends)
            chosen.append(every if buckets == 1 else every[(every >> 1) % buckets == bucket])
        every = np.unique(np.concatenate(chosen))
        both.append(every[np.flatnonzero((every[1:] ^ every[:-1]) == 1)])
        ended.append(np.intersect1d(every, awaited, assume_unique=True))
    torn = np.concatenate(both)
    reported = torn[:MOST_REPORTED]
    return np.unique(np.concatenate([reported, reported | 1, *ended])), len(torn) - len(reported)


class Marker(NamedTuple):
    """A marker that was looked up. `partition`: its index in the listing."""

    partition: int
    number: int
    offset: int
    end_ms: int
    segment: int
    position: int


def find_markers(partition: int, ended: Longs, needed: Longs) -> list[Marker]:
    """Return the markers with a number among `needed` in rows of `ended`."""
    found = []
    for row in ended:
        number = numbers(row[None])
        if len(number) and number[0] in needed:
            columns = (events.ENDED_MARKER_OFFSET, events.ENDED_END_MS, events.ENDED_SEGMENT, events.ENDED_POSITION)
            found.append(Marker(partition, int(number[0]), *(int(row[one]) for one in columns)))
    return found


class There(NamedTuple):
    """A partition of the listing. `until_ms`: later markers are not compared with this partition."""

    place: TopicPartition
    folder: str
    name: str
    until_ms: int
    opened: Sequence[OpenTransaction]


def judge(markers: Iterable[Marker], there: Mapping[int, There], known: History) -> dict[int, list[Finding]]:
    """Return the findings on markers that were looked up, by index of the partition."""
    by_transaction: dict[int, list[Marker]] = defaultdict(list)
    for marker in markers:
        by_transaction[marker.number >> 1].append(marker)
    opened: dict[int, list[tuple[int, OpenTransaction]]] = defaultdict(list)
    for partition, part in there.items():
        for one in part.opened:
            opened[of_open(one)[0] >> 1].append((partition, one))
    found: dict[int, list[Finding]] = defaultdict(list)
    for number, mine in sorted(by_transaction.items()):
        for partition, finding in _torn(number, mine, there, known):
            found[partition].append(finding)
        for partition, one in opened.get(number, ()):
            ended = ended_elsewhere(one, partition, mine, there)
            if ended is not None and not known.will_mark(there[partition].place, one.producer_id):
                found[partition].append(_incomplete(one, ended, mine, there[partition], there, known))
    return found


def ended_elsewhere(
    one: OpenTransaction, partition: int, markers: Iterable[Marker], there: Mapping[int, There]
) -> Marker | None:
    """Return the earliest marker that ended an open transaction in another partition long enough ago, or None."""
    numbers_of_it = of_open(one)
    found = [
        marker
        for marker in markers
        if marker.number in numbers_of_it
        and there[marker.partition].place != there[partition].place
        and marker.end_ms <= there[partition].until_ms
    ]
    return min(found, key=lambda marker: marker.end_ms, default=None)


def _torn(number: int, mine: Sequence[Marker], there: Mapping[int, There], known: History) -> list[tuple[int, Finding]]:
    sides = [[marker for marker in mine if marker.number & 1 == kind] for kind in (0, 1)]
    if not all(sides) or len({marker.partition for marker in mine}) == 1:
        return []
    # The kind of marker that most partitions have is probably the decision.
    fewest = min(len(side) for side in sides)
    found = []
    for side, others in (sides, sides[::-1]):
        for marker in side if len(side) == fewest else ():
            found.append((marker.partition, _contradiction(number, marker, others, there, known)))
    return found


def _contradiction(
    number: int, marker: Marker, others: Sequence[Marker], there: Mapping[int, There], known: History
) -> Finding:
    producer_id, epoch = number >> 16, number & 0xFFFF
    name = known.name_of(producer_id)
    here, elsewhere = KINDS[marker.number & 1], KINDS[1 - (marker.number & 1)]
    part = there[marker.partition]
    return Finding(
        "torn",
        "error",
        *part.place,
        marker.offset,
        producer_id,
        name,
        f"torn: {here} in this partition, {elsewhere} in {_places(others, there)}, for one transaction of "
        f"{name_producer(name, producer_id, epoch)}, ended {at_time(marker.end_ms)}",
        "the coordinator's decision is unknown: look it up in __transaction_state, or in another replica; treat this "
        "as an incident, and correct the data of consumers by hand",
        f"{part.folder}/{marker.segment:020d}.log",
        marker.position,
    )


def _incomplete(
    one: OpenTransaction,
    ended: Marker,
    markers: Sequence[Marker],
    part: There,
    there: Mapping[int, There],
    known: History,
) -> Finding:
    name = known.name_of(one.producer_id)
    producer = name_producer(name, one.producer_id, one.producer_epoch)
    since = at_time(ended.end_ms).removeprefix("at ")
    text = (
        f"incomplete: {KINDS[ended.number & 1]} in {_places(markers, there)} since {since}, but in this partition the "
        f"transaction of {producer} is open: {count(one.records, 'record')}"
    )
    action = "let the coordinator send the marker, or abort it here as well"
    if ended.number & 1:
        action = (
            "do not abort it, others have committed: let the coordinator send the marker, or restore this partition "
            "from a replica"
        )
    return Finding("torn", "error", *part.place, one.first_offset, one.producer_id, name, text, action)


def _places(markers: Iterable[Marker], there: Mapping[int, There]) -> str:
    places = [f"{there[one.partition].name}@{one.offset}" for one in markers]
    return ", ".join(places[:4]) + (f" and {count(len(places) - 4, 'more place')}" if len(places) > 4 else "")


@overload
def _number(producer_id: int, epoch: int, kind: int) -> int: ...
@overload
def _number(producer_id: Longs, epoch: Longs, kind: Longs) -> Longs: ...
def _number(producer_id: int | Longs, epoch: int | Longs, kind: int | Longs) -> int | Longs:
    """Return one number for the three arguments. Producer ids are allocated in order and stay far below 2^46."""
    return (producer_id << 17) | (epoch << 1) | kind
