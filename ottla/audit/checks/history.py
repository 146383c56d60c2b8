"""Decisions that are left in `__transaction_state`, and the last state of each transactional id. pure

A decision is a PrepareCommit or PrepareAbort record: its partitions get the marker, with the epoch of the record
(`TransactionMarkerChannelManager`). The topic is compacted, so below the first dirty offset decisions are missing:
`known_from_ms` is the time since which a coordinator's partition still has all decisions.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from math import gcd
from typing import NamedTuple

import numpy as np

from ottla.protocol.fields import UnknownVersion
from ottla.protocol.hashing import java_hash
from ottla.protocol.internal_topics.transaction_records import (
    TransactionValue,
    decode_transaction_value,
    read_transaction_key,
)
from ottla.protocol.values import NEVER_TIMES_OUT_MS, TopicPartition
from ottla.scan.compiled.kernels import Longs
from ottla.scan.damage_log import Damage

TOPIC = "__transaction_state"

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)
COMPLETE = (COMPLETE_COMMIT, COMPLETE_ABORT)
STATE_NAMES = dict(
    enumerate(("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"))
) | {6: "Dead", 7: "PrepareEpochFence"}
# `transaction.state.log.num.partitions`, the default.
USUAL_PARTITIONS = 50

# Columns of a decision, one row for each of its partitions. PLACE and ID index the history's lists, KIND is the type of
# the marker (0 abort, 1 commit), PENDING is 1 while the coordinator still awaits the answer to a marker, COORDINATOR is
# the partition of `__transaction_state`, OFFSET the one of the record there, START_MS the beginning of the transaction.
PRODUCER_ID = 0
EPOCH = 1
KIND = 2
UPDATED_MS = 3
PLACE = 4
ID = 5
COORDINATOR = 6
OFFSET = 7
PENDING = 8
START_MS = 9
DECISION_COLUMNS = 10

# `known_from_ms` of a coordinator's partition whose last offsets compaction removed: no decision is certain.
NEVER = 2**62


class RangeHistory(NamedTuple):
    """Records of one range of `__transaction_state`: picklable, in order of `next_offset`.

    `ended_ms`: for each id that the range begins with the end of a transaction, the time of that record. `alone_ms`:
    the latest time of another end without its decision. `lasting`: producers whose transactions never timed out.
    """

    coordinator: int
    ids: tuple[str, ...]
    places: tuple[TopicPartition, ...]
    decisions: Longs
    last: dict[str, TransactionValue | None]
    first_offset: int
    first_ms: int
    next_offset: int
    known_from_ms: int
    is_damaged: bool = False
    unread: tuple[Damage, ...] = ()
    ended_ms: Mapping[str, int] = {}
    alone_ms: int = 0
    lasting: frozenset[int] = frozenset()


class HistoryDecoder:
    """Decoder of the records of one range, in order.

    `cleaned_below`: the first dirty offset: compaction removed the offsets that are missing below it. `until_ms`: later
    records of the coordinator are left out.
    """

    def __init__(self, coordinator: int, cleaned_below: int, until_ms: int | None = None) -> None:
        self._coordinator = coordinator
        self._cleaned_below = cleaned_below
        self._until_ms = until_ms
        self._ids: dict[str, int] = {}
        self._places: dict[TopicPartition, int] = {}
        self._rows = array("q")
        self._last: dict[str, TransactionValue | None] = {}
        self._first_offset = self._first_ms = -1
        self._next_offset = -1
        self._known_from_ms = 0
        self._is_damaged = False
        self._ended_ms: dict[str, int] = {}
        self._alone_ms = 0
        self._lasting: set[int] = set()

    def add(self, offset: int, key: bytes | None, value: bytes | None, timestamp_ms: int = 0) -> None:
        """Add the record at `offset`. Unknown types and versions are skipped, as Kafka's coordinator skips them."""
        if self._first_offset < 0:
            self._first_offset = offset
        elif self._next_offset < offset and self._next_offset < self._cleaned_below:
            self._known_from_ms = NEVER
        elif self._next_offset < offset:
            self._is_damaged = True
        self._next_offset = offset + 1
        transactional_id = None if key is None else read_transaction_key(key)
        if transactional_id is None:
            return
        if value is None:
            self._last[transactional_id] = None
            return
        try:
            state = decode_transaction_value(value)
        except UnknownVersion:
            return
        if self._until_ms is not None and state.last_update_ms > self._until_ms:
            return
        if self._first_ms < 0:
            self._first_ms = state.last_update_ms
        if self._known_from_ms == NEVER:
            self._known_from_ms = state.last_update_ms
        if state.timeout_ms == NEVER_TIMES_OUT_MS:
            self._lasting.add(state.producer_id)
        if state.status in COMPLETE:
            self._add_end(transactional_id, timestamp_ms)
        self._last[transactional_id] = state
        if state.status in PREPARED:
            self._add_decision(offset, transactional_id, state)

    def _add_end(self, transactional_id: str, timestamp_ms: int) -> None:
        """Keep the time of an end without its decision. The markers were written before it, but after its update."""
        if transactional_id not in self._last:
            self._ended_ms[transactional_id] = timestamp_ms
        elif (before := self._last[transactional_id]) is None or before.status not in PREPARED:
            self._alone_ms = max(self._alone_ms, timestamp_ms)

    def _add_decision(self, offset: int, transactional_id: str, state: TransactionValue) -> None:
        index = self._ids.setdefault(transactional_id, len(self._ids))
        head = state.producer_id, state.producer_epoch, int(state.status == PREPARE_COMMIT), state.last_update_ms
        for topic, numbers in state.partitions or ():
            for number in numbers:
                place = self._places.setdefault((topic, number), len(self._places))
                self._rows.extend((*head, place, index, self._coordinator, offset, 0, state.start_ms))

    def result(self) -> RangeHistory:
        rows = np.array(self._rows, dtype=np.int64).reshape(-1, DECISION_COLUMNS)
        return RangeHistory(
            self._coordinator,
            tuple(self._ids),
            tuple(self._places),
            rows,
            self._last,
            self._first_offset,
            self._first_ms,
            self._next_offset,
            self._known_from_ms,
            self._is_damaged,
            ended_ms=self._ended_ms,
            alone_ms=self._alone_ms,
            lasting=frozenset(self._lasting),
        )


