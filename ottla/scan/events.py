"""Kernel over header rows that follows producers, ends transactions and checks batches. pure

Source: `org.apache.kafka.storage.internals.log.ProducerAppendInfo`, `ProducerStateEntry`, `ProducerStateManager`.
"""

import numpy as np

from ottla.protocol.batch import ABORT, COMMIT
from ottla.protocol.batch_header import DELETE_HORIZON, MAX_SEQUENCE, TIMESTAMP_TYPE, TRANSACTIONAL
from ottla.scan import headers, states
from ottla.scan.compiled.kernels import Long, Longs, inline, kernel
from ottla.scan.states import States, Table, slot_of

# Columns of `ended`: a row for every COMMIT and ABORT marker.
ENDED_PRODUCER_ID = 0
ENDED_EPOCH = 1  # of the transaction's data; of the marker if no transaction was open
ENDED_FIRST_OFFSET = 2  # -1: no transaction was open
ENDED_LAST_OFFSET = 3  # of the transaction's data in the log, -1: none
ENDED_MARKER_OFFSET = 4
ENDED_FATE = 5  # ABORT or COMMIT of protocol.batch
ENDED_MARKER_EPOCH = 6
ENDED_COORDINATOR_EPOCH = 7
ENDED_RECORDS = 8
ENDED_BYTES = 9
ENDED_BATCHES = 10
ENDED_START_MS = 11  # base timestamp of the transaction's first batch, -1: unknown
ENDED_END_MS = 12
ENDED_SEGMENT = 13
ENDED_POSITION = 14
ENDED_LAST_STABLE_OFFSET = 15  # as in `.txnindex`: without the transaction that this marker ends
ENDED_COLUMNS = 16

# Columns of `anomalies`. EXPECTED and FOUND are sequences or epochs, by kind. Only EMPTY_COMMIT sets the last three.
ANOMALY_KIND = 0
ANOMALY_PRODUCER_ID = 1
ANOMALY_EPOCH = 2
ANOMALY_OFFSET = 3
ANOMALY_POSITION = 4
ANOMALY_SEGMENT = 5
ANOMALY_EXPECTED = 6
ANOMALY_FOUND = 7
ANOMALY_TIME_MS = 8
ANOMALY_ABORT_OFFSET = 9
ANOMALY_LAST_OFFSET = 10  # of the batch that was aborted
ANOMALY_COLUMNS = 11

SEQUENCE_GAP = 0  # sequences were left out, and no missing offsets explain it
SEQUENCE_DUPLICATE = 1  # an earlier batch of this epoch has the base sequence
SEQUENCE_RESTART = 2  # a new epoch begins at another sequence than 0
ZOMBIE_EPOCH = 3  # data of an older epoch than data seen before
ZOMBIE_AFTER_MARKER = 4  # data of an older epoch than a marker that fenced it
ZOMBIE_MARKER = 5  # a marker of an older epoch than seen before
COORDINATOR_EPOCH_BACK = 6  # a marker of an older coordinator than the marker before it
PLAIN_IN_TRANSACTION = 7  # a batch that is not transactional, though the producer has an open transaction
EPOCH_IN_TRANSACTION = 8  # transactional data of a newer epoch, though no marker ended the open transaction
# A COMMIT without an open transaction, after an abort of the producer's last data batch, of the same epoch. EXPECTED
# is the next sequence, FOUND the first sequence of that batch.
EMPTY_COMMIT = 9
KINDS = (
    "sequence gap",
    "duplicate sequence",
    "sequence not restarted",
    "zombie epoch",
    "zombie after marker",
    "zombie marker",
    "coordinator epoch went back",
    "plain batch in a transaction",
    "newer epoch in a transaction",
    "commit without records after an abort",
)

# Columns of `gaps`: offsets [FROM, TO) are missing before the first batch of SEGMENT after them.
GAP_FROM = 0
GAP_TO = 1
GAP_SEGMENT = 2
GAP_COLUMNS = 3

# Totals of a walk, of the batches (transactions: of the markers) at or after the log start.
BATCHES = 0
BYTES = 1
PLAIN_RECORDS = 2
CONTROL_BATCHES = 3
COMMITTED = 4  # transactions that have batches in the log
COMMITTED_RECORDS = 5
ABORTED = 6
ABORTED_RECORDS = 7
DATA_RECORDS = 8
MISSING_IN_BATCHES = 9  # records that compaction removed from batches
EXPLAINED_GAPS = 10  # gaps in sequences that missing offsets or an expired producer explain
TOTALS = 11


