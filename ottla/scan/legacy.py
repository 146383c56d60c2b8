"""Header rows of messages of magic 0 and 1, which the compiled walk does not read. pure

A wrapper is decompressed for its row, because only its content has its first offset and count. Wrappers are rare.
"""

from typing import NamedTuple

from ottla.protocol.batch_header import BatchHeader, crc_is_valid, least_size, read_header, read_legacy_header
from ottla.protocol.compression import TooLarge
from ottla.protocol.errors import ProtocolError
from ottla.protocol.legacy_records import SHALLOW_LIMIT_BYTES, deep_header
from ottla.protocol.steps import to_the_end
from ottla.protocol.up_conversion import up_convert
from ottla.scan import headers
from ottla.scan.compiled.kernels import Bytes, Longs


class Walked(NamedTuple):
    """Result of a walk over messages: `read` rows, and the position `at` where the walk ended.

    `cut`: the message at `at` is not wholly in the buffer. `wrong`: the reason why the bytes at `at` cannot be read.
    `end`: the end of a broken message by its own length, None if that is unknown.
    """

    read: int
    at: int
    next_offset: int
    cut: bool = False
    wrong: str | None = None
    end: int | None = None
    is_legacy: bool = False


def walk_messages(
    buffer: Bytes,
    at: int,
    filled: int,
    to_file_end: int,
    stop: int,
    next_offset: int,
    offset_limit: int,
    rows: Longs,
    check_crc: bool,
) -> Walked:
    """Read the messages of magic 0 and 1 in `buffer[at:filled]` that start below `stop`, as `headers.walk_headers`."""
    view = buffer.data[:filled]
    count = 0
    while at < stop and count < len(rows):
        header = read_legacy_header(view, at)
        if header is None:
            break
        end = at + header.size_bytes
        if header.size_bytes < least_size(header.magic) or end > to_file_end:
            return Walked(count, at, next_offset, wrong=headers.REASONS[headers.LENGTH_WRONG])
        if not next_offset <= header.last_offset < offset_limit:
            return Walked(count, at, next_offset, wrong=headers.REASONS[headers.OFFSET_WRONG])
        if end > filled:
            return Walked(count, at, next_offset, cut=True)
        if check_crc and not crc_is_valid(view, header, at):
            why = f"CRC mismatch in the message at offset {header.last_offset}"
            return Walked(count, at, next_offset, wrong=why, end=end)
        try:
            deep = _deep(view, header, at, next_offset)
        except ProtocolError as broken:
            return Walked(count, at, next_offset, wrong=f"{broken} (message at offset {header.last_offset})", end=end)
        _fill(rows[count], at, deep)
        count += 1
        at, next_offset = end, deep.next_offset
    return Walked(count, at, next_offset)


def _deep(view: memoryview, header: BatchHeader, at: int, next_offset: int) -> BatchHeader:
    try:
        deep = deep_header(view, header, at, SHALLOW_LIMIT_BYTES)
    except TooLarge:
        # The message is sound, but its records are not read; reading them reports that.
        return header._replace(base_offset=next_offset, last_offset_delta=header.last_offset - next_offset)
    if deep.base_offset < next_offset:
        raise ProtocolError(f"offset {deep.base_offset} instead of {next_offset} or later")
    return deep


def _fill(row: Longs, at: int, header: BatchHeader) -> None:
    row[headers.POSITION] = at
    row[headers.BASE_OFFSET] = header.base_offset
    row[headers.SIZE] = header.size_bytes
    row[headers.CRC] = header.crc
    row[headers.ATTRIBUTES] = header.attributes | (headers.NO_TIMESTAMP_TYPE if header.magic == 0 else 0)
    row[headers.LAST_OFFSET] = header.last_offset
    row[headers.BASE_TIMESTAMP] = header.base_timestamp
    row[headers.MAX_TIMESTAMP] = header.max_timestamp
    row[headers.PRODUCER_ID] = header.producer_id
    row[headers.PRODUCER_EPOCH] = header.producer_epoch
    row[headers.BASE_SEQUENCE] = header.base_sequence
    row[headers.RECORD_COUNT] = header.record_count
    row[headers.CONTROL_TYPE] = headers.NOT_CONTROL
    row[headers.COORDINATOR_EPOCH] = headers.NO_EPOCH
    row[headers.LEADER_EPOCH] = header.partition_leader_epoch


def convert_message(message: bytes, row: Longs) -> tuple[bytearray, Longs]:
    """Return the message of `row` as a batch of magic 2, and a new row with the position and size of the message.

    Raises ProtocolError.
    """
    batch = to_the_end(up_convert(message, read_header(message)))
    header = read_header(batch)
    new = row.copy()
    new[headers.ATTRIBUTES] = header.attributes | (row[headers.ATTRIBUTES] & headers.NO_TIMESTAMP_TYPE)
    new[headers.BASE_OFFSET] = header.base_offset
    new[headers.LAST_OFFSET] = header.last_offset
    new[headers.BASE_TIMESTAMP] = header.base_timestamp
    new[headers.MAX_TIMESTAMP] = header.max_timestamp
    new[headers.RECORD_COUNT] = header.record_count
    return batch, new
