"""What has happened to transactions lately, for who watches the broker: events, seconds, and refused requests. pure

Nothing of this is kept unless somebody may ask (`Broker.events` is None without an admin port). It is written where the
thing happens, and holds the last `MOST_EVENTS` events, `MOST_SECONDS` seconds and `MOST_REFUSALS` refusals, with names
cut to `NAME_CHARS` characters.

Beyond `EVENTS_PER_SECOND` not every event is kept. What partitions have to do with a transaction is left out first,
then whole transactions by a hash of their id: who was seen to begin is seen to end. What was left out is counted, and
the seconds count everything.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from ottla.protocol.values import TopicPartition

MOST_EVENTS: Final = 50_000
MOST_SECONDS: Final = 600
MOST_REFUSALS: Final = 100
EVENTS_PER_SECOND: Final = 2_000
LEVEL_STEP: Final = 1_000
"""So many events beyond that, within one second, and half as many ids are kept from then on."""
MOST_LEVELS: Final = 20
NAME_CHARS: Final = 256
REASON_CHARS: Final = 500
PARTITIONS_AT_ONCE: Final = 100
"""Of partitions that join a transaction in one step, no more have an event."""
SECOND_MS: Final = 1_000
CLOCK_WENT_BACK_MS: Final = 60_000
"""A clock that is set back by more begins a time of its own; by less, the second goes on."""

BEGUN: Final = "begun"
PARTITION: Final = "partition"
PREPARED: Final = "prepared"
MARKER: Final = "marker"
COMPLETED: Final = "completed"
FENCED: Final = "fenced"
TIMED_OUT: Final = "timed_out"
EXPIRED: Final = "expired"
REFUSED: Final = "refused"
KINDS: Final = (BEGUN, PARTITION, PREPARED, MARKER, COMPLETED, FENCED, TIMED_OUT, EXPIRED, REFUSED)


class Event(NamedTuple):
    """One thing that happened to a transactional id; None where its kind has nothing to say.

    `at_ms` is the broker's wall time; `seq` counts those that are kept, from 1. `records` and `size_bytes` are what the
    transaction has written in all, where that is known.
    """

    seq: int
    at_ms: int
    kind: str
    transactional_id: str
    producer_id: int
    producer_epoch: int
    topic: str | None = None
    partition: int | None = None
    commit: bool | None = None
    records: int | None = None
    size_bytes: int | None = None
    error: str | None = None


_Fields = tuple[
    int, int, str, str, int, int, str | None, int | None, bool | None, int | None, int | None, str | None
]  # fmt: skip


class Second:
    """What happened in one second. `open` is how many transactions were open when it ended."""

    __slots__ = ("aborted", "at_ms", "committed", "fenced", "left_out", "open")

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms
        self.committed = self.aborted = self.fenced = self.open = self.left_out = 0


class Refusal(NamedTuple):
    """A request that was refused, `times` so far; at `at_ms` for the last time."""

    at_ms: int
    api: str
    error: str
    client_id: str
    peer: str
    transactional_id: str | None
    reason: str
    times: int = 1


class _Open:
    """A transaction that was seen to begin: whether its events are kept, and what it has written."""

    __slots__ = ("is_kept", "name", "records", "size_bytes")

    def __init__(self, name: str, is_kept: bool) -> None:
        self.name = name
        self.is_kept = is_kept
        self.records = self.size_bytes = 0


class Events:
    """The events of one broker.

    `now_ms` is its wall clock, `count_open` tells how many transactions are open, and is asked once a second at most.
    """

    def __init__(self, now_ms: Callable[[], int], count_open: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._count_open = count_open
        self._ring: list[_Fields] = []
        self.next_seq = 1
        self.left_out = 0
        """How many were not kept, since the start."""
        self._open: dict[str, _Open] = {}
        self._refusals: OrderedDict[tuple[str, str, str, str | None], Refusal] = OrderedDict()
        self._seconds: deque[Second] = deque(maxlen=MOST_SECONDS)
        self._at_ms = now_ms()
        self._second = self._begin_second(self._at_ms)
        # 0: everything is kept; 1: nothing of partitions; then each level halves the ids.
        self._level = 0
        # Of this second: how many came to pass, those of partitions apart, and how many were kept.
        self._whole = self._of_partitions = self._kept = 0
        self._limit = EVENTS_PER_SECOND

    # ---- what the broker tells

    def began(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Collection[TopicPartition]
    ) -> None:
        """A transaction is open from now on, with these partitions."""
        self._tick()
        name = shortened(transactional_id)
        is_kept = self._keeps(transactional_id)
        self._open[transactional_id] = _Open(name, is_kept)
        self._whole += 1
        if is_kept:
            self._keep(BEGUN, name, producer_id, producer_epoch, None, None, None, None, None, None)
        else:
            self._leave_out(1)
        self._join(name, producer_id, producer_epoch, partitions, len(partitions))

    def joined(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        count: int,
    ) -> None:
        """So many partitions were added to an open transaction."""
        self._tick()
        self._join(shortened(transactional_id), producer_id, producer_epoch, partitions, count)

    def wrote(self, transactional_id: str, records: int, size_bytes: int) -> None:
        """A batch of a transaction was appended."""
        opened = self._open.get(transactional_id)
        if opened is not None:
            opened.records += records
            opened.size_bytes += size_bytes

    def prepared(self, transactional_id: str, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """The outcome is decided."""
        self._tick()
        self._add_decided(PREPARED, transactional_id, producer_id, producer_epoch, commit)

    def marked(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, partition: int, commit: bool
    ) -> None:
        """A partition has its marker."""
        self._of_partitions += 1
        if self._level:
            self._leave_out(1)
            return
        self._tick()
        name = shortened(transactional_id)
        self._keep(MARKER, name, producer_id, producer_epoch, topic, partition, commit, None, None, None)

    def completed(self, transactional_id: str, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """All markers are written."""
        second = self._tick()
        if commit:
            second.committed += 1
        else:
            second.aborted += 1
        self._add_decided(COMPLETED, transactional_id, producer_id, producer_epoch, commit)
        self._open.pop(transactional_id, None)

    def fenced(self, transactional_id: str, producer_id: int, producer_epoch: int) -> None:
        """Another takes the place of a producer whose transaction is open, which is aborted."""
        self._tick().fenced += 1
        self._note(FENCED, transactional_id, producer_id, producer_epoch)

    def timed_out(self, transactional_id: str, producer_id: int, producer_epoch: int) -> None:
        """The coordinator aborts a transaction whose time is over."""
        self._tick()
        self._note(TIMED_OUT, transactional_id, producer_id, producer_epoch)

    def expired(self, transactional_id: str, producer_id: int, producer_epoch: int) -> None:
        """An id is forgotten."""
        self._tick()
        self._note(EXPIRED, transactional_id, producer_id, producer_epoch)
        self._open.pop(transactional_id, None)

    def refused(
        self,
        api: str,
        error: str,
        client_id: str,
        peer: str,
        transactional_id: str | None,
        reason: str,
        producer: tuple[int, int] = (-1, -1),
        is_fenced: bool = False,
    ) -> None:
        """A request was refused; `producer` is the id and epoch that it names. Repetitions are counted in one row.

        `is_fenced`: because another has taken that producer's place.
        """
        second = self._tick()
        name = None if transactional_id is None else shortened(transactional_id)
        client_id = shortened(client_id)
        key = (api, error, client_id, name)
        before = self._refusals.pop(key, None)
        times = 1 if before is None else before.times + 1
        reason = shortened(reason, REASON_CHARS)
        self._refusals[key] = Refusal(self._at_ms, api, error, client_id, shortened(peer), name, reason, times)
        if len(self._refusals) > MOST_REFUSALS:
            self._refusals.popitem(last=False)
        if is_fenced:
            second.fenced += 1
        if transactional_id:
            self._note(FENCED if is_fenced else REFUSED, transactional_id, *producer, error)

    # ---- what is asked

    @property
    def first_seq(self) -> int:
        """Of the oldest event that is kept."""
        return self.next_seq - len(self._ring)

    def get(self, seq: int) -> Event:
        """The event, if it is still kept: `first_seq` to `next_seq`, without that."""
        return Event(*self._ring[(seq - 1) % MOST_EVENTS])

    def some(self, seq: int, end: int) -> list[tuple[Any, ...]]:
        """The events from `seq` to `end`, without that, as tuples of what an `Event` has: they are many."""
        ring = self._ring
        return [ring[(each - 1) % MOST_EVENTS] for each in range(seq, end)]

    def at_or_after(self, at_ms: int) -> int:
        """The seq of the first event from `at_ms` on; `next_seq` if there is none."""
        low, high = self.first_seq, self.next_seq
        while low < high:
            middle = (low + high) // 2
            if self._ring[(middle - 1) % MOST_EVENTS][1] < at_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def seconds(self) -> list[Second]:
        """The last seconds, the oldest first; the last one is not over."""
        second = self._tick()
        second.open = self._count_open()
        return list(self._seconds)

    def last_whole_second(self) -> Second | None:
        """The one before that."""
        self._tick()
        return self._seconds[-2] if len(self._seconds) > 1 else None

    def refusals(self) -> Iterator[Refusal]:
        """The last ones first."""
        return reversed(self._refusals.values())

    def written(self, transactional_id: str) -> tuple[int, int] | None:
        """(records, bytes) of an open transaction; None if it was open before the broker started."""
        opened = self._open.get(transactional_id)
        return None if opened is None else (opened.records, opened.size_bytes)

    # ---- how

    def _keeps(self, transactional_id: str) -> bool:
        return self._level < 2 or not hash(transactional_id) & ((1 << (self._level - 1)) - 1)

    def _tick(self) -> Second:
        """The second that it is."""
        second = self._second
        self._at_ms = self._now_ms()
        passed_ms = self._at_ms - second.at_ms
        if 0 <= passed_ms < SECOND_MS or -CLOCK_WENT_BACK_MS < passed_ms < 0:
            return second
        return self._turn(second, passed_ms)

    def _turn(self, second: Second, passed_ms: int) -> Second:
        """Begin another second: those in between had nothing, and the clock may have been set back."""
        opened, at_ms = self._count_open(), self._at_ms
        second.open = opened
        if passed_ms < 0:
            self._seconds.clear()
        else:
            missed = passed_ms // SECOND_MS - 1
            now_ms = at_ms - at_ms % SECOND_MS
            for back in range(min(missed, MOST_SECONDS), 0, -1):
                between = self._begin_second(now_ms - back * SECOND_MS)
                between.open = opened
        whole, together = self._whole, self._whole + self._of_partitions
        self._level = 0 if together <= EVENTS_PER_SECOND else 1 + (max(0, whole - 1) // EVENTS_PER_SECOND).bit_length()
        if passed_ms >= 2 * SECOND_MS:
            self._level = 0
        self._whole = self._of_partitions = self._kept = 0
        self._limit = EVENTS_PER_SECOND
        self._second = self._begin_second(at_ms)
        return self._second

    def _begin_second(self, at_ms: int) -> Second:
        second = Second(at_ms - at_ms % SECOND_MS)
        self._seconds.append(second)
        return second

    def _add_decided(self, kind: str, transactional_id: str, producer_id: int, epoch: int, commit: bool) -> None:
        self._whole += 1
        opened = self._open.get(transactional_id)
        if opened is None:
            is_kept, name, records, size_bytes = self._keeps(transactional_id), shortened(transactional_id), None, None
        else:
            is_kept, name, records, size_bytes = opened.is_kept, opened.name, opened.records, opened.size_bytes
        if is_kept:
            self._keep(kind, name, producer_id, epoch, None, None, commit, records, size_bytes, None)
        else:
            self._leave_out(1)

    def _note(self, kind: str, transactional_id: str, producer_id: int, epoch: int, error: str | None = None) -> None:
        self._whole += 1
        if self._keeps(transactional_id):
            name = shortened(transactional_id)
            self._keep(kind, name, producer_id, epoch, None, None, None, None, None, error)
        else:
            self._leave_out(1)

    def _join(self, name: str, producer_id: int, epoch: int, partitions: Iterable[TopicPartition], count: int) -> None:
        self._of_partitions += count
        if self._level:
            self._leave_out(count)
            return
        for topic, partition in islice(partitions, PARTITIONS_AT_ONCE):
            self._keep(PARTITION, name, producer_id, epoch, topic, partition, None, None, None, None)
        if count > PARTITIONS_AT_ONCE:
            self._leave_out(count - PARTITIONS_AT_ONCE)

    def _leave_out(self, count: int) -> None:
        self.left_out += count
        self._second.left_out += count

    def _keep(
        self,
        kind: str,
        name: str,
        producer_id: int,
        epoch: int,
        topic: str | None,
        partition: int | None,
        commit: bool | None,
        records: int | None,
        size_bytes: int | None,
        error: str | None,
    ) -> None:
        seq = self.next_seq
        # A plain tuple: the garbage collector soon looks at it no more.
        event = (seq, self._at_ms, kind, name, producer_id, epoch, topic, partition, commit, records, size_bytes, error)
        if seq <= MOST_EVENTS:
            self._ring.append(event)
        else:
            self._ring[(seq - 1) % MOST_EVENTS] = event
        self.next_seq = seq + 1
        self._kept += 1
        if self._kept >= self._limit:
            self._limit += LEVEL_STEP
            self._level = min(self._level + 1, MOST_LEVELS)


def shortened(text: str, most: int = NAME_CHARS) -> str:
    """The text, or its beginning with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"
