"""Contents of the small files of a data directory: indexes, snapshots, checkpoints, identities. pure

Each function takes the content of a file and returns its entries as (text, fields). For a file that Kafka's
`DumpLogSegments` reads, the text is the same. Invalid content raises ProtocolError.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ottla.protocol import checkpoints
from ottla.protocol.batch_header import decrement_sequence
from ottla.protocol.errors import ProtocolError
from ottla.protocol.indexes import OFFSET_ENTRY, TIME_ENTRY, iter_aborted_txns, iter_offset_entries, iter_time_entries
from ottla.protocol.java.properties import read_properties
from ottla.protocol.snapshot import decode_snapshot

Fields = Mapping[str, Any]
Entry = tuple[str, Fields]


class Unsound(ProtocolError):
    """A fault at `position` in the file."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"{reason} at position {position}")
        self.position = position


def offset_index(content: bytes, base_offset: int) -> Iterator[Entry]:
    """Yield the entries of an `.index`, up to the zeros that Kafka preallocated."""
    count = 0
    for entry in iter_offset_entries(content):
        offset = base_offset + entry.relative_offset
        count += 1
        yield f"offset: {offset} position: {entry.position}", {"offset": offset, "position": entry.position}
    _rest_must_be_zeros(content, count * OFFSET_ENTRY.size, OFFSET_ENTRY.size)


def time_index(content: bytes, base_offset: int) -> Iterator[Entry]:
    """Yield the entries of a `.timeindex`, up to the zeros that Kafka preallocated."""
    count = 0
    for entry in iter_time_entries(content):
        offset = base_offset + entry.relative_offset
        count += 1
        yield (
            f"timestamp: {entry.timestamp} offset: {offset}",
            {"timestamp": entry.timestamp, "offset": offset},
        )
    _rest_must_be_zeros(content, count * TIME_ENTRY.size, TIME_ENTRY.size)


def transaction_index(content: bytes) -> Iterator[Entry]:
    for entry in iter_aborted_txns(content):
        yield (
            f"version: 0 producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
            f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}",
            entry._asdict(),
        )


def producer_snapshot(content: bytes) -> Iterator[Entry]:
    for entry in decode_snapshot(content):
        start = entry.current_txn_first_offset
        line = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
            f"coordinatorEpoch: {entry.coordinator_epoch} "
            f"currentTxnFirstOffset: OptionalLong{'.empty' if start < 0 else f'[{start}]'} "
            f"lastTimestamp: {entry.timestamp} "
        )
        if entry.last_offset >= 0:
            line += (
                f"firstSequence: {decrement_sequence(entry.last_sequence, entry.offset_delta)} "
                f"lastSequence: {entry.last_sequence} lastOffset: {entry.last_offset} "
                f"offsetDelta: {entry.offset_delta} timestamp: {entry.timestamp}"
            )
        yield line.rstrip(), entry._asdict()


def offset_checkpoint(content: bytes) -> Iterator[Entry]:
    for (topic, partition), offset in checkpoints.decode_offsets(content).items():
        yield f"{topic} {partition} {offset}", {"topic": topic, "partition": partition, "offset": offset}


def leader_epochs(content: bytes) -> Iterator[Entry]:
    last = (-1, -1)
    for epoch, start in checkpoints.decode_epochs(content):
        if epoch <= last[0] or start < last[1]:
            raise ProtocolError(f"epoch {epoch} from offset {start} on, after epoch {last[0]} from {last[1]} on")
        last = epoch, start
        yield f"epoch: {epoch} startOffset: {start}", {"epoch": epoch, "start_offset": start}


def partition_metadata(content: bytes) -> Iterator[Entry]:
    topic_id = checkpoints.encode_id(checkpoints.decode_partition_metadata(content))
    yield f"topic_id: {topic_id}", {"topic_id": topic_id}


def properties(content: bytes) -> Iterator[Entry]:
    for key, value in read_properties(content).items():
        yield f"{key}={value}", {"key": key, "value": value}


def _rest_must_be_zeros(content: bytes, position: int, entry_size: int) -> None:
    if any(content[position:]):
        raise Unsound(position, "entries that do not ascend")
    if len(content) % entry_size:
        raise Unsound(len(content) - len(content) % entry_size, "an entry that is cut short")


_NAMES: Final[Mapping[str, Callable[[bytes], Iterator[Entry]]]] = {
    checkpoints.RECOVERY_POINTS: offset_checkpoint,
    checkpoints.LOG_STARTS: offset_checkpoint,
    checkpoints.HIGH_WATERMARKS: offset_checkpoint,
    checkpoints.CLEANER_OFFSETS: offset_checkpoint,
    checkpoints.LEADER_EPOCHS: leader_epochs,
    checkpoints.PARTITION_METADATA: partition_metadata,
    checkpoints.META_PROPERTIES: properties,
}


def reader_of(name: str) -> Callable[[bytes], Iterator[Entry]] | None:
    """Return the reader of a file of this name; None for other files. `.log` files have no reader here."""
    stem, _, suffix = name.rpartition(".")
    if stem.isascii() and stem.isdigit():
        base_offset = int(stem)
        if suffix == "index":
            return lambda content: offset_index(content, base_offset)
        if suffix == "timeindex":
            return lambda content: time_index(content, base_offset)
        if suffix == "txnindex":
            return transaction_index
        if suffix == "snapshot":
            return producer_snapshot
    return _NAMES.get(name)
