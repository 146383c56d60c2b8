"""Batches and records of one `.log` file, or of a partition of a cluster, one line each. shell

The text is that of Kafka's `DumpLogSegments`, field by field. Characters that a terminal must not receive are escaped.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from ottla.broker.log.batches import BadBatch, iter_file
from ottla.broker.ports.disk import File
from ottla.cli.dump.decode import Decoder, decode_control
from ottla.cli.dump.plain import plain_text
from ottla.printable import printable, text_or_base64
from ottla.protocol.batch import ABORT, COMMIT, LEADER_CHANGE
from ottla.protocol.batch_header import (
    CONTROL,
    DELETE_HORIZON,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
    BatchHeader,
    crc_is_valid,
    is_legacy,
)
from ottla.protocol.compression import NAMES, READ_LIMIT_BYTES, TooLarge
from ottla.protocol.errors import ProtocolError
from ottla.protocol.legacy_records import SHALLOW_LIMIT_BYTES, LegacyRecord, deep_header, iter_legacy_records
from ottla.protocol.records import Record, iter_records

_MARKERS: Final = {ABORT: "ABORT", COMMIT: "COMMIT"}
_CONTROL_KEY_SIZE: Final = 4
_MARKER_VALUE_SIZE: Final = 6
_CHUNK_BYTES: Final = 1 << 16


class BatchRun(NamedTuple):
    """A range of a file with consecutive batches, with offsets from `least_offset` on."""

    position: int
    end: int
    least_offset: int


PlacedBatch = tuple[int | None, BatchHeader, memoryview]
"""(position in the file, header, bytes) of a batch; a batch of a cluster has no position."""


def batches_of(file: File, batch_run: BatchRun) -> Iterator[PlacedBatch]:
    """Yield the batches of a range of a file. Raises BadBatch at the first bytes that are not a batch."""
    return iter_file(file, batch_run.position, batch_run.end, least_offset=batch_run.least_offset)


class LogDump:
    """A walk over batches. The other attributes are set when `chunks()` has ended."""

    def __init__(self, *, records: bool, as_json: bool, decoder: Decoder | None) -> None:
        self.batch_count = 0
        self.record_count = 0
        self.size_bytes = 0
        self.damage: str | None = None
        self.unread: str | None = None
        self._records = records
        self._as_json = as_json
        self._decoder = decoder

    def chunks(self, batches: Iterable[PlacedBatch], progress: Callable[[int], None] | None = None) -> Iterator[bytes]:
        """Yield many lines at once, in UTF-8 with line ends: one for each batch and, with `records`, for each record.

        Ends at BadBatch. `progress` gets the position in the file at intervals.
        """
        held: list[bytes] = []
        size_bytes = 0
        for position, piece in self._pieces(batches):
            held.append(piece)
            size_bytes += len(piece)
            if size_bytes >= _CHUNK_BYTES:
                yield b"".join(held)
                held, size_bytes = [], 0
                if progress is not None and position is not None:
                    progress(position)
        yield b"".join(held)

    def _pieces(self, batches: Iterable[PlacedBatch]) -> Iterator[tuple[int | None, bytes]]:
        """Yield (position of a batch, lines of the batch)."""
        show = _batch_json if self._as_json else _batch_text
        try:
            for position, header, batch in batches:
                valid = crc_is_valid(batch, header)
                if valid and is_legacy(header.magic):
                    header = self._deep(header, batch, position)
                self.batch_count += 1
                self.size_bytes += len(batch)
                self.record_count += header.record_count
                yield position, show(header, position, valid).encode() + b"\n"
                if not valid:
                    self._note(f"wrong CRC at {_place(header, position)}")
                elif self._records:
                    for piece in self._record_lines(header, batch, position):
                        yield position, piece
        except BadBatch as bad:
            self._note(str(bad))

    def _deep(self, header: BatchHeader, batch: memoryview, position: int | None) -> BatchHeader:
        """Return the header with the first offset and the count of the records in an old message."""
        try:
            return deep_header(batch, header, 0, SHALLOW_LIMIT_BYTES)
        except TooLarge:
            return header
        except ProtocolError as broken:
            self._note(f"{broken} in the batch at {_place(header, position)}")
            return header

    def _record_lines(self, header: BatchHeader, batch: memoryview, position: int | None) -> Iterator[bytes]:
        try:
            plain = None
            if not (header.is_control or self._as_json or self._decoder or is_legacy(header.magic)):
                plain = plain_text(header, batch)
            if plain is None:
                plain = (line.encode() + b"\n" for line in self._record_by_record(header, batch, position))
            yield from plain
        except TooLarge as large:
            at = "" if position is None else f", position {position}"
            self.unread = self.unread or f"{large} (offset {header.base_offset}{at})"

    def _record_by_record(self, header: BatchHeader, batch: memoryview, position: int | None) -> Iterator[str]:
        try:
            if is_legacy(header.magic) and not self._as_json:
                for old in iter_legacy_records(batch, header, 0, READ_LIMIT_BYTES):
                    yield _legacy_record_text(header, old, self._decoder)
                return
            for record in iter_records(batch, header):
                if self._as_json:
                    yield json.dumps(_record_json(header, record, self._decoder))
                else:
                    yield _record_text(header, record, self._decoder)
        except TooLarge:
            raise
        except ProtocolError as broken:
            self._note(f"{broken} in the batch at {_place(header, position)}")

    def _note(self, damage: str) -> None:
        self.damage = damage if self.damage is None else self.damage


def _place(header: BatchHeader, position: int | None) -> str:
    return f"offset {header.base_offset}" if position is None else f"position {position}"


def _batch_text(header: BatchHeader, position: int | None, valid: bool) -> str:
    at = "" if position is None else f"position: {position} "
    if is_legacy(header.magic):
        return (
            f"offset: {header.last_offset} {at}{_time_type(header)}: {header.max_timestamp} "
            f"size: {header.size_bytes} magic: {header.magic} compresscodec: {_codec(header)} crc: {header.crc} "
            f"isvalid: {'true' if valid else 'false'}"
        )
    base_offset, _, epoch, magic, crc, attributes, delta, base_ms, max_ms, producer, producer_epoch, sequence, count = (
        header
    )
    return (
        f"baseOffset: {base_offset} lastOffset: {base_offset + delta} count: {count} "
        f"baseSequence: {sequence} lastSequence: {header.last_sequence} "
        f"producerId: {producer} producerEpoch: {producer_epoch} partitionLeaderEpoch: {epoch} "
        f"isTransactional: {'true' if attributes & TRANSACTIONAL else 'false'} "
        f"isControl: {'true' if attributes & CONTROL else 'false'} "
        f"deleteHorizonMs: OptionalLong{f'[{base_ms}]' if attributes & DELETE_HORIZON else '.empty'} "
        f"{at}{'LogAppendTime' if attributes & TIMESTAMP_TYPE else 'CreateTime'}: {max_ms} "
        f"size: {header.size_bytes} magic: {magic} compresscodec: {_codec(header)} crc: {crc} "
        f"isvalid: {'true' if valid else 'false'}"
    )


def _batch_json(header: BatchHeader, position: int | None, valid: bool) -> str:
    return json.dumps(
        {
            "kind": "batch",
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "count": header.record_count,
            "base_sequence": header.base_sequence,
            "last_sequence": header.last_sequence,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "leader_epoch": header.partition_leader_epoch,
            "transactional": header.is_transactional,
            "control": header.is_control,
            "delete_horizon_ms": header.delete_horizon_ms,
            **({} if position is None else {"position": position}),
            "timestamp_type": _time_type(header),
            "base_timestamp": header.base_timestamp,
            "max_timestamp": header.max_timestamp,
            "size_bytes": header.size_bytes,
            "magic": header.magic,
            "attributes": header.attributes,
            "codec": _codec(header),
            "crc": header.crc,
            "valid": valid,
        }
    )


def _codec(header: BatchHeader) -> str:
    return NAMES.get(header.compression) or f"unknown({header.compression})"


def _time_type(header: BatchHeader) -> str:
    if header.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _record_text(header: BatchHeader, record: Record, decoder: Decoder | None) -> str:
    names = printable(",".join(name for name, _ in record.headers))
    line = f"{_record_head(header, record)} sequence: {record.sequence} headerKeys: [{names}]"
    if header.is_control:
        return f"{line} {_control_text(record)}"
    return _with_content(line, record, decoder)


def _legacy_record_text(header: BatchHeader, record: LegacyRecord, decoder: Decoder | None) -> str:
    """Return the line of an old message. In a compressed message, the CRC is the record's own, and was checked."""
    return _with_content(f"{_record_head(header, record)} isValid: true crc: {record.crc}", record, decoder)


