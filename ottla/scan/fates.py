"""Fates of the transactions of a partition, merged from the walks over its ranges. pure

The last stable offset is that of `ProducerStateManager.firstUnstableOffset`: the first offset of the earliest open
transaction, not below the log start. The log is that of one replica, so all valid batches are below the high watermark.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ottla.protocol.batch import ABORT
from ottla.scan import events, states
from ottla.scan.compiled.kernels import Longs
from ottla.scan.damage_log import Damage
from ottla.scan.states import States

ABORTED_COLUMNS = 3  # producer id, first offset, marker offset


class RangeFates(NamedTuple):
    """Results of a walk over one range: totals (columns of `events`), aborted ranges, and the states at its end."""

    totals: Longs
    aborted: Longs
    leaving: States
    damage: tuple[Damage, ...]
    torn: tuple[Damage, ...]


class OpenTransaction(NamedTuple):
    """A transaction without a marker. `start_ms`: base timestamp of its first batch in the log, -1 without batches."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    records: int
    start_ms: int


@dataclass(slots=True)
class Tally:
    """Number of transactions that have batches in the log, and of their records."""

    transactions: int = 0
    records: int = 0


@dataclass(slots=True)
class PartitionFates:
    """Fates of a partition. `aborted_ranges`: rows (producer id, first offset, marker offset), sorted.

    `is_counted`: False if the fates are from indexes, which have aborted ranges but no counts. The counts are then 0,
    or those of the scanned tail.
    """

    log_start: int
    log_end: int
    last_stable_offset: int
    aborted_ranges: Longs
    open_transactions: tuple[OpenTransaction, ...]
    committed: Tally = field(default_factory=Tally)
    aborted: Tally = field(default_factory=Tally)
    opened: Tally = field(default_factory=Tally)
    plain_records: int = 0
    control_batches: int = 0
    batches: int = 0
    size_bytes: int = 0
    damage: tuple[Damage, ...] = ()
    torn: tuple[Damage, ...] = ()
    is_counted: bool = True


def aborted_of(ended: Longs) -> Longs:
    """Return (producer id, first offset, marker offset) of the aborted transactions among rows of `ended`."""
    found: Longs = ended[(ended[:, events.ENDED_FATE] == ABORT) & (ended[:, events.ENDED_FIRST_OFFSET] >= 0)]
    return found[:, [events.ENDED_PRODUCER_ID, events.ENDED_FIRST_OFFSET, events.ENDED_MARKER_OFFSET]]


def open_of(row: Longs) -> OpenTransaction:
    """Return the open transaction of a producer's state."""
    columns = states.PRODUCER_ID, states.OPEN_EPOCH, states.FIRST_OFFSET, states.OPEN_RECORDS, states.OPEN_START_MS
    return OpenTransaction(*(int(row[column]) for column in columns))


def merge_ranges(ranges: Sequence[RangeFates], leaving: States, log_start: int, last_base: int) -> PartitionFates:
    """Merge the ranges of a partition, in order. Each walk began with the states at the end of the range before.

    `leaving`: the states at the end of the log; `last_base`: the last segment's base offset, the smallest log end.
    """
    totals = np.sum([part.totals for part in ranges], axis=0) if ranges else np.zeros(events.TOTALS, dtype=np.int64)
    found = np.concatenate([*(part.aborted for part in ranges), np.empty((0, ABORTED_COLUMNS), dtype=np.int64)])
    log_end = max(last_base, log_start, leaving.next_offset)
    open_now = tuple(open_of(row) for row in leaving.open_rows)
    return PartitionFates(
        log_start=log_start,
        log_end=log_end,
        last_stable_offset=max(log_start, open_now[0].first_offset) if open_now else log_end,
        aborted_ranges=found[np.lexsort((found[:, 1], found[:, 0]))],
        open_transactions=open_now,
        committed=Tally(int(totals[events.COMMITTED]), int(totals[events.COMMITTED_RECORDS])),
        aborted=Tally(int(totals[events.ABORTED]), int(totals[events.ABORTED_RECORDS])),
        opened=Tally(len(open_now), sum(one.records for one in open_now)),
        plain_records=int(totals[events.PLAIN_RECORDS]),
        control_batches=int(totals[events.CONTROL_BATCHES]),
        batches=int(totals[events.BATCHES]),
        size_bytes=int(totals[events.BYTES]),
        damage=tuple(damage for part in ranges for damage in part.damage),
        torn=tuple(tail for part in ranges for tail in part.torn),
    )
