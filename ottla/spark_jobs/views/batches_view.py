"""View `batches`: every header field of every batch, its place in the files, and its fate. shell"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ottla.protocol.batch_header import (
    COMPRESSION_MASK,
    CONTROL,
    DELETE_HORIZON,
    MAX_SEQUENCE,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
)
from ottla.protocol.values import NO_SEQUENCE
from ottla.scan import schemas
from ottla.scan.arrow import numbers, record_batch, times
from ottla.scan.damage_log import DamageLog
from ottla.spark_jobs.views.base import ViewReader
from ottla.spark_jobs.views.planned_range import PlannedRange
from ottla.spark_jobs.views.planning import log_damage, plan_ranges
from ottla.spark_jobs.views.query_tasks import RangeTask

if TYPE_CHECKING:
    import numpy.typing as npt

    from ottla.scan.chunks import Chunk
    from ottla.scan.compiled.kernels import Longs
    from ottla.scan.pieces import Piece

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# `ControlRecordType`, by number.
CONTROL_TYPES = (
    "abort",
    "commit",
    "leader_change",
    "snapshot_header",
    "snapshot_footer",
    "kraft_version",
    "kraft_voters",
)
# By the numbers of `batch_fates`.
FATES = ("none", "committed", "aborted", "open")


class BatchReader(ViewReader):
    """Reader of batch headers. It plans fates only if they are requested."""

    view = schemas.BATCHES

    def plan(self) -> list[RangeTask]:
        return plan_ranges(self.options, self.bounds, with_fates=self.wants("fate"), to_log_end=True)

    def rows_or_batches(self, task: RangeTask) -> Iterator[Any]:
        from ottla.scan import headers
        from ottla.scan.pieces import PieceReader
        from ottla.scan.records import read_by_the_walk

        schema = self.arrow_schema()
        log = DamageLog(self.options.on_damage)
        reader = PieceReader(log, check_crc=False)
        for planned in task.ranges:
            part = planned.part
            read_filter = planned.read_filter._replace(
                first_offset=max(planned.read_filter.first_offset, part.log_start)
            )
            next_offset = 0
            reader.expect(part.pieces)
            for piece in part.pieces:
                for chunk in reader.chunks(piece, next_offset):
                    next_offset = int(chunk.rows[-1, headers.LAST_OFFSET]) + 1
                    rows = read_filter.rows(chunk.rows)
                    if planned.visible is not None:
                        rows = read_by_the_walk(piece, chunk, rows, planned.visible.unread, log)
                    if len(rows):
                        columns = _Columns(planned, piece, chunk, rows)
                        yield record_batch(schema, {name: columns.make(name) for name in schema.names})
        log_damage(log)


class _Columns:
    """The columns of some rows of a chunk, as numpy or Arrow arrays."""

    def __init__(self, planned: PlannedRange, piece: "Piece", chunk: "Chunk", rows: "Longs") -> None:
        from ottla.scan import headers

        part = planned.part
        self._place: dict[str, Any] = {"topic": part.topic, "partition": part.number, "segment": piece.segment}
        if piece.segment is None:
            self._place["position"] = None
        self._aborted = chunk.aborted
        self._start = chunk.file_position
        self._rows = rows
        self._planned = planned
        self._attributes = rows[:, headers.ATTRIBUTES]
        self._is_untyped = self._attributes >= headers.NO_TIMESTAMP_TYPE
        self._plain = {
            "size": headers.SIZE,
            "baseOffset": headers.BASE_OFFSET,
            "lastOffset": headers.LAST_OFFSET,
            "recordCount": headers.RECORD_COUNT,
            "leaderEpoch": headers.LEADER_EPOCH,
            "crc": headers.CRC,
            "producerId": headers.PRODUCER_ID,
            "producerEpoch": headers.PRODUCER_EPOCH,
            "baseSequence": headers.BASE_SEQUENCE,
        }
        self._made: dict[str, Callable[[], Any]] = {
            "position": lambda: rows[:, headers.POSITION] + self._start,
            "attributes": lambda: self._attributes - self._is_untyped * headers.NO_TIMESTAMP_TYPE,
            "codec": lambda: _words(CODECS, self._attributes & COMPRESSION_MASK),
            "timestampType": lambda: (self._attributes & TIMESTAMP_TYPE != 0).astype("int32") - self._is_untyped,
            "isTransactional": lambda: self._attributes & TRANSACTIONAL != 0,
            "isControl": lambda: self._attributes & CONTROL != 0,
            "baseTimestamp": lambda: self._time(headers.BASE_TIMESTAMP, self._attributes & DELETE_HORIZON == 0),
            "maxTimestamp": lambda: self._time(headers.MAX_TIMESTAMP),
            "deleteHorizon": lambda: self._time(headers.BASE_TIMESTAMP, self._attributes & DELETE_HORIZON != 0),
            "lastSequence": self._last_sequence,
            "controlType": self._control_type,
            "coordinatorEpoch": self._coordinator_epoch,
            "fate": self._fate,
        }

    def make(self, name: str) -> Any:
        import pyarrow as pa

        if name in self._place:
            kind = schemas.arrow_schema(schemas.BATCHES, [(name, True)]).field(0).type
            return pa.repeat(pa.scalar(self._place[name], kind), len(self._rows))
        return self._rows[:, self._plain[name]] if name in self._plain else self._made[name]()

    def _time(self, column: int, where: "npt.NDArray[Any] | None" = None) -> Any:
        """Return a column of times: null without a timestamp, or where `where` is false."""
        import numpy as np

        found = self._rows[:, column]
        return times(found if where is None else np.where(where, found, -1))

    def _last_sequence(self) -> Any:
        import numpy as np

        from ottla.scan import headers

        first = self._rows[:, headers.BASE_SEQUENCE]
        span = self._rows[:, headers.LAST_OFFSET] - self._rows[:, headers.BASE_OFFSET]
        return np.where(first == NO_SEQUENCE, NO_SEQUENCE, (first + span) & MAX_SEQUENCE)

    def _control_type(self) -> Any:
        import numpy as np

        from ottla.scan import headers

        kinds = self._rows[:, headers.CONTROL_TYPE]
        known = (kinds >= 0) & (kinds < len(CONTROL_TYPES))
        names = (*CONTROL_TYPES, "empty", "unknown")
        index = np.where(known, kinds, np.where(kinds == headers.EMPTY_CONTROL, len(names) - 2, len(names) - 1))
        return _words(names, index, kinds == headers.NOT_CONTROL)

    def _coordinator_epoch(self) -> Any:
        from ottla.scan import headers

        return numbers(self._rows[:, headers.COORDINATOR_EPOCH])

    def _fate(self) -> Any:
        """Return the fates; `none` for control batches and batches outside of transactions."""
        import numpy as np

        from ottla.scan.batch_fates import mark_fates

        visible, opened = self._planned.visible, self._planned.opened
        assert visible is not None
        found = np.empty(len(self._rows), dtype=np.int64)
        aborted = visible.aborted if self._aborted is None else self._aborted
        mark_fates(self._rows, aborted, np.array(opened, dtype=np.int64).reshape(-1, 2), found)
        return _words(FATES, found)


def _words(names: tuple[str, ...], index: Any, nulls: Any = None) -> Any:
    """Return a string column; `index` has the number of each row's word in `names`."""
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array(index, pa.int32(), mask=nulls), list(names)).cast(pa.string())
