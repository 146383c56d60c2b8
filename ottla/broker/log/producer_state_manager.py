"""The producer state of one partition: checks of appends, and the open transactions. pure

Rules

1. `check_*` decide and change nothing; `apply_*` record a write and decide nothing. A replay of the log applies without
   checks, and results in the state that the live broker had.
2. A producer without state is accepted with any sequence, because its state may have expired. Transactions V2 are an
   exception: every transaction begins with sequence 0 in every partition.
3. The last five batches of a producer are remembered by (first, last) sequence. If they are sent again at the same
   epoch, they are duplicates. A new epoch forgets them and begins at sequence 0.
4. A transactional batch whose sequence is not above the last one before the producer's last marker is not a retry: a
   client ends a transaction only after its batches were answered or given up. The client has reused sequence numbers
   that were written. The batch is refused; Kafka calls it a duplicate (`docs/in-the-log.md`). Batches that the client
   sent after it are refused too.
5. Of the batches that would begin a transaction, the one with the lowest sequence that was verified with the
   coordinator must be first. A batch with a higher sequence has overtaken one that the client will send again. A
   verification ends with the first transactional batch or marker that is written. A marker with the epoch of the
   transaction in verification does not end it, because it ends the transaction before.
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
    is_reuse,
    refuse_after_reuse,
    refuse_reused_sequence,
    sequence_gap,
)
from ottla.protocol.batch_header import TRANSACTIONAL, BatchHeader
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.indexes import AbortedTxn
from ottla.protocol.snapshot import ProducerEntry
from ottla.protocol.values import MAX_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, UNKNOWN_OFFSET

BATCHES_KEPT: Final = 5
EXPIRY_SLICE: Final = 2_000
SNAPSHOT_SLICE: Final = 500
TRANSACTION_VERSION_2: Final = 2


class AppendOrigin(Enum):
    """Origin of an append: a client, or a coordinator of this broker, whose batches have no sequences to check."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


_CLIENT: Final = AppendOrigin.CLIENT


class VerificationStateEntry(NamedTuple):
    """A producer whose transactional batches are being verified with its coordinator (KIP-890).

    `lowest_sequence` is the lowest of the verified batches; batches above it must not be appended before it.
    `supports_epoch_bump`: its client uses transactions V2, so each transaction has an epoch of its own.
    """

    epoch: int
    lowest_sequence: int
    began_ms: int
    supports_epoch_bump: bool


