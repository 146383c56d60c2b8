"""Control records of `__cluster_metadata-0` and of its snapshots, and the layout of a snapshot file. pure frozen

Source: `ControlRecordUtils`, `MemoryRecordsBuilder.appendControlRecord`, `RecordsSnapshotWriter`, `Snapshots` and the
schemas LeaderChangeMessage, SnapshotHeaderRecord, SnapshotFooterRecord, KRaftVersionRecord, VotersRecord of Kafka
4.3.1 (KIP-595, KIP-630, KIP-853). All values are flexible from version 0 and begin with that version.
"""

import re
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from ottla.protocol.batch import (
    KRAFT_VERSION,
    KRAFT_VOTERS,
    LEADER_CHANGE,
    SNAPSHOT_FOOTER,
    SNAPSHOT_HEADER,
    build_batch,
    read_marker,
)
from ottla.protocol.batch_header import BatchHeader, crc_is_valid, iter_batches
from ottla.protocol.errors import ProtocolError
from ottla.protocol.fields import Reader, Writer
from ottla.protocol.records import iter_records

_KEY: Final = Struct(">hh")
_PORT: Final = Struct(">H")
_SNAPSHOT_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
# `BatchAccumulator` of Kafka's snapshot writer makes batches of up to 8 MiB; this many records stay far below that.
RECORDS_PER_BATCH: Final = 10_000
KRAFT_VERSION_LEVEL: Final = 1
"""`KRaftVersion.KRAFT_VERSION_1`: the voters are in the log, not in the configuration (KIP-853)."""

ControlRecord = tuple[bytes, bytes]


class SnapshotId(NamedTuple):
    """Id of a snapshot, which has all records below `end_offset`. `epoch` is the epoch of its last record."""

    end_offset: int
    epoch: int


class Voter(NamedTuple):
    """A controller in the voters record, with its one listener."""

    node_id: int
    directory_id: bytes
    listener: str
    host: str
    port: int


def snapshot_name(snapshot: SnapshotId) -> str:
    return f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}.checkpoint"


def parse_snapshot_name(name: str) -> SnapshotId | None:
    """Parse the name of a finished snapshot; None for any other file (`.part`, `.deleted`)."""
    found = _SNAPSHOT_NAME.fullmatch(name)
    return None if found is None else SnapshotId(int(found.group(1)), int(found.group(2)))


def leader_change(leader_id: int) -> ControlRecord:
    """Return the first record of a leader's epoch, in a quorum of this one voter."""
    writer = _version_writer()
    writer.int32(leader_id)
    for _voters_then_granting in range(2):
        writer.array((leader_id,), lambda voter: _voter_id(writer, voter))
    return _control_record(LEADER_CHANGE, writer)


def snapshot_header(last_contained_log_timestamp_ms: int = 0) -> ControlRecord:
    writer = _version_writer()
    writer.int64(last_contained_log_timestamp_ms)
    return _control_record(SNAPSHOT_HEADER, writer)


def snapshot_footer() -> ControlRecord:
    return _control_record(SNAPSHOT_FOOTER, _version_writer())


def kraft_version(level: int = KRAFT_VERSION_LEVEL) -> ControlRecord:
    writer = _version_writer()
    writer.int16(level)
    return _control_record(KRAFT_VERSION, writer)


def kraft_voters(voter: Voter) -> ControlRecord:
    """Return the voters record of a quorum of one voter."""
    writer = _version_writer()
    writer.array((voter,), lambda one: _voter(writer, one))
    return _control_record(KRAFT_VOTERS, writer)


def build_snapshot(controls: Sequence[ControlRecord], values: Sequence[bytes], timestamp_ms: int) -> bytes:
    """Build a snapshot file: the header and `controls` in one control batch, `values` in data batches, the footer.

    Offsets count from 0 and the leader epoch is 0, as `kafka-storage format` writes them.
    """
    out = bytearray()
    offset = 0
    records = [*values]
    chunks = [records[start : start + RECORDS_PER_BATCH] for start in range(0, len(records), RECORDS_PER_BATCH)]
    batches: list[tuple[Sequence[tuple[bytes | None, bytes]], bool]] = [([snapshot_header(), *controls], True)]
    batches += [([(None, value) for value in chunk], False) for chunk in chunks]
    batches.append(([snapshot_footer()], True))
    for content, control in batches:
        out += build_batch(
            content, base_offset=offset, timestamp_ms=timestamp_ms, control=control, partition_leader_epoch=0
        )
        offset += len(content)
    return bytes(out)


def read_snapshot(content: bytes) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield (header, bytes) of every batch of a snapshot file. Raises ProtocolError if it is broken or not whole."""
    data = memoryview(content)
    control_type = end = -1
    for position, header in iter_batches(data):
        end = position + header.size_bytes
        batch = data[position:end]
        if not crc_is_valid(batch, header):
            raise ProtocolError(f"wrong CRC at position {position}")
        marker = read_marker(batch, header) if header.is_control else None
        control_type = -1 if marker is None else marker.control_type
        if position == 0 and control_type != SNAPSHOT_HEADER:
            raise ProtocolError("it does not begin with a snapshot header")
        yield header, batch
    if control_type != SNAPSHOT_FOOTER or end != len(data):
        raise ProtocolError("it does not end with a snapshot footer")


def snapshot_timestamp_ms(content: bytes) -> int:
    """Return the time of a snapshot's last record from its header. Raises ProtocolError if it has no header."""
    for header, batch in read_snapshot(content):
        reader = Reader(next(iter_records(batch, header)).value or b"", flexible=True)
        reader.int16()
        return reader.int64()
    raise ProtocolError("an empty snapshot")


def quorum_records(header: BatchHeader, batch: memoryview) -> Iterator[tuple[int, ControlRecord]]:
    """Yield (type, record) of a control batch's records about the quorum: its version and its voters (KIP-853)."""
    for record in iter_records(batch, header) if header.is_control else ():
        if record.key is None or record.value is None or len(record.key) != _KEY.size:
            raise ProtocolError(f"a control record without key or value at offset {record.offset}")
        control_type = _KEY.unpack(record.key)[1]
        if control_type in (KRAFT_VERSION, KRAFT_VOTERS):
            yield control_type, (bytes(record.key), bytes(record.value))


def _version_writer() -> Writer:
    writer = Writer(flexible=True)
    writer.int16(0)
    return writer


def _control_record(control_type: int, writer: Writer) -> ControlRecord:
    writer.tags()
    return _KEY.pack(0, control_type), bytes(writer.out)


def _voter_id(writer: Writer, voter: int) -> None:
    writer.int32(voter)
    writer.tags()


def _voter(writer: Writer, voter: Voter) -> None:
    writer.int32(voter.node_id)
    writer.uuid(voter.directory_id)
    writer.array((voter,), lambda one: _endpoint(writer, one))
    for supported in (0, KRAFT_VERSION_LEVEL):
        writer.int16(supported)
    writer.tags()
    writer.tags()


def _endpoint(writer: Writer, voter: Voter) -> None:
    writer.string(voter.listener)
    writer.string(voter.host)
    writer.out += _PORT.pack(voter.port)
    writer.tags()
