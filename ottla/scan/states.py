"""States of a partition's producers between two batches of its log, and the join of the states of ranges. pure

A state is a row of int64. Columns EPOCH to FIRST_OFFSET are a broker's `ProducerStateEntry`, as in a producer snapshot;
the rest is for audits. A walk over a range may begin with empty states. `enter` joins its final states to those before
the range. The result is exactly that of a walk over the ranges one after the other.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from ottla.protocol.batch_header import MAX_SEQUENCE
from ottla.scan.compiled.kernels import Long, Longs, expect, inline, kernel

# State of a producer as a broker has it. -1 (OFFSET_DELTA: 0): none.
PRODUCER_ID = 0
EPOCH = 1
COORDINATOR_EPOCH = 2
LAST_SEQUENCE = 3
LAST_OFFSET = 4  # of the last data batch
OFFSET_DELTA = 5
LAST_TIMESTAMP = 6
FIRST_OFFSET = 7  # of the open transaction, -1: none is open
# The open transaction's batches in the log. OPEN_BATCHES is 0 if all its batches are before the first batch read.
OPEN_LAST_OFFSET = 8
OPEN_RECORDS = 9
OPEN_BYTES = 10
OPEN_BATCHES = 11
OPEN_START_MS = 12  # -1: unknown
OPEN_EPOCH = 13
# The last marker, -1: none.
LAST_MARKER_OFFSET = 14
LAST_MARKER_TYPE = 15
LAST_MARKER_EPOCH = 16
# The first ABORT after the last data batch, without a COMMIT between: its offset; or NO_MARKER, or HAS_COMMITTED.
ABORTED_AT = 17
# Values that the next batch is checked against. They are from the log, never from a snapshot. -1: unknown.
HIGHEST_EPOCH = 18
EXPECTED_SEQUENCE = 19  # of the next batch in HIGHEST_EPOCH
MISSING_SINCE = 20  # offsets that the log lacks after the producer's last batch
FIRST_CLOCK = 21  # the broker's clock at the producer's first batch with a sequence in the range; else NEVER
FLAGS = 22
PREVIOUS_OPEN = 23  # links of the list of open transactions, by first offset; -1: none
NEXT_OPEN = 24
COLUMNS = 25

# Flags.
FROM_SNAPSHOT = 1  # from a snapshot; if this is the only flag, the log has no batch of the producer
SEEN_BATCH = 2
SEEN_MARKER = 4
EPOCH_CHANGED = 8  # a batch or marker had another epoch than the one before
SEQUENCED = 16  # EXPECTED_SEQUENCE follows a batch, not a mere rise of the epoch
FORGOTTEN = 32  # the producer was idle until a broker expires its state, then wrote again

# Values of ABORTED_AT.
NO_MARKER = -1
HAS_COMMITTED = -2

NEVER = -(2**62)
# Sequences wrap around: one is ahead of another if the distance is less than half of the range.
HALF_CIRCLE = 2**30

DEFAULT_EXPIRATION_MS = 86_400_000  # producer.id.expiration.ms


class States(NamedTuple):
    """All producers of a partition at one offset of its log. `rows`: the columns above, in no particular order.

    `first_offset`: base offset of the first batch walked, -1 if none. `next_offset`: after the last batch, -1 if
    unknown. `missing`: number of offsets missing between the batches walked. `clock_ms`: the latest time of a broker's
    clock in the log (a marker's or an append time), -1 if none.
    """

    rows: Longs
    first_offset: int = -1
    next_offset: int = -1
    missing: int = 0
    clock_ms: int = -1

    def __reduce__(self) -> tuple[Callable[..., "States"], tuple[object, ...]]:
        """Pickle each column as its smallest value and small differences, because tasks send states to each other."""
        return _unpack, (len(self.rows), *map(_pack_column, self.rows.T), *self[1:])

    @property
    def open_rows(self) -> Longs:
        """The states with an open transaction, by its first offset."""
        found = self.rows[self.rows[:, FIRST_OFFSET] >= 0]
        return found[np.argsort(found[:, FIRST_OFFSET], kind="stable")]


def _pack_column(column: Longs) -> tuple[int, bytes, str]:
    """Return (smallest value, differences from it, their type); no differences if all values are equal."""
    lowest, highest = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    if lowest == highest:
        return lowest, b"", "u1"
    kind = next(f"u{size}" for size in (1, 2, 4, 8) if highest - lowest < 256**size)
    return lowest, (column.view(np.uint64) - np.uint64(lowest % 2**64)).astype(kind).tobytes(), kind


def _unpack(count: int, *parts: Any) -> States:
    rows = np.empty((count, COLUMNS), dtype=np.int64)
    for column, (lowest, data, kind) in enumerate(parts[:COLUMNS]):
        rows[:, column] = lowest
        if data:
            rows[:, column] += np.frombuffer(data, dtype=kind).astype(np.uint64).view(np.int64)
    return States(rows, *parts[COLUMNS:])


def empty(next_offset: int = -1) -> States:
    """Return states without producers. The log continues at `next_offset`, -1 if unknown."""
    return States(np.empty((0, COLUMNS), dtype=np.int64), next_offset=next_offset)


def from_snapshot(entries: Longs, next_offset: int) -> States:
    """Return the states below `next_offset` from a producer snapshot: columns PRODUCER_ID to FIRST_OFFSET.

    An audit reports no finding from these states, because a snapshot may be wrong.
    """
    rows = np.full((len(entries), COLUMNS), -1, dtype=np.int64)
    rows[:, [OFFSET_DELTA, OPEN_RECORDS, OPEN_BYTES, OPEN_BATCHES, MISSING_SINCE]] = 0
    rows[:, FIRST_CLOCK] = NEVER
    rows[:, FLAGS] = FROM_SNAPSHOT
    rows[:, : FIRST_OFFSET + 1] = entries
    rows[:, OPEN_EPOCH] = np.where(entries[:, FIRST_OFFSET] >= 0, entries[:, EPOCH], -1)
    return States(rows, next_offset=next_offset)


def enter(first: States, leaving: Iterable[States], expiration_ms: int = DEFAULT_EXPIRATION_MS) -> States:
    """Return the states at the start of a range, from the final states of the ranges before it, in order.

    `leaving`: final states of walks that began with `empty()`. `first`: the states at the start of the first range.
    """
    table = Table(first)
    now = first._replace(missing=0)
    for later in leaving:
        if later.first_offset < 0:
            continue
        between = max(later.first_offset - now.next_offset, 0) if now.next_offset >= 0 else 0
        table.join(later, between + later.missing, now.clock_ms, expiration_ms)
        now = States(
            now.rows,
            now.first_offset if now.first_offset >= 0 else later.first_offset,
            later.next_offset,
            now.missing + between + later.missing,
            max(now.clock_ms, later.clock_ms),
        )
    return now._replace(rows=table.copy())


class Table:
    """States by producer id: `rows[:count]`, and `slots`, a hash table of their indexes plus one (0: free)."""

    def __init__(self, states: States) -> None:
        self.count = len(states.rows)
        self.rows: Longs = np.empty((max(2 * self.count, _FIRST_CAPACITY), COLUMNS), dtype=np.int64)
        self.rows[: self.count] = states.rows
        self._index()

    def grow(self) -> None:
        """Make room for twice as many producers."""
        rows: Longs = np.empty((2 * len(self.rows), COLUMNS), dtype=np.int64)
        rows[: self.count] = self.rows[: self.count]
        self.rows = rows
        self._index()

    def link_open(self) -> tuple[int, int]:
        """Link the open transactions by first offset. Return the indexes of the first and the last, -1 if none."""
        rows = self.rows[: self.count]
        rows[:, [PREVIOUS_OPEN, NEXT_OPEN]] = -1
        found = np.flatnonzero(rows[:, FIRST_OFFSET] >= 0)
        if len(found) == 0:
            return -1, -1
        order = found[np.argsort(rows[found, FIRST_OFFSET], kind="stable")]
        rows[order[1:], PREVIOUS_OPEN] = order[:-1]
        rows[order[:-1], NEXT_OPEN] = order[1:]
        return int(order[0]), int(order[-1])

    def join(self, later: States, missing: int, clock_ms: int, expiration_ms: int) -> None:
        """Join the states of a later range. `missing`: number of missing offsets from these states to its end."""
        expect(len(later.rows))
        while self.count + len(later.rows) > len(self.rows):
            self.grow()
        self.count = join_rows(self.rows, self.slots, self.count, later.rows, missing, clock_ms, expiration_ms)

    def copy(self) -> Longs:
        return self.rows[: self.count].copy()

    def _index(self) -> None:
        self.slots: Longs = np.zeros(2 * 2 ** (len(self.rows) - 1).bit_length(), dtype=np.int64)
        if self.count:
            expect(self.count)
            fill_slots(self.rows, self.count, self.slots)


_FIRST_CAPACITY = 512
_MIXER = 0x9E3779B97F4A7C15 - 2**64  # 64 bits of the golden ratio, as an int64


@inline
def slot_of(rows: Longs, slots: Longs, producer_id: Long) -> Long:
    """Return the slot of `producer_id`, or the free slot to insert it at."""
    mask = slots.shape[0] - 1
    slot = ((producer_id * _MIXER) >> 32) & mask
    while slots[slot] != 0 and rows[slots[slot] - 1, PRODUCER_ID] != producer_id:
        slot = (slot + 1) & mask
    return slot


@kernel
def fill_slots(rows: Longs, count: Long, slots: Longs) -> None:
    """Enter the first `count` of `rows` into the zeroed `slots`."""
    for index in range(count):
        slots[slot_of(rows, slots, rows[index, PRODUCER_ID])] = index + 1


@kernel
def join_rows(
    rows: Longs, slots: Longs, count: Long, later: Longs, missing: Long, clock: Long, expiration_ms: Long
) -> Long:
    """Do the work of `Table.join` and return the new count."""
    for index in range(count):
        rows[index, MISSING_SINCE] += missing
    for index in range(later.shape[0]):
        new = later[index]
        slot = slot_of(rows, slots, new[PRODUCER_ID])
        if slots[slot] == 0:
            for column in range(COLUMNS):
                rows[count, column] = new[column]
            count += 1
            slots[slot] = count
            continue
        old = rows[slots[slot] - 1]
        _join_sequence(old, new, clock, expiration_ms)
        _join_entry(old, new)
        _join_open(old, new)
        old[FLAGS] |= new[FLAGS] & ~SEQUENCED
    return count


@inline
def _join_sequence(old: Longs, new: Longs, clock: Long, expiration_ms: Long) -> None:
    """Merge HIGHEST_EPOCH, EXPECTED_SEQUENCE and the flag SEQUENCED."""
    forgotten = new[FLAGS] & FORGOTTEN != 0 or (
        old[FLAGS] & (SEEN_BATCH | SEEN_MARKER) != 0
        and old[FIRST_OFFSET] < 0
        and new[FIRST_CLOCK] != NEVER
        and np.int64(max(clock, new[FIRST_CLOCK])) - old[LAST_TIMESTAMP] >= expiration_ms
    )
    expected = new[EXPECTED_SEQUENCE]
    if new[HIGHEST_EPOCH] > old[HIGHEST_EPOCH]:
        is_new = True
        if new[FLAGS] & SEQUENCED == 0 and old[HIGHEST_EPOCH] >= 0:
            expected = 0
        old[HIGHEST_EPOCH] = new[HIGHEST_EPOCH]
    elif new[HIGHEST_EPOCH] < old[HIGHEST_EPOCH] or new[FLAGS] & SEQUENCED == 0:
        is_new = False
    elif old[FLAGS] & SEQUENCED == 0 or forgotten:
        is_new = True
    else:
        is_new = (expected - old[EXPECTED_SEQUENCE]) & MAX_SEQUENCE < HALF_CIRCLE
    if is_new:
        old[EXPECTED_SEQUENCE] = expected
        old[FLAGS] = (old[FLAGS] & ~SEQUENCED) | (new[FLAGS] & SEQUENCED)


@inline
def _join_entry(old: Longs, new: Longs) -> None:
    """Merge the fields of a broker's producer state, without the open transaction."""
    if new[FLAGS] & SEEN_BATCH or new[ABORTED_AT] == HAS_COMMITTED or old[ABORTED_AT] == NO_MARKER:
        old[ABORTED_AT] = new[ABORTED_AT]
    if new[FLAGS] & SEEN_BATCH:
        old[LAST_SEQUENCE], old[LAST_OFFSET] = new[LAST_SEQUENCE], new[LAST_OFFSET]
        old[OFFSET_DELTA], old[MISSING_SINCE] = new[OFFSET_DELTA], new[MISSING_SINCE]
    elif new[FLAGS] & EPOCH_CHANGED or new[EPOCH] != old[EPOCH]:
        old[LAST_SEQUENCE], old[LAST_OFFSET], old[OFFSET_DELTA] = -1, -1, 0
    old[EPOCH] = new[EPOCH]
    old[LAST_TIMESTAMP] = new[LAST_TIMESTAMP]
    if new[FLAGS] & SEEN_MARKER:
        old[COORDINATOR_EPOCH], old[LAST_MARKER_OFFSET] = new[COORDINATOR_EPOCH], new[LAST_MARKER_OFFSET]
        old[LAST_MARKER_TYPE], old[LAST_MARKER_EPOCH] = new[LAST_MARKER_TYPE], new[LAST_MARKER_EPOCH]


@inline
def _join_open(old: Longs, new: Longs) -> None:
    """Merge the open transaction. After a marker in the later range the new one replaces it, else both are one."""
    if new[FLAGS] & SEEN_MARKER or old[FIRST_OFFSET] < 0:
        for column in range(FIRST_OFFSET, OPEN_EPOCH + 1):
            old[column] = new[column]
    elif new[FIRST_OFFSET] >= 0:
        if old[OPEN_BATCHES] == 0:
            old[OPEN_START_MS] = new[OPEN_START_MS]
        for column in range(OPEN_RECORDS, OPEN_BATCHES + 1):
            old[column] += new[column]
        old[OPEN_LAST_OFFSET] = new[OPEN_LAST_OFFSET]
        old[OPEN_EPOCH] = new[OPEN_EPOCH]
