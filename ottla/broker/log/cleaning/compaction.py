"""Rules of compaction: the records, batches, markers and index entries that it keeps. pure

Rules

1. Of the records with the same key the last one is kept, as far as the offset map reaches; all records after that are
   kept. Records without a key are removed. Aborted records count for no key and are removed.
2. A marker stays as long as a batch of its transaction does, and so does the index entry of an aborted transaction.
   After that the marker is not needed. The first pass that finds this writes the time when it may be removed into it
   (the delete horizon, attribute bit 6, which replaces the base timestamp). A later pass, at or after the horizon,
   removes it.
3. Tombstones are removed in the same way: a batch that keeps one gets a delete horizon.
4. The batch with the last sequence of a known producer stays, empty if necessary. So does the last marker of a producer
   whose batches all have an older epoch, and the last batch of a cleaned segment: the end of the file then shows which
   offsets the file covers.
5. The remaining records of a batch keep offsets, sequences, producer, leader epoch and codec.
6. A message of magic 0 or 1 that stays complete is not changed. One that loses some records, or that is a tombstone,
   becomes a batch of magic 2, because only this format has a field for a delete horizon. Kafka keeps the old format.

Source: Kafka's `Cleaner`, `CleanedTransactionMetadata`, `MemoryRecords.RecordFilter`, `LogCleanerManager` (4.3.1);
KIP-534. Kafka keeps the last batch of a cleaning (KAFKA-19981), Ottla that of every segment which a cleaning writes.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Final, NamedTuple

from ottla.broker.log.producer_state_entry import ProducerStateEntry
from ottla.protocol.batch import ABORT, COMMIT, read_marker
from ottla.protocol.batch_header import BatchHeader
from ottla.protocol.indexes import AbortedTxn
from ottla.protocol.record_frames import Frame, empty_batch, iter_frames, raw_steps, rebuild_batch
from ottla.protocol.steps import RECORD_US, Steps
from ottla.protocol.up_conversion import convert_if_old
from ottla.protocol.varints import Buffer

# Memory of a key: its bytes, its offset, their place in the table.
KEY_BYTES: Final = 200
_LONG_KEY: Final = 32
MAX_RELATIVE_OFFSET: Final = 2**31 - 1


class OffsetMap:
    """Map from key to the offset of its last record, up to `latest_offset`, with about `capacity` keys at most.

    Source: Kafka's `OffsetMap`, `SkimpyOffsetMap`.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, header: BatchHeader, frames: Iterable[Frame], from_offset: int) -> bool:
        """Add the keys of some records of a batch from `from_offset` on; False if the map is full.

        The first batch is always added as a whole, so that every cleaning makes progress.
        """
        offsets, base_offset = self._offsets, header.base_offset
        if len(offsets) >= self._capacity and self.latest_offset >= 0:
            return False
        for delta, _, key, *_ in frames:
            if key is not None and base_offset + delta >= from_offset:
                offsets[key if len(key) <= _LONG_KEY else _digest(key)] = base_offset + delta
        return True

    def update_latest_offset(self, offset: int) -> None:
        """Record that the map has the keys up to `offset`."""
        self.latest_offset = max(self.latest_offset, offset)

    def is_last(self, key: bytes, offset: int) -> bool:
        """Return whether no record after `offset` has this key, as far as the map reaches."""
        return offset >= self._offsets.get(key if len(key) <= _LONG_KEY else _digest(key), -1)


def _digest(key: bytes) -> bytes:
    # One byte longer than any key that is stored as it is, so that no key equals the digest of another.
    return blake2b(key, digest_size=_LONG_KEY + 1).digest()


class CleanedTransactionMetadata:
    """State of transactions during a walk over the log, which passes every batch in order from the first segment on.

    `aborted` are the entries of the transaction indexes. `cleaned_index` collects the entries whose markers stay.
    """

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._aborted = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        # Producer id -> its aborted transaction, from its first offset on; and the producers that had batches left.
        self._ongoing_aborted: dict[int, AbortedTxn] = {}
        self._with_batches: set[int] = set()
        self._ongoing_committed: set[int] = set()
        self.cleaned_index: list[AbortedTxn] = []

    def on_batch(self, header: BatchHeader) -> bool:
        """Process a data batch; return whether it belongs to an aborted transaction and can be removed."""
        self._consume_aborted_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._ongoing_aborted:
            self._with_batches.add(header.producer_id)
            return True
        self._ongoing_committed.add(header.producer_id)
        return False

    def on_control_batch(self, header: BatchHeader, control_type: int | None) -> bool:
        """Process a control batch (type None: it is empty); return whether it is not needed any more."""
        self._consume_aborted_up_to(header.last_offset)
        if control_type is None:
            return True
        producer_id = header.producer_id
        if control_type == ABORT:
            entry = self._ongoing_aborted.pop(producer_id, None)
            if entry is None or producer_id not in self._with_batches:
                return True
            self._with_batches.discard(producer_id)
            self.cleaned_index.append(entry)
        elif control_type == COMMIT:
            needless = producer_id not in self._ongoing_committed
            self._ongoing_committed.discard(producer_id)
            return needless
        return False

    def _consume_aborted_up_to(self, offset: int) -> None:
        aborted = self._aborted
        while aborted and aborted[-1].first_offset <= offset:
            entry = aborted.pop()
            self._ongoing_aborted.setdefault(entry.producer_id, entry)


def control_type_of(header: BatchHeader, batch: Buffer) -> int | None:
    """Return the type of a control batch, None if compaction left it empty."""
    marker = read_marker(batch, header) if header.record_count else None
    return None if marker is None else marker.control_type


