"""A partition of the model: its log, and the broker's own producer state over it. pure

`ProducerStateManager` decides and applies. After each step its state is compared with the result of a replay of the
log.
"""

from copy import deepcopy
from typing import Final, NamedTuple

from lab.model.values import NOW_MS, Interned, Marker, Request, Violation
from ottla.broker.log.producer_state_entry import ProducerStateEntry
from ottla.broker.log.producer_state_manager import AppendOrigin, ProducerStateManager
from ottla.protocol.batch_header import TRANSACTIONAL, BatchHeader
from ottla.protocol.errors import ErrorCode

# Outcomes of the records of one transaction on one partition.
COMMITTED: Final = 1
ABORTED: Final = 2
OPEN: Final = 4
TWICE: Final = 8


class Entry(NamedTuple):
    """A batch: data of a producer's transaction, or (`txn` -1) a marker. `serial` is the coordinator's count."""

    producer_id: int
    epoch: int
    serial: int
    client: int = -1
    txn: int = -1
    sequence: int = -1
    commit: bool = False
    coordinator_epoch: int = -1

    @property
    def is_marker(self) -> bool:
        return self.txn < 0


Log = tuple[Entry, ...]


class Partition(NamedTuple):
    log: Log
    producers: ProducerStateManager

    @property
    def stable_offset(self) -> int:
        unstable = self.producers.first_unstable_offset()
        return len(self.log) if unstable is None else unstable

    # Called by the broker's verification.

    def producer_of(self, producer_id: int) -> ProducerStateEntry | None:
        return self.producers.get(producer_id)


class Appended(NamedTuple):
    """The partition after an append, and its answer. `strays`: the marker ended data of another transaction."""

    partition: int
    error: ErrorCode
    written: bool = False
    strays: bool = False


class PartitionSteps:
    """All known states of a partition, and their steps. Each step is computed once."""

    def __init__(self) -> None:
        self.known: Interned[Partition] = Interned()
        self._began: dict[tuple[int, Request, bool], int] = {}
        self._appended: dict[tuple[int, Request, int], Appended] = {}
        self._marked: dict[tuple[int, Marker], Appended] = {}
        self._outcomes: dict[int, dict[tuple[int, int], int]] = {}

    def number(self, partition: Partition) -> int:
        verifications = partition.producers._verifications
        return self.known.number(partition, (partition.log, tuple(sorted(verifications.items()))))

    def maybe_start_transaction_verification(self, number: int, request: Request, supports_epoch_bump: bool) -> int:
        key = (number, request, supports_epoch_bump)
        known = self._began.get(key)
        if known is None:
            log, producers = self.known[number]
            producers = deepcopy(producers)
            producers.maybe_create_verification_state_entry(
                request.producer_id, request.epoch, request.sequence, NOW_MS, supports_epoch_bump
            )
            known = self._began[key] = self.number(Partition(log, producers))
        return known

    def append(self, number: int, request: Request, serial: int) -> Appended:
        """Append a verified write."""
        key = (number, request, serial)
        known = self._appended.get(key)
        if known is None:
            known = self._appended[key] = self._append(number, request, serial)
        return known

    def mark(self, number: int, marker: Marker) -> Appended:
        key = (number, marker)
        known = self._marked.get(key)
        if known is None:
            known = self._marked[key] = self._mark(number, marker)
        return known

    def outcomes(self, number: int) -> dict[tuple[int, int], int]:
        """Return {(client, txn): its outcomes COMMITTED, ABORTED, OPEN and TWICE, or-ed}."""
        known = self._outcomes.get(number)
        if known is None:
            known = self._outcomes[number] = _outcomes(self.known[number].log)
        return known

    def _append(self, number: int, request: Request, serial: int) -> Appended:
        before = self.known[number]
        producers = deepcopy(before.producers)
        entry = Entry(request.producer_id, request.epoch, serial, request.client, request.txn, request.sequence)
        header = _header(entry)
        decision = producers.check_batch(header, AppendOrigin.CLIENT)
        if decision.error or decision.duplicate is not None:
            return Appended(number, decision.error)
        known = producers.get(entry.producer_id)
        if known is not None and entry.epoch < known.epoch:
            raise Violation("zombie-append", f"epoch {entry.epoch} was appended after epoch {known.epoch}")
        producers.apply_batch(header, len(before.log), NOW_MS)
        return Appended(self._advanced(before, entry, producers), ErrorCode.NONE, True)

    def _mark(self, number: int, marker: Marker) -> Appended:
        before = self.known[number]
        producers = deepcopy(before.producers)
        decision = producers.check_marker(marker.producer_id, marker.epoch, marker.coordinator_epoch, marker.version)
        if decision.error:
            return Appended(number, decision.error)
        known = producers.get(marker.producer_id)
        if known is not None and marker.epoch < known.epoch:
            raise Violation("epoch-went-back", f"marker epoch {marker.epoch} after epoch {known.epoch}")
        ended = _open_entries(before.log, marker.producer_id)
        entry = Entry(
            marker.producer_id,
            marker.epoch,
            marker.serial,
            commit=marker.commit,
            coordinator_epoch=marker.coordinator_epoch,
        )
        _apply_marker(producers, entry, len(before.log))
        after = self._advanced(before, entry, producers)
        return Appended(after, ErrorCode.NONE, True, any(each.serial != marker.serial for each in ended))

    def _advanced(self, before: Partition, entry: Entry, producers: ProducerStateManager) -> int:
        log = (*before.log, entry)
        producers.on_high_watermark_change(len(log))
        after = Partition(log, producers)
        if after.stable_offset < before.stable_offset:
            raise Violation("lso-went-back", f"from {before.stable_offset} to {after.stable_offset}")
        expected = min(
            (at for each in {e.producer_id for e in log} for at in _open_offsets(log, each)), default=len(log)
        )
        if after.stable_offset != expected:
            raise Violation("lso", f"{after.stable_offset}, by the log {expected}")
        if _known(replay(log)) != _known(producers):
            raise Violation("replay", f"the state replayed from {log} is another")
        return self.number(after)


