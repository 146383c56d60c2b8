"""A cluster at one moment: open transactions, partitions that hold readers back, lagging groups. pure

The most harmful rows come first: transactions that no coordinator will end, then overdue ones, then the oldest. Groups
are sorted by their lag.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.protocol.values import TopicPartition
from ottla.verdict import KnownTransaction, OpenTransaction, Standing, Verdict, age_ms, time_left_ms

PLACES_SHOWN: Final = 3
_PAIN: Final = (
    Standing.FORGOTTEN,
    Standing.DECIDED,
    Standing.OVERDUE,
    Standing.UNKNOWN,
    Standing.ENDING,
    Standing.IN_TIME,
)


class Ends(NamedTuple):
    """The ends of a partition for read_committed and for read_uncommitted."""

    last_stable_offset: int
    high_watermark: int


class Ongoing(NamedTuple):
    """An open transaction in the view of its coordinator. `age_ms` is the time since its first partition was added.

    `time_left_ms` is by the clock of this machine, `is_overdue` by the clock of the coordinator.
    """

    transactional_id: str
    state: str
    coordinator: int
    producer_id: int
    epoch: int
    age_ms: int | None
    time_left_ms: int | None
    partitions: tuple[TopicPartition, ...]
    is_overdue: bool = False


class HeldBack(NamedTuple):
    """A partition that holds back committed readers. None is an unknown value."""

    topic: str
    partition: int
    ends: Ends
    age_ms: int | None
    transactional_id: str | None
    producer_id: int | None
    standing: Standing

    @property
    def records(self) -> int:
        """The number of offsets held back."""
        return self.ends.high_watermark - self.ends.last_stable_offset


class ListedGroup(NamedTuple):
    """A group in the view of its coordinator. Only groups of the consumer protocol have epochs.

    `assignment_epoch` is the epoch of the target assignment. It is smaller than `epoch` until the assignor has run.
    """

    group_id: str
    type: str
    state: str
    epoch: int | None
    assignment_epoch: int | None
    coordinator: int


class GroupLag(NamedTuple):
    """A group with its lag on partitions with committed offsets: `lag` to the high watermark, `stable_lag` to the last
    stable offset. Transactions hold back the difference. The first fields are those of `ListedGroup`."""

    group_id: str
    type: str
    state: str
    epoch: int | None
    assignment_epoch: int | None
    coordinator: int
    partitions: int
    lag: int
    stable_lag: int


class LeftOut(NamedTuple):
    """More items than one poll reads."""

    what: str
    looked_at: int
    of: int


class Picture(NamedTuple):
    """The result of a poll, with the parts that the poll left out and the brokers that did not answer."""

    now_ms: int
    transactions: Sequence[Ongoing] = ()
    held_back: Sequence[HeldBack] = ()
    groups: Sequence[GroupLag] = ()
    left_out: Sequence[LeftOut] = ()
    gaps: Sequence[str] = ()

    def matching(self, text: str) -> "Picture":
        """Return a picture of the rows with this text in a name, ignoring case."""
        needle = text.casefold()

        def has(*names: str | None) -> bool:
            return any(name is not None and needle in name.casefold() for name in names)

        return self._replace(
            transactions=[
                each
                for each in self.transactions
                if has(each.transactional_id, each.state, *(topic for topic, _ in each.partitions))
            ],
            held_back=[each for each in self.held_back if has(each.topic, each.transactional_id, each.standing)],
            groups=[each for each in self.groups if has(each.group_id, each.type, each.state)],
        )


def ongoing(known: KnownTransaction, now_ms: int, is_overdue: bool = False) -> Ongoing:
    """Return the row of an open transaction."""
    return Ongoing(
        known.transactional_id,
        known.state,
        known.coordinator,
        known.producer_id,
        known.epoch,
        None if known.start_ms < 0 else max(0, now_ms - known.start_ms),
        time_left_ms(known, now_ms),
        tuple(sorted(known.partitions)),
        is_overdue,
    )


def held_back(
    place: TopicPartition, ends: Ends, pinning: tuple[OpenTransaction, Verdict] | None, since_ms: int, now_ms: int
) -> HeldBack:
    """Return the row of a partition, with the open transaction that begins at its last stable offset. `since_ms` is
    the time of the first poll with this offset, and gives the age of an unknown transaction."""
    if pinning is None:
        return HeldBack(*place, ends, max(0, now_ms - since_ms), None, None, Standing.UNKNOWN)
    opened, verdict = pinning
    return HeldBack(
        *place,
        ends,
        age_ms(opened, verdict, now_ms),
        None if verdict.known is None else verdict.known.transactional_id,
        opened.producer_id,
        verdict.standing,
    )


def group_lag(
    group: ListedGroup, committed: Sequence[tuple[TopicPartition, int]], ends: dict[TopicPartition, Ends]
) -> GroupLag:
    """Return the row of a group with these committed offsets."""
    lag = stable_lag = 0
    for place, offset in committed:
        at = ends.get(place)
        if at is not None:
            lag += max(0, at.high_watermark - offset)
            stable_lag += max(0, at.last_stable_offset - offset)
    return GroupLag(*group, len(committed), lag, stable_lag)


def by_pain(picture: Picture) -> Picture:
    """Return the picture with the most harmful rows first."""
    return picture._replace(
        transactions=sorted(
            picture.transactions,
            key=lambda each: (not each.is_overdue, -(each.age_ms or 0)),
        ),
        held_back=sorted(
            picture.held_back, key=lambda each: (_PAIN.index(each.standing), -(each.age_ms or 0), -each.records)
        ),
        groups=sorted(picture.groups, key=lambda each: (-each.lag, each.group_id)),
    )


def places_text(places: Sequence[TopicPartition]) -> str:
    """Return the first partitions, and the number of the others."""
    shown = ", ".join(f"{topic}-{number}" for topic, number in places[:PLACES_SHOWN])
    more = len(places) - PLACES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def sentence(picture: Picture) -> str:
    """Return a summary in one sentence."""
    overdue = sum(1 for each in picture.transactions if each.is_overdue)
    forgotten = sum(1 for each in picture.held_back if each.standing.is_abandoned)
    records = sum(each.records for each in picture.held_back)
    lag = max((each.lag for each in picture.groups), default=0)
    lagging = f", the largest lag is {lag}" if lag else ""
    unended = f" ({forgotten} of them by a transaction that will never end)" if forgotten else ""
    return (
        f"{_count(len(picture.transactions), 'open transaction')}, {overdue} overdue; "
        f"{_count(records, 'offset')} held back in {_count(len(picture.held_back), 'partition')}{unended}; "
        f"{_count(len(picture.groups), 'group')}{lagging}."
    )


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
