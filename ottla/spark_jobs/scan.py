"""The header scan: ranges of segments to what they know of their transactions. shell"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ottla.protocol.errors import ProtocolError
from ottla.protocol.snapshot import decode_snapshot
from ottla.spark_jobs import resolve
from ottla.spark_jobs.chunks import SegmentReader
from ottla.spark_jobs.damage import DamageLog
from ottla.spark_jobs.fates import OpenTransaction, PartitionFates, RangeFates, known_from_snapshot, merge_ranges
from ottla.spark_jobs.listing import PartitionLog
from ottla.spark_jobs.plan import Range, cut_partition


def scan_range(part: Range, *, on_damage: str, check_crc: bool) -> RangeFates:
    """Read all batch headers of `part`. Raises DamagedSegment in mode `fail`, OSError if a file cannot be read."""
    log = DamageLog(on_damage)
    reader = SegmentReader(log, check_crc=check_crc)
    resolver = resolve.RangeResolver(part.log_start)
    for piece in part.pieces:
        for chunk in reader.chunks(piece, int(resolver.totals[resolve.NEXT_OFFSET])):
            resolver.add(chunk.rows)
    return RangeFates(resolver.totals, resolver.aborted, resolver.fragments(), tuple(log.found), tuple(log.torn))


def merge_partition(log: PartitionLog, ranges: Sequence[RangeFates]) -> PartitionFates:
    """The fates of a whole partition from its scanned ranges, in order."""
    log_end = log.segments[-1].base_offset if log.segments else 0
    return merge_ranges(ranges, log.log_start, log_end, open_below(log))


def scan_partitions(
    logs: Sequence[PartitionLog], *, on_damage: str, check_crc: bool, threads: int
) -> list[PartitionFates]:
    """Resolve whole partitions in this process, `threads` at once (the kernels and reads release the GIL)."""

    def scan(index_and_log: tuple[int, PartitionLog]) -> PartitionFates:
        index, log = index_and_log
        parts = cut_partition(index, log, log.size_bytes + 1)
        return merge_partition(log, [scan_range(part, on_damage=on_damage, check_crc=check_crc) for part in parts])

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(scan, enumerate(logs)))


def open_below(log: PartitionLog) -> list[OpenTransaction]:
    """Transactions that began below the first batch at hand and were open at the newest snapshot.

    Retention does not wait for open transactions, so the snapshot may be all that tells of them. A snapshot that is
    broken is passed over for the next older one, as `ProducerStateManager.loadFromSnapshot` does.
    """
    first = log.segments[0].base_offset if log.segments else log.log_start
    for path in reversed(log.snapshots):
        try:
            entries = decode_snapshot(Path(path).read_bytes())
        except (ProtocolError, FileNotFoundError):
            continue
        return [
            known_from_snapshot(entry.producer_id, entry.producer_epoch, entry.current_txn_first_offset)
            for entry in entries
            if 0 <= entry.current_txn_first_offset < first
        ]
    return []
