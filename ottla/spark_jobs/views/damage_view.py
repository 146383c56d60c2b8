"""View `damage`: the parts of segments that cannot be read. Every header and CRC is checked. shell

Of a cluster, the positions are offsets, and the file is the address of the partition.
"""

from collections.abc import Iterator
from typing import Any

from ottla.scan import schemas
from ottla.scan.damage_log import REPORT, DamageLog
from ottla.spark_jobs.views.base import ViewReader
from ottla.spark_jobs.views.planning import plan_ranges
from ottla.spark_jobs.views.query_tasks import RangeTask


class DamageReader(ViewReader):
    """Reader of damage. A torn tail is not damage: the log ends before it."""

    view = schemas.DAMAGE

    def plan(self) -> list[RangeTask]:
        return plan_ranges(self.options, self.bounds)

    def rows_or_batches(self, task: RangeTask) -> Iterator[Any]:
        return self.to_arrow(self._rows(task))

    def _rows(self, task: RangeTask) -> Iterator[dict[str, Any]]:
        from ottla.scan import headers
        from ottla.scan.pieces import PieceReader

        for part, *_ in task.ranges:
            log = DamageLog(REPORT)
            reader = PieceReader(log, check_crc=True)
            next_offset = 0
            for piece in part.pieces:
                log.found.clear()
                for chunk in reader.chunks(piece, next_offset):
                    next_offset = int(chunk.rows[-1, headers.LAST_OFFSET]) + 1
                for damage in log.found:
                    yield {
                        "topic": part.topic,
                        "partition": part.number,
                        "segment": piece.segment,
                        "file": damage.path,
                        "position": damage.position,
                        "end": damage.end_position,
                        "reason": damage.reason,
                    }
