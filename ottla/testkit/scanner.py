"""The second scanner: reads a partition directory with plain code that shares only decompression. free

Tests compare the log, the broker and the Spark jobs with it. So it imports nothing else of Ottla, and its code is plain
rather than fast. Tests compare decompression with recorded answers of Apache Kafka (`tests/data/frames`). It reads
batches of every magic and codec, decides every transaction, and recomputes the last stable offset and the
aborted-transaction index. Source: Kafka's KIP-98, `ProducerAppendInfo`, `ProducerStateManager`.
"""

import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from crc32c import crc32c

from ottla.protocol.compression import READ_LIMIT_BYTES, decompress
from ottla.protocol.errors import ProtocolError

PLAIN = "plain"
COMMITTED = "committed"
ABORTED = "aborted"
OPEN = "open"

_SEGMENT = re.compile(r"\d{20}\.log")


@dataclass(frozen=True)
class ScannedRecord:
    """A record; timestamps in ms. `fate` is the fate of its transaction, or PLAIN outside of transactions."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    producer_id: int
    producer_epoch: int
    sequence: int
    fate: str = PLAIN


@dataclass(frozen=True)
class ScannedBatch:
    """A batch whose CRC was right. `marker` is "commit" or "abort" in a control batch that ends a transaction."""

    path: Path
    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    payload: bytes = field(repr=False)
    magic: int = 2

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & 0x20)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & 0x10)

    @property
    def marker(self) -> str | None:
        if not self.is_control:
            return None
        for record in self.records():
            kind = struct.unpack(">hh", (record.key or b"")[:4])[1]
            return {0: "abort", 1: "commit"}.get(kind)
        return None  # compaction removed its records: its transaction is gone from the log

    @property
    def coordinator_epoch(self) -> int | None:
        """Epoch of the coordinator that wrote the marker, None in other batches."""
        if self.marker is None:
            return None
        value = next(self.records()).value or b""
        epoch: int = struct.unpack(">i", value[2:6])[0]
        return epoch

    def records(self, fate: str = PLAIN) -> Iterator[ScannedRecord]:
        """Yield the records, including control records; all get `fate`."""
        if not self.record_count:
            return
        if self.magic < 2:
            yield from _old_records(self, fate)
            return
        data = decompress(self.payload, self.attributes & 0x07, limit_bytes=READ_LIMIT_BYTES)
        position = 0
        for _ in range(self.record_count):
            size, position = _varint(data, position)
            end = position + size
            position += 1  # attributes
            timestamp_delta, position = _varint(data, position)
            offset_delta, position = _varint(data, position)
            key, position = _bytes(data, position)
            value, position = _bytes(data, position)
            header_count, position = _varint(data, position)
            headers = []
            for _ in range(header_count):
                name, position = _bytes(data, position)
                content, position = _bytes(data, position)
                headers.append(((name or b"").decode(errors="replace"), content))
            if position != end:
                raise ValueError(f"{self.path}: record of batch {self.base_offset} ends at {position}, not {end}")
            yield ScannedRecord(
                offset=self.base_offset + offset_delta,
                timestamp=self.max_timestamp if self.attributes & 0x08 else self.base_timestamp + timestamp_delta,
                key=key,
                value=value,
                headers=headers,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                sequence=(self.base_sequence + offset_delta) % 2**31 if self.base_sequence >= 0 else -1,
                fate=fate,
            )
        if position != len(data):
            raise ValueError(f"{self.path}: {len(data) - position} bytes after the records of {self.base_offset}")


@dataclass(frozen=True)
class Damage:
    """Position at which a segment becomes unreadable, and the reason; `size_bytes` is the size from there on."""

    path: Path
    position: int
    size_bytes: int
    reason: str


@dataclass
class ScannedTransaction:
    """Transaction of a producer in this partition. `marker_offset` is None while it is open.

    `last_stable_offset` is the one that the aborted-transaction index stores for it: the last stable offset at its
    marker, without this transaction.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    fate: str = OPEN
    marker_offset: int | None = None
    marker_epoch: int | None = None
    last_stable_offset: int | None = None


