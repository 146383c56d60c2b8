"""The producer state of one partition: who may append what, and which transactions are open. pure

Rules

1. `check_*` decide and change nothing; `apply_*` record what was written and decide nothing. A replay of the log
   applies without checks, and ends in the state that the live broker had.
2. A producer without state is accepted with any sequence: its state may have expired. Not so in transactions V2, where
   every transaction begins with sequence 0 in every partition.
3. The last five batches of a producer are known by (first, last) sequence: sent again at the same epoch, they are
   duplicates. A new epoch forgets them and begins at sequence 0.
4. A transactional batch whose sequence is not above the last one that its producer wrote before its last marker is
   nobody's retry: a client ends a transaction when its batches are answered or given up. It has taken sequence numbers
   back that were written, and is refused where Kafka calls it a duplicate (`docs/in-the-log.md`). So is what was sent
   behind it.
5. Of the batches that would begin a transaction, the lowest sequence that was verified with the coordinator goes first:
   what comes above it has overtaken a batch that the client will send again. A verification ends with the first
   transactional batch or marker that is written, unless the marker has the epoch of the transaction that is being
   verified: then it ends the one before.
6. A transaction is open from its first batch to its marker. A completed one holds the last stable offset back until its
   marker is below the high watermark.

Source: Kafka's `ProducerStateManager`, `ProducerAppendInfo`, `ProducerStateEntry`, `UnifiedLog` (4.3.1); KIP-98,
KIP-360, KIP-890, KIP-1228.
"""

from bisect import insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from ottla.broker.log.producer_state_entry import (
    ACCEPTED,
    AppendDecision,
    BatchMetadata,
    ProducerStateEntry,
    following,
    is_reuse,
    reused,
    sequence_gap,
)
from ottla.protocol.batch_header import TRANSACTIONAL, BatchHeader
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.indexes import AbortedTxn
from ottla.protocol.snapshot import ProducerEntry
from ottla.protocol.values import MAX_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, UNKNOWN_OFFSET

BATCHES_KEPT = 5
EXPIRY_SLICE = 2_000
SNAPSHOT_SLICE = 500
TRANSACTION_VERSION_2 = 2


class AppendOrigin(Enum):
    """Who appends: a client, or a coordinator of this broker, whose batches carry no sequences to check."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


_CLIENT: Final = AppendOrigin.CLIENT


class VerificationStateEntry(NamedTuple):
    """A producer of which transactional batches are being verified with its coordinator (KIP-890).

    `lowest_sequence` is that of the batches that were verified; what lies above it must not be appended before it.
    `supports_epoch_bump`: its client speaks transactions V2, so that each transaction has an epoch of its own.
    """

    epoch: int
    lowest_sequence: int
    began_ms: int
    supports_epoch_bump: bool


class CompletedTxn(NamedTuple):
    """A transaction that a marker has ended, from its first offset to that of the marker.

    `last_stable_offset` is what readers could see when the marker was written, as a `.txnindex` entry stores it.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool
    last_stable_offset: int

    @property
    def index_entry(self) -> AbortedTxn:
        """The `.txnindex` entry, if the transaction was aborted."""
        return AbortedTxn(self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset)


_NO_BATCH = BatchMetadata(NO_SEQUENCE, UNKNOWN_OFFSET, 0, NO_TIMESTAMP)


