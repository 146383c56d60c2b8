"""Compiled record decoding: select visible batches, find the parts of each record, and gather columns. pure

Source: `org.apache.kafka.common.record.DefaultRecord`. Visibility is that of a consumer: by aborted ranges and the LSO.
Each batch is parsed and gathered before the next one, while its bytes are in the nearest cache.
"""

import numpy as np

from ottla.protocol.batch_header import HEADER_SIZE, MAX_SEQUENCE, TIMESTAMP_TYPE, TRANSACTIONAL
from ottla.scan import headers
from ottla.scan.compiled.kernels import Bytes, Ints, Long, Longs, inline, kernel, plainly, read_varint, varint, zigzag

# Columns of a parsed record. Starts are positions in the payload, lengths are -1 for null.
DELTA = 0  # of its offset
TIMESTAMP_MS = 1
KEY_START = 2
KEY_LENGTH = 3
VALUE_START = 4
VALUE_LENGTH = 5
HEADERS_START = 6
HEADERS_LENGTH = 7
HEADER_COUNT = 8
PARTS = 9

# Columns of numbers, rows of an int64 array.
OFFSET = 0
TIMESTAMP_US = 1
PRODUCER_ID = 2
PRODUCER_EPOCH = 3
TIMESTAMP_KIND = 4
SEQUENCE = 5
NUMBERS = 6

# Columns with Arrow offsets and validity. Those of the headers count headers; their bytes are parsed later.
KEY = 0
VALUE = 1
HEADERS = 2
LISTS = 3

# Fill levels of the columns: records, nulls of each list (rows FILLED_NULLS + list), bytes of headers.
FILLED_ROWS = 0
FILLED_NULLS = 1
FILLED_HEADERS = FILLED_NULLS + LISTS
FILLED = FILLED_HEADERS + 1

# Reasons why decoding stopped.
DONE = 0
COLUMNS_FULL = 1
MALFORMED = 2

_LARGEST_MS = (2**63 - 1) // 1000


@kernel
def is_aborted(aborted: Longs, producer_id: Long, offset: Long) -> bool:
    """Return whether a batch is in one of the `aborted` ranges (producer id, first offset, marker offset), sorted."""
    low, high = 0, aborted.shape[0]
    while low < high:
        middle = (low + high) // 2
        pid, first = aborted[middle, 0], aborted[middle, 1]
        if pid < producer_id or (pid == producer_id and first <= offset):
            low = middle + 1
        else:
            high = middle
    return low > 0 and aborted[low - 1, 0] == producer_id and offset < aborted[low - 1, 2]


@kernel
def select_visible(
    rows: Longs, committed_only: bool, first: Long, limit: Long, aborted: Longs, selected: Longs, sections: Longs
) -> Long:
    """Copy the data batches with offsets in [first, limit) that a consumer sees to `selected`. Return their number.

    Each row of `sections` gets the start and end of a batch's records in the buffer.
    """
    count = 0
    for index in range(rows.shape[0]):
        row = rows[index]
        if row[headers.CONTROL_TYPE] != headers.NOT_CONTROL or row[headers.RECORD_COUNT] == 0:
            continue
        if row[headers.LAST_OFFSET] < first or row[headers.BASE_OFFSET] >= limit:
            continue
        if (
            committed_only
            and row[headers.ATTRIBUTES] & TRANSACTIONAL
            and is_aborted(aborted, row[headers.PRODUCER_ID], row[headers.BASE_OFFSET])
        ):
            continue
        for column in range(headers.COLUMNS):
            selected[count, column] = row[column]
        sections[count, 0] = row[headers.POSITION] + HEADER_SIZE
        sections[count, 1] = row[headers.POSITION] + row[headers.SIZE]
        count += 1
    return count


@plainly(read_varint, inline)
def short_varint(buffer: Bytes, at: Long, end: Long) -> tuple[Long, Long]:
    """Read a varint as `varint` does, but faster for one and two bytes. `buffer` must have two bytes at `at`."""
    first, second = np.int64(buffer[np.uint64(at)]), np.int64(buffer[np.uint64(at + 1)])
    if first < 0x80:
        return zigzag(first), at + 1
    if second < 0x80:
        return zigzag((first & 0x7F) | (second << 7)), at + 2
    return varint(buffer, at, end)


@kernel
def skip_headers(payload: Bytes, at: Long, end: Long, count: Long) -> Long:
    """Return the position after `count` headers at `at`, or -1 if they do not fit before `end`."""
    if at < 0 or count < 0 or count > end - at:
        return -1
    for _ in range(count):
        length, at = varint(payload, at, end)
        if at < 0 or length < 0 or length > end - at:
            return -1
        length, at = varint(payload, at + length, end)
        if at < 0 or length < -1 or length > end - at:
            return -1
        at += max(length, 0)
    return at