# State of a walk: number of producer states, ends of the list of open transactions, lengths of the three outputs.
_COUNT = 0
_FIRST_OPEN = 1
_LAST_OPEN = 2
_FIRST_BATCH = 3
_NEXT_OFFSET = 4
_MISSING = 5
_CLOCK = 6
_ENDED = 7
_ANOMALIES = 8
_GAPS = 9
_FACTS = 10


class Follower:
    """Passes header rows, in order, to the kernel. Results are valid until the next call."""

    def __init__(self, entering: States, log_start: int, expiration_ms: int, *, has_sequences: bool) -> None:
        """`has_sequences`: False for a coordinator's topic, where all batches of a producer begin at sequence 0."""
        self._constants = log_start, expiration_ms, int(has_sequences)
        self._table = Table(entering)
        self._table.rows[: self._table.count, states.MISSING_SINCE] *= -1
        self._facts = np.zeros(_FACTS, dtype=np.int64)
        self._facts[[_FIRST_OPEN, _LAST_OPEN]] = self._table.link_open()
        self._facts[[_FIRST_BATCH, _NEXT_OFFSET, _CLOCK]] = -1, entering.next_offset, entering.clock_ms
        self._facts[_COUNT] = self._table.count
        self._make_room(_FIRST_ROWS)
        self.totals: Longs = np.zeros(TOTALS, dtype=np.int64)

    @property
    def next_offset(self) -> int:
        """The offset after the last batch; 0 if it is unknown."""
        return max(int(self._facts[_NEXT_OFFSET]), 0)

    def follow(self, rows: Longs, file_position: int, segment: int) -> tuple[Longs, Longs, Longs]:
        """Return (ended, anomalies, gaps) of the next header rows, all of one segment."""
        if len(rows) > len(self._ended):
            self._make_room(len(rows))
        facts, table = self._facts, self._table
        facts[_ENDED:] = 0
        where = np.array([file_position, segment, *self._constants], dtype=np.int64)
        out = self._ended, self._anomalies, self._gaps
        taken = follow_rows(rows, 0, where, table.rows, table.slots, facts, self.totals, *out)
        while taken < len(rows):
            table.count = int(facts[_COUNT])
            table.grow()
            taken = follow_rows(rows, taken, where, table.rows, table.slots, facts, self.totals, *out)
        return self._ended[: facts[_ENDED]], self._anomalies[: facts[_ANOMALIES]], self._gaps[: facts[_GAPS]]

    def leaving(self) -> States:
        """Return the states after the last batch."""
        facts = self._facts
        self._table.count = int(facts[_COUNT])
        rows = self._table.copy()
        rows[:, states.MISSING_SINCE] = facts[_MISSING] - rows[:, states.MISSING_SINCE]
        return States(rows, *(int(facts[fact]) for fact in (_FIRST_BATCH, _NEXT_OFFSET, _MISSING, _CLOCK)))

    def _make_room(self, rows: int) -> None:
        self._ended: Longs = np.empty((rows, ENDED_COLUMNS), dtype=np.int64)
        # A batch has at most two anomalies.
        self._anomalies: Longs = np.empty((2 * rows, ANOMALY_COLUMNS), dtype=np.int64)
        self._gaps: Longs = np.empty((rows, GAP_COLUMNS), dtype=np.int64)


_FIRST_ROWS = 512

# Values that are the same for all rows of a call.
_FILE_POSITION = 0
_SEGMENT = 1
_LOG_START = 2
_EXPIRATION_MS = 3
_HAS_SEQUENCES = 4