class History:
    """The coordinators' history, merged.

    `at_hand`: whether any partition of the topic was read. `directories`: the directory of each partition. `count`: the
    number of partitions of the topic by the cluster's metadata, 0 if these are not here. `homes`: the partition of each
    id that was read. `damaged`: partitions that may have lost records. `doubtful`: the damaged partitions that may lack
    the last state of an id, not only older states. `lasting`: producers whose transactions never timed out. `unread`:
    batches of each partition that could not be read.
    """

    def __init__(
        self,
        ids: Sequence[str],
        places: Mapping[TopicPartition, int],
        decisions: Longs,
        states: Mapping[str, TransactionValue],
        known_from_ms: Mapping[int, int],
        homes: Mapping[str, int] | None = None,
        damaged: Iterable[int] = (),
        doubtful: Iterable[int] = (),
        lasting: Iterable[int] = (),
    ) -> None:
        self.lasting = frozenset(lasting)
        self._doubtful = frozenset(doubtful)
        self.unread: Mapping[int, tuple[Damage, ...]] = {}
        self.directories: Mapping[int, str] = {}
        self.count = 0
        self.damaged = sorted(damaged)
        self._homes = homes or {}
        self.ids = ids
        self.decisions = decisions  # by place, producer id, epoch and time
        self.states = states
        self.at_hand = bool(known_from_ms)
        self._known_from_ms = known_from_ms
        self._places = places
        self._coordinator_of = {
            ids[row[ID]]: int(row[COORDINATOR]) for row in decisions[np.unique(decisions[:, ID], return_index=True)[1]]
        }
        self._by_producer: dict[int, tuple[str, TransactionValue]] = {}
        for transactional_id, state in states.items():
            if state.previous_producer_id >= 0:
                self._by_producer.setdefault(state.previous_producer_id, (transactional_id, state))
            self._by_producer[state.producer_id] = transactional_id, state
        self._names = self.names_in(decisions)

    @cached_property
    def longest_timeout_ms(self) -> int:
        """The longest timeout of an id, without ids that never time out; 0 if no id is known."""
        timeouts = (state.timeout_ms for state in self.states.values())
        return max((each for each in timeouts if each != NEVER_TIMES_OUT_MS), default=0)

    @cached_property
    def whole(self) -> bool:
        """Return whether every partition of the topic was read.

        The number of partitions is in the metadata, or follows from the ids: `hash % count` is the partition of an id,
        so the count divides each difference of hash and partition.
        """
        numbers = sorted(self._known_from_ms)
        many = len(numbers)
        if not many or numbers != list(range(many)):
            return False
        if self.count:
            return many == self.count
        return many == USUAL_PARTITIONS or many == gcd(
            *(abs(java_hash(name)) - number for name, number in self._homes.items() if java_hash(name) != -(2**31))
        )

    @property
    def gaps(self) -> tuple[str, ...]:
        """Reasons why a coordinator may hold a transaction open that is in none of these records."""
        if not self.at_hand:
            return (f"the coordinators' records ({TOPIC}) are not here",)
        if self.damaged:
            return tuple(map(self._fault_of, self.damaged))
        if self.whole:
            return ()
        numbers = ", ".join(map(str, sorted(self._known_from_ms)))
        of_all = f", of its {self.count}" if self.count else "; the topic may have more"
        return (f"only partitions {numbers} of {TOPIC} are here{of_all}",)

    def doubts(self, transactional_id: str) -> tuple[str, ...]:
        """Return reasons why an id may have a later state than the last one that was read."""
        number = self._homes.get(transactional_id)
        return (self._fault_of(number),) if number is not None and number in self._doubtful else ()

    def _fault_of(self, number: int) -> str:
        unread = self.unread.get(number, ())
        if unread and all(one.is_too_large for one in unread):
            return f"a batch of {TOPIC}-{number} was not read, and may have its state: {unread[0].reason}"
        return f"{TOPIC}-{number} is damaged, and may have lost its state"

    def state_of(self, producer_id: int) -> tuple[str | None, TransactionValue | None]:
        """Return the transactional id that has this producer id or had it just before, and its last state."""
        return self._by_producer.get(producer_id, (None, None))

    def name_of(self, producer_id: int) -> str | None:
        """Return the transactional id that has or had this producer id."""
        return self.state_of(producer_id)[0] or self._names.get(producer_id)

    def names_in(self, decisions: Longs) -> dict[int, str]:
        """Return the transactional ids in these decisions by producer id."""
        first = np.unique(decisions[:, PRODUCER_ID], return_index=True)[1]
        return {int(row[PRODUCER_ID]): self.ids[row[ID]] for row in decisions[first]}

    def for_place(self, place: TopicPartition) -> Longs:
        """Return the decisions that name this partition, by producer id, epoch and time."""
        index = self._places.get(place)
        if index is None:
            return self.decisions[:0]
        first, end = np.searchsorted(self.decisions[:, PLACE], (index, index + 1))
        return self.decisions[first:end]

    def will_mark(self, place: TopicPartition, producer_id: int) -> bool:
        """Return whether the coordinator has decided and still awaits the answer to a marker of the producer."""
        mine = self.for_place(place)
        return bool(np.any((mine[:, PRODUCER_ID] == producer_id) & (mine[:, PENDING] == 1)))

    def known_from_ms(self, producer_id: int) -> int:
        """Return the time since which all decisions on this producer are known.

        NEVER if its coordinator may be elsewhere, or a batch of that coordinator's partition could not be read.
        """
        name = self.name_of(producer_id)
        if name is not None and name in self._coordinator_of:
            number = self._coordinator_of[name]
            return NEVER if self.unread.get(number) else self._known_from_ms[number]
        return max(self._known_from_ms.values()) if self.whole and not any(self.unread.values()) else NEVER


