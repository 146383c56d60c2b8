"""An audit for programs: one finding per line, and the rows of its tables. pure"""

import json
from collections.abc import Iterator
from typing import Any

from ottla.audit.audited import Audit, PartitionAudit, Source
from ottla.audit.report import open_now


def lines(audit: Audit) -> str:
    """Return one JSON object per line: the findings, the open transactions that are no findings, the limits."""
    opened = (json.dumps(one, ensure_ascii=False) for one in open_now.json_lines(audit))
    return "".join(f"{line}\n" for line in (*(one.line() for one in audit.findings), *opened, *_source(audit)))


def _source(audit: Audit) -> Iterator[str]:
    """Yield a line about the source, if it shows less than a directory does."""
    source = audit.source
    if source != Source():
        yield json.dumps(
            {
                "source": ",".join(audit.directories),
                "read_until_ms": source.read_until_ms,
                "read_until": {one.name: one.log_end for one in audit.partitions},
                "not_checked": [one._asdict() for one in source.not_checked],
                "reduced": [one._asdict() for one in source.reduced],
            },
            ensure_ascii=False,
        )


def partition_rows(audit: Audit) -> Iterator[dict[str, Any]]:
    """Yield the rows of the table `partitions`, with the column names of that view of the data source."""
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