@kernel
def follow_rows(
    rows: Longs,
    start: Long,
    where: Longs,
    table: Longs,
    slots: Longs,
    facts: Longs,
    totals: Longs,
    ended: Longs,
    anomalies: Longs,
    gaps: Longs,
) -> Long:
    """Follow `rows` from `start` on. Return the index of the first row for which `table` is full, else len(rows)."""
    log_start = where[_LOG_START]
    for index in range(start, rows.shape[0]):
        row = rows[index]
        producer_id = row[headers.PRODUCER_ID]
        if producer_id >= 0 and facts[_COUNT] == table.shape[0]:
            return index
        _advance(row, log_start, where, facts, gaps)
        counted = row[headers.LAST_OFFSET] >= log_start
        is_data = row[headers.CONTROL_TYPE] == headers.NOT_CONTROL
        if counted:
            _count(row, is_data, totals)
        if producer_id < 0 or not (is_data or row[headers.CONTROL_TYPE] >= 0):
            continue
        if not is_data and row[headers.CONTROL_TYPE] != ABORT and row[headers.CONTROL_TYPE] != COMMIT:
            continue
        slot = slot_of(table, slots, producer_id)
        if slots[slot] == 0:
            _add_state(table, producer_id, facts)
            slots[slot] = facts[_COUNT]
        at = slots[slot] - 1
        state = table[at]
        if is_data:
            _judge_batch(row, state, where, facts, totals, anomalies)
            _follow_batch(row, state, at, counted, table, facts)
        else:
            _judge_marker(row, state, where, facts, anomalies)
            _follow_marker(row, state, counted, where, table, facts, totals, ended)
    return rows.shape[0]


@inline
def _advance(row: Longs, log_start: Long, where: Longs, facts: Longs, gaps: Longs) -> None:
    """Advance the offsets and the clock. Add a gap if offsets before the batch are missing."""
    base, expected = row[headers.BASE_OFFSET], facts[_NEXT_OFFSET]
    if base > expected >= 0:
        facts[_MISSING] += base - expected
        if base > log_start:
            gap = gaps[facts[_GAPS]]
            gap[GAP_FROM], gap[GAP_TO], gap[GAP_SEGMENT] = max(expected, log_start), base, where[_SEGMENT]
            facts[_GAPS] += 1
    if facts[_FIRST_BATCH] < 0:
        facts[_FIRST_BATCH] = base
    facts[_NEXT_OFFSET] = row[headers.LAST_OFFSET] + 1
    if row[headers.CONTROL_TYPE] != headers.NOT_CONTROL or row[headers.ATTRIBUTES] & TIMESTAMP_TYPE:
        facts[_CLOCK] = max(facts[_CLOCK], row[headers.MAX_TIMESTAMP])


@inline
def _count(row: Longs, is_data: bool, totals: Longs) -> None:
    totals[BATCHES] += 1
    totals[BYTES] += row[headers.SIZE]
    records = row[headers.RECORD_COUNT]
    if not is_data:
        totals[CONTROL_BATCHES] += 1
        return
    totals[DATA_RECORDS] += records
    totals[MISSING_IN_BATCHES] += row[headers.LAST_OFFSET] - row[headers.BASE_OFFSET] + 1 - records
    if not row[headers.ATTRIBUTES] & TRANSACTIONAL:
        totals[PLAIN_RECORDS] += records


@inline
def _add_state(table: Longs, producer_id: Long, facts: Longs) -> None:
    state = table[facts[_COUNT]]
    for column in range(states.COLUMNS):
        state[column] = -1
    state[states.PRODUCER_ID] = producer_id
    state[states.OFFSET_DELTA] = 0
    state[states.OPEN_RECORDS] = 0
    state[states.OPEN_BYTES] = 0
    state[states.OPEN_BATCHES] = 0
    state[states.MISSING_SINCE] = facts[_MISSING]
    state[states.FIRST_CLOCK] = states.NEVER
    state[states.FLAGS] = 0
    facts[_COUNT] += 1


# The two that follow are called and not inlined: they are rare, and each inlined copy takes as long to compile.
@kernel
def _note(kind: Long, expected: Long, found: Long, row: Longs, where: Longs, facts: Longs, anomalies: Longs) -> None:
    out = anomalies[facts[_ANOMALIES]]
    out[ANOMALY_KIND] = kind
    out[ANOMALY_PRODUCER_ID] = row[headers.PRODUCER_ID]
    out[ANOMALY_EPOCH] = row[headers.PRODUCER_EPOCH]
    out[ANOMALY_OFFSET] = row[headers.BASE_OFFSET]
    out[ANOMALY_POSITION] = where[_FILE_POSITION] + row[headers.POSITION]
    out[ANOMALY_SEGMENT] = where[_SEGMENT]
    out[ANOMALY_EXPECTED] = expected
    out[ANOMALY_FOUND] = found
    out[ANOMALY_TIME_MS] = out[ANOMALY_ABORT_OFFSET] = out[ANOMALY_LAST_OFFSET] = 0
    facts[_ANOMALIES] += 1


