"""Compiled one-pass resolution of transactions over the header rows of one ordered range of a partition. pure

A data batch takes the type of the next COMMIT or ABORT marker of its producer id in its partition, whatever the epoch
(`ProducerStateManager`: a marker that closes nothing changes nothing). A range cannot know what came before it, so for
each producer it tells a head (up to its first marker) and a tail (behind its last), to be merged in range order.
"""

import numpy as np

from ottla.protocol.batch import ABORT, COMMIT, TRANSACTIONAL
from ottla.spark_jobs import headers
from ottla.spark_jobs.kernels import Long, Longs, kernel

# Columns of a fragment: the transaction as far as the range holds it. FIRST is -1 if the range has only the marker.
PRODUCER_ID = 0
FIRST = 1
RECORDS = 2
START_MS = 3
EPOCH = 4
FATE = 5
MARKER = 6
FRAGMENT_COLUMNS = 7

UNDECIDED = -1

# Columns of the hash table by producer id: the open transaction, then the head.
_USED = 7
_SEEN_MARKER = 8
_HEAD = 9
_TABLE_COLUMNS = _HEAD + FRAGMENT_COLUMNS

# Totals of a range.
BATCHES = 0
BYTES = 1
PLAIN_RECORDS = 2
CONTROL_BATCHES = 3
COMMITTED = 4
COMMITTED_RECORDS = 5
ABORTED = 6
ABORTED_RECORDS = 7
NEXT_OFFSET = 8
PRODUCERS = 9
TOTALS = 10

ABORTED_COLUMNS = 3  # producer id, first offset, marker offset

_FIRST_CAPACITY = 1024


@kernel
def slot_of(table: Longs, producer_id: Long) -> Long:
    """The slot of `producer_id`, its own or the free one where it belongs."""
    mask = table.shape[0] - 1
    mixed = np.uint64(producer_id) * np.uint64(0x9E3779B97F4A7C15)
    slot = np.int64(mixed >> np.uint64(32)) & mask
    while table[slot, _USED] and table[slot, PRODUCER_ID] != producer_id:
        slot = (slot + 1) & mask
    return slot


@kernel
def rehash(old: Longs, new: Longs) -> None:
    """Insert all entries of `old` into the empty table `new`."""
    for index in range(old.shape[0]):
        if old[index, _USED]:
            new[slot_of(new, old[index, PRODUCER_ID])] = old[index]


@kernel
def resolve_rows(
    rows: Longs, log_start: Long, table: Longs, totals: Longs, aborted: Longs, aborted_count: Long
) -> Long:
    """Take the header `rows` into `table` and `totals`, transactions that end in them into `aborted`; its new length.

    `table` must have room for as many producers as rows, `aborted` for as many entries. Batches that lie wholly below
    `log_start` are not counted, but transactions that begin there are followed.
    """
    for index in range(rows.shape[0]):
        row = rows[index]
        totals[NEXT_OFFSET] = row[headers.LAST_OFFSET] + 1
        counted = row[headers.LAST_OFFSET] >= log_start
        if counted:
            totals[BATCHES] += 1
            totals[BYTES] += row[headers.SIZE]
        is_control = row[headers.CONTROL_TYPE] != headers.NOT_CONTROL
        records = row[headers.RECORD_COUNT] if counted else 0
        if is_control:
            totals[CONTROL_BATCHES] += counted
            if row[headers.CONTROL_TYPE] != ABORT and row[headers.CONTROL_TYPE] != COMMIT:
                continue
        elif not row[headers.ATTRIBUTES] & TRANSACTIONAL:
            totals[PLAIN_RECORDS] += records
            continue
        entry = table[slot_of(table, row[headers.PRODUCER_ID])]
        if not entry[_USED]:
            entry[:] = 0
            entry[_USED] = 1
            entry[PRODUCER_ID] = row[headers.PRODUCER_ID]
            entry[FIRST] = -1
            totals[PRODUCERS] += 1
        if not is_control:
            if entry[FIRST] < 0:
                entry[FIRST] = row[headers.BASE_OFFSET]
                entry[RECORDS] = 0
                entry[START_MS] = row[headers.BASE_TIMESTAMP]
                entry[FATE] = UNDECIDED
                entry[MARKER] = -1
            entry[EPOCH] = row[headers.PRODUCER_EPOCH]
            entry[RECORDS] += records
            continue
        entry[FATE] = row[headers.CONTROL_TYPE]
        entry[MARKER] = row[headers.BASE_OFFSET]
        if not entry[_SEEN_MARKER]:
            entry[_SEEN_MARKER] = 1
            if entry[FIRST] < 0:
                entry[EPOCH] = row[headers.PRODUCER_EPOCH]
                entry[RECORDS] = 0
            entry[_HEAD:] = entry[:FRAGMENT_COLUMNS]
        elif entry[FIRST] >= 0:
            if entry[FATE] == COMMIT:
                totals[COMMITTED] += counted
                totals[COMMITTED_RECORDS] += entry[RECORDS]
            else:
                totals[ABORTED] += counted
                totals[ABORTED_RECORDS] += entry[RECORDS]
                aborted[aborted_count, 0] = entry[PRODUCER_ID]
                aborted[aborted_count, 1] = entry[FIRST]
                aborted[aborted_count, 2] = row[headers.BASE_OFFSET]
                aborted_count += 1
        entry[FIRST] = -1
    return aborted_count


class RangeResolver:
    """Feeds the header rows of one range, in order, to the kernel; then tells what the range knows."""

    def __init__(self, log_start: int) -> None:
        self._log_start = log_start
        self._table = np.zeros((_FIRST_CAPACITY, _TABLE_COLUMNS), dtype=np.int64)
        self._aborted = np.empty((_FIRST_CAPACITY, ABORTED_COLUMNS), dtype=np.int64)
        self._aborted_count = 0
        self.totals = np.zeros(TOTALS, dtype=np.int64)

    def add(self, rows: Longs) -> None:
        """Take the next header rows."""
        self._make_room(len(rows))
        self._aborted_count = resolve_rows(
            rows, self._log_start, self._table, self.totals, self._aborted, self._aborted_count
        )

    @property
    def aborted(self) -> Longs:
        """(producer id, first offset, marker offset) of the transactions that begin and are aborted in the range."""
        return self._aborted[: self._aborted_count].copy()

    def fragments(self) -> Longs:
        """Heads, then tails: rows of the fragment columns."""
        used = self._table[self._table[:, _USED] == 1]
        heads = used[used[:, _SEEN_MARKER] == 1][:, _HEAD:]
        tails = used[used[:, FIRST] >= 0][:, :FRAGMENT_COLUMNS]
        return np.concatenate([heads, tails])

    def _make_room(self, rows: int) -> None:
        capacity = len(self._table)
        while capacity < 2 * (self.totals[PRODUCERS] + rows):
            capacity *= 2
        if capacity > len(self._table):
            table = np.zeros((capacity, _TABLE_COLUMNS), dtype=np.int64)
            rehash(self._table, table)
            self._table = table
        if self._aborted_count + rows > len(self._aborted):
            grown = np.empty((2 * (self._aborted_count + rows), ABORTED_COLUMNS), dtype=np.int64)
            grown[: self._aborted_count] = self._aborted[: self._aborted_count]
            self._aborted = grown