@dataclass
class ScannedPartition:
    """Everything in a partition directory. `fates[i]` is the fate of `batches[i]` (of a marker: its transaction's)."""

    batches: list[ScannedBatch]
    damages: list[Damage]
    transactions: list[ScannedTransaction] = field(default_factory=list)
    fates: list[str] = field(default_factory=list)

    @property
    def log_end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    @property
    def last_stable_offset(self) -> int:
        """If all records are replicated: the first offset of the earliest open transaction, else the log end."""
        return min((t.first_offset for t in self.transactions if t.fate == OPEN), default=self.log_end_offset)

    @property
    def aborted_index(self) -> list[tuple[int, int, int, int]]:
        """(producer id, first offset, marker offset, last stable offset) of each aborted transaction, by marker."""
        return [
            (t.producer_id, t.first_offset, t.marker_offset or 0, t.last_stable_offset or 0)
            for t in sorted(self.transactions, key=lambda t: t.marker_offset or 0)
            if t.fate == ABORTED
        ]

    def records(self, isolation: str = "read_uncommitted") -> Iterator[ScannedRecord]:
        """Yield the records that a consumer of the whole partition gets, in offset order, without control records."""
        for batch, fate in zip(self.batches, self.fates, strict=True):
            if batch.is_control:
                continue
            if isolation == "read_committed":
                if batch.base_offset >= self.last_stable_offset:
                    return
                if fate == ABORTED:
                    continue
            yield from batch.records(fate)


def scan_partition(directory: str | Path) -> ScannedPartition:
    """Scan all segments of a partition directory, in order."""
    paths = sorted(path for path in Path(directory).iterdir() if _SEGMENT.fullmatch(path.name))
    return scan_segments(paths)


def scan_segments(paths: list[Path]) -> ScannedPartition:
    """Scan segment files as one partition. Read a damaged segment up to its damage, then the next one."""
    return scan_contents([(path, path.read_bytes()) for path in paths])


def scan_contents(segments: list[tuple[Path, bytes]]) -> ScannedPartition:
    """Scan the contents of segment files as `scan_segments` does; the files need not exist."""
    batches: list[ScannedBatch] = []
    damages: list[Damage] = []
    for path, data in segments:
        found, damage = scan_content(path, data)
        batches += found
        if damage is not None:
            damages.append(damage)
    partition = ScannedPartition(batches, damages)
    _decide(partition)
    return partition


def scan_content(path: Path, data: bytes) -> tuple[list[ScannedBatch], Damage | None]:
    """Return the batches in the content of one segment file, up to its end or its first damage."""
    batches: list[ScannedBatch] = []
    position = 0
    while position < len(data):
        batch, reason = _read_batch(path, data, position)
        if batch is None:
            return batches, Damage(path, position, len(data) - position, reason)
        if batches and batch.base_offset <= batches[-1].last_offset:
            reason = f"offset {batch.base_offset} after {batches[-1].last_offset}"
            return batches, Damage(path, position, len(data) - position, reason)
        batches.append(batch)
        position += batch.size_bytes
    return batches, None


def _read_batch(path: Path, data: bytes, position: int) -> tuple[ScannedBatch | None, str]:
    if data[position + 16 : position + 17] in (b"\0", b"\1"):
        return _read_old_message(path, data, position)
    if position + 61 > len(data):
        return None, "cut header"
    (base_offset, length, leader_epoch, magic, crc, attributes, last_delta) = struct.unpack(
        ">qiibIhi", data[position : position + 27]
    )
    (base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count) = struct.unpack(
        ">qqqhii", data[position + 27 : position + 61]
    )
    if length < 49:
        return None, f"size {length}"
    if magic != 2:
        return None, f"magic {magic}"
    if position + 12 + length > len(data):
        return None, "cut batch"
    if crc32c(data[position + 21 : position + 12 + length]) != crc:
        return None, "wrong CRC"
    batch = ScannedBatch(
        path=path,
        position=position,
        size_bytes=12 + length,
        base_offset=base_offset,
        last_offset=base_offset + last_delta,
        leader_epoch=leader_epoch,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
        payload=data[position + 61 : position + 12 + length],
    )
    return batch, ""


