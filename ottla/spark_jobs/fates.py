"""The fate of every transaction of a partition, merged from what its ranges know. pure

Last stable offset as `ProducerStateManager.firstUnstableOffset` gives it: the first offset of the earliest open
transaction, not below the log start. One replica: the high watermark is the end of the valid log.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ottla.protocol.batch import COMMIT
from ottla.spark_jobs import resolve
from ottla.spark_jobs.damage import Damage
from ottla.spark_jobs.kernels import Longs


class RangeFates(NamedTuple):
    """What one range of a partition knows: totals, aborted ranges and fragments as `resolve` lays them out."""

    totals: Longs
    aborted: Longs
    fragments: Longs
    damage: tuple[Damage, ...]
    torn: tuple[Damage, ...]


class OpenTransaction(NamedTuple):
    """A transaction without a marker. `start_ms`: base timestamp of its first batch at hand, -1 if none is."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    records: int
    start_ms: int


@dataclass(slots=True)
class Tally:
    """Transactions that have batches in the log, and the records in these."""

    transactions: int = 0
    records: int = 0

    def add(self, transactions: int, records: int) -> None:
        self.transactions += transactions
        self.records += records


@dataclass(slots=True)
class PartitionFates:
    """The resolved partition. `aborted_ranges`: rows (producer id, first offset, marker offset), sorted."""

    log_start: int
    high_watermark: int
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


def merge_ranges(
    ranges: Sequence[RangeFates], log_start: int, log_end: int, below: Iterable[OpenTransaction] = ()
) -> PartitionFates:
    """Resolve a partition from its ranges in order.

    `log_end` is the least the end can be (the last segment's base offset); `below` are transactions that a producer
    snapshot knows to have begun before the first batch at hand.
    """
    committed, aborted = Tally(), Tally()
    ended: list[tuple[int, int, int]] = []
    still_open: dict[int, OpenTransaction] = {one.producer_id: one for one in below}
    for part in ranges:
        for fragment in part.fragments.tolist():
            producer_id = fragment[resolve.PRODUCER_ID]
            transaction = _joined(still_open.pop(producer_id, None), fragment)
            if fragment[resolve.FATE] == resolve.UNDECIDED:
                assert transaction is not None
                still_open[producer_id] = transaction
                continue
            marker = fragment[resolve.MARKER]
            if transaction is None or transaction.start_ms == _NOT_HERE:
                continue
            is_commit = fragment[resolve.FATE] == COMMIT
            (committed if is_commit else aborted).add(marker >= log_start, transaction.records)
            if not is_commit:
                ended.append((producer_id, transaction.first_offset, marker))
    totals = np.sum([part.totals for part in ranges], axis=0) if ranges else np.zeros(resolve.TOTALS, dtype=np.int64)
    committed.add(int(totals[resolve.COMMITTED]), int(totals[resolve.COMMITTED_RECORDS]))
    aborted.add(int(totals[resolve.ABORTED]), int(totals[resolve.ABORTED_RECORDS]))
    high_watermark = max([log_end, log_start, *(int(part.totals[resolve.NEXT_OFFSET]) for part in ranges)])
    open_now = tuple(sorted(still_open.values(), key=lambda one: one.first_offset))
    return PartitionFates(
        log_start=log_start,
        high_watermark=high_watermark,
        last_stable_offset=max(log_start, open_now[0].first_offset) if open_now else high_watermark,
        aborted_ranges=_sorted_ranges([part.aborted for part in ranges], ended),
        open_transactions=open_now,
        committed=committed,
        aborted=aborted,
        opened=Tally(len(open_now), sum(one.records for one in open_now)),
        plain_records=int(totals[resolve.PLAIN_RECORDS]),
        control_batches=int(totals[resolve.CONTROL_BATCHES]),
        batches=int(totals[resolve.BATCHES]),
        size_bytes=int(totals[resolve.BYTES]),
        damage=tuple(damage for part in ranges for damage in part.damage),
        torn=tuple(tail for part in ranges for tail in part.torn),
    )


# `start_ms` of a transaction of which no batch has been met.
_NOT_HERE = -(2**63)


def known_from_snapshot(producer_id: int, producer_epoch: int, first_offset: int) -> OpenTransaction:
    """An open transaction that began below the first batch at hand."""
    return OpenTransaction(producer_id, producer_epoch, first_offset, 0, _NOT_HERE)


def _joined(before: OpenTransaction | None, fragment: list[int]) -> OpenTransaction | None:
    """The transaction of earlier ranges with this range's part of it; None if neither has a batch."""
    first = fragment[resolve.FIRST]
    if first < 0:
        return before
    epoch, records, start_ms = fragment[resolve.EPOCH], fragment[resolve.RECORDS], fragment[resolve.START_MS]
    if before is None:
        return OpenTransaction(fragment[resolve.PRODUCER_ID], epoch, first, records, start_ms)
    return before._replace(
        producer_epoch=epoch,
        records=before.records + records,
        start_ms=start_ms if before.start_ms == _NOT_HERE else before.start_ms,
    )


def _sorted_ranges(inside: list[Longs], across: list[tuple[int, int, int]]) -> Longs:
    found = np.concatenate([*inside, np.array(across, dtype=np.int64).reshape(-1, resolve.ABORTED_COLUMNS)])
    return found[np.lexsort((found[:, 1], found[:, 0]))]