def replay(log: Log) -> ProducerStateManager:
    """Return the producer state that recovery builds: batches are applied without checks."""
    producers = ProducerStateManager()
    for offset, entry in enumerate(log):
        if entry.is_marker:
            _apply_marker(producers, entry, offset)
        else:
            producers.apply_batch(_header(entry), offset, NOW_MS)
        producers.on_high_watermark_change(offset + 1)
    return producers


def _apply_marker(producers: ProducerStateManager, entry: Entry, offset: int) -> None:
    producers.apply_marker(entry.producer_id, entry.epoch, entry.coordinator_epoch, entry.commit, offset, NOW_MS)


def _known(producers: ProducerStateManager) -> object:
    return {each.producer_id: each.to_value() for each in producers}, list(producers.ongoing_txns.items())


def _header(entry: Entry) -> BatchHeader:
    """Return the header of a transactional batch with one record."""
    return BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=TRANSACTIONAL,
        last_offset_delta=0,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        base_sequence=entry.sequence,
        record_count=1,
    )


def _open_offsets(log: Log, producer_id: int) -> list[int]:
    """Return the offsets of a producer's data after its last marker, found without the broker's code."""
    opened: list[int] = []
    for offset, entry in enumerate(log):
        if entry.producer_id == producer_id:
            opened = [] if entry.is_marker else [*opened, offset]
    return opened


def _open_entries(log: Log, producer_id: int) -> list[Entry]:
    return [log[offset] for offset in _open_offsets(log, producer_id)]


def _outcomes(log: Log) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = {}
    for offset, entry in enumerate(log):
        if entry.is_marker:
            continue
        end = next((e for e in log[offset + 1 :] if e.is_marker and e.producer_id == entry.producer_id), None)
        outcome = OPEN if end is None else COMMITTED if end.commit else ABORTED
        tag = (entry.client, entry.txn)
        found[tag] = found.get(tag, 0) | outcome | (TWICE if tag in found else 0)
    return found
