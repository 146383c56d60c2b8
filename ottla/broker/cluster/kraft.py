"""What a metadata log says, in Kafka's KRaft form as in ours: replayed into an image. pure

Source: `MetadataBatchLoader`, `QuorumController`, `FileQuorumStateStore`, `KafkaRaftLog` of Kafka 4.3.1; KIP-595,
KIP-630, KIP-868 (metadata transactions).
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.broker.cluster.image import CONFIGURED, MetadataImage
from ottla.protocol.batch_header import BatchHeader, crc_is_valid, iter_batches
from ottla.protocol.errors import ProtocolError
from ottla.protocol.kraft_records import (
    SnapshotId,
    parse_snapshot_name,
    quorum_records,
    read_snapshot,
    snapshot_name,
)
from ottla.protocol.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    MetadataRecord,
    decode_metadata_record,
    metadata_record_type,
)
from ottla.protocol.records import iter_records

FIRST_EPOCH: Final = 1
QUORUM_STATE: Final = "quorum-state"
BOOTSTRAP: Final = "bootstrap.checkpoint"

RECORD_TYPES: Final = {
    0: "RegisterBroker",
    1: "UnregisterBroker",
    7: "FenceBroker",
    8: "UnfenceBroker",
    10: "DelegationToken",
    11: "UserScramCredential",
    14: "ClientQuota",
    17: "BrokerRegistrationChange",
    18: "AccessControlEntry",
    19: "RemoveAccessControlEntry",
    20: "NoOp",
    21: "ZkMigrationState",
    22: "RemoveUserScramCredential",
    26: "RemoveDelegationToken",
    27: "RegisterController",
    28: "ClearElr",
}
"""Names of the types that a broker of one passes over, for the log (`MetadataRecordType`)."""
NO_OP: Final = 20
PROTECTING_TYPES: Final = frozenset((10, 11, 14, 18))
"""Records that protect a cluster: without them it is open to whoever reaches it."""


class MetadataBatchLoader:
    """Applies batches to an image; the records of a metadata transaction together, or not at all."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.skipped: Counter[int] = Counter()
        """Records passed over, by type."""
        self._transaction: list[MetadataRecord | bytes] | None = None

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun and not ended: whoever writes next must abort it."""
        return self._transaction is not None

    def load_batch(self, header: BatchHeader, batch: memoryview, from_offset: int = 0) -> None:
        """The records of a batch from an offset on. Raises ProtocolError or LookupError for what cannot be."""
        if header.is_control:
            self.image.quorum.update(quorum_records(header, batch))
            return
        for record in iter_records(batch, header):
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
            else:
                self.replay(value)

    def replay(self, record: MetadataRecord | bytes) -> None:
        """A record, or the value of one that is passed over."""
        match record:
            case BeginTransactionRecord():
                self._transaction = []
            case AbortTransactionRecord():
                self._transaction = None
            case EndTransactionRecord():
                ended, self._transaction = self._transaction or [], None
                for each in ended:
                    self._apply(each)
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
    """The snapshots among the files of the log's directory, the oldest first."""
    return sorted(found for name in names if (found := parse_snapshot_name(name)) is not None)


def newest_snapshot(names: Iterable[str]) -> SnapshotId | None:
    """The snapshot that a reader begins with."""
    return max(snapshots_of(names), default=None)


def read_metadata(files: Mapping[str, bytes], image: MetadataImage) -> MetadataBatchLoader:
    """Replay a metadata log that nobody writes to: the files of its directory by name, snapshots and segments.

    Raises ProtocolError or LookupError for what cannot be; a file that is cut is one of these.
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
                raise ProtocolError(f"{name}: offset {header.base_offset} where {next_offset} is the next")
            if header.next_offset > next_offset:
                loader.load_batch(header, data[position:end], next_offset)
                next_offset = header.next_offset
        if end != len(data):
            raise ProtocolError(f"{name} ends inside the batch at position {end}")
    return loader


def quorum_epoch(content: bytes) -> int:
    """The epoch of Kafka's last election, from `quorum-state`. ProtocolError if the file says none."""
    try:
        epoch = json.loads(content)["leaderEpoch"]
    except (ValueError, TypeError, LookupError):
        epoch = None
    if not isinstance(epoch, int):
        raise ProtocolError(f"{QUORUM_STATE} holds no leader epoch: {content[:80]!r}")
    return epoch


def writing_epoch(log_epoch: int, elected_epoch: int | None) -> int:
    """The epoch to write in. `log_epoch` is that of the last batch, `elected_epoch` that of Kafka's last election.

    Where Kafka wrote last, its epoch is over: two writers never share one. It finds ours in the log, though not in its
    `quorum-state`, and is elected in a higher one (`QuorumState.initialize`).
    """
    if elected_epoch is not None and elected_epoch >= log_epoch:
        return elected_epoch + 1
    return max(log_epoch, FIRST_EPOCH)
