"""An audit for programs: a finding a line, and the rows of its tables. pure"""

from collections.abc import Iterable, Iterator
from typing import Any

from ottla.audit.audited import Audit, PartitionAudit
from ottla.audit.checks.finding import Finding


def lines(findings: Iterable[Finding]) -> str:
    """One JSON object a line."""
    return "".join(one.line() + "\n" for one in findings)


def partition_rows(audit: Audit) -> Iterator[dict[str, Any]]:
    """The rows of the table `partitions`; names as in the view of the data source."""
    return map(_partition_row, audit.partitions)


def _partition_row(one: PartitionAudit) -> dict[str, Any]:
    return {
        "directory": one.directory,
        "topic": one.log.topic,
        "partition": one.log.partition,
        "path": one.log.path,
        "segments": len(one.log.segments),
        "size": one.size_bytes,
        "logStart": one.log_start,
        "logEnd": one.log_end,
        "lastStableOffset": one.last_stable_offset,
        "batches": one.batches,
        "controlBatches": one.control_batches,
        "plainRecords": one.plain_records,
        "committedRecords": one.committed.records,
        "abortedRecords": one.aborted.records,
        "openRecords": one.opened.records,
        "committedTransactions": one.committed.transactions,
        "abortedTransactions": one.aborted.transactions,
        "openTransactions": one.opened.transactions,
        "compactedOffsets": one.missing.compacted,
        "lostOffsets": one.missing.lost,
    }
