"""State of one producer in a partition, and checks of the sequences of its next batch. pure

Source: Kafka's `ProducerStateEntry`, `BatchMetadata`, `ProducerAppendInfo` (4.3.1); KIP-98.
"""

from typing import Final, NamedTuple

from ottla.protocol.batch_header import BatchHeader, decrement_sequence, increment_sequence
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.values import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, UNKNOWN_OFFSET

SEQUENCES: Final = 2**31


class BatchMetadata(NamedTuple):
    """A recent batch of a producer. `timestamp_ms` is the largest timestamp of its records."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """Sequence of the first record."""
        return decrement_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        """Offset of the first record."""
        return self.last_offset - self.offset_delta


class ProducerStateEntry:
    """State of one producer id in a partition: its epoch, its last batches, its open transaction in the partition.

    -1 means none in every number. `batches` are the last five of its epoch, oldest first.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "last_timestamp_ms",
        "producer_id",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp_ms = NO_TIMESTAMP
        self.current_txn_first_offset = UNKNOWN_OFFSET
        self.batches: list[BatchMetadata] = []

    @property
    def last_sequence(self) -> int:
        """The last sequence that the producer wrote in its epoch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        """The offset of the last record that the producer wrote in its epoch, without markers."""
        return self.batches[-1].last_offset if self.batches else UNKNOWN_OFFSET

    def find_duplicate_batch(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the remembered batch with the sequences of `header`, else None."""
        first, last = header.base_sequence, header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last and batch.first_sequence == first:
                return batch
        return None

    def to_value(self) -> tuple[object, ...]:
        """Return the whole state as a value, to compare a replay with the live state."""
        batches = tuple(self.batches)
        return self.epoch, self.coordinator_epoch, self.last_timestamp_ms, self.current_txn_first_offset, batches


class AppendDecision(NamedTuple):
    """Whether a batch or a marker may be appended.

    With `error` NONE it may be appended. With NONE and `duplicate` the batch is in the log already, and the answer is
    that of the original. Any other error is the answer.
    """

    error: ErrorCode
    message: str | None = None
    duplicate: BatchMetadata | None = None


ACCEPTED: Final = AppendDecision(NO_ERROR)


def is_reuse(producer: ProducerStateEntry, base_sequence: int, header: BatchHeader) -> bool:
    """Return whether a transactional batch reuses a sequence from before the last marker of its producer."""
    if producer.epoch != header.producer_epoch or not header.is_transactional or producer.coordinator_epoch < 0:
        return False  # another epoch, or no marker yet
    ended = _ended_sequence(producer)
    # Sequences wrap: one that is less than half of all sequences before the last one is not above it.
    return ended is not None and decrement_sequence(ended, base_sequence) < SEQUENCES // 2


def _ended_sequence(producer: ProducerStateEntry) -> int | None:
    """Return the last sequence before the open transaction, or the last one if none is open; None if unknown."""
    start = producer.current_txn_first_offset
    before = (batch.last_sequence for batch in reversed(producer.batches) if start < 0 or batch.last_offset < start)
    return next(before, None)


def refuse_reused_sequence(
    producer: ProducerStateEntry, header: BatchHeader, duplicate: BatchMetadata | None
) -> AppendDecision:
    """Refuse a batch for which `is_reuse` holds, with the code that makes clients begin a new epoch and continue."""
    those = f"the batch at offset {duplicate.first_offset}" if duplicate else "batches with other record counts"
    return AppendDecision(
        ErrorCode.UNKNOWN_PRODUCER_ID,
        f"producer {producer.producer_id} at epoch {producer.epoch} sent sequences {header.base_sequence} to "
        f"{header.last_sequence} again, after the marker of the transaction that wrote up to "
        f"{_ended_sequence(producer)}: they are those of {those}",
    )


def refuse_after_reuse(producer: ProducerStateEntry, header: BatchHeader) -> AppendDecision:
    """Refuse a batch that the client sent after one for which `is_reuse` holds, with the same code.

    After an error for a sequence gap the client would send the batch again, in a transaction that it must abort.
    """
    return AppendDecision(
        ErrorCode.UNKNOWN_PRODUCER_ID,
        f"producer {producer.producer_id} at epoch {producer.epoch} sent sequences {header.base_sequence} to "
        f"{header.last_sequence} after refused ones that it had used before the marker of its last transaction",
    )


def sequence_gap(producer: ProducerStateEntry, epoch: int, first_sequence: int) -> str | None:
    """Return the error of the first sequence of a batch, None if it is valid."""
    if producer.epoch == NO_PRODUCER_EPOCH:
        return None
    if epoch != producer.epoch:
        if first_sequence == 0:
            return None
        return f"producer {producer.producer_id} began epoch {epoch} with sequence {first_sequence} instead of 0"
    last = producer.last_sequence
    # A producer without batches has -1 here, so it begins at 0, as does the sequence after 2^31-1.
    if first_sequence == increment_sequence(last, 1):
        return None
    return f"producer {producer.producer_id} sent sequence {first_sequence} after {last} in epoch {epoch}"