@inline
def _judge_batch(row: Longs, state: Longs, where: Longs, facts: Longs, totals: Longs, anomalies: Longs) -> None:
    """Check the epoch and sequence of a data batch against earlier batches (`ProducerAppendInfo.checkSequence`)."""
    epoch, highest = row[headers.PRODUCER_EPOCH], state[states.HIGHEST_EPOCH]
    clock = max(facts[_CLOCK], row[headers.MAX_TIMESTAMP])
    is_known = state[states.FLAGS] & (states.SEEN_BATCH | states.SEEN_MARKER) != 0
    if not row[headers.ATTRIBUTES] & TRANSACTIONAL and state[states.FIRST_OFFSET] >= 0:
        _note(PLAIN_IN_TRANSACTION, state[states.FIRST_OFFSET], row[headers.BASE_OFFSET], row, where, facts, anomalies)
    if epoch < highest:
        after_marker = state[states.LAST_MARKER_EPOCH] == highest
        _note(ZOMBIE_AFTER_MARKER if after_marker else ZOMBIE_EPOCH, highest, epoch, row, where, facts, anomalies)
        return
    if epoch > highest:
        if row[headers.ATTRIBUTES] & TRANSACTIONAL and state[states.OPEN_BATCHES] > 0:
            _note(EPOCH_IN_TRANSACTION, highest, epoch, row, where, facts, anomalies)
        _raise_epoch(state, epoch)
    sequence, expected = row[headers.BASE_SEQUENCE], state[states.EXPECTED_SEQUENCE]
    if sequence < 0 or not where[_HAS_SEQUENCES]:
        return
    if not is_known:
        state[states.FIRST_CLOCK] = clock
    forgotten = (
        is_known
        and state[states.FIRST_OFFSET] < 0
        and np.int64(clock) - state[states.LAST_TIMESTAMP] >= where[_EXPIRATION_MS]
    )
    following = (sequence + row[headers.LAST_OFFSET] - row[headers.BASE_OFFSET] + 1) & MAX_SEQUENCE
    if forgotten:
        state[states.FLAGS] |= states.FORGOTTEN
    if expected >= 0 and sequence != expected:
        is_restart = state[states.FLAGS] & states.SEQUENCED == 0
        ahead = (sequence - expected) & MAX_SEQUENCE
        if forgotten:
            totals[EXPLAINED_GAPS] += 1
        elif not is_restart and ahead >= states.HALF_CIRCLE:
            _note(SEQUENCE_DUPLICATE, expected, sequence, row, where, facts, anomalies)
            if (following - expected) & MAX_SEQUENCE >= states.HALF_CIRCLE:
                following = expected
        elif facts[_MISSING] - state[states.MISSING_SINCE] >= ahead:
            totals[EXPLAINED_GAPS] += 1
        else:
            kind = SEQUENCE_RESTART if is_restart else SEQUENCE_GAP
            _note(kind, expected, sequence, row, where, facts, anomalies)
    state[states.EXPECTED_SEQUENCE] = following
    state[states.FLAGS] |= states.SEQUENCED


@inline
def _raise_epoch(state: Longs, epoch: Long) -> None:
    """Set a new epoch, which begins at sequence 0. A new producer may begin at any sequence."""
    state[states.EXPECTED_SEQUENCE] = 0 if state[states.HIGHEST_EPOCH] >= 0 else -1
    state[states.HIGHEST_EPOCH] = epoch
    state[states.FLAGS] &= ~states.SEQUENCED


