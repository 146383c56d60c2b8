"""The recent history of transactions for the admin port: events, counts per second, and refused requests. pure

It is kept only if a client can read it: `Broker.events` is None without an admin port. The code that changes a
transaction records the event. The history has the last `MOST_EVENTS` events, `MOST_SECONDS` seconds and `MOST_REFUSALS`
refusals. Names are cut to `NAME_CHARS` characters.

Above `EVENTS_PER_SECOND` not every event is kept. Events of partitions are left out first, then all events of some
transactional ids, chosen by a hash of the id: a transaction whose begin is kept has its end kept as well. Omitted
events are counted, and the seconds count every event.
"""

from bisect import bisect_left
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
"""Each time this many more events occur within one second, half as many ids are kept from then on."""
MOST_LEVELS: Final = 20
NAME_CHARS: Final = 256
REASON_CHARS: Final = 500
PARTITIONS_AT_ONCE: Final = 100
"""The largest number of partitions added in one step that have an event each."""
SECOND_MS: Final = 1_000
CLOCK_WENT_BACK_MS: Final = 60_000
"""If the clock is set back by more, a new series of seconds begins; if by less, the current second continues."""

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
    """An event of a transactional id. Fields that its kind does not have are None.

    `at_ms` is the broker's wall time. `seq` numbers the events that are kept, from 1. `records` and `size_bytes` are
    the totals that the transaction has written, where they are known.
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


class Second:
    """Counts of one second. `open` is the number of transactions that were open when it ended."""

    __slots__ = ("aborted", "at_ms", "committed", "fenced", "left_out", "open")

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms
        self.committed = self.aborted = self.fenced = self.open = self.left_out = 0


class Refusal(NamedTuple):
    """A refused request. `times` counts its repetitions; `at_ms` is the time of the last one."""

    at_ms: int
    api: str
    error: str
    client_id: str
    peer: str
    transactional_id: str | None
    reason: str
    times: int = 1


class _Open:
    """A transaction whose begin was recorded: whether its events are kept, and the totals that it has written."""

    __slots__ = ("is_kept", "name", "records", "size_bytes")

    def __init__(self, name: str, is_kept: bool) -> None:
        self.name = name
        self.is_kept = is_kept
        self.records = self.size_bytes = 0


class Events:
    """The event history of one broker.

    `now_ms` is its wall clock. `count_open` returns the number of open transactions and is called at most once a
    second.
    """

    def __init__(self, now_ms: Callable[[], int], count_open: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._count_open = count_open
        self._ring: list[tuple[Any, ...]] = []
        self.next_seq = 1
        self.left_out = 0
        """The number of events that were not kept, since the start."""
        self._open: dict[str, _Open] = {}
        self._refusals: OrderedDict[tuple[str, str, str, str | None], Refusal] = OrderedDict()
        self._seconds: deque[Second] = deque(maxlen=MOST_SECONDS)
        self._at_ms = now_ms()
        self._second = self._begin_second(self._at_ms)
        # 0: all events are kept; 1: those of partitions are not; each further level halves the ids.
        self._level = 0
        # Of this second: the events except those of partitions, those of partitions, and the ones that were kept.
        self._whole = self._of_partitions = self._kept = 0
        self._limit = EVENTS_PER_SECOND

    # ---- recording

    def began(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Collection[TopicPartition]
    ) -> None:
        """Record that a transaction has begun with these partitions."""
        self._tick()
        name = shorten(transactional_id)
        is_kept = self._keeps(transactional_id)
        self._open[transactional_id] = _Open(name, is_kept)
        self._whole += 1
        if is_kept:
            self._keep(BEGUN, name, producer_id, producer_epoch, None, None, None, None, None, None)
        else:
            self._leave_out(1)
        self._join(name, producer_id, producer_epoch, partitions, len(partitions))

    def record_addition(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        count: int,
    ) -> None:
        """Record that `count` partitions were added to an open transaction."""
        self._tick()
        self._join(shorten(transactional_id), producer_id, producer_epoch, partitions, count)

    def wrote(self, transactional_id: str, records: int, size_bytes: int) -> None:
        """Add an appended batch to the totals of its transaction."""
        opened = self._open.get(transactional_id)
        if opened is not None:
            opened.records += records
            opened.size_bytes += size_bytes

    def record_prepare(self, transactional_id: str, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """Record that the outcome is decided."""
        self._tick()
        self._add_outcome(PREPARED, transactional_id, producer_id, producer_epoch, commit)

    def record_marker(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, partition: int, commit: bool
    ) -> None:
        """Record that a partition has its marker."""
        self._of_partitions += 1
        if self._level:
            self._leave_out(1)
            return
        self._tick()
        name = shorten(transactional_id)
        self._keep(MARKER, name, producer_id, producer_epoch, topic, partition, commit, None, None, None)

    def record_completion(self, transactional_id: str, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """Record that all markers are written."""
        second = self._tick()
        if commit:
            second.committed += 1
        else:
            second.aborted += 1
        self._add_outcome(COMPLETED, transactional_id, producer_id, producer_epoch, commit)
        self._open.pop(transactional_id, None)

    def record_fencing(self, transactional_id: str, producer_id: int, producer_epoch: int) -> None:
        """Record that a new producer fences the one whose transaction is open; that transaction is aborted."""
        self._tick().fenced += 1
        self._note(FENCED, transactional_id, producer_id, producer_epoch)

    def timed_out(self, transactional_id: str, producer_id: int, producer_epoch: int) -> None:
        """Record that the coordinator aborts a transaction that has timed out."""
        self._tick()
        self._note(TIMED_OUT, transactional_id, producer_id, producer_epoch)

    def record_expiration(self, transactional_id: str, producer_id: int, producer_epoch: int) -> None:
        """Record that an expired transactional id is removed."""
        self._tick()
        self._note(EXPIRED, transactional_id, producer_id, producer_epoch)
        self._open.pop(transactional_id, None)

    def record_refusal(
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
        """Record a refused request. Repetitions are counted in one row.

        `producer` is the producer id and epoch in the request. `is_fenced` is set if another producer has taken its
        place.
        """
        second = self._tick()
        name = None if transactional_id is None else shorten(transactional_id)
        client_id = shorten(client_id)
        key = (api, error, client_id, name)
        before = self._refusals.pop(key, None)
        times = 1 if before is None else before.times + 1
        reason = shorten(reason, REASON_CHARS)
        self._refusals[key] = Refusal(self._at_ms, api, error, client_id, shorten(peer), name, reason, times)
        if len(self._refusals) > MOST_REFUSALS:
            self._refusals.popitem(last=False)
        if is_fenced:
            second.fenced += 1
        if transactional_id:
            self._note(FENCED if is_fenced else REFUSED, transactional_id, *producer, error)

    # ---- reading

    @property
    def first_seq(self) -> int:
        """The sequence number of the oldest event that is kept."""
        return self.next_seq - len(self._ring)

    def get(self, seq: int) -> Event:
        """Return an event that is still kept: `first_seq` <= `seq` < `next_seq`."""
        return Event(*self._ring[(seq - 1) % MOST_EVENTS])

    def some(self, seq: int, end: int) -> list[tuple[Any, ...]]:
        """Return the events from `seq` to `end`, exclusive, as plain tuples of the fields of `Event`."""
        ring = self._ring
        return [ring[(each - 1) % MOST_EVENTS] for each in range(seq, end)]

    def at_or_after(self, at_ms: int) -> int:
        """Return the sequence number of the first event from `at_ms` on, or `next_seq` if there is none."""
        kept = range(self.first_seq, self.next_seq)
        return self.first_seq + bisect_left(kept, at_ms, key=lambda seq: self._ring[(seq - 1) % MOST_EVENTS][1])

    def seconds(self) -> list[Second]:
        """Return the last seconds, oldest first. The last one is not over yet."""
        second = self._tick()
        second.open = self._count_open()
        return list(self._seconds)

    def last_whole_second(self) -> Second | None:
        """Return the last second that is over, or None."""
        self._tick()
        return self._seconds[-2] if len(self._seconds) > 1 else None

    def refusals(self) -> Iterator[Refusal]:
        """Return the refusals, newest first."""
        return reversed(self._refusals.values())

    def written(self, transactional_id: str) -> tuple[int, int] | None:
        """Return (records, bytes) of an open transaction, or None if it began before the broker started."""
        opened = self._open.get(transactional_id)
        return None if opened is None else (opened.records, opened.size_bytes)

    # ---- internals

    def _keeps(self, transactional_id: str) -> bool:
        return self._level < 2 or not hash(transactional_id) & ((1 << (self._level - 1)) - 1)

    def _tick(self) -> Second:
        """Return the current second, and begin it if necessary."""
        second = self._second
        self._at_ms = self._now_ms()
        passed_ms = self._at_ms - second.at_ms
        if 0 <= passed_ms < SECOND_MS or -CLOCK_WENT_BACK_MS < passed_ms < 0:
            return second
        return self._turn(second, passed_ms)

    def _turn(self, second: Second, passed_ms: int) -> Second:
        """Begin a new second. Add empty ones for the seconds in between; the clock may have been set back."""
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

    def _add_outcome(self, kind: str, transactional_id: str, producer_id: int, epoch: int, commit: bool) -> None:
        self._whole += 1
        opened = self._open.get(transactional_id)
        if opened is None:
            is_kept, name, records, size_bytes = self._keeps(transactional_id), shorten(transactional_id), None, None
        else:
            is_kept, name, records, size_bytes = opened.is_kept, opened.name, opened.records, opened.size_bytes
        if is_kept:
            self._keep(kind, name, producer_id, epoch, None, None, commit, records, size_bytes, None)
        else:
            self._leave_out(1)

    def _note(self, kind: str, transactional_id: str, producer_id: int, epoch: int, error: str | None = None) -> None:
        self._whole += 1
        if self._keeps(transactional_id):
            name = shorten(transactional_id)
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
        # A plain tuple, because the garbage collector soon stops visiting it.
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


def shorten(text: str, most: int = NAME_CHARS) -> str:
    """Return the text, or its beginning with an ellipsis if it has more than `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"
