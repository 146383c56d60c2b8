"""The log directory: lock, partitions and checkpoints. shell

Source: Kafka's `LogManager`; file names and formats are in `checkpoints.py`.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from logging import getLogger
from typing import Final

from ottla.broker.config import Config
from ottla.broker.log import parallel_recovery
from ottla.broker.log.checkpointer import Checkpointer
from ottla.broker.log.file_deleter import FileDeleter
from ottla.broker.log.flusher import Flusher
from ottla.broker.log.loaded import LoadedLog
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_loader import Start, load_steps, new_log
from ottla.broker.log.meta_properties import LogDirectoryError, MetaProperties, read_or_make
from ottla.broker.log.openings import Openings
from ottla.broker.log.partition import Partition
from ottla.broker.log.remaining import Remaining
from ottla.broker.log.side_files import SideFiles
from ottla.broker.log_limiter import LogLimiter
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.descriptors import Shortage, shortage
from ottla.broker.ports.disk import Disk, Lock, Volume
from ottla.broker.ports.locks import LockHeld
from ottla.broker.turns import Turns
from ottla.protocol import checkpoints
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.steps import Steps, to_the_end
from ottla.protocol.values import TopicPartition

_log = getLogger(__name__)

_DELETED: Final = "belongs to a topic that was deleted"


class LogManager:
    """All logs of a broker. `clean_start`: the last stop was a clean one."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        turns: Turns,
        config: Config,
        truncate_damaged: frozenset[str] = frozenset(),
    ) -> None:
        """`truncate_damaged` names damaged partitions, as `<topic>-<index>`, that the operator allows to be cut where
        the damage begins."""
        self.directory = config.log_dirs
        self.truncate_damaged = truncate_damaged
        self.properties = MetaProperties(config.node_id, config.cluster_id, "")
        self._config = config
        self.clean_start = False
        self.offline: str | None = None
        self.on_offline: Callable[[], None] | None = None
        """Called once, after the directory has failed and all partitions are offline."""
        self._disk = disk
        self._clock = clock
        self._turns = turns
        self._shortages = LogLimiter()
        self.flusher = Flusher(disk, clock, self.fail)
        self._lock: Lock | None = None
        self._partitions: dict[TopicPartition, Partition] = {}
        # Recovered logs that are not open yet, by directory.
        self._recovered: dict[str, parallel_recovery.RecoveredLog] = {}
        self._openings = Openings()
        self.remaining = Remaining()
        self._checkpoints = Checkpointer(disk, clock, turns, self.directory, self._partitions, self.fail_unless_short)
        self.deleter = FileDeleter(disk, clock, turns, self.fail)
        self.side_files = SideFiles(disk, clock, self.directory, self.delete_later)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    # --- start ----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the directory, read `meta.properties` and the checkpoints. Raises LogDirectoryError, OSError."""
        self._disk.make_dirs(self.directory)
        try:
            self._lock = self._disk.lock(self._path(checkpoints.LOCK))
        except LockHeld as held:
            raise LogDirectoryError(str(held)) from None
        try:
            self._begin()
        except (LogDirectoryError, OSError):
            self._unlock()
            raise

    def _begin(self) -> None:
        """Do the steps of `open` that need the lock."""
        self.properties = read_or_make(self._disk, self._config)
        try:
            self._checkpoints.read()
        except ProtocolError as broken:
            raise LogDirectoryError(f"{broken}; {checkpoints.PUT_BACK}") from None
        marker = self._path(checkpoints.CLEAN_SHUTDOWN)
        self.clean_start = self._disk.exists(marker)
        if self.clean_start:
            self._disk.remove(marker)
            self._disk.sync_dir(self.directory)
        left = [self._path(name) for name in self._disk.list(self.directory) if checkpoints.is_delete_directory(name)]
        if left:
            self._clock.next_turn(lambda: self.deleter.delete(left))

    def sync(self, partition: Partition) -> None:
        """Put the appended batches of a partition on the device. Raises OSError, which takes the directory offline."""
        try:
            end_offset = partition.log.log_end_offset
            partition.log.segments.sync()
        except OSError as error:
            self.fail(error)
            raise
        partition.complete_flush(end_offset)

    def partition_dirs(self) -> list[str]:
        """Return the names of the partition directories on disk, `<topic>-<index>`."""
        return [name for name in self._disk.list(self.directory) if checkpoints.parse_directory_name(name) is not None]

    def topic_id_on_disk(self, topic: str, index: int) -> bytes | None:
        """Return the topic id in a partition directory; None if it has none."""
        path = f"{self._path(f'{topic}-{index}')}/{checkpoints.PARTITION_METADATA}"
        try:
            return checkpoints.decode_partition_metadata(self._disk.read(path))
        except (FileNotFoundError, NotADirectoryError, ProtocolError):
            return None

    def rename_strays(self, known_ids: Container[bytes], exists: Callable[[str, int], bool]) -> None:
        """Rename the partition directories of unknown topics to `-stray`, which are kept, as in Kafka.

        The topic of such a directory was deleted, and the broker died before it renamed the files. A directory without
        a topic id belongs to no topic; the next topic of its name would take it over (`LogManager.isStrayReplica`). The
        directory of an existing partition is checked when it is opened (`_make_or_load`).
        """
        for name in self.partition_dirs():
            topic, index = checkpoints.parse_directory_name(name) or ("", 0)
            if exists(topic, index):
                continue
            found_id = self.topic_id_on_disk(topic, index)
            if found_id not in known_ids and (found_id is not None or self.side_files.names(name)):
                self._rename_to_stray(topic, index, _DELETED if found_id else "names no topic")
                self._checkpoints.forget((topic, index))

    def _rename_to_stray(self, topic: str, index: int, why: str = _DELETED) -> None:
        directory = self._path(f"{topic}-{index}")
        stray = self._path(checkpoints.name_with_suffix(topic, index, self._disk.random_id(), checkpoints.STRAY))
        _log.warning("%s %s; it is kept as %s", directory, why, stray)
        self._disk.rename(directory, stray)

    # --- partitions -----------------------------------------------------------------------------------------------

    def get(self, topic: str, index: int) -> Partition | None:
        return self._partitions.get((topic, index))

    def open_partition(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        leader_epoch: int,
        settings: LogConfig,
        patient: bool = False,
    ) -> Partition:
        """Return the partition. Create it if its directory is missing; it is offline if it is damaged or IO fails.

        With `patient`, a Shortage is raised, so that the caller can try again.
        """
        return to_the_end(self.open_steps(topic, index, topic_id, leader_epoch, settings, patient))

    def open_steps(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        leader_epoch: int,
        settings: LogConfig,
        patient: bool = False,
    ) -> Steps[Partition]:
        """Do `open_partition` in steps. Only for a start, when no other request can open the partition."""
        key = topic, index
        known = self._partitions.get(key)
        if known is not None:
            return known
        try:
            loaded = (yield from self._make_or_load(key, topic_id, settings)) if self.offline is None else None
        except OSError as error:
            if patient and isinstance(error, Shortage):
                self.fail_unless_short(error)
                raise
            self.fail(error)
            loaded = None
        if loaded is None:
            loaded = new_log(self._disk, self._path(f"{topic}-{index}"), settings, 0, self._clock.now_ms())
        partition = Partition(
            topic,
            index,
            topic_id,
            leader_epoch,
            settings,
            loaded=loaded,
            disk=self._disk,
            clock=self._clock,
            turns=self._turns,
            on_failure=self.fail_unless_short,
            flush=self.flusher.flush,
        )
        self._partitions[key] = partition
        self.remaining.finish_opening(partition.log.directory)
        if self.offline is not None:
            partition.take_offline(self.offline)
        return partition

    def absent_partition(
        self, topic: str, index: int, topic_id: bytes, leader_epoch: int, reason: str | None = None
    ) -> Partition:
        """Return an offline partition without a replica in this directory. No file is created for it."""
        settings = LogConfig()
        loaded = new_log(self._disk, self._path(f"{topic}-{index}"), settings, 0, self._clock.now_ms())
        loaded = loaded._replace(damage=reason or f"{topic}-{index} has no replica in {self.directory}")
        return Partition(
            topic, index, topic_id, leader_epoch, settings, loaded=loaded, disk=self._disk, clock=self._clock
        )

    def _make_or_load(self, key: TopicPartition, topic_id: bytes, settings: LogConfig) -> Steps[LoadedLog]:
        topic, index = key
        directory = self._path(f"{topic}-{index}")
        now_ms = self._clock.now_ms()
        if not self._disk.exists(directory):
            self._checkpoints.forget_on_disk(key)
        try:
            self._disk.make_dir(directory)
        except FileExistsError:
            found_id = self.topic_id_on_disk(topic, index)
            if found_id is None or found_id == topic_id:
                if found_id is None:
                    self._write_topic_id(directory, topic_id)
                return (yield from self._load(key, directory, settings, now_ms))
            self._rename_to_stray(topic, index)
            self._checkpoints.forget_on_disk(key)
            self._disk.make_dir(directory)
        self._write_topic_id(directory, topic_id)
        return new_log(self._disk, directory, settings, 0, now_ms)

    def recover_in_processes(self, partitions: Iterable[tuple[str, int, bytes, LogConfig]]) -> Steps[None]:
        """After a crash, count the logs and the bytes to recover, and recover long logs now, in parallel processes.

        `partitions` are (topic, index, topic id, settings). The other logs are recovered when they are opened.
        """
        if self.clean_start or self.offline is not None:
            return
        now_ms = self._clock.now_ms()
        jobs, sizes, logs = [], {}, 0
        try:
            for topic, index, topic_id, settings in partitions:
                if (topic, index) in self._partitions:
                    continue
                logs += 1
                directory, start = self._path(f"{topic}-{index}"), self._start_of((topic, index), now_ms)
                size_bytes = parallel_recovery.bytes_to_recover(self._disk, directory, start.recovery_point)
                sizes[directory] = size_bytes
                if size_bytes >= parallel_recovery.LEAST_BYTES and self.topic_id_on_disk(topic, index) == topic_id:
                    jobs.append(parallel_recovery.LogToRecover(directory, settings, start, size_bytes))
                yield 0.0  # the disk has charged it
            self.remaining.expect(logs, sizes)
            self._recovered = yield from parallel_recovery.recover_in_processes(
                self._disk, jobs, self.remaining.finish_recovery
            )
        except OSError as error:
            self.fail_unless_short(error)

    def load_in_steps(self, topic: str, index: int, topic_id: bytes, settings: LogConfig) -> Iterator[float]:
        """Do the long part of `open_partition` in steps, for callers that can wait; yield the cost of each (us)."""
        key, directory = (topic, index), self._path(f"{topic}-{index}")
        if self.offline is not None or not self.clean_start or key in self._partitions:
            return
        try:
            if self.topic_id_on_disk(topic, index) != topic_id:
                return
            start = self._start_of(key, self._clock.now_ms())
            yield from self._openings.advance(directory, lambda: load_steps(self._disk, directory, settings, start))
        except OSError as error:
            self.fail_unless_short(error)

    def _load(self, key: TopicPartition, directory: str, settings: LogConfig, now_ms: int) -> Steps[LoadedLog]:
        begun = self._openings.take(directory)
        if begun is not None:
            return begun
        found = self._recovered.pop(directory, None)
        if found is not None:
            return parallel_recovery.use_recovered_log(self._disk, directory, settings, found, now_ms)
        return (yield from load_steps(self._disk, directory, settings, self._start_of(key, now_ms)))

    def _start_of(self, key: TopicPartition, now_ms: int) -> Start:
        return Start(
            recovery_point=self._checkpoints.recovery_point(key),
            log_start_offset=self._checkpoints.log_start(key),
            clean=self.clean_start,
            truncate_damaged=f"{key[0]}-{key[1]}" in self.truncate_damaged,
            now_ms=now_ms,
        )

    def _write_topic_id(self, directory: str, topic_id: bytes) -> None:
        content = checkpoints.encode_partition_metadata(topic_id)
        self._disk.write(f"{directory}/{checkpoints.PARTITION_METADATA}", content)

    def rename_for_deletion(self, topic: str, index: int) -> list[str]:
        """Close a partition and rename its directory to `-delete`. Return the new path, or none without a directory.

        Source: the first half of Kafka's `LogManager.asyncDelete`; `delete_later` is the second.
        """
        partition = self._partitions.pop((topic, index), None)
        if partition is not None:
            partition.take_offline("the partition was deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            partition.close()
        self._checkpoints.forget((topic, index))
        directory = self._path(f"{topic}-{index}")
        self._openings.give_up(directory)
        if self.offline is not None or not self._disk.exists(directory):
            return []
        renamed = self._path(checkpoints.name_with_suffix(topic, index, self._disk.random_id(), checkpoints.DELETE))
        try:
            self._disk.rename(directory, renamed)
        except OSError as error:
            self.fail(error)
            return []
        return [renamed]

    def delete_later(self, paths: Sequence[str]) -> None:
        """Delete renamed files or directories after `file.delete.delay.ms`."""
        self.deleter.delete_later(paths, self._config.log_segment_delete_delay_ms)

    def volume(self) -> Volume | None:
        """Return the file system of the directory; None if the directory is offline."""
        if self.offline is None:
            try:
                return self._disk.volume(self.directory)
            except OSError as error:
                self.fail(error)
        return None

    # --- checkpoints ----------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write the offset checkpoints, and start to sync newly sealed segments. Called every few seconds."""
        if self.offline is None:
            self._checkpoints.run()

    def first_dirty_offset(self, partition: Partition) -> int:
        """Return the offset up to which compaction has cleaned; the log start offset if it never ran."""
        return self._checkpoints.first_dirty((partition.topic, partition.index), partition.log_start_offset)

    def done_cleaning(self, partition: Partition, end_offset: int) -> None:
        """Record that compaction has cleaned the partition up to `end_offset`."""
        self._checkpoints.done_cleaning((partition.topic, partition.index), end_offset)

    # --- stop and failure -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop cleanly: write and sync the logs, then the checkpoints, then the clean shutdown marker."""
        if self._lock is None:
            return
        try:
            if self.offline is None and self._save_all():
                self._disk.write_atomically(self._path(checkpoints.CLEAN_SHUTDOWN), checkpoints.CLEAN_SHUTDOWN_CONTENT)
        except OSError as error:
            self.fail(error)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Release files and lock without writing anything, as the death of the process does."""
        for partition in self:
            partition.close()
        self._unlock()

    def _save_all(self) -> bool:
        """Write and sync all logs; False if one is offline, because the next start must find its damage again."""
        online = [partition for partition in self if partition.offline is None]
        # A background sync may still run: its files are synced again here, which costs nothing if it has ended.
        paths = self._checkpoints.unsynced_paths()
        for partition in online:
            paths += partition.log.save()
        self._disk.sync(paths)
        # A background sync has ended by now. Only that sync saw its error, so raise it here.
        self._checkpoints.raise_sync_error()
        self.flusher.raise_sync_error()
        for partition in online:
            partition.log.recovery_point = partition.log.log_end_offset
        self._checkpoints.write()
        return len(online) == len(self._partitions)

    def fail_unless_short(self, error: OSError) -> None:
        """Handle an IO error in a step that is tried again: log a Shortage at most once a minute, else `fail`."""
        limit = shortage(error) if isinstance(error, Shortage) else None
        if limit is None:
            self.fail(error)
        elif self._shortages.count(None, self._clock.monotonic_ms()):
            _log.warning("%s: %s; the broker tries again", error.filename or self.directory, limit)

    def fail(self, error: OSError) -> None:
        """Take the directory and all its partitions offline after an IO error. No effect if it is offline."""
        if self.offline is not None:
            return
        self.offline = f"log directory {self.directory} is offline: {error}"
        self._checkpoints.stop()
        _log.error("%s; free or repair the storage and start the broker again", self.offline)
        for partition in self:
            partition.take_offline(self.offline)
        if self.on_offline is not None:
            self.on_offline()

    def _unlock(self) -> None:
        self.deleter.close()
        self._openings.give_up_all()
        self._checkpoints.stop()
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}"
