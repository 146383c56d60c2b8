"""What a partition knows of one producer, and what that says of the sequences of its next batch. pure

Source: Kafka's `ProducerStateEntry`, `BatchMetadata`, `ProducerAppendInfo` (4.3.1); KIP-98.
"""

from typing import NamedTuple

from ottla.protocol.batch import BatchHeader, decrement_sequence, increment_sequence
from ottla.protocol.errors import NO_ERROR, ErrorCode

NO_EPOCH = -1
NO_OFFSET = -1
SEQUENCES = 2**31


class KnownBatch(NamedTuple):
    """One of the last batches of a producer. `timestamp_ms` is the batch's largest."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        return decrement_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class Producer:
    """What a partition knows of one producer id; -1 means none in every number."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp_ms", "producer_id", "transaction_start")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp_ms = -1
        self.transaction_start = NO_OFFSET
        self.batches: list[KnownBatch] = []

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def known(self) -> tuple[object, ...]:
        """All of it as a value, for comparing a replay with the live state."""
        batches = tuple(self.batches)
        return self.epoch, self.coordinator_epoch, self.last_timestamp_ms, self.transaction_start, batches


class Verdict(NamedTuple):
    """NONE: append. NONE with `duplicate`: answer as the original was answered. Else: refuse."""

    error: ErrorCode
    message: str | None = None
    duplicate: KnownBatch | None = None


ACCEPTED = Verdict(NO_ERROR)


def find_duplicate(producer: Producer, header: BatchHeader) -> KnownBatch | None:
    """The batch that the producer has written with these sequences."""
    first, last = header.base_sequence, header.last_sequence
    for batch in producer.batches:
        if batch.last_sequence == last and batch.first_sequence == first:
            return batch
    return None


def is_reuse(producer: Producer, base_sequence: int, header: BatchHeader) -> bool:
    """Whether the sequence, of a transactional batch, was used before the last marker of its producer."""
    if producer.epoch != header.producer_epoch or not header.is_transactional or producer.coordinator_epoch < 0:
        return False  # another epoch, or no marker yet
    ended = _ended_sequence(producer)
    # Sequences wrap: what is less than half of them behind the last one is not above it.
    return ended is not None and decrement_sequence(ended, base_sequence) < SEQUENCES // 2


def _ended_sequence(producer: Producer) -> int | None:
    """The last sequence that was written before the open transaction, or at all; None if it is not known any more."""
    start = producer.transaction_start
    before = (batch.last_sequence for batch in reversed(producer.batches) if start < 0 or batch.last_offset < start)
    return next(before, None)


def reused(producer: Producer, header: BatchHeader, duplicate: KnownBatch | None) -> Verdict:
    """The refusal of such a batch: the code with which clients begin a new epoch, and go on."""
    those = f"the batch at offset {duplicate.first_offset}" if duplicate else "batches of other counts"
    return Verdict(
        ErrorCode.UNKNOWN_PRODUCER_ID,
        f"producer {producer.producer_id} at epoch {producer.epoch} sent sequences {header.base_sequence} to "
        f"{header.last_sequence} once more, behind the marker of the transaction that wrote up to "
        f"{_ended_sequence(producer)}: they are those of {those}",
    )


def following(producer: Producer, header: BatchHeader) -> Verdict:
    """The refusal of what was on its way behind such a batch, with the same code: a client that is told of a gap keeps
    the batch to send it again, in a transaction that it must abort."""
    return Verdict(
        ErrorCode.UNKNOWN_PRODUCER_ID,
        f"producer {producer.producer_id} at epoch {producer.epoch} sent sequences {header.base_sequence} to "
        f"{header.last_sequence} behind others, refused, that it had used before the marker of its last transaction",
    )


def sequence_gap(producer: Producer, epoch: int, first_sequence: int) -> str | None:
    """What is wrong with the first sequence of a batch, None if nothing is."""
    if producer.epoch == NO_EPOCH:
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