@inline
def _follow_batch(row: Longs, state: Longs, at: Long, counted: bool, table: Longs, facts: Longs) -> None:
    """Update the broker's producer entry (`ProducerStateEntry.addBatch`) and the open transaction."""
    epoch, base, last = row[headers.PRODUCER_EPOCH], row[headers.BASE_OFFSET], row[headers.LAST_OFFSET]
    sequence = row[headers.BASE_SEQUENCE]
    if state[states.EPOCH] >= 0 and state[states.EPOCH] != epoch:
        state[states.FLAGS] |= states.EPOCH_CHANGED
    state[states.EPOCH] = epoch
    state[states.LAST_SEQUENCE] = (sequence + last - base) & MAX_SEQUENCE if sequence >= 0 else -1
    state[states.LAST_OFFSET] = last
    state[states.OFFSET_DELTA] = last - base
    state[states.LAST_TIMESTAMP] = row[headers.MAX_TIMESTAMP]
    state[states.MISSING_SINCE] = facts[_MISSING]
    state[states.FLAGS] |= states.SEEN_BATCH
    state[states.ABORTED_AT] = states.NO_MARKER
    if not row[headers.ATTRIBUTES] & TRANSACTIONAL:
        return
    if state[states.FIRST_OFFSET] < 0:
        state[states.FIRST_OFFSET] = base
        state[states.OPEN_RECORDS], state[states.OPEN_BYTES], state[states.OPEN_BATCHES] = 0, 0, 0
        state[states.PREVIOUS_OPEN], state[states.NEXT_OPEN] = facts[_LAST_OPEN], -1
        if facts[_LAST_OPEN] >= 0:
            table[facts[_LAST_OPEN], states.NEXT_OPEN] = at
        else:
            facts[_FIRST_OPEN] = at
        facts[_LAST_OPEN] = at
    if state[states.OPEN_BATCHES] == 0:
        base_is_time = not row[headers.ATTRIBUTES] & DELETE_HORIZON and row[headers.BASE_TIMESTAMP] >= 0
        state[states.OPEN_START_MS] = row[headers.BASE_TIMESTAMP] if base_is_time else row[headers.MAX_TIMESTAMP]
    state[states.OPEN_LAST_OFFSET] = last
    state[states.OPEN_EPOCH] = epoch
    state[states.OPEN_BATCHES] += 1
    if counted:
        state[states.OPEN_RECORDS] += row[headers.RECORD_COUNT]
        state[states.OPEN_BYTES] += row[headers.SIZE]


@inline
def _judge_marker(row: Longs, state: Longs, where: Longs, facts: Longs, anomalies: Longs) -> None:
    """Check the epochs of a marker (`ProducerAppendInfo.appendEndTxnMarker`)."""
    epoch, coordinator_epoch = row[headers.PRODUCER_EPOCH], row[headers.COORDINATOR_EPOCH]
    if epoch < state[states.HIGHEST_EPOCH]:
        _note(ZOMBIE_MARKER, state[states.HIGHEST_EPOCH], epoch, row, where, facts, anomalies)
    elif epoch > state[states.HIGHEST_EPOCH]:
        _raise_epoch(state, epoch)
    if state[states.LAST_MARKER_OFFSET] >= 0 and coordinator_epoch < state[states.COORDINATOR_EPOCH]:
        before = state[states.COORDINATOR_EPOCH]
        _note(COORDINATOR_EPOCH_BACK, before, coordinator_epoch, row, where, facts, anomalies)
    if row[headers.CONTROL_TYPE] == COMMIT and state[states.ABORTED_AT] >= 0:
        _judge_empty_commit(row, state, where, facts, anomalies)


@kernel
def _judge_empty_commit(row: Longs, state: Longs, where: Longs, facts: Longs, anomalies: Longs) -> None:
    """Check a COMMIT after an ABORT without a batch between them: the broker may have dropped a batch as a duplicate.

    `ProducerStateEntry.findDuplicateBatch` also matches an aborted batch that has the same sequences and epoch.
    A COMMIT of another epoch is no anomaly. Where offsets are missing, compaction may have removed the records.
    """
    epoch = row[headers.PRODUCER_EPOCH]
    is_same_epoch = epoch == state[states.EPOCH] and epoch == state[states.HIGHEST_EPOCH]
    last_sequence = state[states.LAST_SEQUENCE]
    is_in_log = state[states.FLAGS] & states.SEEN_BATCH != 0 and facts[_MISSING] == state[states.MISSING_SINCE]
    if last_sequence < 0 or not is_same_epoch or not is_in_log or not where[_HAS_SEQUENCES]:
        return
    out = anomalies[facts[_ANOMALIES]]
    first_sequence = (last_sequence - state[states.OFFSET_DELTA]) & MAX_SEQUENCE
    due = (last_sequence + 1) & MAX_SEQUENCE
    _note(EMPTY_COMMIT, due, first_sequence, row, where, facts, anomalies)
    out[ANOMALY_TIME_MS] = row[headers.MAX_TIMESTAMP]
    out[ANOMALY_ABORT_OFFSET], out[ANOMALY_LAST_OFFSET] = state[states.ABORTED_AT], state[states.LAST_OFFSET]


