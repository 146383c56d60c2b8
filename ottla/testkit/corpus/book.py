"""What a partition holds and what its readers get, as told by the script that wrote it: no file is looked at. pure

A book follows the steps of its script: who wrote which records, and where a transaction ended. So what it says is what
the writers meant, and the files, the broker and the consumers are held against it.
"""

from base64 import b64encode
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ottla.protocol.batch_header import increment_sequence
from ottla.protocol.records import Headers, NewRecord
from ottla.protocol.values import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    ProducerIdAndEpoch,
)

PLAIN: Final = "plain"
COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
OPEN: Final = "open"
# Why a consumer of read_committed is not given an offset.
CONTROL, WAITING, COMPACTED = "control", "waiting", "compacted"

CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"
NOBODY: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class Shown(NamedTuple):
    """A record as a consumer gets it; the timestamp in ms."""

    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: Headers


class Marker(NamedTuple):
    """The end of a transaction, at its offset."""

    offset: int
    producer_id: int
    producer_epoch: int
    commit: bool
    timestamp: int


@dataclass
class Written:
    """What one batch put there, and what became of its transaction."""

    producer_id: int
    fate: str
    records: list[Shown]


@dataclass
class ProducerState:
    """What DescribeProducers says of a producer."""

    producer_epoch: int
    last_sequence: int = NO_SEQUENCE
    last_timestamp: int = NO_TIMESTAMP
    coordinator_epoch: int = -1
    current_txn_start_offset: int = -1


@dataclass
class Book:
    """One partition, as it is written."""

    topic: str
    partition: int
    log_start_offset: int = 0
    log_end_offset: int = 0
    written: list[Written] = field(default_factory=list)
    markers: list[Marker] = field(default_factory=list)
    producers: dict[int, ProducerState] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """(producer id, first offset, offset of the marker)."""

    # What the script does.

    def append(
        self,
        records: Sequence[NewRecord],
        timestamp_ms: int,
        producer: ProducerIdAndEpoch = NOBODY,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        append_time_ms: int | None = None,
    ) -> None:
        """A batch, at the end of the log."""
        first = self.log_end_offset
        self.log_end_offset += len(records)
        times = [timestamp_ms if record.timestamp_ms is None else record.timestamp_ms for record in records]
        shown = [
            Shown(
                first + index,
                time if append_time_ms is None else append_time_ms,
                CREATE_TIME if append_time_ms is None else LOG_APPEND_TIME,
                record.key,
                record.value,
                tuple(record.headers),
            )
            for index, (record, time) in enumerate(zip(records, times, strict=True))
        ]
        self.written.append(Written(producer.producer_id, OPEN if transactional else PLAIN, shown))
        if producer.producer_id != NO_PRODUCER_ID:
            state = self._state_of(producer)
            if base_sequence != NO_SEQUENCE:
                state.last_sequence = increment_sequence(base_sequence, len(records) - 1)
            state.last_timestamp = max(times) if append_time_ms is None else append_time_ms
            if transactional and state.current_txn_start_offset < 0:
                state.current_txn_start_offset = first

    def end(self, producer: ProducerIdAndEpoch, commit: bool, timestamp_ms: int, coordinator_epoch: int = 0) -> None:
        """The marker of a transaction, which may have nothing here."""
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
        """The log starts there."""
        self.log_start_offset = offset

    def compact(self, gone: Collection[int], forgotten: Collection[int] = ()) -> None:
        """These records and markers are not in the log any more; their offsets stay taken.

        `forgotten` are first offsets of aborted transactions whose records were gone before: no index names them.
        """
        for batch in self.written:
            batch.records = [record for record in batch.records if record.offset not in gone]
        self.markers = [marker for marker in self.markers if marker.offset not in gone]
        self.aborted = [entry for entry in self.aborted if entry[1] not in forgotten]

    def _state_of(self, producer: ProducerIdAndEpoch) -> ProducerState:
        state = self.producers.setdefault(producer.producer_id, ProducerState(producer.epoch))
        if state.producer_epoch != producer.epoch:
            state.producer_epoch, state.last_sequence = producer.epoch, NO_SEQUENCE
        return state

    # What follows.

    @property
    def last_stable_offset(self) -> int:
        starts = [state.current_txn_start_offset for state in self.producers.values()]
        return min((start for start in starts if start >= 0), default=self.log_end_offset)

    def records(self) -> Iterator[tuple[Shown, str]]:
        """Every record that is there, with the fate of its transaction."""
        for batch in self.written:
            yield from ((record, batch.fate) for record in batch.records if record.offset >= self.log_start_offset)

    def visible(self, committed: bool) -> list[int]:
        """The offsets that a consumer is given."""
        stable = self.last_stable_offset
        return [
            record.offset
            for record, fate in self.records()
            if not committed or (fate in (PLAIN, COMMITTED) and record.offset < stable)
        ]

    def gaps(self) -> list[tuple[int, int, str]]:
        """(first, last, why): all that a consumer of read_committed is not given, between the ends of the log."""
        visible, stable = set(self.visible(committed=True)), self.last_stable_offset
        aborted = {record.offset for record, fate in self.records() if fate == ABORTED}
        control = {marker.offset for marker in self.markers}
        found: list[tuple[int, int, str]] = []
        for offset in range(self.log_start_offset, self.log_end_offset):
            if offset in visible:
                continue
            if offset >= stable:
                why = WAITING
            elif offset in control:
                why = CONTROL
            else:
                why = ABORTED if offset in aborted else COMPACTED
            if found and found[-1][1:] == (offset - 1, why):
                found[-1] = (found[-1][0], offset, why)
            else:
                found.append((offset, offset, why))
        return found

    def told(self) -> dict[str, Any]:
        """For `case.json`."""
        stable = self.last_stable_offset
        # A snapshot of producers that is not beyond the start of the log is not read (`truncateAndReload`).
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
            "aborted_transactions": [{"producer_id": who, "first_offset": first} for first, who in aborted],
            "read_committed": self.visible(committed=True),
            "read_uncommitted": self.visible(committed=False),
            "records": [_record(record, fate) for record, fate in self.records()],
            "markers": [_marker(marker) for marker in self.markers if marker.offset >= self.log_start_offset],
            "gaps": [{"first_offset": first, "last_offset": last, "why": why} for first, last, why in self.gaps()],
            "producers": [{"producer_id": who} | vars(state) for who, state in sorted(producers.items())],
        }


def _record(record: Shown, fate: str) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": record.timestamp_type,
        "key": shown_bytes(record.key),
        "value": shown_bytes(record.value),
        "headers": [{"key": name, "value": shown_bytes(value)} for name, value in record.headers],
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


def shown_bytes(content: bytes | None) -> str | dict[str, str] | None:
    """Text where it is text, as `ottla dump` shows it."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(content).decode()}
