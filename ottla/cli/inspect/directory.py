"""A data directory as a whole: its identity, its lock, and the contents of its internal topics. shell"""

import fcntl
import os
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from ottla import files
from ottla.broker.cluster.image import INTERNAL_TOPICS, MetadataImage
from ottla.broker.cluster.kraft import MetadataBatchLoader, newest_snapshot
from ottla.broker.group.consumer.consumer_group import IllegalRecord
from ottla.broker.group.shard import GroupMetadata, GroupStore
from ottla.broker.log.loaded import LoadedLog
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_loader import Start, load_log
from ottla.broker.txn.log import read_changes
from ottla.broker.txn.states import RESTING
from ottla.broker.txn.values import TransactionState
from ottla.cli.inspect.overlay_disk import OverlayDisk
from ottla.cli.inspect.partition import silent_recovery
from ottla.protocol import checkpoints
from ottla.protocol.compression import TooLarge
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.kraft_records import SnapshotId, read_snapshot, snapshot_name
from ottla.protocol.java.properties import read_properties
from ottla.protocol.values import TopicPartition

METADATA_DIRECTORY: Final = "__cluster_metadata-0"

# `struct flock`: of Linux, and of macOS.
_FLOCK: Final = struct.Struct("@qqihh") if sys.platform == "darwin" else struct.Struct("@hhqqi4x")

T = TypeVar("T")


class Coordinated(NamedTuple):
    """A transactional id with an unfinished transaction."""

    transactional_id: str
    state: TransactionState
    partition: int


class GroupView(NamedTuple):
    group: str
    committed: int
    pending: int