@inline
def _follow_marker(
    row: Longs, state: Longs, counted: bool, where: Longs, table: Longs, facts: Longs, totals: Longs, ended: Longs
) -> None:
    """End the open transaction, if any, and update the broker's producer entry."""
    out = ended[facts[_ENDED]]
    facts[_ENDED] += 1
    epoch, marker, fate = row[headers.PRODUCER_EPOCH], row[headers.BASE_OFFSET], row[headers.CONTROL_TYPE]
    out[ENDED_PRODUCER_ID], out[ENDED_MARKER_OFFSET], out[ENDED_FATE] = row[headers.PRODUCER_ID], marker, fate
    out[ENDED_MARKER_EPOCH], out[ENDED_COORDINATOR_EPOCH] = epoch, row[headers.COORDINATOR_EPOCH]
    out[ENDED_END_MS] = row[headers.MAX_TIMESTAMP]
    out[ENDED_SEGMENT], out[ENDED_POSITION] = where[_SEGMENT], where[_FILE_POSITION] + row[headers.POSITION]
    out[ENDED_FIRST_OFFSET] = state[states.FIRST_OFFSET]
    if state[states.FIRST_OFFSET] >= 0:
        _take_open(state, out, table, facts)
        if counted and out[ENDED_BATCHES] > 0:
            totals[COMMITTED if fate == COMMIT else ABORTED] += 1
            totals[COMMITTED_RECORDS if fate == COMMIT else ABORTED_RECORDS] += out[ENDED_RECORDS]
    else:
        out[ENDED_EPOCH], out[ENDED_LAST_OFFSET], out[ENDED_START_MS] = epoch, -1, -1
        out[ENDED_RECORDS], out[ENDED_BYTES], out[ENDED_BATCHES] = 0, 0, 0
    first_open = facts[_FIRST_OPEN]
    out[ENDED_LAST_STABLE_OFFSET] = table[first_open, states.FIRST_OFFSET] if first_open >= 0 else marker + 1
    if state[states.EPOCH] != epoch:
        if state[states.EPOCH] >= 0:
            state[states.FLAGS] |= states.EPOCH_CHANGED
        state[states.EPOCH] = epoch
        state[states.LAST_SEQUENCE], state[states.LAST_OFFSET], state[states.OFFSET_DELTA] = -1, -1, 0
    state[states.COORDINATOR_EPOCH] = row[headers.COORDINATOR_EPOCH]
    state[states.LAST_TIMESTAMP] = row[headers.MAX_TIMESTAMP]
    state[states.LAST_MARKER_OFFSET] = marker
    state[states.LAST_MARKER_TYPE] = fate
    state[states.LAST_MARKER_EPOCH] = epoch
    if fate == COMMIT:
        state[states.ABORTED_AT] = states.HAS_COMMITTED
    elif state[states.ABORTED_AT] == states.NO_MARKER:
        state[states.ABORTED_AT] = marker
    state[states.FLAGS] |= states.SEEN_MARKER


@inline
def _take_open(state: Longs, out: Longs, table: Longs, facts: Longs) -> None:
    """Move the open transaction of `state` from the list to the row `out`."""
    out[ENDED_EPOCH], out[ENDED_LAST_OFFSET] = state[states.OPEN_EPOCH], state[states.OPEN_LAST_OFFSET]
    out[ENDED_RECORDS], out[ENDED_BYTES] = state[states.OPEN_RECORDS], state[states.OPEN_BYTES]
    out[ENDED_BATCHES], out[ENDED_START_MS] = state[states.OPEN_BATCHES], state[states.OPEN_START_MS]
    before, after = state[states.PREVIOUS_OPEN], state[states.NEXT_OPEN]
    if before >= 0:
        table[before, states.NEXT_OPEN] = after
    else:
        facts[_FIRST_OPEN] = after
    if after >= 0:
        table[after, states.PREVIOUS_OPEN] = before
    else:
        facts[_LAST_OPEN] = before
    for column in range(states.FIRST_OFFSET, states.OPEN_EPOCH + 1):
        state[column] = -1
    for column in range(states.OPEN_RECORDS, states.OPEN_BATCHES + 1):
        state[column] = 0
    state[states.PREVIOUS_OPEN] = state[states.NEXT_OPEN] = -1
