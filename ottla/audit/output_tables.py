"""The tables that an audit writes: findings and partitions by the driver, transactions by the tasks. shell

`DIR/findings`, `DIR/partitions` and `DIR/transactions`, each a folder of Parquet files or of JSON lines, as Spark and
others read them, or a Delta table. `DIR/_SUCCESS` exists when they are complete.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.audit import delta, outputs
from ottla.audit.outputs import DELTA, TableFile, Tables
from ottla.audit.report.json import partition_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.audit.audited import Audit
    from ottla.audit.tasks import Work
    from ottla.scan.compiled.kernels import Longs
    from ottla.scan.states import States
    from ottla.scan.walk import Step

FINDINGS, TRANSACTIONS, PARTITIONS = TABLES = ("findings", "transactions", "partitions")


@contextmanager
def writing(directory: str, form: str, *, overwrite: bool) -> Iterator[Tables]:
    """Open tables in a folder, which may contain other files, such as the report. Raises OutputFailed."""
    if form == DELTA:
        delta.check(outputs.absolute(directory))
    with outputs.writing(
        directory, "--output ", lambda name: name in TABLES, overwrite=overwrite, alone=False
    ) as folder:
        yield Tables(folder, form)


def clear(tables: Tables) -> None:
    """Delete the files that tasks wrote, as the audit starts again. Raises OutputFailed."""
    outputs.clear(tables.folder.below(TRANSACTIONS))


def write_tables(audit: "Audit", tables: Tables) -> None:
    """Write the tables `findings` and `partitions`, after which all three are complete. Raises OutputFailed."""
    import pyarrow as pa

    rows = {FINDINGS: [one._asdict() for one in audit.findings], PARTITIONS: list(partition_rows(audit))}
    schemas = _schemas()
    for name, found in rows.items():
        with tables.file(name, "part-0") as file:
            file.add(pa.Table.from_pylist(found, schemas[name]))
    if not outputs.holds_files(tables.folder.below(TRANSACTIONS)):
        # Write the table also without transactions: readers need its columns.
        with tables.file(TRANSACTIONS, "part-0") as file:
            file.add(schemas[TRANSACTIONS].empty_table())
    if tables.form == DELTA:
        for name in TABLES:
            delta.commit(tables.folder.below(name), schemas[name])


def _schemas() -> "dict[str, pa.Schema]":
    import pyarrow as pa

    text, short, long = pa.string(), pa.int32(), pa.int64()
    findings = {
        "check": text,
        "severity": text,
        "topic": text,
        "partition": short,
        "offset": long,
        "producer_id": long,
        "transactional_id": text,
        "message": text,
        "action": text,
        "file": text,
        "position": long,
    }
    partitions = {
        "directory": text,
        "topic": text,
        "partition": short,
        "path": text,
        "segments": short,
        "size": long,
        "logStart": long,
        "logEnd": long,
        "lastStableOffset": long,
        "batches": long,
        "controlBatches": long,
        "plainRecords": long,
        "committedRecords": long,
        "abortedRecords": long,
        "openRecords": long,
        "committedTransactions": long,
        "abortedTransactions": long,
        "openTransactions": long,
        "compactedOffsets": long,
        "lostOffsets": long,
    }
    return {
        FINDINGS: pa.schema(list(findings.items())),
        PARTITIONS: pa.schema(list(partitions.items())),
        TRANSACTIONS: _transactions(),
    }


def _transactions() -> "pa.Schema":
    """Return the columns of the view `transactions`."""
    from ottla.scan import schemas

    return schemas.arrow_schema(schemas.TRANSACTIONS, [(name, True) for name in schemas.VIEWS[schemas.TRANSACTIONS]])


@contextmanager
def transactions_of(work: "Work") -> "Iterator[TransactionTable | None]":
    """Open the table of the transactions of one range, if requested: a file that is complete when the block ends."""
    tables = work.settings.output
    if tables is None:
        yield None
        return
    outputs.check_here(tables.folder)
    part = work.part
    with tables.file(TRANSACTIONS, f"part-{part.partition:05d}-{part.ordinal:05d}") as file:
        yield TransactionTable(work, file)


class TransactionTable:
    """Writer of the transactions of one range that have data in the log."""

    def __init__(self, work: "Work", file: TableFile) -> None:
        from ottla.scan.transaction_rows import Place

        self._work = work
        self._file = file
        self._schema = _transactions()
        self._place = Place(work.part.topic, work.part.number, work.names or {})

    def add(self, step: "Step") -> None:
        """Add the transactions that ended in this step."""
        from ottla.scan import events
        from ottla.scan.transaction_rows import columns_of_ended_rows

        rows = step.ended[step.ended[:, events.ENDED_FIRST_OFFSET] >= 0]
        if len(rows):
            self._write(columns_of_ended_rows(rows))

    def add_open(self, left: "States") -> None:
        """Add the transactions that are still open after the last range."""
        import numpy as np

        from ottla.scan.transaction_rows import of_open

        if self._work.is_last and len(left.open_rows):
            self._write(of_open(left.open_rows, lambda offsets: np.full_like(offsets, -1)))

    def _write(self, columns: "dict[str, Longs]") -> None:
        from ottla.scan.transaction_rows import to_arrow

        self._file.add(to_arrow(self._schema, self._place, columns))
