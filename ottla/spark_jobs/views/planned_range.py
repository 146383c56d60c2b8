"""A range of a task of a query: its filter and its visibility. pure"""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.scan.fates import PartitionFates
    from ottla.scan.listing import PartitionLog
    from ottla.scan.ranges import LogRange
    from ottla.scan.records import ReadFilter, Visibility


class PlannedRange(NamedTuple):
    """A range, the filter of its records and, for the views that need fates, its visible and open batches.

    `opened`: (producer id, first offset) of the open transactions, by producer id.
    """

    part: "LogRange"
    read_filter: "ReadFilter"
    visible: "Visibility | None" = None
    opened: tuple[tuple[int, int], ...] = ()

    def with_fates(self, log: "PartitionLog", fates: "PartitionFates", *, to_log_end: bool) -> "PlannedRange":
        """Add the fates of the partition. `to_log_end`: also after the last stable offset."""
        from ottla.scan.records import visibility, visible_in

        visible = visibility(fates, committed_only=True)
        if to_log_end:
            visible = visible._replace(limit=fates.log_end)
        opened = tuple(sorted((one.producer_id, one.first_offset) for one in fates.open_transactions))
        return self._replace(visible=visible_in(visible, self.part, log), opened=opened)
