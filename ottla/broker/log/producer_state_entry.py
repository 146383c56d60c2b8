"""What a partition knows of one producer, and what that says of the sequences of its next batch. pure

Source: Kafka's `ProducerStateEntry`, `BatchMetadata`, `ProducerAppendInfo` (4.3.1); KIP-98.
"""

from typing import NamedTuple

from ottla.protocol.batch_header import BatchHeader, decrement_sequence, increment_sequence
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.values import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, UNKNOWN_OFFSET

SEQUENCES = 2**31


class BatchMetadata(NamedTuple):
    """One of the last batches that a producer wrote. `timestamp_ms` is the largest timestamp of its records."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """The sequence of its first record."""
        return decrement_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        """The offset of its first record."""
        return self.last_offset - self.offset_delta


class ProducerStateEntry:
    """What a partition knows of one producer id: its epoch, its last batches, the transaction it has open here.

    -1 stands for none in every number. `batches` are the last five of its epoch, oldest first.
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
        """The last sequence that it wrote in this epoch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        """The offset of the last record that it wrote in this epoch; markers do not count."""
        return self.batches[-1].last_offset if self.batches else UNKNOWN_OFFSET

    def find_duplicate_batch(self, header: BatchHeader) -> BatchMetadata | None:
        """The batch that the producer has written with these sequences, if it is one of those that are remembered."""
        first, last = header.base_sequence, header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last and batch.first_sequence == first:
                return batch
        return None

    def known(self) -> tuple[object, ...]:
        """All of it as a value, for comparing a replay with the live state."""
        batches = tuple(self.batches)
        return self.epoch, self.coordinator_epoch, self.last_timestamp_ms, self.current_txn_first_offset, batches


class AppendDecision(NamedTuple):
    """Whether a batch or a marker may be appended.

    `error` NONE says that it may; NONE with `duplicate` that it stands there already, and is answered as the original
    was. Any other error is the answer.
    """

    error: ErrorCode
    message: str | None = None
    duplicate: BatchMetadata | None = None


ACCEPTED = AppendDecision(NO_ERROR)


def is_reuse(producer: ProducerStateEntry, base_sequence: int, header: BatchHeader) -> bool:
    """Whether the sequence, of a transactional batch, was used before the last marker of its producer."""
    if producer.epoch != header.producer_epoch or not header.is_transactional or producer.coordinator_epoch < 0:
        return False  # another epoch, or no marker yet
    ended = _ended_sequence(producer)
    # Sequences wrap: what is less than half of them behind the last one is not above it.
    return ended is not None and decrement_sequence(ended, base_sequence) < SEQUENCES // 2


def _ended_sequence(producer: ProducerStateEntry) -> int | None:
    """The last sequence that was written before the open transaction, or at all; None if it is not known any more."""
    start = producer.current_txn_first_offset
    before = (batch.last_sequence for batch in reversed(producer.batches) if start < 0 or batch.last_offset < start)
    return next(before, None)


def reused(producer: ProducerStateEntry, header: BatchHeader, duplicate: BatchMetadata | None) -> AppendDecision:
    """The refusal of such a batch: the code with which clients begin a new epoch, and go on."""
    those = f"the batch at offset {duplicate.first_offset}" if duplicate else "batches of other counts"
    return AppendDecision(
        ErrorCode.UNKNOWN_PRODUCER_ID,
        f"producer {producer.producer_id} at epoch {producer.epoch} sent sequences {header.base_sequence} to "
        f"{header.last_sequence} once more, behind the marker of the transaction that wrote up to "
        f"{_ended_sequence(producer)}: they are those of {those}",
    )


def following(producer: ProducerStateEntry, header: BatchHeader) -> AppendDecision:
    """The refusal of what was on its way behind such a batch, with the same code: a client that is told of a gap keeps
    the batch to send it again, in a transaction that it must abort."""
    return AppendDecision(
        ErrorCode.UNKNOWN_PRODUCER_ID,
        f"producer {producer.producer_id} at epoch {producer.epoch} sent sequences {header.base_sequence} to "
        f"{header.last_sequence} behind others, refused, that it had used before the marker of its last transaction",
    )


def sequence_gap(producer: ProducerStateEntry, epoch: int, first_sequence: int) -> str | None:
    """What is wrong with the first sequence of a batch, None if nothing is."""
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