@kernel
def read_frames(payload: Bytes, row: Longs, at: Long, end: Long, first: Long, limit: Long, parts: Longs) -> Long:
    """Find the parts of the records with offsets in [first, limit) of the batch with header `row`.

    The batch's record bytes are `payload[at:end]`. Return the number of records found, or -1 if it is malformed.
    """
    count = 0
    base_offset, last_delta = row[headers.BASE_OFFSET], row[headers.LAST_OFFSET] - row[headers.BASE_OFFSET]
    append_time = row[headers.ATTRIBUTES] & TIMESTAMP_TYPE != 0
    base_timestamp, max_timestamp = row[headers.BASE_TIMESTAMP], row[headers.MAX_TIMESTAMP]
    for _ in range(row[headers.RECORD_COUNT]):
        if at + headers.SMALLEST_RECORD > end:
            return -1
        length, at = short_varint(payload, at, end)
        if at < 0 or length < headers.SMALLEST_RECORD - 1 or length > end - at:
            return -1
        record_end = at + length
        timestamp_delta, at = short_varint(payload, at + 1, record_end)
        # Each of the parts that follow takes at least a byte. Check that a length fits before adding to it.
        if at < 0 or at + 4 > record_end:
            return -1
        delta, at = short_varint(payload, at, record_end)
        if at < 0 or at + 3 > record_end:
            return -1
        key_length, key_start = short_varint(payload, at, record_end)
        if key_start < 0 or key_length < -1 or max(key_length, 0) > record_end - key_start - 2:
            return -1
        value_length, value_start = short_varint(payload, key_start + max(key_length, 0), record_end)
        if value_start < 0 or value_length < -1 or max(value_length, 0) > record_end - value_start - 1:
            return -1
        at = value_start + max(value_length, 0)
        header_count, at = zigzag(payload[np.uint64(at)]), at + 1
        headers_end = at
        if header_count != 0:
            header_count, at = varint(payload, at - 1, record_end)
            headers_end = skip_headers(payload, at, record_end, header_count)
        if headers_end != record_end or delta < 0 or delta > last_delta:
            return -1
        if first <= base_offset + delta < limit:
            to = np.uint64(count)
            parts[DELTA, to] = delta
            parts[TIMESTAMP_MS, to] = max_timestamp if append_time else np.int64(base_timestamp) + timestamp_delta
            parts[KEY_START, to], parts[KEY_LENGTH, to] = key_start, key_length
            parts[VALUE_START, to], parts[VALUE_LENGTH, to] = value_start, value_length
            parts[HEADERS_START, to], parts[HEADERS_LENGTH, to] = at, record_end - at
            parts[HEADER_COUNT, to] = header_count
            count += 1
        at = record_end
    return count if at == end else -1


@kernel
def append_numbers(row: Longs, parts: Longs, count: Long, at: Long, needed: Bytes, numbers: Longs) -> None:
    """Write the needed columns of numbers of a batch's `count` parsed records to `numbers` from `at` on."""
    base_offset, base_sequence = row[headers.BASE_OFFSET], row[headers.BASE_SEQUENCE]
    if needed[OFFSET]:
        to = numbers[OFFSET][at : at + count]
        for index in range(count):
            to[index] = base_offset + parts[DELTA, index]
    if needed[TIMESTAMP_US]:
        to = numbers[TIMESTAMP_US][at : at + count]
        for index in range(count):
            to[index] = min(max(parts[TIMESTAMP_MS, index], -_LARGEST_MS), _LARGEST_MS) * 1000
    if needed[PRODUCER_ID]:
        to = numbers[PRODUCER_ID][at : at + count]
        for index in range(count):
            to[index] = row[headers.PRODUCER_ID]
    if needed[PRODUCER_EPOCH]:
        to = numbers[PRODUCER_EPOCH][at : at + count]
        for index in range(count):
            to[index] = row[headers.PRODUCER_EPOCH]
    if needed[TIMESTAMP_KIND]:
        to = numbers[TIMESTAMP_KIND][at : at + count]
        kind = np.int64(row[headers.ATTRIBUTES] & TIMESTAMP_TYPE != 0)
        if row[headers.ATTRIBUTES] >= headers.NO_TIMESTAMP_TYPE:
            kind = np.int64(-1)
        for index in range(count):
            to[index] = kind
    if needed[SEQUENCE]:
        to = numbers[SEQUENCE][at : at + count]
        for index in range(count):
            sequence = (base_sequence + parts[DELTA, index]) & MAX_SEQUENCE
            to[index] = base_sequence if base_sequence < 0 else sequence


def _copy_slice(payload: Bytes, start: Long, length: Long, out: Bytes, at: Long) -> None:
    out[at : at + length] = payload[start : start + length]


