"""Compiled record decoding: which batches are visible, where each record's parts lie, and gathering them. pure

Source: `org.apache.kafka.common.record.DefaultRecord`; visibility as a consumer filters, by aborted ranges and the LSO.
"""

import numpy as np

from ottla.protocol.batch_header import MAX_SEQUENCE, TIMESTAMP_TYPE, TRANSACTIONAL
from ottla.spark_jobs.scan import headers
from ottla.spark_jobs.scan.kernels import Bytes, Ints, Long, Longs, kernel, varint, zigzag

# Rows of the int64 columns of decoded records. Positions are in the payload buffer.
OFFSET = 0
TIMESTAMP_US = 1
KEY_START = 2
VALUE_START = 3
HEADERS_START = 4
LONG_COLUMNS = 5

# Rows of the int32 columns. Lengths are -1 for null; BATCH is the index of the batch among those decoded together.
BATCH = 0
KEY_LENGTH = 1
VALUE_LENGTH = 2
HEADER_COUNT = 3
INT_COLUMNS = 4

# What is constant in a batch or follows from the offset, made for the columns that are asked for.
PRODUCER_ID = 0
PRODUCER_EPOCH = 1
TIMESTAMP_KIND = 2
SEQUENCE = 3

_LARGEST_MS = (2**63 - 1) // 1000


@kernel
def is_aborted(aborted: Longs, producer_id: Long, offset: Long) -> bool:
    """Whether a batch lies in one of the `aborted` ranges (producer id, first offset, marker offset), sorted."""
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
    rows: Longs, committed_only: bool, log_start: Long, limit: Long, aborted: Longs, selected: Longs
) -> Long:
    """Indexes of the data batches with records in [log_start, limit) that a consumer is given; returns how many."""
    count = 0
    for index in range(rows.shape[0]):
        row = rows[index]
        if row[headers.CONTROL_TYPE] != headers.NOT_CONTROL or row[headers.RECORD_COUNT] == 0:
            continue
        if row[headers.LAST_OFFSET] < log_start or row[headers.BASE_OFFSET] >= limit:
            continue
        if (
            committed_only
            and row[headers.ATTRIBUTES] & TRANSACTIONAL
            and is_aborted(aborted, row[headers.PRODUCER_ID], row[headers.BASE_OFFSET])
        ):
            continue
        selected[count] = index
        count += 1
    return count


@kernel
def skip_headers(payload: Bytes, at: Long, end: Long, count: Long) -> Long:
    """The position behind `count` headers at `at`, or -1 if they do not fit before `end`."""
    if at < 0 or count < 0 or count > end - at:
        return -1
    for _ in range(count):
        length, at = varint(payload, at, end)
        if at < 0 or length < 0 or at + length > end:
            return -1
        length, at = varint(payload, at + length, end)
        if at < 0 or length < -1 or at + max(length, 0) > end:
            return -1
        at += max(length, 0)
    return at


@kernel
def read_frames(
    payload: Bytes, rows: Longs, sections: Longs, log_start: Long, longs: Longs, ints: Ints
) -> tuple[Long, Long]:
    """Decode the records of batches `rows`, whose record bytes are `payload[sections[i, 0]:sections[i, 1]]`.

    Fills `longs` and `ints` (columns x records) and returns (records, batches decoded): fewer batches than rows means
    that the next one is malformed. Records below `log_start` are left out.
    """
    count = 0
    for index in range(rows.shape[0]):
        row = rows[index]
        at, end = sections[index, 0], sections[index, 1]
        base_offset, last_offset = row[headers.BASE_OFFSET], row[headers.LAST_OFFSET]
        append_time = row[headers.ATTRIBUTES] & TIMESTAMP_TYPE != 0
        base_timestamp, max_timestamp = row[headers.BASE_TIMESTAMP], row[headers.MAX_TIMESTAMP]
        first_of_batch = count
        for _ in range(row[headers.RECORD_COUNT]):
            length, at = varint(payload, at, end)
            if at < 0 or length < headers.SMALLEST_RECORD - 1 or at + length > end:
                return first_of_batch, index
            # The record has as many bytes, so the varints up to the key's length may be read without a look at its end.
            record_end = at + length
            at += 1
            timestamp_delta, offset_delta = zigzag(payload[np.uint64(at)]), zigzag(payload[np.uint64(at + 1)])
            if payload[np.uint64(at)] < 0x80 and payload[np.uint64(at + 1)] < 0x80:
                at += 2
            else:
                timestamp_delta, at = varint(payload, at, record_end)
                offset_delta, at = varint(payload, max(at, 0), record_end)
            if at < 0 or at >= record_end:
                return first_of_batch, index
            key_length, key_start = zigzag(payload[np.uint64(at)]), at + 1
            if payload[np.uint64(at)] >= 0x80:
                key_length, key_start = varint(payload, at, record_end)
            at = key_start + max(key_length, 0)
            if key_start < 0 or key_length < -1 or at >= record_end:
                return first_of_batch, index
            value_length, value_start = zigzag(payload[np.uint64(at)]), at + 1
            if payload[np.uint64(at)] >= 0x80:
                value_length, value_start = varint(payload, at, record_end)
            at = value_start + max(value_length, 0)
            if value_start < 0 or value_length < -1 or at >= record_end:
                return first_of_batch, index
            header_count, at = zigzag(payload[np.uint64(at)]), at + 1
            headers_end = at
            if header_count != 0:
                header_count, at = varint(payload, at - 1, record_end)
                headers_end = skip_headers(payload, at, record_end, header_count)
            offset = base_offset + offset_delta
            if headers_end != record_end or offset < base_offset or offset > last_offset:
                return first_of_batch, index
            if offset >= log_start:
                timestamp = max_timestamp if append_time else base_timestamp + timestamp_delta
                to = np.uint64(count)
                longs[OFFSET, to] = offset
                longs[TIMESTAMP_US, to] = min(max(timestamp, -_LARGEST_MS), _LARGEST_MS) * 1000
                longs[KEY_START, to], longs[VALUE_START, to], longs[HEADERS_START, to] = key_start, value_start, at
                ints[KEY_LENGTH, to], ints[VALUE_LENGTH, to] = key_length, value_length
                ints[HEADER_COUNT, to], ints[BATCH, to] = header_count, index
                count += 1
            at = record_end
        if at != end:
            return first_of_batch, index
    return count, rows.shape[0]


