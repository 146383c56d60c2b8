"""Index files of a segment as arrays: offset, time and transaction index, producer snapshot. shell

Sources: `org.apache.kafka.storage.internals.log.OffsetIndex`, `TimeIndex`, `TransactionIndex`, `ProducerStateManager`.
Offset and time index are preallocated: zeros, or bytes of an earlier use of the file, follow their entries.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ottla.checksum import crc32c
from ottla.protocol.indexes import TXN_VERSION
from ottla.protocol.snapshot import VERSION as SNAPSHOT_VERSION
from ottla.scan import storage
from ottla.scan.compiled.kernels import Longs

Table = npt.NDArray[Any]
Parse = Callable[[bytes, int], "Entries"]

_OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
_ABORTED_ENTRY = np.dtype(
    [("version", ">i2"), ("producer_id", ">i8"), ("first", ">i8"), ("marker", ">i8"), ("stable", ">i8")]
)
_SNAPSHOT_HEAD = np.dtype([("version", ">i2"), ("crc", ">u4"), ("count", ">i4")])
_SNAPSHOT_ENTRY = np.dtype(
    [
        ("producer_id", ">i8"),
        ("epoch", ">i2"),
        ("last_sequence", ">i4"),
        ("last_offset", ">i8"),
        ("offset_delta", ">i4"),
        ("timestamp", ">i8"),
        ("coordinator_epoch", ">i4"),
        ("first_offset", ">i8"),
    ]
)
# In the order of `states`.
_SNAPSHOT_COLUMNS = (
    "producer_id",
    "epoch",
    "coordinator_epoch",
    "last_sequence",
    "last_offset",
    "offset_delta",
    "timestamp",
    "first_offset",
)
_CRC_FROM = 6


class Entries(NamedTuple):
    """Rows of int64 with absolute offsets. `fault`: the reason why reading ended at position `fault_at`."""

    rows: Longs
    size: int
    fault: str = ""
    fault_at: int = 0


def offset_entries(content: bytes, base_offset: int) -> Entries:
    """Return rows (offset, position) of an offset index."""
    rows = _columns(_whole(content, _OFFSET_ENTRY), ("offset", "position"))
    ascends = np.ones(len(rows), dtype=bool)
    ascends[1:] = (rows[1:, 0] > rows[:-1, 0]) & (rows[1:, 1] > rows[:-1, 1])
    if len(rows):
        ascends[0] = rows[0].min() >= 0 and bool(rows[0].any())
    return _cut_at_descent(content, rows, ascends, base_offset, _OFFSET_ENTRY.itemsize)


def batch_positions(segment_path: str, base_offset: int, size_bytes: int) -> Longs:
    """Return rows (last offset of a batch, its position) of the segment's `.index`, none without the file.

    As in Kafka, bytes after the entries (zeros, or leftovers of a crash) and positions from `size_bytes` on are
    ignored. The caller checks that batches start at the positions. Raises OSError.
    """
    content = storage.read_if_there(storage.with_suffix(segment_path, ".index"))
    rows = offset_entries(content or b"", base_offset).rows
    return rows[: np.searchsorted(rows[:, 1], size_bytes)]


def time_entries(content: bytes, base_offset: int) -> Entries:
    """Return rows (offset, timestamp in ms) of a time index."""
    rows = _columns(_whole(content, _TIME_ENTRY), ("offset", "timestamp"))
    ascends = np.ones(len(rows), dtype=bool)
    ascends[1:] = (rows[1:, 0] >= rows[:-1, 0]) & (rows[1:, 1] > rows[:-1, 1])
    if len(rows):
        ascends[0] = rows[0, 0] >= 0 and bool(rows[0].any())
    return _cut_at_descent(content, rows, ascends, base_offset, _TIME_ENTRY.itemsize)


def aborted_entries(content: bytes) -> Entries:
    """Return rows (marker offset, producer id, first offset, last stable offset) of a transaction index."""
    table = _whole(content, _ABORTED_ENTRY)
    rows = _columns(table, ("marker", "producer_id", "first", "stable"))
    sound = table["version"] == TXN_VERSION
    sound &= (rows[:, 2] >= 0) & (rows[:, 2] <= rows[:, 0])
    sound[1:] &= rows[1:, 0] > rows[:-1, 0]
    wrong = np.flatnonzero(~sound)
    if len(wrong):
        at = int(wrong[0])
        return Entries(rows[:at], len(content), "the entry is of an unknown version or out of order", at * 34)
    if len(content) % _ABORTED_ENTRY.itemsize:
        return Entries(rows, len(content), "the file ends inside an entry", len(rows) * _ABORTED_ENTRY.itemsize)
    return Entries(rows, len(content))


def snapshot_entries(content: bytes) -> Entries:
    """Return the rows of a producer snapshot, with columns in the order of `states.PRODUCER_ID` to `FIRST_OFFSET`."""
    none = np.empty((0, len(_SNAPSHOT_COLUMNS)), dtype=np.int64)
    if len(content) < _SNAPSHOT_HEAD.itemsize:
        return Entries(none, len(content), "the file is cut short")
    head = np.frombuffer(content, _SNAPSHOT_HEAD, 1)[0]
    if head["version"] != SNAPSHOT_VERSION:
        return Entries(none, len(content), f"version {head['version']}, not {SNAPSHOT_VERSION}")
    if crc32c(memoryview(content)[_CRC_FROM:]) != head["crc"]:
        return Entries(none, len(content), "CRC mismatch", 2)
    if len(content) != _SNAPSHOT_HEAD.itemsize + int(head["count"]) * _SNAPSHOT_ENTRY.itemsize:
        return Entries(none, len(content), f"{head['count']} entries do not fit its size", 6)
    table = np.frombuffer(content, _SNAPSHOT_ENTRY, offset=_SNAPSHOT_HEAD.itemsize)
    return Entries(_columns(table, _SNAPSHOT_COLUMNS), len(content))


def _whole(content: bytes, entry: npt.DTypeLike) -> Table:
    size = np.dtype(entry).itemsize
    return np.frombuffer(content[: len(content) - len(content) % size], entry)


def _columns(table: Table, names: Sequence[str]) -> Longs:
    # Each column is contiguous, so a binary search in one does not copy it.
    return np.stack([table[name].astype(np.int64) for name in names]).T


def _cut_at_descent(content: bytes, rows: Longs, ascends: npt.NDArray[np.bool_], base: int, entry_size: int) -> Entries:
    """Return the entries before the first that does not ascend, with a fault if nonzero bytes follow them."""
    stops = np.flatnonzero(~ascends)
    count = int(stops[0]) if len(stops) else len(rows)
    kept = rows[:count].copy(order="K")
    kept[:, 0] += base
    at = count * entry_size
    if np.frombuffer(content, np.uint8)[at:].any():
        return Entries(kept, len(content), "the entry is out of order, or cut short", at)
    return Entries(kept, len(content))