def is_last_of_producer(header: BatchHeader, producer: ProducerStateEntry | None) -> bool:
    """Return whether a restart needs this batch to restore the state of its producer; `producer` is the current
    state."""
    if producer is None:
        return False
    if producer.last_data_offset >= 0:
        return header.last_offset == producer.last_data_offset
    return header.is_control and header.producer_epoch == producer.epoch


class RecordFilter:
    """Filter of one cleaning of a log, applied to every batch from the first segment on."""

    def __init__(
        self,
        offsets: OffsetMap,
        aborted: Iterable[AbortedTxn],
        producer_of: Callable[[int], ProducerStateEntry | None],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self.transactions = CleanedTransactionMetadata(aborted)
        self._offsets = offsets
        self._producer_of = producer_of
        self._now_ms = now_ms
        self._new_horizon_ms = now_ms + delete_retention_ms

    def filter_any(self, header: BatchHeader, batch: Buffer, stays: bool) -> Steps[Buffer | None]:
        """Filter a batch of any magic. A message of magic 0 or 1 is not changed, or becomes a batch of magic 2."""
        converted_header, converted = yield from convert_if_old(batch, header)
        left = yield from self.filter(converted_header, converted, stays)
        return batch if left is converted else left

    def filter(self, header: BatchHeader, batch: Buffer, stays: bool) -> Steps[Buffer | None]:
        """Return the remaining part of the next batch; None if nothing remains, or with `stays` an empty batch."""
        horizon_ms = header.delete_horizon_ms
        needless = False
        if header.is_control:
            needless = self.transactions.on_control_batch(header, control_type_of(header, batch))
            dropped = needless and horizon_ms is not None and horizon_ms <= self._now_ms
        else:
            dropped = self.transactions.on_batch(header)
        kept: list[Frame] = []
        raw: Buffer = b""
        if not dropped:
            raw = yield from raw_steps(batch, header)
            for frames in iter_frames(raw, header.record_count):
                kept += frames if header.is_control else self._select_frames(header, frames)
                yield len(frames) * RECORD_US
        if not kept:
            stays = stays or is_last_of_producer(header, self._producer_of(header.producer_id))
            return empty_batch(header) if stays else None
        has_tombstones = any(frame[3] for frame in kept)
        if horizon_ms is None and (needless or has_tombstones):
            horizon_ms = self._new_horizon_ms
        elif len(kept) == header.record_count:
            return batch
        rebuilt = yield from rebuild_batch(header, raw, kept, horizon_ms)
        return rebuilt

    def _select_frames(self, header: BatchHeader, frames: Iterable[Frame]) -> list[Frame]:
        offsets, base_offset = self._offsets, header.base_offset
        latest, is_last = offsets.latest_offset, offsets.is_last
        horizon_ms = header.delete_horizon_ms
        with_tombstones = horizon_ms is None or self._now_ms < horizon_ms
        return [
            frame
            for frame in frames
            if base_offset + frame[0] > latest
            or (
                frame[2] is not None and (with_tombstones or not frame[3]) and is_last(frame[2], base_offset + frame[0])
            )
        ]


class SegmentSizes(NamedTuple):
    """Bytes of the `.log`, `.index` and `.timeindex` of one segment; the last two are set for grouping only."""

    base_offset: int
    size_bytes: int
    index_bytes: int = 0
    time_index_bytes: int = 0


class CleanableOffsets(NamedTuple):
    """The cleanable part of a log: offsets from `first_dirty` up to `first_uncleanable`, the base offset of a segment.

    Source: Kafka's `OffsetsToClean`, and the sums of bytes in its `LogToClean`.
    """

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int

    @property
    def cleanable_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0


def cleanable_offsets(segments: Sequence[SegmentSizes], first_dirty: int, uncleanable_offset: int) -> CleanableOffsets:
    """Return the cleanable part of a log with these segments, the active one last; it ends at `uncleanable_offset`."""
    bases = [segment.base_offset for segment in segments]
    first_uncleanable = bases[-1]
    for base_offset, next_base in pairwise(bases):
        if next_base > uncleanable_offset:
            first_uncleanable = base_offset
            break
    clean_bytes = cleanable_bytes = 0
    for segment, next_base in zip(segments, [*bases[1:], MAX_RELATIVE_OFFSET**2], strict=True):
        if segment.base_offset < first_dirty:
            clean_bytes += segment.size_bytes
        if next_base > first_dirty and segment.base_offset < first_uncleanable:
            cleanable_bytes += segment.size_bytes
    return CleanableOffsets(first_dirty, max(first_dirty, first_uncleanable), clean_bytes, cleanable_bytes)


def group_segments_by_size(
    segments: Sequence[SegmentSizes], segment_bytes: int, index_bytes: int, first_uncleanable: int
) -> list[list[int]]:
    """Return groups of indexes of `segments`. Each group becomes one segment, and has as many as certainly fit."""
    groups: list[list[int]] = []
    sums = SegmentSizes(0, 0)
    for at, segment in enumerate(segments):
        next_base = segments[at + 1].base_offset if at + 1 < len(segments) else first_uncleanable
        grown = SegmentSizes(
            sums.base_offset,
            sums.size_bytes + segment.size_bytes,
            sums.index_bytes + segment.index_bytes,
            sums.time_index_bytes + segment.time_index_bytes,
        )
        fits = (
            grown.size_bytes <= segment_bytes
            and grown.index_bytes <= index_bytes
            and grown.time_index_bytes <= index_bytes
            and (segment.size_bytes == 0 or next_base - 1 - sums.base_offset <= MAX_RELATIVE_OFFSET)
        )
        if groups and fits:
            groups[-1].append(at)
            sums = grown
        else:
            groups.append([at])
            sums = segment
    return groups
