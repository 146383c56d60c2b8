"""Faults in the files of one partition other than its batches, and their repair. shell

The log is recovered from its first batch on, in memory. A file that contradicts the result of recovery is replaced. A
file that differs without a contradiction (sparser entries, expired producers) is unchanged. So are entries that a
compacted log cannot show any more: earlier states of producers, and transactions whose batches are gone.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from ottla import files
from ottla.broker.log.batches import BadBatch
from ottla.broker.log.loaded import LoadedLog
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_loader import Start, load_log
from ottla.broker.log.swap import complete_swap_operations
from ottla.cli.dump.index_faults import offset_index_fault, time_index_fault
from ottla.cli.dump.side_files import leader_epochs, offset_index, time_index
from ottla.cli.inspect.overlay_disk import OverlayDisk
from ottla.cli.inspect.partition import silent_recovery
from ottla.cli.read_only import ReadOnlyFile
from ottla.protocol import checkpoints
from ottla.protocol.errors import ProtocolError
from ottla.protocol.indexes import AbortedTxn, iter_aborted_txns, pack_aborted_txns
from ottla.protocol.snapshot import ProducerEntry, decode_snapshot

NEVER_MS: Final = 2**62
_LEFT_TO_THE_START: Final = (".deleted", ".tmp")
_FIRST_OFFSET: Final = attrgetter("first_offset")


class Change(NamedTuple):
    """A step of a repair. `kind` is rename (to `target`), cut (to `size_bytes`), remove, or write (`content`)."""

    kind: str
    path: str
    reason: str
    content: bytes = b""
    size_bytes: int = 0
    target: str = ""


class Plan(NamedTuple):
    """The changes to a partition, in order. With `damage`, `changes` is empty: the user must request the cut.

    `end_offset` is the end of the log afterwards, `open_transactions` the number of transactions open there.
    """

    changes: list[Change]
    damage: str | None
    end_offset: int
    open_transactions: int


def plan_partition(
    directory: str, settings: LogConfig, start: Start, topic_id: bytes | None, cut_damaged: bool
) -> Plan:
    """Recover the partition in memory and compare. `start` has the data that a start has. Failed IO raises OSError."""
    disk = OverlayDisk()
    from_scratch = start._replace(recovery_point=0, clean=False, truncate_damaged=cut_damaged)
    keep_all_producers = replace(settings, producer_id_expiration_ms=NEVER_MS)
    try:
        with silent_recovery():
            with suppress(BadBatch):  # loading finds it again, and reports it
                complete_swap_operations(disk, directory, disk.list(directory))
            swap = list(disk.moves)
            loaded = load_log(disk, directory, keep_all_producers, from_scratch)
        end = loaded.segments.end_offset
        damage = loaded.damage and loaded.damage.replace(f"{directory} is damaged: ", "").replace(f"{directory}/", "")
        if damage is None and end < start.recovery_point and not cut_damaged:
            damage = f"the log ends at {end}, below the recovery point {start.recovery_point}"
        if damage is not None:
            return Plan([], damage, end, 0)
        changes = [_swap_step(*move) for move in swap]
        changes += _Comparison(disk, directory, settings, loaded, swap).changes()
        changes += _side_files(directory, loaded, topic_id)
        return Plan(changes, None, end, len(loaded.producer_state.ongoing_txns))
    finally:
        disk.close()


def start_notices(directory: str, settings: LogConfig, start: Start) -> bool:
    """Return whether a start would find the damage. After a clean stop, a start checks only the end of a log."""
    disk = OverlayDisk()
    try:
        with silent_recovery():
            return load_log(disk, directory, settings, start).damage is not None
    finally:
        disk.close()


def _swap_step(old: str, new: str) -> Change:
    """Return a step that completes a compaction, as a start does. In this order, a kill in between does no harm."""
    reason = "a compaction that was not finished"
    return Change("rename", old, reason, target=new) if new else Change("remove", old, reason)


class _Comparison:
    """Comparison of a partition's files with those of recovery. `swap` has the moves that completed a compaction."""

    def __init__(
        self,
        disk: OverlayDisk,
        directory: str,
        settings: LogConfig,
        loaded: LoadedLog,
        swap: list[tuple[str, str]],
    ) -> None:
        self._disk = disk
        # The real file of each new name, and the old names without a file.
        self._origins: dict[str, str] = {}
        self._swapped_out: set[str] = set()
        for old, new in swap:
            origin = self._origins.pop(old, old)
            self._swapped_out.add(old)
            if new:
                self._origins[new] = origin
                self._swapped_out.discard(new)
        self._directory = directory
        self._compacted = settings.cleanup_compact
        self._log_start = loaded.log_start_offset
        self._end = loaded.segments.end_offset

    def changes(self) -> Iterator[Change]:
        disk = self._disk
        # From the last segment backwards, so that a crash leaves no gap.
        for path in sorted(disk.removed - self._swapped_out, reverse=True):
            reason = self._removal_reason(path)
            if reason is not None:
                yield Change("remove", path, reason)
        for path, size_bytes in disk.truncated.items():
            if path not in disk.removed:
                yield Change("cut", path, f"not sound from position {size_bytes} on", size_bytes=size_bytes)
        for path in sorted(disk.written):
            yield from self._rewrite(path, bytes(disk.written[path]))

    def _removal_reason(self, path: str) -> str | None:
        if path.endswith(_LEFT_TO_THE_START) or not self._real(path).exists():
            return None
        if path.endswith(".snapshot"):
            return self._stray_snapshot(path)
        log = str(Path(path).with_suffix(".log"))
        if path.endswith(".txnindex") and self._real(log).exists() and log not in self._disk.removed:
            present = self._read_transaction_index(path)
            kept = self._foreign_entries(present, [])
            if kept is not None and kept == present:
                return None
            return "it lists transactions that were not aborted here"
        return "it is after the cut" if path.endswith(".log") else "there is no such segment"

    def _stray_snapshot(self, path: str) -> str | None:
        """Return the reason to remove a snapshot that recovery removed. A sound one within the log does no harm."""
        if int(Path(path).stem) > self._end:
            return f"the log ends at {self._end}"
        try:
            decode_snapshot(files.read(path))
        except ProtocolError as broken:
            return str(broken)
        return None

    def _rewrite(self, path: str, rebuilt: bytes) -> Iterator[Change]:
        file = self._real(path)
        if path in self._swapped_out or not file.exists():
            yield Change("write", path, "it was missing", rebuilt)
            return
        present = files.read(str(file))
        if present == rebuilt:
            return
        if Path(path).suffix == ".txnindex":
            yield from self._rewrite_transaction_index(path, rebuilt)
            return
        reason = self._difference(path, present, rebuilt)
        if reason is not None:
            yield Change("write", path, reason, rebuilt)

    def _real(self, path: str) -> Path:
        """Return the file that has this name, or will have it after the compaction is completed."""
        return Path(self._origins.get(path, path))

    def _difference(self, path: str, present: bytes, rebuilt: bytes) -> str | None:
        try:
            if path.endswith(".index"):
                return self._index_difference(path, present, rebuilt)
            if path.endswith(".timeindex"):
                return self._time_index_difference(path, present, rebuilt)
            if path.endswith(".snapshot"):
                return self._snapshot_difference(decode_snapshot(present), decode_snapshot(rebuilt))
        except ProtocolError as broken:
            return str(broken)
        return "it differs"

    def _index_difference(self, path: str, present: bytes, rebuilt: bytes) -> str | None:
        base = int(Path(path).stem)
        count = sum(1 for _ in offset_index(present, base))
        with ReadOnlyFile(str(self._real(str(Path(path).with_suffix(".log"))))) as log:
            log.size_bytes = self._disk.truncated.get(f"{path.removesuffix('.index')}.log", log.size_bytes)
            fault = offset_index_fault(present, base, log)
        return fault or _too_few(count, sum(1 for _ in offset_index(rebuilt, base)))

    def _time_index_difference(self, path: str, present: bytes, rebuilt: bytes) -> str | None:
        base = int(Path(path).stem)
        found, expected = list(time_index(present, base)), list(time_index(rebuilt, base))
        with ReadOnlyFile(str(self._real(str(Path(path).with_suffix(".log"))))) as log:
            log.size_bytes = self._disk.truncated.get(f"{path.removesuffix('.timeindex')}.log", log.size_bytes)
            fault = time_index_fault(present, base, log)
        if fault is None and expected and (not found or found[-1][1]["timestamp"] != expected[-1][1]["timestamp"]):
            fault = "it does not hold the largest timestamp of the segment"
        return fault or _too_few(len(found), len(expected))

    def _snapshot_difference(self, present: list[ProducerEntry], rebuilt: list[ProducerEntry]) -> str | None:
        """Return the first contradiction to a replay. Producers may have expired, or their batches may be gone."""
        by_id = {entry.producer_id: entry for entry in present}
        for expected in rebuilt:
            found = by_id.get(expected.producer_id)
            if found is None:
                if expected.current_txn_first_offset >= 0:
                    return f"producer {expected.producer_id} has an open transaction that it lacks"
                continue
            agree = _knows_more if self._compacted else self._agree
            if not agree(found, expected):
                return f"producer {expected.producer_id} is {found} there and {expected} in the log"
        return None

    def _agree(self, found: ProducerEntry, expected: ProducerEntry) -> bool:
        began = found.current_txn_first_offset
        last = found.last_offset, found.last_sequence
        return (
            (began == expected.current_txn_first_offset or 0 <= began < self._log_start)
            and found.producer_epoch == expected.producer_epoch
            and (expected.last_offset < 0 or last == (expected.last_offset, expected.last_sequence))
        )

    def _rewrite_transaction_index(self, path: str, rebuilt: bytes) -> Iterator[Change]:
        expected, present = list(iter_aborted_txns(rebuilt)), self._read_transaction_index(path)
        if self._compacted:
            # The first batches of a transaction may be gone; the existing entry has its first offset.
            known = {(entry.producer_id, entry.last_offset): entry for entry in present or ()}
            expected = [
                min(entry, known.get((entry.producer_id, entry.last_offset), entry), key=_FIRST_OFFSET)
                for entry in expected
            ]
        foreign = self._foreign_entries(present, expected)
        merged = sorted([*expected, *(foreign or [])], key=lambda entry: entry.last_offset)
        if present is not None and foreign is not None and _without_stable(merged) == _without_stable(present):
            return
        yield Change("write", path, "it does not list the aborted transactions", pack_aborted_txns(merged))

    def _read_transaction_index(self, path: str) -> list[AbortedTxn] | None:
        """Return the entries of a `.txnindex`, None if it is damaged."""
        try:
            return list(iter_aborted_txns(files.read(str(self._real(path)))))
        except ProtocolError:
            return None

    def _foreign_entries(self, present: list[AbortedTxn] | None, expected: list[AbortedTxn]) -> list[AbortedTxn] | None:
        """Return the entries that the log no longer shows, because it was compacted or its start was moved."""
        if present is None:
            return None
        known = set(_without_stable(expected))
        return [
            entry
            for entry in present
            if entry[:3] not in known and (self._compacted or entry.first_offset < self._log_start)
        ]