@plainly(_copy_slice)
def copy_bytes(payload: Bytes, start: Long, length: Long, out: Bytes, at: Long) -> None:
    """Copy `payload[start:start + length]` to `out[at:]`."""
    # Unsigned indexes spare numba's check for negative ones.
    source, target = np.uint64(start), np.uint64(at)
    for index in range(np.uint64(length)):
        out[target + index] = payload[source + index]


@kernel
def gather(payload: Bytes, starts: Longs, lengths: Longs, at: Long, ends: Ints, bits: Bytes, out: Bytes) -> Long:
    """Append values to a column of `at` values. Return the number of nulls among them.

    `ends` are the column's Arrow offsets. `bits` are its validity, in which every bit is set at first.
    """
    nulls = 0
    end = np.int64(ends[at])
    for index in range(starts.shape[0]):
        length = lengths[index]
        if length < 0:
            bits[(at + index) >> 3] &= ~np.uint8(1 << ((at + index) & 7))
            nulls += 1
        else:
            copy_bytes(payload, starts[index], length, out, end)
            end += length
        ends[at + index + 1] = end
    return nulls


@kernel
def gather_headers(
    payload: Bytes, parts: Longs, count: Long, at: Long, ends: Ints, bits: Bytes, out: Bytes, filled: Longs
) -> None:
    """Append the unparsed headers of `count` parsed records to a column of `at` records.

    `ends` count headers. In `bits` no bit is set at first, because a record without headers is null.
    """
    end = np.int64(ends[at])
    for index in range(count):
        if parts[HEADER_COUNT, index] > 0:
            bits[(at + index) >> 3] |= np.uint8(1 << ((at + index) & 7))
            copy_bytes(payload, parts[HEADERS_START, index], parts[HEADERS_LENGTH, index], out, filled[FILLED_HEADERS])
            filled[FILLED_HEADERS] += parts[HEADERS_LENGTH, index]
            end += parts[HEADER_COUNT, index]
        else:
            filled[FILLED_NULLS + HEADERS] += 1
        ends[at + index + 1] = end


@kernel
def decode(
    payload: Bytes,
    rows: Longs,
    sections: Longs,
    first: Long,
    limit: Long,
    needed: Bytes,
    parts: Longs,
    numbers: Longs,
    ends: Ints,
    bits: Bytes,
    keys: Bytes,
    values: Bytes,
    raw_headers: Bytes,
    filled: Longs,
) -> tuple[Long, Long]:
    """Append the records with offsets in [first, limit) of batches `rows` to the needed columns.

    The record bytes of a batch are `payload[sections[i, 0]:sections[i, 1]]`. `needed` has a flag for each column of
    numbers, then for each list. Return (batches decoded, reason to stop). The next batch's records are not appended.
    """
    for index in range(rows.shape[0]):
        row, start, end = rows[index], sections[index, 0], sections[index, 1]
        at, size = filled[FILLED_ROWS], end - start
        most = min(row[headers.RECORD_COUNT], size // headers.SMALLEST_RECORD)
        if most > parts.shape[1] or at + most > numbers.shape[1]:
            return index, COLUMNS_FULL
        if needed[NUMBERS + KEY] and ends[KEY, at] + size > keys.shape[0]:
            return index, COLUMNS_FULL
        if needed[NUMBERS + VALUE] and ends[VALUE, at] + size > values.shape[0]:
            return index, COLUMNS_FULL
        if needed[NUMBERS + HEADERS] and filled[FILLED_HEADERS] + size > raw_headers.shape[0]:
            return index, COLUMNS_FULL
        count = read_frames(payload, row, start, end, first, limit, parts)
        if count < 0:
            return index, MALFORMED
        append_numbers(row, parts, count, at, needed, numbers)
        if needed[NUMBERS + KEY]:
            starts, lengths = parts[KEY_START][:count], parts[KEY_LENGTH][:count]
            filled[FILLED_NULLS + KEY] += gather(payload, starts, lengths, at, ends[KEY], bits[KEY], keys)
        if needed[NUMBERS + VALUE]:
            starts, lengths = parts[VALUE_START][:count], parts[VALUE_LENGTH][:count]
            filled[FILLED_NULLS + VALUE] += gather(payload, starts, lengths, at, ends[VALUE], bits[VALUE], values)
        if needed[NUMBERS + HEADERS]:
            gather_headers(payload, parts, count, at, ends[HEADERS], bits[HEADERS], raw_headers, filled)
        filled[FILLED_ROWS] = at + count
    return rows.shape[0], DONE


@kernel
def read_headers(raw_headers: Bytes, starts: Longs, lengths: Longs) -> None:
    """Write the starts and lengths of the keys (row 0) and values (row 1) of consecutive headers."""
    at, end = 0, raw_headers.shape[0]
    for index in range(starts.shape[1]):
        for part in range(2):
            length, at = varint(raw_headers, at, end)
            starts[part, index], lengths[part, index] = at, length
            at += max(length, 0)
