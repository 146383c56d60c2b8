"""Counts of transactions, each counted once, however many partitions it is in. pure

A marker that carries out a decision of the coordinator belongs to the transaction of that decision. Without the
decision, a marker of transactions V2 (KIP-890) or of an abort by fencing belongs to the only transaction with its
producer id and epoch. Many transactions V1 share both. A partition has one marker of each transaction. So the largest
number of markers with that producer id, epoch and kind in a partition is a lower bound; with one partition it is exact.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ottla.audit.checks import across, history, torn
from ottla.audit.checks.words import count
from ottla.scan import events
from ottla.scan.compiled.kernels import Longs

# A key consists of the producer id, the epoch of the marker and, in the last bit, the kind: 1 is a commit.
_NO_COUNTS = np.empty((0, 2), dtype=np.int64)


class Ended(NamedTuple):
    """Number of transactions that ended; a lower bound if not exact. `in_partitions` counts one for each partition."""

    many: int = 0
    is_exact: bool = True
    in_partitions: int = 0


class Outcome(NamedTuple):
    """Counts of committed and of aborted transactions."""

    committed: Ended = Ended()
    aborted: Ended = Ended()


class Facts(NamedTuple):
    """Markers of one partition that ended a transaction: its decisions and the results of its ranges."""

    decisions: Longs
    matched: Sequence[torn.Matched]
    ends: Sequence[across.Ends]
    shared: Sequence[Longs]
    in_partitions: tuple[int, int]  # aborted and committed


def phrases(outcome: Outcome) -> list[str]:
    """Return `300 transactions committed (946 ends in partitions)` and the same for aborted ones, if any ended."""
    ended = (outcome.committed, "committed"), (outcome.aborted, "aborted")
    return [_phrase(one, how) for one, how in ended] if any(one.in_partitions for one in outcome) else []


def _phrase(ended: Ended, how: str) -> str:
    text = f"{'' if ended.is_exact else 'at least '}{count(ended.many, 'transaction')} {how}"
    if ended.is_exact and ended.many == ended.in_partitions:
        return text
    return f"{text} ({count(ended.in_partitions, 'end')} in partitions)"


def count_markers_by_epoch(ended: Longs) -> Longs:
    """Return rows (key, number of markers) of markers whose producer id and epoch many transactions may share."""
    rows = ended[
        (ended[:, events.ENDED_FIRST_OFFSET] >= 0)
        & (ended[:, events.ENDED_MARKER_EPOCH] != ended[:, events.ENDED_EPOCH] + 1)
    ]
    columns = rows[:, events.ENDED_PRODUCER_ID], rows[:, events.ENDED_MARKER_EPOCH], rows[:, events.ENDED_FATE]
    return _counts(_keys(*columns))


def combine(parts: Iterable[Longs]) -> Longs:
    """Return the sums of counts by key."""
    if not (some := [part for part in parts if len(part)]):
        return _NO_COUNTS
    rows = np.concatenate(some)
    keys, at = np.unique(rows[:, 0], return_inverse=True)
    return np.stack([keys, np.bincount(at, rows[:, 1], len(keys)).astype(np.int64)], axis=1)


def without(counts: Longs, keys: Longs) -> Longs:
    """Return the counts without the rows of these `torn.keys`."""
    kept: Longs = counts[~np.isin(counts[:, 0] >> 1, keys)]
    return kept


def count_once(partitions: Sequence[Facts]) -> Outcome:
    """Count the transactions of all partitions."""
    decided = [_count_by_decision(one) for one in partitions]
    numbers = np.concatenate([np.empty((0, 2), dtype=np.int64), *decided])
    of_decisions = _counts(numbers[np.unique(numbers[:, 1], return_index=True)[1], 0])
    parts = (across.unpack(end) for one in partitions for end in one.ends)
    named = np.unique(np.concatenate([_NO_COUNTS[:, 0], *parts]))
    named = named[~np.isin(named, of_decisions[:, 0])]
    undecided = [combine(one.shared) for one in partitions]
    in_doubt = np.unique(np.concatenate([_NO_COUNTS[:, 0], *(rows[:, 0] for rows in undecided)]))
    seen = []
    for rows, mine in zip(undecided, decided, strict=True):
        seen.append(combine([rows, _counts(mine[np.isin(mine[:, 0], in_doubt), 0])]))
    by_partition = np.concatenate([_NO_COUNTS, *seen])
    keys, places = np.unique(by_partition[:, 0], return_counts=True)
    largest = _largest(np.concatenate([of_decisions, by_partition]))
    counted = combine([largest, np.stack([named, np.ones_like(named)], axis=1)])
    return Outcome(*(_outcome(partitions, counted, keys[places > 1], kind) for kind in (1, 0)))


def _outcome(partitions: Sequence[Facts], counted: Longs, uncertain: Longs, kind: int) -> Ended:
    many = int(counted[counted[:, 0] & 1 == kind, 1].sum())
    in_partitions = sum(one.in_partitions[kind] for one in partitions)
    return Ended(many, not np.any(uncertain & 1 == kind), in_partitions)


def _count_by_decision(one: Facts) -> Longs:
    """Return rows (key, number of the decision's record) for the decisions that ended data in the partition."""
    rows = np.concatenate([np.empty((0, 3), dtype=np.int64), *(part.carried_out for part in one.matched)])
    if not len(rows):
        return _NO_COUNTS
    found = one.decisions[np.unique(rows[rows[:, 2] < torn.NOWHERE, 0])]
    keys = _keys(found[:, history.PRODUCER_ID], found[:, history.EPOCH], found[:, history.KIND])
    return np.stack([keys, found[:, history.COORDINATOR] << 48 | found[:, history.OFFSET]], axis=1)


def _largest(rows: Longs) -> Longs:
    """Return the largest count of each key."""
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    last = np.ones(len(rows), dtype=bool)
    last[:-1] = rows[1:, 0] != rows[:-1, 0]
    largest: Longs = rows[last]
    return largest


def _keys(producer_ids: Longs, epochs: Longs, kinds: Longs) -> Longs:
    keys: Longs = torn.keys(producer_ids, epochs) << 1 | kinds
    return keys


def _counts(keys: Longs) -> Longs:
    if not len(keys):
        return _NO_COUNTS
    found, many = np.unique(keys, return_counts=True)
    return np.stack([found, many.astype(np.int64)], axis=1)
