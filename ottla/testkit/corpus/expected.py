"""Expected content of a partition and expected reads, computed from the script that writes it. pure

A book records the steps of its script: the records of each producer, and the ends of transactions. It reads no files.
So it has the intended content, and the files, the broker and the consumers are compared with it.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ottla.printable import text_or_base64
from ottla.protocol.batch_header import increment_sequence
from ottla.protocol.records import Headers, NewRecord
from ottla.protocol.values import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, ProducerIdAndEpoch

PLAIN: Final = "plain"
COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
OPEN: Final = "open"
# Reasons why a read_committed consumer does not get an offset.
CONTROL, WAITING, COMPACTED = "control", "waiting", "compacted"

CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"
NO_PRODUCER: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class ExpectedRecord(NamedTuple):
    """A record as a consumer gets it; the timestamp in ms."""

    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: Headers


class Marker(NamedTuple):
    """A transaction marker."""

    offset: int
    producer_id: int
    producer_epoch: int
    commit: bool
    timestamp: int


@dataclass
class ExpectedBatch:
    """Records of a batch, and the fate of its transaction."""

    producer_id: int
    fate: str
    records: list[ExpectedRecord]


@dataclass
class ProducerState:
    """State of a producer, as in DescribeProducers."""

    producer_epoch: int
    last_sequence: int = NO_SEQUENCE
    last_timestamp: int = NO_TIMESTAMP
    coordinator_epoch: int = -1
    current_txn_start_offset: int = -1


@dataclass
class ExpectedPartition:
    """Expected content of a partition."""

    topic: str
    partition: int
    log_start_offset: int = 0
    log_end_offset: int = 0
    written: list[ExpectedBatch] = field(default_factory=list)
    markers: list[Marker] = field(default_factory=list)
    producers: dict[int, ProducerState] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """(producer id, first offset, offset of the marker)."""

    # Steps of the script.

    def append(
        self,
        records: Sequence[NewRecord],
        timestamp_ms: int,
        producer: ProducerIdAndEpoch = NO_PRODUCER,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        append_time_ms: int | None = None,
    ) -> None:
        """Append a batch."""
        first = self.log_end_offset
        self.log_end_offset += len(records)
        times = [timestamp_ms if record.timestamp_ms is None else record.timestamp_ms for record in records]
        shown = [
            ExpectedRecord(
                first + index,
                time if append_time_ms is None else append_time_ms,
                CREATE_TIME if append_time_ms is None else LOG_APPEND_TIME,
                record.key,
                record.value,
                tuple(record.headers),
            )
            for index, (record, time) in enumerate(zip(records, times, strict=True))
        ]
        self.written.append(ExpectedBatch(producer.producer_id, OPEN if transactional else PLAIN, shown))
        if producer.producer_id != NO_PRODUCER_ID:
            state = self._state_of(producer)
            if base_sequence != NO_SEQUENCE:
                state.last_sequence = increment_sequence(base_sequence, len(records) - 1)
            state.last_timestamp = max(times) if append_time_ms is None else append_time_ms
            if transactional and state.current_txn_start_offset < 0:
                state.current_txn_start_offset = first

    def end_transaction(
        self, producer: ProducerIdAndEpoch, commit: bool, timestamp_ms: int, coordinator_epoch: int = 0
    ) -> None:
        """Append the marker of a transaction, which may have no records here."""
        offset = self.log_end_offset
        self.log_end_offset += 1
        self.markers.append(Marker(offset, *producer, commit, timestamp_ms))
        state = self._state_of(producer)
        for batch in self.written:
            if batch.producer_id == producer.producer_id and batch.fate == OPEN:
                batch.fate = COMMITTED if commit else ABORTED
        if state.current_txn_start_offset >= 0 and not commit:
            self.aborted.append((producer.producer_id, state.current_txn_start_offset, offset))
        state.current_txn_start_offset = -1
        state.last_timestamp = timestamp_ms
        state.coordinator_epoch = coordinator_epoch

    def delete_before(self, offset: int) -> None:
        """Move the log start offset."""
        self.log_start_offset = offset

    def compact(self, removed: Collection[int], forgotten: Collection[int] = ()) -> None:
        """Remove these records and markers from the log; their offsets are not used again.

        `forgotten` are first offsets of aborted transactions without records, which are no longer in the index.
        """
        for batch in self.written:
            batch.records = [record for record in batch.records if record.offset not in removed]
        self.markers = [marker for marker in self.markers if marker.offset not in removed]
        self.aborted = [entry for entry in self.aborted if entry[1] not in forgotten]

    def _state_of(self, producer: ProducerIdAndEpoch) -> ProducerState:
        state = self.producers.setdefault(producer.producer_id, ProducerState(producer.epoch))
        if state.producer_epoch != producer.epoch:
            state.producer_epoch, state.last_sequence = producer.epoch, NO_SEQUENCE
        return state

    # Expected results.

    @property
    def last_stable_offset(self) -> int:
        starts = [state.current_txn_start_offset for state in self.producers.values()]
        return min((start for start in starts if start >= 0), default=self.log_end_offset)

    def records(self) -> Iterator[tuple[ExpectedRecord, str]]:
        """Yield every record in the log, with the fate of its transaction."""
        for batch in self.written:
            yield from ((record, batch.fate) for record in batch.records if record.offset >= self.log_start_offset)

    def visible(self, committed: bool) -> list[int]:
        """Return the offsets that a consumer gets."""
        stable = self.last_stable_offset
        return [
            record.offset
            for record, fate in self.records()
            if not committed or (fate in (PLAIN, COMMITTED) and record.offset < stable)
        ]

    def gaps(self) -> list[tuple[int, int, str]]:
        """Return (first, last, why) for each run of offsets in the log that a read_committed consumer does not get."""
        visible, stable = set(self.visible(committed=True)), self.last_stable_offset
        aborted = {record.offset for record, fate in self.records() if fate == ABORTED}
        control = {marker.offset for marker in self.markers}
        found: list[tuple[int, int, str]] = []
        for offset in range(self.log_start_offset, self.log_end_offset):
            if offset in visible:
                continue
            if offset >= stable:
                cause = WAITING
            elif offset in control:
                cause = CONTROL
            else:
                cause = ABORTED if offset in aborted else COMPACTED
            if found and found[-1][1:] == (offset - 1, cause):
                found[-1] = (found[-1][0], offset, cause)
            else:
                found.append((offset, offset, cause))
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the partition for `case.json`."""
        stable = self.last_stable_offset
        # Kafka ignores a producer snapshot that is not after the log start (`truncateAndReload`).
        producers = self.producers if self.log_start_offset < self.log_end_offset else {}
        aborted = sorted(
            (first, producer_id)
            for producer_id, first, marker in self.aborted
            if marker >= self.log_start_offset and first < stable
        )
        return {
            "topic": self.topic,
            "partition": self.partition,
            "log_start_offset": self.log_start_offset,
            "last_stable_offset": stable,
            "high_watermark": self.log_end_offset,
            "log_end_offset": self.log_end_offset,
            "aborted_transactions": [{"producer_id": producer, "first_offset": first} for first, producer in aborted],
            "read_committed": self.visible(committed=True),
            "read_uncommitted": self.visible(committed=False),
            "records": [_record(record, fate) for record, fate in self.records()],
            "markers": [_marker(marker) for marker in self.markers if marker.offset >= self.log_start_offset],
            "gaps": [{"first_offset": first, "last_offset": last, "why": cause} for first, last, cause in self.gaps()],
            "producers": [{"producer_id": producer} | vars(state) for producer, state in sorted(producers.items())],
        }


def _record(record: ExpectedRecord, fate: str) -> dict[str, Any]:
    return record._asdict() | {
        "key": text_or_base64(record.key),
        "value": text_or_base64(record.value),
        "headers": [{"key": name, "value": text_or_base64(value)} for name, value in record.headers],
        "fate": fate,
    }


def _marker(marker: Marker) -> dict[str, Any]:
    return {
        "offset": marker.offset,
        "timestamp": marker.timestamp,
        "type": "COMMIT" if marker.commit else "ABORT",
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
    }
