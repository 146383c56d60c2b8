"""Decode a range of a segment and write it as Parquet, in a task. shell

A file gets its name when it is complete, and only if the segment still has the records that the name identifies. Two
tasks that write the same range at once write the same content under the same name.
"""

import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.audit.outputs import PARQUET, OutputFailed, TableFile
from ottla.scan import schemas
from ottla.scan.damage_log import FAIL, DamagedSegment, DamageLog
from ottla.scan.needs import WorkerLacks, check_worker
from ottla.spark_jobs.cache.names import Piece
from ottla.spark_jobs.row_groups import IN_FOLDERS, parquet_options, row_groups

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.scan.compiled.kernels import Longs
    from ottla.scan.ranges import LogRange
    from ottla.scan.records import Visibility
    from ottla.spark_jobs.cache.settled_ranges import SettledRange

# Spark's own default: it is fast to read.
COMPRESSION = "snappy"
COLUMNS = tuple(name for name in schemas.VIEWS[schemas.RECORDS] if name not in IN_FOLDERS)
# Dictionaries help keys and values that repeat; for others, Arrow drops the dictionary after a megabyte.
_OPTIONS = parquet_options(COLUMNS, COMPRESSION, unique=("offset", "sequence"))


class Fill(NamedTuple):
    """A range that a task writes. `aborted`: the aborted ranges, as far as they overlap with the range."""

    part: "LogRange"
    settled_range: "SettledRange"
    identity: str
    aborted: "Longs"
    folder: str


class Filled(NamedTuple):
    """Result of a task: the piece, or None if the segment is damaged or was replaced; `error`: the reason."""

    piece: Piece | None
    error: str = ""


def fill(one: Fill) -> Filled:
    """Write a piece. Runs in a task."""
    folder = Path(one.folder)
    written = [folder / f"_{uuid.uuid4().hex}" for _ in range(2)]
    try:
        check_worker()
        return Filled(_fill(one, *written))
    except DamagedSegment:
        return Filled(None)
    except (OutputFailed, WorkerLacks) as error:
        return Filled(None, str(error))
    except OSError:
        # Retention or compaction deleted the segment.
        return Filled(None)
    finally:
        for path in written:
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _fill(one: Fill, committed: Path, aborted: Path) -> Piece | None:
    from ottla.spark_jobs.cache.settled_ranges import digest_of

    settled_range = one.settled_range
    offsets = _write_committed(one, committed)
    if len(one.aborted):
        _write_aborted(one, aborted, offsets)
    if digest_of(one.part.segment_pieces[0]) != settled_range.digest:
        return None
    sizes = [path.stat().st_size if path.exists() else 0 for path in (committed, aborted)]
    piece = Piece(settled_range.base_offset, settled_range.start, settled_range.end, one.identity, *sizes)
    # The file of committed records is renamed last, so its name proves that both exist.
    try:
        if piece.aborted_bytes:
            aborted.replace(aborted.with_name(piece.aborted_name))
        committed.replace(committed.with_name(piece.name))
    except OSError as error:
        raise OutputFailed(f"{one.folder}: cannot be written: {error.strerror}") from error
    return piece


def _write_committed(one: Fill, path: Path) -> "list[Longs]":
    """Write the committed records. Return their offsets: all other records are aborted."""
    offsets: list[Longs] = []
    with TableFile(str(path), PARQUET, _OPTIONS) as file:
        for table in _tables(one, committed_only=True):
            file.add(table)
            if len(one.aborted):
                offsets.append(table.column("offset").to_numpy())
        if not offsets:
            file.add(_no_rows())
    return offsets


def _write_aborted(one: Fill, path: Path, committed: "list[Longs]") -> None:
    import numpy as np

    known = np.concatenate([*committed, np.empty(0, dtype=np.int64)])
    with TableFile(str(path), PARQUET, _OPTIONS) as file:
        for table in _tables(one, committed_only=False):
            is_other = np.isin(table.column("offset").to_numpy(), known, assume_unique=True, invert=True)
            if is_other.any():
                file.add(table.filter(is_other))


def _tables(one: Fill, *, committed_only: bool) -> "Iterator[pa.Table]":
    from ottla.scan.records import EVERYTHING
    from ottla.spark_jobs.views.planned_range import PlannedRange

    planned = PlannedRange(one.part, EVERYTHING, _visible(one, committed_only=committed_only))
    return row_groups(planned, COLUMNS, DamageLog(FAIL))


def _visible(one: Fill, *, committed_only: bool) -> "Visibility":
    """Return the visibility of the range. It includes records below the log start, which each query leaves out."""
    from ottla.scan.records import Visibility

    return Visibility(committed_only, 0, one.settled_range.end_offset, one.aborted)


def _no_rows() -> "pa.Table":
    table: pa.Table = schemas.arrow_schema(schemas.RECORDS, [(name, True) for name in COLUMNS]).empty_table()
    return table
