"""Metadata log of one broker: `__cluster_metadata-0`, written by Ottla or by a KRaft quorum. shell

It is read from the newest snapshot on, or from `bootstrap.checkpoint` if it is empty. Ottla appends its records in an
epoch of its own, and Apache Kafka can append after them: docs/decisions/kafka-directories.md.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from ottla.broker.cluster.image import MetadataImage
from ottla.broker.cluster.kraft import (
    BOOTSTRAP,
    PROTECTING_TYPES,
    QUORUM_STATE,
    RECORD_TYPES,
    RECORDS_AT_ONCE,
    MetadataBatchLoader,
    newest_snapshot,
    quorum_epoch,
    snapshots_of,
    writing_epoch,
)
from ottla.broker.costs import STATE_RECORD_US
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_manager import LogManager
from ottla.broker.log.meta_properties import LogDirectoryError
from ottla.broker.log.partition import OnDurable, Partition
from ottla.broker.ports.clock import Clock
from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import BatchHeader, crc_is_valid
from ottla.protocol.errors import ProtocolError
from ottla.protocol.fields import UnknownVersion
from ottla.protocol.internal_topics.kraft_records import SnapshotId, leader_change, read_snapshot, snapshot_name
from ottla.protocol.internal_topics.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from ottla.protocol.records import iter_records
from ottla.protocol.steps import Steps
from ottla.protocol.values import NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP
from ottla.protocol.values_batch import ValuesBatch

log = logging.getLogger(__name__)

RECORDS_PER_COMMIT: Final = 500
"""Records of a batch when a start writes many; they are encoded in one step."""
METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = UUID(int=1).bytes
METADATA_SETTINGS: Final = LogConfig(
    max_message_bytes=8 * 1024 * 1024, flush_messages=1, retention_ms=-1, retention_bytes=-1
)
"""Settings of the metadata log. The batch limit is `KafkaRaftClient.MAX_BATCH_SIZE_BYTES`, not that of topic messages.

Segments are deleted only when a snapshot contains their records (`KafkaRaftLog.createLog`).