class Directory:
    """The files that are read once for all partitions of a data directory. Raises OSError if it is unreadable."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        names = sorted(each.name for each in self.path.iterdir() if each.is_dir())
        # Sorted by number: 10 comes after 9.
        keys = {each: key for each in names if (key := checkpoints.parse_directory_name(each)) is not None}
        self.partitions = sorted(keys, key=lambda name: keys[name])
        self.others = [each for each in names if each not in keys]
        self.problems: list[str] = []
        self.unread: list[str] = []
        # Checkpoints that no start needs: written without a sync, so a power loss may tear them.
        self.torn: list[str] = []
        no_properties: dict[str, str] = {}
        self.properties = self._read(checkpoints.META_PROPERTIES, read_properties, no_properties)
        self.clean = (self.path / checkpoints.CLEAN_SHUTDOWN).exists()
        self.holder = holder_of_lock(self.path / checkpoints.LOCK)
        offsets = checkpoints.decode_offsets
        nothing: dict[TopicPartition, int] = {}
        self.recovery_points = self._read(checkpoints.RECOVERY_POINTS, offsets, nothing)
        self.log_starts = self._read(checkpoints.LOG_STARTS, offsets, nothing)
        self.high_watermarks = self._read(checkpoints.HIGH_WATERMARKS, offsets, nothing, self.torn)
        self._compacted = self._read(checkpoints.CLEANER_OFFSETS, offsets, nothing, self.torn)
        self.image = MetadataImage()

    def start_of(self, name: str, now_ms: int) -> Start:
        """Return the data about a partition that a start of the broker would have."""
        key = checkpoints.parse_directory_name(name) or ("", 0)
        return Start(
            recovery_point=self.recovery_points.get(key, 0),
            log_start_offset=self.log_starts.get(key, 0),
            clean=self.clean,
            truncate_damaged=False,
            now_ms=now_ms,
        )

    def settings_of(self, name: str) -> LogConfig:
        """Return the settings for loading, from the metadata log or, without one, from the compactions so far."""
        if name == METADATA_DIRECTORY:
            newest = newest_snapshot(each.name for each in (self.path / name).iterdir())
            return LogConfig(needed_from_offset=0 if newest is None else newest.end_offset)
        key = checkpoints.parse_directory_name(name) or ("", 0)
        topic = self.image.topics.get(key[0])
        if topic is None:
            compact = key[0] in INTERNAL_TOPICS or key in self._compacted
            return LogConfig(cleanup_policy="compact" if compact else "delete")
        policy = "compact" if topic.internal else topic.configs.get("cleanup.policy", "delete")
        interval = topic.configs.get("index.interval.bytes", "")
        if interval.isdigit():
            return LogConfig(cleanup_policy=policy, index_interval_bytes=int(interval))
        return LogConfig(cleanup_policy=policy)

    def read_metadata(self, now_ms: int) -> None:
        """Replay `__cluster_metadata-0` from its newest snapshot on. Unreadable data is added to `problems`."""
        if METADATA_DIRECTORY not in self.partitions:
            return
        loader = MetadataBatchLoader(self.image)
        directory = self.path / METADATA_DIRECTORY
        try:
            snapshot = newest_snapshot(each.name for each in directory.iterdir()) or SnapshotId(0, -1)
            if snapshot.epoch >= 0:
                for header, batch in read_snapshot(files.read(str(directory / snapshot_name(snapshot)))):
                    loader.load_batch(header, batch)
            with self.load(METADATA_DIRECTORY, now_ms) as log:
                for header, batch in log.segments.scan(max(log.log_start_offset, snapshot.end_offset)):
                    loader.load_batch(header, batch, snapshot.end_offset)
        except TooLarge as large:
            self.unread.append(f"{METADATA_DIRECTORY} was not read to its end: {large}")
        except (ProtocolError, LookupError) as broken:
            self.problems.append(f"{METADATA_DIRECTORY} cannot be read to its end: {broken}")

    @contextmanager
    def load(self, name: str, now_ms: int) -> Iterator[LoadedLog]:
        """Yield the log of a partition after a start's recovery, in memory only. Raises ProtocolError if damaged."""
        disk = OverlayDisk()
        try:
            with silent_recovery():
                log = load_log(disk, str(self.path / name), self.settings_of(name), self.start_of(name, now_ms))
            if log.damage is not None:
                raise ProtocolError(log.damage)
            yield log
        finally:
            disk.close()

    def transactions(self, now_ms: int) -> tuple[int, list[Coordinated]]:
        """Return the number of transactional ids of the coordinator, and those with an unfinished transaction."""
        count = 0
        opened: list[Coordinated] = []
        for name, index in self._partitions_of("__transaction_state"):
            states: dict[str, TransactionState] = {}
            with self._noting(name), self.load(name, now_ms) as log:
                for header, batch in log.segments.scan(log.log_start_offset):
                    for transactional_id, state in read_changes(header, batch, name):
                        if state is None:
                            states.pop(transactional_id, None)
                        else:
                            states[transactional_id] = state
            count += len(states)
            opened += [Coordinated(key, each, index) for key, each in states.items() if each.status not in RESTING]
        return count, opened

    def groups(self, now_ms: int) -> list[GroupView]:
        """Return the groups with the numbers of their committed offsets, and of their pending transactional offsets."""
        groups: dict[str, GroupMetadata] = {}
        for name, index in self._partitions_of("__consumer_offsets"):
            store = GroupStore(index)
            with self._noting(name), self.load(name, now_ms) as log:
                for header, batch in log.segments.scan(log.log_start_offset):
                    store.replay(header, batch)
            groups |= store.groups
        views = []
        for group, metadata in sorted(groups.items()):
            committed, pending = metadata.offsets.to_value()
            views.append(GroupView(group, len(committed), len(set(chain.from_iterable(pending.values())))))
        return views

    def _partitions_of(self, topic: str) -> Iterator[TopicPartition]:
        for name in self.partitions:
            key = checkpoints.parse_directory_name(name)
            if key is not None and key[0] == topic:
                yield name, key[1]

    @contextmanager
    def _noting(self, name: str) -> Iterator[None]:
        try:
            yield
        except TooLarge as large:
            self.unread.append(f"{name} was not read to its end: {large}")
        except (ProtocolError, IllegalRecord) as broken:
            self.problems.append(f"{name} cannot be read to its end: {broken}")

    def _read(self, name: str, decode: Callable[[bytes], T], absent: T, faults: list[str] | None = None) -> T:
        try:
            return decode(files.read(str(self.path / name)))
        except FileNotFoundError:
            return absent
        except ProtocolError as broken:
            (self.problems if faults is None else faults).append(f"{name}: {broken}")
            return absent


def holder_of_lock(path: Path) -> int | None:
    """Return the id of the process that holds the lock file of a data directory, 0 if unknown; None if it is free.

    This queries the lock without taking it, so it does not disturb a broker that starts at this moment.
    """
    try:
        descriptor = files.open_regular(str(path))
    except FileNotFoundError:
        return None
    try:
        if sys.platform == "darwin":
            lock = _FLOCK.pack(0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
            _, _, pid, kind, _ = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, lock))
        else:
            lock = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, lock))
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else max(0, pid)