def _record_head(header: BatchHeader, record: Record | LegacyRecord) -> str:
    key, value = record.key, record.value
    return (
        f"| offset: {record.offset} {_time_type(header)}: {record.timestamp} "
        f"keySize: {-1 if key is None else len(key)} valueSize: {-1 if value is None else len(value)}"
    )


def _with_content(line: str, record: Record | LegacyRecord, decoder: Decoder | None) -> str:
    shown_key, shown_value = _show_record(record.key, record.value, decoder)
    if shown_key is not None:
        line += f" key: {shown_key}"
    return line if shown_value is None else f"{line} payload: {shown_value}"


def _show_record(key: bytes | None, value: bytes | None, decoder: Decoder | None) -> tuple[str | None, str | None]:
    """Return key and value as text. Content that cannot be decoded is shown without decoding."""
    if decoder is not None:
        try:
            decoded = decoder(key, value)
        except ProtocolError as broken:
            return _text(key), f"({broken}) {_text(value)}"
        shown_key, shown_value = (None if part is None else _compact(part) for part in decoded)
        if value is None and key is not None:
            shown_value = "<DELETE>"
        return shown_key, shown_value
    return _text(key), _text(value)


def _record_json(header: BatchHeader, record: Record, decoder: Decoder | None) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "kind": "record",
        "offset": record.offset,
        "timestamp": record.timestamp,
        "sequence": record.sequence,
        "headers": [[name, text_or_base64(content)] for name, content in record.headers],
    }
    if header.is_control:
        kind, coordinator_epoch = _control(record)
        decoded = None if kind in _MARKERS else decode_control(kind, record.value or b"")
        shown["control"] = _MARKERS.get(kind) or (kind if decoded is None else decoded[0])
        if coordinator_epoch is not None:
            shown["coordinator_epoch"] = coordinator_epoch
        if decoded is not None and decoded[1] is not None:
            shown["decoded_value"] = decoded[1]
        return shown
    shown["key"] = text_or_base64(record.key)
    shown["value"] = text_or_base64(record.value)
    if decoder is not None:
        try:
            shown["decoded_key"], shown["decoded_value"] = decoder(record.key, record.value)
        except ProtocolError as broken:
            shown["undecodable"] = str(broken)
    return shown


