"""Replay of batches that are in a log: their leader epochs, producers and aborted transactions. free

Source: Kafka's `UnifiedLog.loadProducersFromRecords`, `ProducerStateManager`.
"""

from ottla.broker.log.batches import Run
from ottla.broker.log.leader_epoch_cache import LeaderEpochCache
from ottla.broker.log.producer_state_manager import CompletedTxn, ProducerStateManager
from ottla.broker.log.segments.log_segment import LogSegment
from ottla.protocol.batch import COMMIT, read_marker
from ottla.protocol.batch_header import CONTROL, LOG_OVERHEAD, BatchHeader


def replay_run(run: Run, segment: LogSegment, producers: ProducerStateManager, epochs: LeaderEpochCache) -> None:
    """Apply valid batches to the epochs, the producers and the transaction index of their segment."""
    known_epoch = None
    position = 0
    for fields in run.headers:
        base_offset, length, leader_epoch, _, _, _, _, _, _, producer_id, _, _, _ = fields
        if leader_epoch != known_epoch:
            # The entries of the file are better: an epoch may have begun in a segment that is not read here.
            if leader_epoch > epochs.latest_epoch:
                epochs.assign(leader_epoch, base_offset)
            known_epoch = leader_epoch
        if producer_id >= 0:
            completed = replay(producers, BatchHeader._make(fields), run.data, position)
            if completed is not None and completed.aborted:
                segment.add_aborted_txn(completed.index_entry)
        position += LOG_OVERHEAD + length


def replay(
    producers: ProducerStateManager, header: BatchHeader, buffer: memoryview, position: int = 0
) -> CompletedTxn | None:
    """Apply the batch at `position` to the producer state; return the transaction that it ended, if it is a marker."""
    if header.producer_id < 0:
        return None
    if not header.attributes & CONTROL:
        producers.apply_batch(header, header.base_offset, header.max_timestamp)
        return None
    # Compaction replaces the last marker of a producer by an empty batch; no batch of its transaction is left.
    marker = read_marker(buffer, header, position) if header.record_count else None
    if marker is None:
        producers.apply_emptied_marker(header.producer_id, header.producer_epoch, header.max_timestamp)
        return None
    return producers.apply_marker(
        header.producer_id,
        header.producer_epoch,
        marker.coordinator_epoch,
        marker.control_type == COMMIT,
        header.last_offset,
        header.max_timestamp,
    )