class CompletedTxn(NamedTuple):
    """A transaction that a marker has ended, from its first offset to that of the marker.

    `last_stable_offset` is that of the time when the marker was written, as a `.txnindex` entry stores it.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool
    last_stable_offset: int

    @property
    def index_entry(self) -> AbortedTxn:
        """The `.txnindex` entry, for an aborted transaction."""
        return AbortedTxn(self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset)


_NO_BATCH: Final = BatchMetadata(NO_SEQUENCE, UNKNOWN_OFFSET, 0, NO_TIMESTAMP)


class ProducerStateManager:
    """The producers of a partition, and their open transactions.

    `ongoing_txns` maps first offset to producer id, the earliest transaction first; `unreplicated_txns` has (first
    offset, marker offset) of transactions whose marker is not yet below the high watermark.
    """

    __slots__ = (
        "_by_id",
        "_frozen",
        "_order",
        "_removed",
        "_verifications",
        "_walks",
        "ongoing_txns",
        "unreplicated_txns",
    )

    def __init__(self) -> None:
        self._by_id: dict[int, ProducerStateEntry] = {}
        # The same in the order of their first batches, to iterate over many turns: copying a million takes too long for
        # one turn. Producers that expire during an iteration stay in it until the next expiry, and are in `_removed`.
        self._order: list[ProducerStateEntry] = []
        self._removed: set[ProducerStateEntry] = set()
        self._walks = 0
        # In memory only: after a restart every batch is verified again.
        self._verifications: dict[int, VerificationStateEntry] = {}
        # First offset -> producer id. Appends come in offset order, so the first entry is the earliest.
        self.ongoing_txns: OrderedDict[int, int] = OrderedDict()
        # While a snapshot is taken: the state at its begin of the producers that have changed since.
        self._frozen: dict[ProducerStateEntry, ProducerEntry] | None = None
        self.unreplicated_txns: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ProducerStateEntry]:
        """Iterate in the order of first batches. Appends and expiry between the steps are allowed."""
        by_id = self._by_id
        self._walks += 1
        try:
            for producer in self._order:
                if by_id.get(producer.producer_id) is producer:
                    yield producer
        finally:
            self._walks -= 1

    def get(self, producer_id: int) -> ProducerStateEntry | None:
        """Return the state of a producer; None if it is not known."""
        return self._by_id.get(producer_id)

    # --- decide ---------------------------------------------------------------------------------------------------

    def check_batch(self, header: BatchHeader, origin: AppendOrigin, refuse_reuse: bool = True) -> AppendDecision:
        """Decide whether a data batch with a producer id may be appended.

        `refuse_reuse`: apply rule 4 (`transaction.sequence.reuse.refuse`).
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
            # A batch that continues the sequence is no duplicate: the common case checks one remembered batch only.
            message = overtaking or sequence_gap(producer, epoch, header.base_sequence)
            if message is not None:
                duplicate = producer.find_duplicate_batch(header) if epoch == producer.epoch else None
                if refuse_reuse and is_reuse(producer, header.base_sequence, header):
                    return refuse_reused_sequence(producer, header, duplicate)
                if refuse_reuse and overtaking is not None and self._follows_reuse(producer, header):
                    return refuse_after_reuse(producer, header)
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
        """Decide whether a marker may be appended. With transaction version 2 the marker has a bumped epoch.

        Then an equal epoch means a retry of a marker that was written (KIP-1228, KAFKA-19999). If a transaction is
        open, it is the next one of the same epoch, and a late marker must not end it.
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
        """Return whether a batch follows a refused batch with reused sequences, which is the lowest one in
        verification."""
        verification = self._verifications[header.producer_id]
        return verification.epoch == header.producer_epoch and is_reuse(producer, verification.lowest_sequence, header)

    # --- apply ----------------------------------------------------------------------------------------------------

    def maybe_create_verification_state_entry(
        self, producer_id: int, epoch: int, first_sequence: int, now_ms: int, supports_epoch_bump: bool = False
    ) -> None:
        """Record that a transactional batch is being verified, whatever the result."""
        known = self._verifications.get(producer_id)
        if known is None:
            known = VerificationStateEntry(epoch, first_sequence, now_ms, supports_epoch_bump)
        elif epoch > known.epoch:
            known = known._replace(epoch=epoch, lowest_sequence=first_sequence)
        elif epoch == known.epoch and first_sequence < known.lowest_sequence:
            known = known._replace(lowest_sequence=first_sequence)
        self._verifications[producer_id] = known

    def apply_batch(self, header: BatchHeader, base_offset: int, timestamp_ms: int) -> None:
        """Record a data batch with a producer id at `base_offset`; `timestamp_ms` is its largest one as written."""
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
        """Record a marker, written at `offset`; return the transaction that it ended, if one was open."""
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
        """Record a marker that compaction has emptied: only its producer's epoch is known."""
        producer = self._by_id.get(producer_id)
        if producer is None:
            producer = self._add(producer_id)
        elif self._frozen is not None:
            self._keep_for_snapshot(producer)
        if producer_epoch > producer.epoch:
            _enter_epoch(producer, producer_epoch)
        producer.last_timestamp_ms = max(producer.last_timestamp_ms, timestamp_ms)

    def forget_ended_txns(self, below: int) -> None:
        """Forget transactions whose marker is below the high watermark, or below the log start offset.

        The last stable offset may pass them.
        """
        if self.unreplicated_txns:
            self.unreplicated_txns = [ending for ending in self.unreplicated_txns if ending[1] >= below]

    def first_unstable_offset(self) -> int | None:
        """Return the first offset of the earliest transaction that is open or whose end is not durable; else None."""
        opened = next(iter(self.ongoing_txns), None)
        if not self.unreplicated_txns:
            return opened
        ending = self.unreplicated_txns[0][0]
        return ending if opened is None else min(ending, opened)

    def remove_expired_producers(self, now_ms: int, expiration_ms: int) -> Iterator[int]:
        """Forget producers without an open transaction whose last record timestamp is older than `expiration_ms`.

        Yields the number of removed producers after every `EXPIRY_SLICE` examined ones. Appends between are allowed.
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
                    self._removed.update(known)
                    self._removed.difference_update(left)
                at += len(some)
            else:
                if len(left) < len(some):
                    order[at : at + len(some)] = left
                    self._removed.difference_update(some)
                at += len(left)
            yield len(known) - len(left)
        if self._verifications:
            self._verifications = {p: v for p, v in self._verifications.items() if v.began_ms > limit_ms}

    # --- snapshot -------------------------------------------------------------------------------------------------

    def snapshot(self) -> Iterator[ProducerEntry]:
        """Return one entry per producer, with only its last batch."""
        return map(_entry, self)

    def freeze(self) -> Iterator[list[ProducerEntry]]:
        """Return the current entries of all producers in slices; appends between them are allowed until `thaw`."""
        kept: dict[ProducerStateEntry, ProducerEntry] = {}
        self._frozen = kept
        removed = frozenset(self._removed)
        order, end = self._order, len(self._order)
        return (
            [
                kept.get(producer) or _entry(producer)
                for producer in order[start : min(start + SNAPSHOT_SLICE, end)]
                if producer not in removed
            ]
            for start in range(0, end, SNAPSHOT_SLICE)
        )

    def thaw(self) -> None:
        """End `freeze`, after the snapshot was taken or aborted."""
        self._frozen = None

    def _add(self, producer_id: int) -> ProducerStateEntry:
        producer = self._by_id[producer_id] = ProducerStateEntry(producer_id)
        self._order.append(producer)
        return producer

    def _keep_for_snapshot(self, producer: ProducerStateEntry) -> None:
        if self._frozen is not None and producer not in self._frozen:
            self._frozen[producer] = _entry(producer)

    def load(self, entries: Iterable[ProducerEntry], now_ms: int, expiration_ms: int) -> list[tuple[int, int]]:
        """Load a part of a snapshot, without producers that have expired since.

        Return the open transactions of the part as sorted (first offset, producer id), for `load_open`.
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
        """Load the open transactions of all parts, in the order of their first offsets."""
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