def _control(record: Record) -> tuple[int, int | None]:
    """Return (control type, coordinator epoch of a marker)."""
    key, value = record.key or b"", record.value or b""
    if len(key) < _CONTROL_KEY_SIZE:
        raise ProtocolError(f"control record at offset {record.offset} has no type")
    kind = int.from_bytes(key[2:4], "big", signed=True)
    if kind not in _MARKERS:
        return kind, None
    if len(value) < _MARKER_VALUE_SIZE:
        raise ProtocolError(f"marker at offset {record.offset} has no coordinator epoch")
    return kind, int.from_bytes(value[2:6], "big", signed=True)


def _control_text(record: Record) -> str:
    kind, coordinator_epoch = _control(record)
    if coordinator_epoch is not None:
        return f"endTxnMarker: {_MARKERS[kind]} coordinatorEpoch: {coordinator_epoch}"
    decoded = decode_control(kind, record.value or b"")
    if decoded is None:
        return f"controlType: UNKNOWN({kind})"
    name, fields = decoded
    if fields is None:
        return name
    return f"{name}{':' if kind == LEADER_CHANGE else ''} {_compact(fields)}"


def _compact(value: object) -> str:
    return printable(json.dumps(value, separators=(",", ":"), ensure_ascii=False))


def _text(content: bytes | None) -> str | None:
    return None if content is None else printable(content.decode(errors="replace"))