@kernel
def fill_column(rows: Longs, column: Long, offsets: Longs, batches: Ints, out: Longs | Ints) -> None:
    """One of the columns that follow from a record's batch (its index in `rows`) and offset, into `out`."""
    for index in range(offsets.shape[0]):
        row = np.uint64(batches[index])
        if column == PRODUCER_ID:
            out[index] = rows[row, headers.PRODUCER_ID]
        elif column == PRODUCER_EPOCH:
            out[index] = rows[row, headers.PRODUCER_EPOCH]
        elif column == TIMESTAMP_KIND:
            out[index] = rows[row, headers.ATTRIBUTES] & TIMESTAMP_TYPE != 0
        elif rows[row, headers.BASE_SEQUENCE] < 0:
            out[index] = rows[row, headers.BASE_SEQUENCE]
        else:
            delta = offsets[index] - rows[row, headers.BASE_OFFSET]
            out[index] = (rows[row, headers.BASE_SEQUENCE] + delta) & MAX_SEQUENCE


@kernel
def rows_that_fit(
    key_lengths: Ints, value_lengths: Ints, at: Long, end: Long, limit_bytes: Long, limit_rows: Long
) -> Long:
    """The end of the slice from `at` whose keys and values hold at most `limit_bytes`; at least one row."""
    size = 0
    stop = min(end, at + limit_rows)
    for index in range(at, stop):
        size += max(key_lengths[index], 0) + max(value_lengths[index], 0)
        if size > limit_bytes and index > at:
            return index
    return stop


@kernel
def ends_of(lengths: Ints, ends: Ints) -> Long:
    """Arrow offsets of values with these lengths (null counts as empty) into `ends`; returns the bytes they take."""
    total = np.int64(0)
    ends[0] = 0
    for index in range(lengths.shape[0]):
        total += max(lengths[index], 0)
        ends[index + 1] = total
    return total


@kernel
def gather(payload: Bytes, starts: Longs, ends: Ints, out: Bytes) -> None:
    """Copy the values that start at `starts` in `payload` to where the Arrow offsets `ends` have them in `out`."""
    for index in range(starts.shape[0]):
        source = np.uint64(starts[index])
        target = np.uint64(ends[index])
        for at in range(np.uint64(ends[index + 1]) - target):
            out[target + np.uint64(at)] = payload[source + np.uint64(at)]


@kernel
def pack_validity(lengths: Ints, smallest: Long, bits: Bytes) -> Long:
    """Set a bit in the zeroed `bits` for each length of at least `smallest`; returns how many are below it (null)."""
    nulls = 0
    for index in range(lengths.shape[0]):
        if lengths[index] >= smallest:
            bits[index >> 3] |= np.uint8(1 << (index & 7))
        else:
            nulls += 1
    return nulls


@kernel
def read_headers(
    payload: Bytes, starts: Longs, counts: Ints, list_ends: Ints, part_starts: Longs, part_lengths: Ints
) -> None:
    """Where the header keys (row 0) and values (row 1) of each record lie; `list_ends` are the list's Arrow offsets."""
    total = 0
    list_ends[0] = 0
    end = payload.shape[0]
    for index in range(starts.shape[0]):
        at = starts[index]
        for _ in range(counts[index]):
            length, at = varint(payload, at, end)
            part_starts[0, total] = at
            part_lengths[0, total] = length
            length, at = varint(payload, at + length, end)
            part_starts[1, total] = at
            part_lengths[1, total] = length
            at += max(length, 0)
            total += 1
        list_ends[index + 1] = total