class ProducerStateManager:
    """What a partition knows of its producers, and which of their transactions are open.

    `ongoing_txns` maps first offset to producer id, the earliest transaction first; `unreplicated_txns` has (first
    offset, marker offset) of transactions whose marker is not yet below the high watermark.
    """

    __slots__ = (
        "_by_id",
        "_frozen",
        "_gone",
        "_order",
        "_verifications",
        "_walks",
        "ongoing_txns",
        "unreplicated_txns",
    )

    def __init__(self) -> None:
        self._by_id: dict[int, ProducerStateEntry] = {}
        # The same in the order in which they came, to be walked over many turns: to copy a million takes too long for
        # one. What expires while somebody walks stays in it until the next expiry, and is in the set.
        self._order: list[ProducerStateEntry] = []
        self._gone: set[ProducerStateEntry] = set()
        self._walks = 0
        # In memory only: after a restart every batch is verified anew.
        self._verifications: dict[int, VerificationStateEntry] = {}
        # First offset -> producer id. Appends come in offset order, so the first entry is the earliest.
        self.ongoing_txns: OrderedDict[int, int] = OrderedDict()
        # While a snapshot is taken: what the producers that have changed since it began were then.
        self._frozen: dict[ProducerStateEntry, ProducerEntry] | None = None
        self.unreplicated_txns: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ProducerStateEntry]:
        """In the order in which they came; others may append and expire in between."""
        by_id = self._by_id
        self._walks += 1
        try:
            for producer in self._order:
                if by_id.get(producer.producer_id) is producer:
                    yield producer
        finally:
            self._walks -= 1

    def get(self, producer_id: int) -> ProducerStateEntry | None:
        """What is known of a producer; None if nothing is."""
        return self._by_id.get(producer_id)

    # --- decide ---------------------------------------------------------------------------------------------------

    def check_batch(self, header: BatchHeader, origin: AppendOrigin, refuse_reuse: bool = True) -> AppendDecision:
        """Whether a data batch that carries a producer id may be appended.

        `refuse_reuse`: rule 4 holds (`transaction.sequence.reuse.refuse`).
        """
        producer = self._by_id.get(header.producer_id)
        overtaking = self._overtaking(header, producer) if self._verifications and origin is _CLIENT else None
        if producer is None:
            if overtaking is None:
                return ACCEPTED
            return AppendDecision(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, overtaking)
        epoch = header.producer_epoch
        if epoch < producer.epoch:
            return _stale_epoch(producer, epoch)
        if origin is _CLIENT:
            # What continues the sequence cannot be a duplicate, so the common case looks at one batch only.
            message = overtaking or sequence_gap(producer, epoch, header.base_sequence)
            if message is not None:
                duplicate = producer.find_duplicate_batch(header) if epoch == producer.epoch else None
                if refuse_reuse and is_reuse(producer, header.base_sequence, header):
                    return reused(producer, header, duplicate)
                if refuse_reuse and overtaking is not None and self._follows_reuse(producer, header):
                    return following(producer, header)
                if duplicate is not None:
                    return AppendDecision(NO_ERROR, None, duplicate)
                return AppendDecision(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)
        if producer.current_txn_first_offset >= 0 and not header.is_transactional:
            return AppendDecision(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer.producer_id} has a transaction open since offset "
                f"{producer.current_txn_first_offset} and sent a batch outside of it",
            )
        return ACCEPTED

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> AppendDecision:
        """Whether a marker may be appended. With transaction version 2 the marker carries a bumped epoch.

        An equal epoch is then the retry of a marker that was written (KIP-1228, KAFKA-19999), unless a transaction is
        open: it belongs to the next transaction of the same epoch, which a late marker must not end.
        """
        producer = self._by_id.get(producer_id) or ProducerStateEntry(producer_id)
        if producer_epoch < producer.epoch:
            return _stale_epoch(producer, producer_epoch)
        if (
            transaction_version >= TRANSACTION_VERSION_2
            and producer_epoch == producer.epoch
            and producer.current_txn_first_offset >= 0
            and producer_epoch != MAX_PRODUCER_EPOCH
        ):
            return AppendDecision(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"marker epoch {producer_epoch} of producer {producer_id} is not above that of its open transaction",
            )
        if coordinator_epoch < producer.coordinator_epoch:
            return AppendDecision(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {coordinator_epoch} for {producer_id} is below {producer.coordinator_epoch}",
            )
        return ACCEPTED

    def _overtaking(self, header: BatchHeader, producer: ProducerStateEntry | None) -> str | None:
        verification = self._verifications.get(header.producer_id)
        if verification is None:
            return None
        if (
            verification.supports_epoch_bump
            and header.base_sequence != 0
            and (producer is None or not producer.batches)
        ):
            return f"producer {header.producer_id} begins with sequence {header.base_sequence} instead of 0"
        if header.base_sequence <= verification.lowest_sequence:
            return None
        return (
            f"producer {header.producer_id} sent sequence {header.base_sequence} before "
            f"{verification.lowest_sequence}, which begins its transaction"
        )

    def _follows_reuse(self, producer: ProducerStateEntry, header: BatchHeader) -> bool:
        """Whether what a batch has overtaken was refused: it was on its way behind it."""
        verification = self._verifications[header.producer_id]
        return verification.epoch == header.producer_epoch and is_reuse(producer, verification.lowest_sequence, header)

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has a transaction open here, at this epoch."""
        producer = self._by_id.get(producer_id)
        return producer is not None and producer.current_txn_first_offset >= 0 and producer.epoch == producer_epoch

    # --- apply ----------------------------------------------------------------------------------------------------

    def maybe_create_verification_state_entry(
        self, producer_id: int, epoch: int, first_sequence: int, now_ms: int, supports_epoch_bump: bool = False
    ) -> None:
        """A transactional batch is being verified; whether it will be found sound does not matter."""
        known = self._verifications.get(producer_id)
        if known is None:
            known = VerificationStateEntry(epoch, first_sequence, now_ms, supports_epoch_bump)
        elif epoch > known.epoch:
            known = known._replace(epoch=epoch, lowest_sequence=first_sequence)
        elif epoch == known.epoch and first_sequence < known.lowest_sequence:
            known = known._replace(lowest_sequence=first_sequence)
        self._verifications[producer_id] = known

    def apply_batch(self, header: BatchHeader, base_offset: int, timestamp_ms: int) -> None:
        """A data batch with a producer id was written at `base_offset`; `timestamp_ms` is its largest as written."""
        producer_id = header.producer_id
        producer = self._by_id.get(producer_id)
        if producer is None:
            producer = self._add(producer_id)
        elif self._frozen is not None:
            self._keep_for_snapshot(producer)
        if producer.epoch != header.producer_epoch:
            _enter_epoch(producer, header.producer_epoch)
        delta = header.last_offset_delta
        batches = producer.batches
        batches.append(BatchMetadata(header.last_sequence, base_offset + delta, delta, timestamp_ms))
        if len(batches) > BATCHES_KEPT:
            del batches[0]
        producer.last_timestamp_ms = timestamp_ms
        if header.attributes & TRANSACTIONAL and producer.current_txn_first_offset < 0:
            producer.current_txn_first_offset = base_offset
            self.ongoing_txns[base_offset] = producer_id
        if self._verifications and header.is_transactional:
            self._verifications.pop(header.producer_id, None)

    def apply_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        offset: int,
        timestamp_ms: int,
    ) -> CompletedTxn | None:
        """A marker was written at `offset`; the transaction that it ended, if one was open."""
        producer = self._by_id.get(producer_id)
        if producer is None:
            producer = self._add(producer_id)
        elif self._frozen is not None:
            self._keep_for_snapshot(producer)
        verification = self._verifications.get(producer_id)
        if verification is not None and not (verification.supports_epoch_bump and verification.epoch == producer_epoch):
            del self._verifications[producer_id]
        completed = None
        first_offset = producer.current_txn_first_offset
        if first_offset >= 0:
            del self.ongoing_txns[first_offset]
            stable = next(iter(self.ongoing_txns), offset + 1)
            completed = CompletedTxn(producer_id, first_offset, offset, not commit, stable)
            insort(self.unreplicated_txns, (first_offset, offset))
        _enter_epoch(producer, producer_epoch)
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp_ms = timestamp_ms
        producer.current_txn_first_offset = UNKNOWN_OFFSET
        return completed

    def apply_emptied_marker(self, producer_id: int, producer_epoch: int, timestamp_ms: int) -> None:
        """Compaction has left of a marker that it stood there: its producer's epoch is all that is known of it."""
        producer = self._by_id.get(producer_id)
        if producer is None:
            producer = self._add(producer_id)
        elif self._frozen is not None:
            self._keep_for_snapshot(producer)
        if producer_epoch > producer.epoch:
            _enter_epoch(producer, producer_epoch)
        producer.last_timestamp_ms = max(producer.last_timestamp_ms, timestamp_ms)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Transactions whose marker is below the high watermark no longer hold the last stable offset back."""
        if self.unreplicated_txns:
            self.unreplicated_txns = [ending for ending in self.unreplicated_txns if ending[1] >= high_watermark]

    def on_log_start_offset_updated(self, log_start_offset: int) -> None:
        """Transactions that ended below the start of the log no longer hold the last stable offset back."""
        if self.unreplicated_txns:
            self.unreplicated_txns = [ending for ending in self.unreplicated_txns if ending[1] >= log_start_offset]

    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction whose outcome is not decided and durable."""
        opened = next(iter(self.ongoing_txns), None)
        if not self.unreplicated_txns:
            return opened
        ending = self.unreplicated_txns[0][0]
        return ending if opened is None else min(ending, opened)

    def remove_expired_producers(self, now_ms: int, expiration_ms: int) -> Iterator[int]:
        """Forget producers without an open transaction that were quiet for so long, by record timestamps.

        Yields how many after every `EXPIRY_SLICE` producers that were looked at; others may append in between.
        """
        limit_ms = now_ms - expiration_ms
        by_id, order = self._by_id, self._order
        at = 0
        while at < len(order):
            some = order[at : at + EXPIRY_SLICE]
            known = [producer for producer in some if by_id.get(producer.producer_id) is producer]
            left = [each for each in known if each.current_txn_first_offset >= 0 or each.last_timestamp_ms > limit_ms]
            if len(left) < len(known):
                for producer in known:
                    if producer.current_txn_first_offset < 0 and producer.last_timestamp_ms <= limit_ms:
                        del by_id[producer.producer_id]
            if self._frozen is not None or self._walks:
                if len(left) < len(known):
                    self._gone.update(known)
                    self._gone.difference_update(left)
                at += len(some)
            else:
                if len(left) < len(some):
                    order[at : at + len(some)] = left
                    self._gone.difference_update(some)
                at += len(left)
            yield len(known) - len(left)
        if self._verifications:
            self._verifications = {p: v for p, v in self._verifications.items() if v.began_ms > limit_ms}

    # --- snapshot -------------------------------------------------------------------------------------------------

    def snapshot(self) -> Iterator[ProducerEntry]:
        """One entry per producer, with its last batch alone."""
        return map(_entry, self)

    def freeze(self) -> Iterator[list[ProducerEntry]]:
        """The entries of all producers as they are now, slice by slice; others may append in between, until `thaw`."""
        kept: dict[ProducerStateEntry, ProducerEntry] = {}
        self._frozen = kept
        gone = frozenset(self._gone)
        order, end = self._order, len(self._order)
        return (
            [
                kept.get(producer) or _entry(producer)
                for producer in order[start : min(start + SNAPSHOT_SLICE, end)]
                if producer not in gone
            ]
            for start in range(0, end, SNAPSHOT_SLICE)
        )

    def thaw(self) -> None:
        """The snapshot is taken, or given up."""
        self._frozen = None

    def _add(self, producer_id: int) -> ProducerStateEntry:
        producer = self._by_id[producer_id] = ProducerStateEntry(producer_id)
        self._order.append(producer)
        return producer

    def _keep_for_snapshot(self, producer: ProducerStateEntry) -> None:
        if self._frozen is not None and producer not in self._frozen:
            self._frozen[producer] = _entry(producer)

    def load(self, entries: Iterable[ProducerEntry], now_ms: int, expiration_ms: int) -> list[tuple[int, int]]:
        """Take over a part of a snapshot; producers that have expired since are left out.

        The transactions that were open, (first offset, producer id) in order; `load_open` takes those of all parts.
        """
        opened: list[tuple[int, int]] = []
        for entry in entries:
            first_offset = entry.current_txn_first_offset
            if first_offset < 0 and now_ms - entry.timestamp >= expiration_ms:
                continue
            producer = self._by_id.get(entry.producer_id) or self._add(entry.producer_id)
            producer.epoch = entry.producer_epoch
            producer.coordinator_epoch = entry.coordinator_epoch
            producer.last_timestamp_ms = entry.timestamp
            producer.current_txn_first_offset = first_offset
            if entry.last_offset >= 0:
                batch = BatchMetadata(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp)
                producer.batches = [batch]
            if first_offset >= 0:
                opened.append((first_offset, entry.producer_id))
        opened.sort()
        return opened

    def load_open(self, opened: Iterable[tuple[int, int]]) -> None:
        """Take over open transactions, in the order of their first offsets."""
        self.ongoing_txns.update(opened)


def _stale_epoch(producer: ProducerStateEntry, epoch: int) -> AppendDecision:
    return AppendDecision(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"epoch {epoch} of producer {producer.producer_id} is below {producer.epoch}",
    )


def _enter_epoch(producer: ProducerStateEntry, epoch: int) -> None:
    if producer.epoch != epoch:
        producer.epoch = epoch
        producer.batches = []


def _entry(producer: ProducerStateEntry) -> ProducerEntry:
    last_sequence, last_offset, offset_delta, _ = producer.batches[-1] if producer.batches else _NO_BATCH
    return ProducerEntry(
        producer.producer_id,
        producer.epoch,
        last_sequence,
        last_offset,
        offset_delta,
        producer.last_timestamp_ms,
        producer.coordinator_epoch,
        producer.current_txn_first_offset,
    )
