"""Decoded records as Arrow record batches of exactly the types that Spark expects. free

Buffers gather the records of many batches until these fill a record batch of a good size. Buffers are reused: Arrow
gets a copy of the content, or a large buffer itself if most of it is used.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from ottla.scan import frames, headers
from ottla.scan.compiled.kernels import Bytes, Longs

# Arrow batches of 1 to 4 MB are the fastest; below 256 KB they cost 12 to 20 % more.
BATCH_BYTES = 2 * 1024 * 1024
BATCH_ROWS = 65_536
_RECORDS_PER_BATCH = 4_096

_NUMBERS = {
    "offset": (frames.OFFSET, np.int64),
    "timestamp": (frames.TIMESTAMP_US, np.int64),
    "producerId": (frames.PRODUCER_ID, np.int64),
    "producerEpoch": (frames.PRODUCER_EPOCH, np.int32),
    "timestampType": (frames.TIMESTAMP_KIND, np.int32),
    "sequence": (frames.SEQUENCE, np.int32),
}
_LISTS = {"key": frames.KEY, "value": frames.VALUE, "headers": frames.HEADERS}


class ColumnBuilder:
    """Gathers the columns of `schema`, a subset of all columns, from the records of one segment after the other."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._needed = np.zeros(frames.NUMBERS + frames.LISTS, dtype=np.uint8)
        for name in schema.names:
            if name in _NUMBERS:
                self._needed[_NUMBERS[name][0]] = 1
            elif name in _LISTS:
                self._needed[frames.NUMBERS + _LISTS[name]] = 1
        self._parts = np.empty((frames.PARTS, _RECORDS_PER_BATCH), dtype=np.int64)
        self._filled = np.zeros(frames.FILLED, dtype=np.int64)
        self._data = [np.empty(0, dtype=np.uint8) for _ in range(frames.LISTS)]
        self._make_rows(BATCH_ROWS)
        self._constants: dict[str, Callable[[int], pa.Array]] = {}
        self._made: dict[str, pa.Array] = {}

    def start(self, topic: str, partition: int, segment: int | None) -> None:
        """Start the rows of a segment, None for a window. Take the rows of the segment before first."""
        self._made.clear()
        self._constants = {
            "topic": lambda rows: pa.repeat(pa.scalar(topic, pa.string()), rows),
            "partition": lambda rows: pa.repeat(pa.scalar(partition, pa.int32()), rows),
            "segment": lambda rows: pa.repeat(pa.scalar(segment, pa.int64()), rows),
        }

    def add(self, payload: Bytes, rows: Longs, sections: Longs, first: int, limit: int) -> tuple[int, int]:
        """Gather the records with offsets in [first, limit) of batches. Arguments and result are as in `frames.decode`.

        After COLUMNS_FULL, `take` makes room.
        """
        if not self._filled[frames.FILLED_ROWS] and len(rows):
            self._make_room(rows[0], int(sections[0, 1] - sections[0, 0]))
        keys, values, raw_headers = self._data
        return frames.decode(
            payload,
            rows,
            sections,
            first,
            limit,
            self._needed,
            self._parts,
            self._numbers,
            self._ends,
            self._bits,
            keys,
            values,
            raw_headers,
            self._filled,
        )

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yield the gathered rows. A batch of the log that is too large for one record batch fills several."""
        rows = int(self._filled[frames.FILLED_ROWS])
        if rows == 0:
            return
        size = int(self._ends[[frames.KEY, frames.VALUE], rows].sum() + self._filled[frames.FILLED_HEADERS])
        columns = [self._column(field, rows) for field in self._schema]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self._clear()
        pieces = max(-(-size // (2 * BATCH_BYTES)), -(-rows // BATCH_ROWS))
        step = -(-rows // pieces)
        for start in range(0, rows, step):
            yield batch.slice(start, step)

    def _make_rows(self, capacity: int) -> None:
        self._numbers = np.empty((frames.NUMBERS, capacity), dtype=np.int64)
        self._ends = np.zeros((frames.LISTS, capacity + 1), dtype=np.int32)
        self._bits = np.empty((frames.LISTS, (capacity + 7) // 8), dtype=np.uint8)
        self._clear()

    def _clear(self) -> None:
        self._filled[:] = 0
        self._bits[:] = 0xFF
        self._bits[frames.HEADERS] = 0

    def _make_room(self, row: Longs, size: int) -> None:
        """Make the empty columns large enough for a batch. Its size caps a false count: a record has >= 7 bytes."""
        most = min(int(row[headers.RECORD_COUNT]), size // headers.SMALLEST_RECORD)
        if most > self._parts.shape[1]:
            self._parts = np.empty((frames.PARTS, most), dtype=np.int64)
        if most > self._numbers.shape[1]:
            self._make_rows(most)
        for number, data in enumerate(self._data):
            if self._needed[frames.NUMBERS + number] and max(size, BATCH_BYTES) > len(data):
                self._data[number] = np.empty(max(size, BATCH_BYTES), dtype=np.uint8)

    def _column(self, field: pa.Field, rows: int) -> pa.Array:
        if field.name in _NUMBERS:
            column, kind = _NUMBERS[field.name]
            values = self._numbers[column, :rows].astype(kind)
            return pa.Array.from_buffers(field.type, rows, [None, pa.py_buffer(values)])
        if field.name == "headers":
            return self._headers(field.type, rows)
        if field.name in _LISTS:
            column = _LISTS[field.name]
            size = int(self._ends[column, rows])
            nulls, validity, ends = self._list_buffers(column, rows)
            data = pa.py_buffer(self._take_bytes(column, size))
            return pa.Array.from_buffers(field.type, rows, [validity, ends, data], null_count=nulls)
        made = self._made.get(field.name)
        if made is None or len(made) < rows:
            made = self._made[field.name] = self._constants[field.name](rows)
        return made.slice(0, rows)

    def _list_buffers(self, column: int, rows: int) -> tuple[int, pa.Buffer | None, pa.Buffer]:
        """Return (nulls, validity, offsets) of a list."""
        nulls = int(self._filled[frames.FILLED_NULLS + column])
        validity = pa.py_buffer(self._bits[column, : (rows + 7) // 8].copy()) if nulls else None
        return nulls, validity, pa.py_buffer(self._ends[column, : rows + 1].copy())

    def _take_bytes(self, column: int, size: int) -> Bytes:
        """Return the bytes gathered for a list: the buffer itself if most of it is used, else a copy."""
        data = self._data[column]
        if 2 * size < len(data):
            return data[:size].copy()
        self._data[column] = np.empty(0, dtype=np.uint8)
        return data[:size]

    def _headers(self, kind: pa.DataType, rows: int) -> pa.Array:
        """Return a list of (key, value) per record; null for a record without headers, as in Spark's Kafka source."""
        total = int(self._ends[frames.HEADERS, rows])
        if total == 0:
            return pa.nulls(rows, kind)
        nulls, validity, ends = self._list_buffers(frames.HEADERS, rows)
        raw = self._data[frames.HEADERS][: self._filled[frames.FILLED_HEADERS]]
        places = np.empty((2, 2, total), dtype=np.int64)
        frames.read_headers(raw, *places)
        fields = [kind.value_type.field(index) for index in range(2)]
        keys, values = (_gather(field.type, raw, *places[:, index]) for index, field in enumerate(fields))
        pairs = pa.StructArray.from_buffers(kind.value_type, total, [None], children=[_text(keys), values])
        return pa.ListArray.from_buffers(kind, rows, [validity, ends], null_count=nulls, children=[pairs])


def _gather(kind: pa.DataType, payload: Bytes, starts: Longs, lengths: Longs) -> pa.Array:
    ends = np.zeros(len(lengths) + 1, dtype=np.int32)
    bits = np.full((len(lengths) + 7) // 8, 0xFF, dtype=np.uint8)
    data = np.empty(int(np.maximum(lengths, 0).sum()), dtype=np.uint8)
    nulls = frames.gather(payload, starts, lengths, 0, ends, bits, data)
    buffers = [pa.py_buffer(bits) if nulls else None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(lengths), buffers, null_count=nulls)


def _text(keys: pa.Array) -> pa.Array:
    """Replace bytes that are not UTF-8 by U+FFFD, as Kafka's clients do. Other clients may write any bytes."""
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in keys.cast(pa.binary()).to_pylist()], keys.type)
    return keys