Each record is flushed, as in Kafka's quorum (`KafkaRaftClient` flushes before the high watermark moves). Otherwise a
power loss could remove a block of producer ids or a topic that is then created again, while logs contain the old one.
"""


class MetadataLog:
    """Log of metadata records. They are appended first, and applied to `image` in order when they are durable."""

    def __init__(
        self,
        store: LogManager,
        clock: Clock,
        node_id: int,
        image: MetadataImage,
        settings: LogConfig = METADATA_SETTINGS,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self.node_id = node_id
        self.image = image
        self._loader = MetadataBatchLoader(image)
        self._new_epoch: int | None = None
        self.bytes_since_snapshot = 0
        self.newest_snapshot = SnapshotId(0, NO_PARTITION_LEADER_EPOCH)
        """Newest snapshot that is known to be complete, because it was read or written."""
        self.last_timestamp_ms = NO_TIMESTAMP
        """Timestamp of the last record that was read or appended; -1 if no record follows the snapshot."""
        self.began_empty = False
        """Whether the log had no features and topics at the start; a bootstrap.checkpoint may have existed."""
        self.partition: Partition

    @property
    def can_be_replaced(self) -> bool:
        """Return whether the image contains all of the log: no metadata transaction is open in it."""
        return not self._loader.in_transaction

    @property
    def end_offset(self) -> int:
        """Offset after the last durable record, which is the last one in the image."""
        return self.partition.high_watermark

    def open_steps(self) -> Steps[None]:
        """Replay the log. Raises LogDirectoryError, or OSError if the bootstrap records cannot be logged."""
        newest = newest_snapshot(self._store.side_files.names(f"{METADATA_TOPIC}-0"))
        settings = self._settings if newest is None else replace(self._settings, needed_from_offset=newest.end_offset)
        # The epoch to write in is known only after its records have been read.
        partition = yield from self._store.open_steps(
            METADATA_TOPIC, 0, METADATA_TOPIC_ID, NO_PARTITION_LEADER_EPOCH, settings
        )
        partition.log.config = self._settings
        self.partition = partition
        self.newest_snapshot = snapshot = yield from self._read_newest_snapshot()
        yield from self._read_log(snapshot.end_offset)
        self._choose_epoch(max(partition.log.epochs.latest_epoch, snapshot.epoch))
        self._log_skips()
        image = self.image
        # This also covers a kill within the bootstrap records: they are written again (`ActivationRecordsGenerator`).
        self.began_empty = not image.features and not image.topics
        if self.began_empty:
            yield from self._bootstrap()

    def append_batch(self, batch: ValuesBatch, apply: Callable[[], None]) -> None:
        """Append a batch of records. When it is durable, `apply` changes the image as their replay would.

        Raises OSError if it cannot be logged.
        """
        if self._new_epoch is not None:
            self._begin_epoch(self._new_epoch)
        if self._loader.in_transaction:
            batch_of_abort, abort = self._batch([AbortTransactionRecord(f"Node {self.node_id} found it open")])
            self._append(batch_of_abort, lambda: None)
            abort()  # at once: it changes nothing visible, and must not be logged twice
        self._append(batch, apply)

    def when_durable(self, callback: OnDurable) -> None:
        """Call `callback` when all appended records are applied, or with the error if they never will be."""
        self.partition.when_durable(self.partition.log_end_offset - 1, callback)

    def sync(self) -> None:
        """Sync the log, blocking; only for the start, when nothing else runs. Raises OSError."""
        self._store.sync(self.partition)

    def commit(self, records: Sequence[MetadataRecord]) -> None:
        """Append, sync and apply one batch, at the start only. Raises OSError if it cannot be logged."""
        self.append_batch(*self._batch(records))
        self.sync()

    def commit_together(self, name: str, records: Sequence[MetadataRecord]) -> Steps[None]:
        """Commit any number of records as one metadata transaction: after a kill all of them are there, or none."""
        self.append_batch(*self._batch([BeginTransactionRecord(name)]))
        for start in range(0, len(records), RECORDS_PER_COMMIT):
            some = records[start : start + RECORDS_PER_COMMIT]
            self._append(*self._batch(some))
            yield len(some) * STATE_RECORD_US
        self._append(*self._batch([EndTransactionRecord()]))
        self.sync()

    # --- read -----------------------------------------------------------------------------------------------------

    def _check_that_log_continues(self, snapshot: SnapshotId) -> None:
        """Check that the log has all records from the first one, or from the end of a snapshot, on."""
        partition = self.partition
        problem = partition.offline
        if problem is None and partition.log_start_offset > snapshot.end_offset:
            problem = f"begins at offset {partition.log_start_offset}, and no snapshot has the records before it"
        if problem is None and partition.log_end_offset < snapshot.end_offset:
            problem = (
                f"ends at offset {partition.log_end_offset}, before the snapshot {snapshot_name(snapshot)}: start "
                "Apache Kafka on this directory once and stop it"
            )
        if problem is not None:
            raise LogDirectoryError(f"{partition.name}: {problem}")

    def _read_newest_snapshot(self) -> Steps[SnapshotId]:
        """Read the newest snapshot; if it is damaged, an older one, if the log still begins before its end."""
        found = snapshots_of(self._store.side_files.names(self._name))
        while True:
            snapshot = found.pop() if found else SnapshotId(0, NO_PARTITION_LEADER_EPOCH)
            self._check_that_log_continues(snapshot)
            if snapshot.epoch == NO_PARTITION_LEADER_EPOCH:
                return snapshot
            path = f"{self._name}/{snapshot_name(snapshot)}"
            try:
                batches = [*read_snapshot(self._store.side_files.read(path))]
            except ProtocolError as damage:
                older = found[-1].end_offset if found else 0
                if self.partition.log_start_offset > older:
                    raise LogDirectoryError(f"{path} is damaged: {damage}") from damage
                log.error("%s is damaged (%s): the metadata is read from offset %d on instead", path, damage, older)
                continue
            yield from self._read_snapshot(path, batches)
            return snapshot

    def _read_snapshot(self, path: str, batches: Sequence[tuple[BatchHeader, memoryview]]) -> Steps[None]:
        try:
            for header, batch in batches:
                yield from self._loader.load_steps(header, batch)
        except UnknownVersion as newer:
            raise LogDirectoryError(f"{path}: {newer} was written by a newer Kafka") from newer
        except (ProtocolError, LookupError) as damage:
            raise LogDirectoryError(f"{path} is damaged: {damage}") from damage

    def _read_log(self, from_offset: int) -> Steps[None]:
        at_offset = next_offset = from_offset
        name = self.partition.name
        try:
            for header, batch in self.partition.scan(from_offset):
                at_offset = header.base_offset
                if at_offset > next_offset:
                    raise ProtocolError(f"offset {next_offset} is expected")
                next_offset = header.next_offset
                if not crc_is_valid(batch, header):
                    raise ProtocolError("wrong CRC")
                yield from self._loader.load_steps(header, batch, from_offset)
                self.bytes_since_snapshot += len(batch)
                self.last_timestamp_ms = header.max_timestamp
        except UnknownVersion as newer:
            raise LogDirectoryError(f"{name}: {newer} at offset {at_offset} was written by a newer Kafka") from newer
        except (ProtocolError, LookupError) as damage:
            raise LogDirectoryError(f"{name} is damaged at offset {at_offset}: {damage}") from damage

    def _log_skips(self) -> None:
        for number, count in sorted(self._loader.skipped.items()):
            name = RECORD_TYPES.get(number, "an unknown type")
            if number in PROTECTING_TYPES:
                log.warning(
                    "%s holds %d records of type %d (%s), which Ottla does not enforce", self._name, count, number, name
                )
            else:
                log.info("%s: ignored %d records of type %d (%s)", self._name, count, number, name)

    @property
    def _name(self) -> str:
        return self.partition.name

    # --- write ----------------------------------------------------------------------------------------------------

    def _choose_epoch(self, log_epoch: int) -> None:
        path = f"{self._name}/{QUORUM_STATE}"
        elected_epoch = None
        if QUORUM_STATE in self._store.side_files.names(self._name):
            try:
                elected_epoch = quorum_epoch(self._store.side_files.read(path))
            except ProtocolError as broken:
                raise LogDirectoryError(f"{path}: {broken}") from broken
        epoch = writing_epoch(log_epoch, elected_epoch)
        if elected_epoch is not None and epoch > log_epoch:
            self._new_epoch = epoch  # begins with the first record that we write, if we write one
        else:
            self.partition.lead(epoch)

    def _begin_epoch(self, epoch: int) -> None:
        """Write a LeaderChange record as the first one of the epoch, as each KRaft leader does."""
        self.partition.lead(epoch)
        self._append_bytes(build_batch([leader_change(self.node_id)], timestamp_ms=self._clock.now_ms(), control=True))
        self._new_epoch = None
        log.info("Writing metadata in epoch %d, after the records of Apache Kafka", epoch)

    def _batch(self, records: Sequence[MetadataRecord]) -> tuple[ValuesBatch, Callable[[], None]]:
        """Return a batch and the function that replays it."""
        batch = ValuesBatch()
        batch.add(map(encode_metadata_record, records))

        def apply() -> None:
            for record in records:
                self._loader.replay(record)

        return batch, apply

    def _append(self, batch: ValuesBatch, apply: Callable[[], None]) -> None:
        self.last_timestamp_ms = self._clock.now_ms()
        last_offset = self._append_bytes(batch.build(timestamp_ms=self.last_timestamp_ms))
        self.partition.when_durable(last_offset, lambda error: None if error else apply())

    def _append_bytes(self, batch: bytearray) -> int:
        """Append a batch and return its last offset. Raises OSError if the log refuses it."""
        self.bytes_since_snapshot += len(batch)
        result = self.partition.append_own(batch)
        if result.error:
            raise OSError(f"the metadata log refused a record: {result.error.name}")
        return result.last_offset

    def _bootstrap(self) -> Steps[None]:
        """Log the records of `bootstrap.checkpoint` together, as the first active controller of a cluster does."""
        if BOOTSTRAP not in self._store.side_files.names():
            return
        found: list[MetadataRecord] = []
        try:
            for header, batch in read_snapshot(self._store.side_files.read(BOOTSTRAP)):
                found += yield from _known_records(header, batch)
        except ProtocolError as damage:
            raise LogDirectoryError(f"{BOOTSTRAP} cannot be read: {damage}") from damage
        yield from self.commit_together("Bootstrap records", found)


def _known_records(header: BatchHeader, batch: memoryview) -> Steps[list[MetadataRecord]]:
    found: list[MetadataRecord] = []
    for count, record in enumerate(iter_records(batch, header) if not header.is_control else (), 1):
        known = None if record.value is None else decode_metadata_record(record.value)
        if known is not None:
            found.append(known)
        if count % RECORDS_AT_ONCE == 0:
            yield RECORDS_AT_ONCE * STATE_RECORD_US
    return found
