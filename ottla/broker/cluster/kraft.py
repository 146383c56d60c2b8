"""Replay a metadata log, Kafka's KRaft log or ours, into an image. pure

Source: `MetadataBatchLoader`, `QuorumController`, `FileQuorumStateStore`, `KafkaRaftLog` of Kafka 4.3.1; KIP-595,
KIP-630, KIP-868 (metadata transactions).
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.broker.cluster.image import CONFIGURED, MetadataImage
from ottla.broker.costs import APPLY_RECORD_US, STATE_RECORD_US
from ottla.protocol.batch_header import BatchHeader, crc_is_valid, iter_batches
from ottla.protocol.checkpoints import LAST_INT
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.kraft_records import (
    SnapshotId,
    parse_snapshot_name,
    quorum_records,
    read_snapshot,
    snapshot_name,
)
from ottla.protocol.internal_topics.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    MetadataRecord,
    decode_metadata_record,
    metadata_record_type,
)
from ottla.protocol.records import iter_records
from ottla.protocol.steps import Steps, to_the_end

FIRST_EPOCH: Final = 1
QUORUM_STATE: Final = "quorum-state"
BOOTSTRAP: Final = "bootstrap.checkpoint"

RECORD_TYPES: Final = {
    0: "RegisterBroker",
    1: "UnregisterBroker",
    7: "FenceBroker",
    8: "UnfenceBroker",
    10: "DelegationToken",
    17: "BrokerRegistrationChange",
    20: "NoOp",
    21: "ZkMigrationState",
    26: "RemoveDelegationToken",
    27: "RegisterController",
    28: "ClearElr",
}
"""Names of the record types that a single broker skips, for log lines (`MetadataRecordType`)."""
NO_OP: Final = 20
RECORDS_AT_ONCE: Final = 200
"""Records of a batch that are read in one step; the batches of Kafka's snapshots have up to 8 MiB."""
PROTECTING_TYPES: Final = frozenset((10,))
"""Types of records that protect a cluster: without them every client has access."""


class MetadataBatchLoader:
    """Loader that applies batches to an image: the records of a metadata transaction together, or none of them."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.skipped: Counter[int] = Counter()
        """Records passed over, by type."""
        self._transaction: list[MetadataRecord | bytes] | None = None

    @property
    def in_transaction(self) -> bool:
        """Return whether a transaction has begun and not ended. The next writer must abort it."""
        return self._transaction is not None

    def load_batch(self, header: BatchHeader, batch: memoryview, from_offset: int = 0) -> None:
        """Run `load_steps` to its end."""
        to_the_end(self.load_steps(header, batch, from_offset))

    def load_steps(self, header: BatchHeader, batch: memoryview, from_offset: int = 0) -> Steps[None]:
        """Apply the records of a batch from an offset on. Raises ProtocolError or LookupError for invalid records."""
        if header.is_control:
            self.image.quorum.update(quorum_records(header, batch))
            return
        for count, record in enumerate(iter_records(batch, header), 1):
            if count % RECORDS_AT_ONCE == 0:
                yield RECORDS_AT_ONCE * STATE_RECORD_US
            if record.offset < from_offset or record.value is None:
                continue
            value = decode_metadata_record(record.value)
            if value is None:
                number = metadata_record_type(record.value)
                self.skipped[number] += 1
                if number != NO_OP:
                    self.replay(bytes(record.value))
            elif isinstance(value, ConfigRecord) and value.resource_type not in CONFIGURED:
                self.replay(bytes(record.value))
            elif isinstance(value, EndTransactionRecord):
                yield from self._end_steps()
            else:
                self.replay(value)
        yield header.record_count % RECORDS_AT_ONCE * STATE_RECORD_US

    def _end_steps(self) -> Steps[None]:
        ended, self._transaction = self._transaction or [], None
        for count, each in enumerate(ended, 1):
            self._apply(each)
            if count % RECORDS_AT_ONCE == 0:
                yield RECORDS_AT_ONCE * APPLY_RECORD_US

    def replay(self, record: MetadataRecord | bytes) -> None:
        """Apply a record, or collect the encoded value of a skipped one."""
        match record:
            case BeginTransactionRecord():
                self._transaction = []
            case AbortTransactionRecord():
                self._transaction = None
            case EndTransactionRecord():
                to_the_end(self._end_steps())
            case _ if self._transaction is not None:
                self._transaction.append(record)
            case _:
                self._apply(record)

    def _apply(self, record: MetadataRecord | bytes) -> None:
        if isinstance(record, bytes):
            self.image.passed_over.append(record)
        else:
            self.image.apply(record)


def snapshots_of(names: Iterable[str]) -> list[SnapshotId]:
    """Return the snapshots among the files of the log's directory, the oldest first."""
    return sorted(found for name in names if (found := parse_snapshot_name(name)) is not None)


def newest_snapshot(names: Iterable[str]) -> SnapshotId | None:
    """Return the newest snapshot, with which a reader begins; None without one."""
    return max(snapshots_of(names), default=None)


def read_metadata(files: Mapping[str, bytes], image: MetadataImage) -> MetadataBatchLoader:
    """Replay a metadata log that is not in use: the files of its directory by name, snapshots and segments.

    Raises ProtocolError or LookupError if a file is damaged or cut.
    """
    loader = MetadataBatchLoader(image)
    snapshot = newest_snapshot(files)
    next_offset = 0
    if snapshot is not None:
        for header, batch in read_snapshot(files[snapshot_name(snapshot)]):
            loader.load_batch(header, batch)
        next_offset = snapshot.end_offset
    for name in sorted(name for name in files if name.endswith(".log")):
        data, end = memoryview(files[name]), 0
        for position, header in iter_batches(data):
            end = position + header.size_bytes
            if not crc_is_valid(data, header, position):
                raise ProtocolError(f"{name}: wrong CRC at position {position}")
            if header.base_offset > next_offset:
                raise ProtocolError(f"{name}: offset {header.base_offset} where {next_offset} is expected")
            if header.next_offset > next_offset:
                loader.load_batch(header, data[position:end], next_offset)
                next_offset = header.next_offset
        if end != len(data):
            raise ProtocolError(f"{name} ends inside the batch at position {end}")
    return loader


def quorum_epoch(content: bytes) -> int:
    """Return the epoch of Kafka's last election from `quorum-state`. Raises ProtocolError if the file has none."""
    try:
        epoch = json.loads(content)["leaderEpoch"]
    except (ValueError, TypeError, LookupError, RecursionError):
        epoch = None
    # Our records get the next epoch, so it must fit in an int. Kafka writes -1 before its first election.
    if not isinstance(epoch, int) or not -1 <= epoch < LAST_INT:
        raise ProtocolError(
            f"it holds no leader epoch ({content[:80]!r}): put back a copy of the file, or move it away if no other "
            "broker was in the quorum"
        )
    return epoch


def writing_epoch(log_epoch: int, elected_epoch: int | None) -> int:
    """Return the epoch of our records, from that of the last batch and that of Kafka's last election.

    If Kafka wrote last, we write in a new epoch: two writers never share one. Kafka later finds our epoch in the log,
    though not in its `quorum-state`, and elects a leader in a higher one (`QuorumState.initialize`).
    """
    if elected_epoch is not None and elected_epoch >= log_epoch:
        return elected_epoch + 1
    return max(log_epoch, FIRST_EPOCH)
