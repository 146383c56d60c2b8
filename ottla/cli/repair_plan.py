"""What is wrong beside the batches of one partition, and what would be put in its place. shell

The log is recovered from its first batch on, on a disk that only looks. Where a file says something else than what
recovery wrote there, it is replaced; a file that says the same in other words (sparser entries, producers that have
expired) is left alone.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from ottla.broker.log import checkpoints
from ottla.broker.log.loaded import LoadedLog
from ottla.broker.log.recovery import Start, load_log
from ottla.broker.log.settings import PartitionSettings
from ottla.cli.dump_file import ReadOnlyFile
from ottla.cli.dump_index import offset_index_fault, time_index_fault
from ottla.cli.dump_side import leader_epochs, offset_index, time_index
from ottla.cli.inspect_disk import OverlayDisk
from ottla.cli.inspect_partition import silent_recovery
from ottla.protocol.errors import ProtocolError
from ottla.protocol.indexes import AbortedTxn, iter_aborted, pack_all_aborted
from ottla.protocol.snapshot import ProducerEntry, decode_snapshot

NEVER_MS: Final = 2**62
_LEFT_TO_THE_START: Final = (".deleted", ".tmp")


class Change(NamedTuple):
    """One step: `kind` is rename (to `target`), cut (to `size_bytes`), remove, or write (`content`)."""

    kind: str
    path: str
    reason: str
    content: bytes = b""
    size_bytes: int = 0
    target: str = ""


class Plan(NamedTuple):
    """What is to be done to a partition, in this order. `damage` says why nothing may be done unasked.

    `end_offset` is where the log ends afterwards, `open_transactions` how many are open there.
    """

    changes: list[Change]
    damage: str | None
    end_offset: int
    open_transactions: int


def plan_partition(
    directory: str, settings: PartitionSettings, start: Start, topic_id: bytes | None, asked_to_cut: bool
) -> Plan:
    """Recover the partition in memory and compare. `start` is what a start would know; failed IO raises OSError."""
    disk = OverlayDisk()
    from_scratch = start._replace(
        recovery_point=0, clean=False, truncate_damaged=asked_to_cut, producer_id_expiration_ms=NEVER_MS
    )
    try:
        with silent_recovery():
            loaded = load_log(disk, directory, settings, from_scratch)
        end = loaded.segments.end_offset
        damage = loaded.damage and loaded.damage.replace(f"{directory} is damaged: ", "").replace(f"{directory}/", "")
        if damage is None and end < start.recovery_point and not asked_to_cut:
            damage = f"the log ends at {end}, below the recovery point {start.recovery_point}"
        if damage is not None:
            return Plan([], damage, end, 0)
        changes = list(_Comparison(disk, directory, settings, loaded).changes())
        changes += _side_files(directory, loaded, topic_id)
        return Plan(changes, None, end, len(loaded.producers.open_transactions))
    finally:
        disk.close()


def start_notices(directory: str, settings: PartitionSettings, start: Start) -> bool:
    """Whether a start would find the damage; after a clean stop it looks at the end of a log only."""
    disk = OverlayDisk()
    try:
        with silent_recovery():
            return load_log(disk, directory, settings, start).damage is not None
    finally:
        disk.close()


class _Comparison:
    """The files of a partition beside those that recovery made."""

    def __init__(self, disk: OverlayDisk, directory: str, settings: PartitionSettings, loaded: LoadedLog) -> None:
        self._disk = disk
        self._directory = directory
        self._compacted = settings.cleanup_compact
        self._log_start = loaded.log_start_offset
        self._end = loaded.segments.end_offset

    def changes(self) -> Iterator[Change]:
        disk = self._disk
        for old, new in disk.renamed:
            yield Change("rename", old, "a compaction that was not finished", target=new)
        swapped = bool(disk.renamed)
        for path in sorted(disk.removed, reverse=True):  # from the last segment on, so that no gap comes to be
            reason = self._removal_reason(path, swapped)
            if reason is not None:
                yield Change("remove", path, reason)
        for path, size_bytes in disk.truncated.items():
            if path not in disk.removed:
                yield Change("cut", path, f"not sound from position {size_bytes} on", size_bytes=size_bytes)
        for path in sorted(disk.written):
            yield from self._rewrite(path, bytes(disk.written[path]))

    def _removal_reason(self, path: str, swapped: bool) -> str | None:
        if not Path(path).exists() or (path.endswith(_LEFT_TO_THE_START) and not swapped):
            return None
        if path.endswith(".snapshot"):
            return self._stray_snapshot(path)
        log = Path(path).with_suffix(".log")
        if path.endswith(".txnindex") and log.exists() and str(log) not in self._disk.removed:
            kept = self._foreign_entries(_aborted(path), [])
            if kept is not None and kept == _aborted(path):
                return None
            return "it lists transactions that were not aborted here"
        if path.endswith((".log", ".index", ".timeindex", ".txnindex")):
            return "it lies behind the cut" if path.endswith(".log") else "there is no such segment"
        return "a compaction that was not finished"

    def _stray_snapshot(self, path: str) -> str | None:
        """Older ones than are needed do no harm."""
        if int(Path(path).stem) > self._end:
            return f"the log ends at {self._end}"
        try:
            decode_snapshot(Path(path).read_bytes())
        except ProtocolError as broken:
            return str(broken)
        return None

    def _rewrite(self, path: str, rebuilt: bytes) -> Iterator[Change]:
        file = Path(path)
        if not file.exists():
            if not any(new == path for _, new in self._disk.renamed):
                yield Change("write", path, "it was missing", rebuilt)
            return
        present = file.read_bytes()
        if present == rebuilt:
            return
        if file.suffix == ".txnindex":
            yield from self._rewrite_aborted(path, rebuilt)
            return
        reason = self._difference(path, present, rebuilt)
        if reason is not None:
            yield Change("write", path, reason, rebuilt)

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
        with ReadOnlyFile(str(Path(path).with_suffix(".log"))) as log:
            log.size_bytes = self._disk.truncated.get(f"{path.removesuffix('.index')}.log", log.size_bytes)
            fault = offset_index_fault(present, base, log)
        return fault or _too_few(count, sum(1 for _ in offset_index(rebuilt, base)))

    def _time_index_difference(self, path: str, present: bytes, rebuilt: bytes) -> str | None:
        base = int(Path(path).stem)
        found, expected = list(time_index(present, base)), list(time_index(rebuilt, base))
        with ReadOnlyFile(str(Path(path).with_suffix(".log"))) as log:
            log.size_bytes = self._disk.truncated.get(f"{path.removesuffix('.timeindex')}.log", log.size_bytes)
            fault = time_index_fault(present, base, log)
        if fault is None and expected and (not found or found[-1][1]["timestamp"] != expected[-1][1]["timestamp"]):
            fault = "it does not hold the largest timestamp of the segment"
        return fault or _too_few(len(found), len(expected))

    def _snapshot_difference(self, present: list[ProducerEntry], rebuilt: list[ProducerEntry]) -> str | None:
        """What a replay contradicts. Producers may have expired, or have written what is no longer in the log."""
        by_id = {entry.producer_id: entry for entry in present}
        for expected in rebuilt:
            found = by_id.get(expected.producer_id)
            if found is None:
                if expected.current_txn_first_offset >= 0:
                    return f"producer {expected.producer_id} has an open transaction that it lacks"
                continue
            began = found.current_txn_first_offset
            same = began == expected.current_txn_first_offset or 0 <= began < self._log_start
            same = same and found.producer_epoch == expected.producer_epoch
            if expected.last_offset >= 0 and not self._compacted:
                same = same and (found.last_offset, found.last_sequence) == (
                    expected.last_offset,
                    expected.last_sequence,
                )
            if not same:
                return f"producer {expected.producer_id} is {found} there and {expected} in the log"
        return None

    def _rewrite_aborted(self, path: str, rebuilt: bytes) -> Iterator[Change]:
        expected, present = list(iter_aborted(rebuilt)), _aborted(path)
        foreign = self._foreign_entries(present, expected)
        merged = sorted([*expected, *(foreign or [])], key=lambda entry: entry.last_offset)
        if present is not None and foreign is not None and _without_stable(merged) == _without_stable(present):
            return
        yield Change("write", path, "it does not list the aborted transactions", pack_all_aborted(merged))

    def _foreign_entries(self, present: list[AbortedTxn] | None, expected: list[AbortedTxn]) -> list[AbortedTxn] | None:
        """Entries that the log does not show and may not show any more: it was compacted, or begins later now."""
        if present is None:
            return None
        known = set(_without_stable(expected))
        return [
            entry
            for entry in present
            if entry[:3] not in known and (self._compacted or entry.first_offset < self._log_start)
        ]


def _side_files(directory: str, loaded: LoadedLog, topic_id: bytes | None) -> Iterator[Change]:
    """Leader epochs and the topic id, where they cannot be read."""
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
        content = Path(path).read_bytes()
        if path.endswith(checkpoints.LEADER_EPOCHS):
            list(leader_epochs(content))
        else:
            checkpoints.decode_partition_metadata(content)
    except FileNotFoundError:
        return "it was missing"
    except ProtocolError as broken:
        return str(broken)
    return None


def _aborted(path: str) -> list[AbortedTxn] | None:
    """The entries of a `.txnindex`; None if it is damaged."""
    try:
        return list(iter_aborted(Path(path).read_bytes()))
    except ProtocolError:
        return None


def _without_stable(entries: list[AbortedTxn]) -> list[tuple[int, ...]]:
    return [entry[:3] for entry in entries]


def _too_few(found: int, expected: int) -> str | None:
    """An index may be sparser than ours (its interval was another), but not by much."""
    return f"{found} entries where {expected} belong" if found < expected // 2 else None
