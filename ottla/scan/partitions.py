"""Header scan of whole partitions: the states at their start, and the fates of their transactions. shell"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ottla.protocol.checkpoints import CLEANER_OFFSETS
from ottla.scan import states, storage
from ottla.scan.compiled.kernels import Longs
from ottla.scan.damage_log import REPORT
from ottla.scan.fates import PartitionFates, RangeFates, merge_ranges
from ottla.scan.indexed_fates import fates_from_indexes, read_snapshot, snapshot_offset
from ottla.scan.listing import PartitionLog, read_checkpoint
from ottla.scan.ranges import cut_partition
from ottla.scan.states import States
from ottla.scan.walk import range_fates


def entering(log: PartitionLog) -> States:
    """Return the states at the start of a partition's first range.

    The snapshot at the first segment has them. Without it, the newest snapshot has the open transactions that began
    below the first segment and have no marker after it. No other file has a transaction that is wholly below it.
    """
    first = log.first_offset
    at_first = [path for path in log.snapshots if snapshot_offset(path) == first]
    if at_first and (entries := read_snapshot(at_first[0])) is not None:
        return states.from_snapshot(_drop_compacted_txns(log, entries, first), first)
    for path in reversed(log.snapshots):
        if (entries := read_snapshot(path)) is not None:
            begins = entries[:, states.FIRST_OFFSET]
            return states.from_snapshot(entries[(begins >= 0) & (begins < first)], first)
    return states.empty(first)


def _drop_compacted_txns(log: PartitionLog, entries: Longs, first: int) -> Longs:
    """Return `entries` of a compacted partition without the transactions that were open at `first` and have ended.

    Compaction also removes the marker of a transaction whose data it removed, so no marker in the log ends it.
    """
    opened = entries[:, states.FIRST_OFFSET] >= 0
    if not opened.any() or not _is_compacted(log):
        return entries
    later = (read_snapshot(path) for path in reversed(log.snapshots) if snapshot_offset(path) > first)
    newest = next((rows for rows in later if rows is not None), None)
    if newest is None:
        return entries
    key = [states.PRODUCER_ID, states.FIRST_OFFSET]
    still = set(map(tuple, newest[:, key].tolist()))
    ended = np.array([tuple(row) not in still for row in entries[:, key].tolist()])
    kept = entries.copy()
    kept[opened & ended, states.FIRST_OFFSET] = -1
    return kept


def _is_compacted(log: PartitionLog) -> bool:
    cleaned = read_checkpoint(storage.join(storage.parent(log.path), CLEANER_OFFSETS))
    return (log.topic, log.partition) in cleaned


def merge_partition(log: PartitionLog, ranges: Sequence[RangeFates]) -> PartitionFates:
    """Return the fates of a whole partition from its scanned ranges, in order."""
    leaving = ranges[-1].leaving if ranges else entering(log)
    return merge_ranges(ranges, leaving, log.log_start, log.least_end)


def scan_partition(log: PartitionLog, *, on_damage: str, check_crc: bool) -> PartitionFates:
    """Return the fates of one partition from one walk."""
    start = entering(log)
    ranges = []
    for part in cut_partition(0, log, log.size_bytes + 1):
        ranges.append(range_fates(part, start, on_damage=on_damage, check_crc=check_crc))
        start = ranges[-1].leaving
    return merge_partition(log, ranges)


def visible_partitions(
    logs: Sequence[PartitionLog], *, on_damage: str, verify: bool, threads: int
) -> list[PartitionFates]:
    """Return fates for reading records: from reliable indexes, else (and with `verify`) from a scan.

    If `on_damage` is `report`, readers skip damaged batches, and fates must not depend on these. Then headers are
    scanned and CRCs are checked.
    """

    def resolve(log: PartitionLog) -> PartitionFates:
        is_walked = verify or on_damage == REPORT or log.window is not None
        fates = None if is_walked else fates_from_indexes(log, on_damage=on_damage)
        return scan_partition(log, on_damage=on_damage, check_crc=on_damage == REPORT) if fates is None else fates

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(resolve, logs))