def _ends_alone(part: RangeHistory, last: Mapping[str, TransactionValue | None]) -> Iterator[int]:
    """Yield the times of the ends whose decision no earlier range has. `last`: the last states of these ranges."""
    for transactional_id, ended_ms in part.ended_ms.items():
        before = last.get(transactional_id)
        if before is None or before.status not in PREPARED:
            yield ended_ms


def merge(ranges: Iterable[RangeHistory], cleaned_below: Mapping[int, int], log_starts: Mapping[int, int]) -> History:
    """Return the history from all ranges of the topic, by coordinator partition and offset.

    `cleaned_below` and `log_starts` are by partition of the topic; `log_starts` has every partition that was read.
    """
    ids: dict[str, int] = {}
    places: dict[TopicPartition, int] = {}
    last: dict[str, TransactionValue | None] = {}
    homes: dict[str, int] = {}
    ranges = list(ranges)
    # Compaction leaves the log start where it is.
    damaged = {number for number, start in log_starts.items() if start > 0}
    doubtful = {part.coordinator for part in ranges if part.is_damaged}
    known = {number: 0 if start == 0 else NEVER for number, start in log_starts.items()}
    next_offset = dict(log_starts)
    parts = [np.empty((0, DECISION_COLUMNS), dtype=np.int64)]
    for part in sorted(ranges, key=lambda one: (one.coordinator, one.next_offset)):
        if part.first_offset < 0:
            continue
        number = part.coordinator
        if next_offset[number] < part.first_offset and next_offset[number] < cleaned_below.get(number, 0):
            known[number] = NEVER
        elif next_offset[number] < part.first_offset:
            doubtful.add(number)
        if known[number] == NEVER and part.first_ms >= 0:
            known[number] = part.first_ms
        if part.known_from_ms:
            known[number] = part.known_from_ms
        if known[number]:  # compaction leaves the last record of an id, which may be an end without its decision
            known[number] = max(known[number], part.alone_ms, *_ends_alone(part, last))
        next_offset[number] = part.next_offset
        last.update(part.last)
        homes.update(dict.fromkeys(part.last, number))
        rows = part.decisions.copy()
        if len(rows):
            rows[:, ID] = np.array([ids.setdefault(one, len(ids)) for one in part.ids])[rows[:, ID]]
            rows[:, PLACE] = np.array([places.setdefault(one, len(places)) for one in part.places])[rows[:, PLACE]]
        parts.append(rows)
    decisions = np.concatenate(parts)
    decisions = decisions[np.lexsort([decisions[:, at] for at in (OFFSET, UPDATED_MS, EPOCH, PRODUCER_ID, PLACE)])]
    names = tuple(ids)
    states = {one: state for one, state in last.items() if state is not None}
    _mark_pending(decisions, names, states)
    lasting = frozenset[int]().union(*(part.lasting for part in ranges))
    return History(names, places, decisions, states, known, homes, damaged | doubtful, doubtful, lasting)


def _mark_pending(decisions: Longs, ids: Sequence[str], states: Mapping[str, TransactionValue]) -> None:
    """Mark pending decisions: each is the last record that the coordinator wrote for its transactional id."""
    last = np.full((len(ids), 2), -1, dtype=np.int64)
    for index, name in enumerate(ids):
        state = states.get(name)
        if state is not None and state.status in PREPARED:
            last[index] = state.last_update_ms, state.producer_epoch
    if len(ids):
        decisions[:, PENDING] = (decisions[:, [UPDATED_MS, EPOCH]] == last[decisions[:, ID]]).all(axis=1)