def _side_files(directory: str, loaded: LoadedLog, topic_id: bytes | None) -> Iterator[Change]:
    """Yield the rewrites of leader epochs and topic id if their files cannot be read."""
    path = f"{directory}/{checkpoints.LEADER_EPOCHS}"
    reason = _unreadable(path)
    if reason is not None and loaded.epochs.entries:
        yield Change("write", path, reason, checkpoints.encode_epochs(loaded.epochs.entries))
    path = f"{directory}/{checkpoints.PARTITION_METADATA}"
    reason = _unreadable(path)
    if reason is not None and topic_id is not None:
        yield Change("write", path, reason, checkpoints.encode_partition_metadata(topic_id))


def _unreadable(path: str) -> str | None:
    try:
        content = files.read(path)
        if path.endswith(checkpoints.LEADER_EPOCHS):
            list(leader_epochs(content))
        else:
            checkpoints.decode_partition_metadata(content)
    except FileNotFoundError:
        return "it was missing"
    except ProtocolError as broken:
        return str(broken)
    return None


def _knows_more(found: ProducerEntry, expected: ProducerEntry) -> bool:
    """Return whether a snapshot has at least the state of a producer that a compacted log still shows."""
    began, least_began = found.current_txn_first_offset, expected.current_txn_first_offset
    if least_began >= 0 and not 0 <= began <= least_began:
        return False
    if found.producer_epoch != expected.producer_epoch:
        return found.producer_epoch > expected.producer_epoch
    return found.last_offset >= expected.last_offset


def _without_stable(entries: list[AbortedTxn]) -> list[tuple[int, ...]]:
    return [entry[:3] for entry in entries]


def _too_few(found: int, expected: int) -> str | None:
    """Return the reason if an index has less than half the expected entries. Its interval may have been larger."""
    return f"{found} entries instead of {expected}" if found < expected // 2 else None