def _read_old_message(path: Path, data: bytes, position: int) -> tuple[ScannedBatch | None, str]:
    """Return a message from before Kafka 0.11 as a batch. Its offset is the offset of its last record."""
    offset, length = struct.unpack(">qi", data[position : position + 12])
    message = data[position + 12 : position + 12 + max(length, 0)]
    if length < 14:
        return None, f"size {length}"
    if len(message) < length:
        return None, "cut batch"
    if struct.pack(">I", zlib.crc32(message[4:])) != message[:4]:
        return None, "wrong CRC"
    magic, attributes = message[4], message[5]
    timestamp = struct.unpack(">q", message[6:14])[0] if magic else -1
    batch = ScannedBatch(
        path=path,
        position=position,
        size_bytes=12 + length,
        base_offset=offset,
        last_offset=offset,
        leader_epoch=-1,
        attributes=attributes & (0x0F if magic else 0x07),
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=1,
        payload=data[position : position + 12 + length],
        magic=magic,
    )
    records = list(batch.records())
    return replace(batch, base_offset=records[0].offset, record_count=len(records)), ""


def _old_records(batch: ScannedBatch, fate: str) -> Iterator[ScannedRecord]:
    """Yield the message itself, or the messages that are compressed in it."""
    ((_, _, key, value),) = _old_messages(batch.payload)
    if not batch.attributes & 0x07:
        yield ScannedRecord(batch.last_offset, batch.max_timestamp, key, value, [], -1, -1, -1, fate)
        return
    found = list(_old_messages(_unpack(value or b"", batch.attributes & 0x07, batch.magic)))
    shift = batch.last_offset - found[-1][0] if batch.magic else 0
    for offset, timestamp, key, value in found:
        if batch.attributes & 0x08:
            timestamp = batch.max_timestamp
        yield ScannedRecord(offset + shift, timestamp, key, value, [], -1, -1, -1, fate)


def _old_messages(data: bytes) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
    """Yield (offset, timestamp, key, value) of consecutive messages."""
    while data:
        offset, length = struct.unpack(">qi", data[:12])
        message, data = data[12 : 12 + length], data[12 + length :]
        timestamp = struct.unpack(">q", message[6:14])[0] if message[4] else -1
        rest = message[14:] if message[4] else message[6:]
        parts: list[bytes | None] = []
        for _ in range(2):
            size = struct.unpack(">i", rest[:4])[0]
            parts.append(None if size < 0 else rest[4 : 4 + size])
            rest = rest[4 + max(size, 0) :]
        yield offset, timestamp, parts[0], parts[1]


def _decide(partition: ScannedPartition) -> None:
    """Walk the batches once: a marker decides every transactional batch of its producer since the previous marker."""
    running: dict[int, ScannedTransaction] = {}
    transaction_of: list[ScannedTransaction | None] = []
    for batch in partition.batches:
        transaction = None
        marker = batch.marker
        if marker is not None:
            transaction = running.pop(batch.producer_id, None)
            if transaction is not None:
                transaction.fate = COMMITTED if marker == "commit" else ABORTED
                transaction.marker_offset = batch.base_offset
                transaction.marker_epoch = batch.producer_epoch
                others = [other.first_offset for other in running.values()]
                transaction.last_stable_offset = min(others, default=batch.base_offset + 1)
        elif batch.is_transactional and not batch.is_control:
            transaction = running.get(batch.producer_id)
            if transaction is None:
                transaction = ScannedTransaction(batch.producer_id, batch.producer_epoch, batch.base_offset)
                running[batch.producer_id] = transaction
                partition.transactions.append(transaction)
        transaction_of.append(transaction)
    partition.fates = [PLAIN if transaction is None else transaction.fate for transaction in transaction_of]


def _unpack(payload: bytes, codec: int, magic: int) -> bytes:
    """Return the messages in a message. LZ4 of magic 0 has a wrong checksum in its header."""
    if codec == 3 and magic == 0:
        for checksum in range(256):
            with suppress(ProtocolError):
                return _unpack(payload[:6] + bytes([checksum]) + payload[7:], codec, 1)
    return decompress(payload, codec, limit_bytes=READ_LIMIT_BYTES)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return (value // 2 if value % 2 == 0 else -(value + 1) // 2), position


def _bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = _varint(data, position)
    if size < 0:
        return None, position
    return data[position : position + size], position + size
