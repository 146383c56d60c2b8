"""The tables that an audit writes: findings and partitions by the driver, transactions by the tasks. shell

`DIR/findings`, `DIR/partitions` and `DIR/transactions`, each a folder of Parquet files or of JSON lines, as Spark and
others read them, or a Delta table. `DIR/_SUCCESS` exists when they are complete.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.audit import delta, outputs
from ottla.audit.checks.finding import Finding
from ottla.audit.outputs import DELTA, TableFile, Tables
from ottla.audit.report.json import partition_rows
from ottla.scan import schemas

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import pyarrow as pa

    from ottla.audit.audited import Audit
    from ottla.scan.compiled.kernels import Longs
    from ottla.scan.ranges import LogRange
    from ottla.scan.states import States
    from ottla.scan.walk import Step

FINDINGS, TRANSACTIONS, PARTITIONS = TABLES = ("findings", "transactions", "partitions")
# Columns of the view `partitions` that the table lacks.
_NOT_AUDITED = ("segment", "highWatermark")


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

    partitions = [("directory", pa.string()), *_columns(schemas.PARTITIONS, _NOT_AUDITED)]
    partitions += [("compactedOffsets", pa.int64()), ("lostOffsets", pa.int64())]
    kinds = (kind for _, kind in _columns(schemas.FINDINGS))
    return {
        FINDINGS: pa.schema(list(zip(Finding._fields, kinds, strict=True))),
        PARTITIONS: pa.schema(partitions),
        TRANSACTIONS: _transactions(),
    }


def _columns(view: str, left_out: "Collection[str]" = ()) -> "list[tuple[str, pa.DataType]]":
    fields = [(name, True) for name in schemas.VIEWS[view] if name not in left_out]
    return [(field.name, field.type) for field in schemas.arrow_schema(view, fields)]


def _transactions() -> "pa.Schema":
    """Return the columns of the view `transactions`."""
    import pyarrow as pa

    return pa.schema(_columns(schemas.TRANSACTIONS))


@contextmanager
def transactions_of(
    tables: Tables | None, part: "LogRange", names: "Mapping[int, str]", *, is_last: bool
) -> "Iterator[TransactionTable | None]":
    """Open the table of the transactions of one range, if requested: a file that is complete when the block ends.

    `names`: transactional ids by producer id. `is_last`: the range is the last one of its partition.
    """
    if tables is None:
        yield None
        return
    outputs.check_here(tables.folder)
    with tables.file(TRANSACTIONS, f"part-{part.partition:05d}-{part.ordinal:05d}") as file:
        yield TransactionTable(part, names, is_last, file)


class TransactionTable:
    """Writer of the transactions of one range that have data in the log."""

    def __init__(self, part: "LogRange", names: "Mapping[int, str]", is_last: bool, file: TableFile) -> None:
        from ottla.scan.transaction_rows import Place

        self._is_last = is_last
        self._file = file
        self._schema = _transactions()
        self._of_files = bool(part.segment_pieces)
        self._place = Place(part.topic, part.number, names)

    def add(self, step: "Step") -> None:
        """Add the transactions that ended in this step."""
        from ottla.scan import events
        from ottla.scan.transaction_rows import columns_of_ended_rows

        rows = step.ended[step.ended[:, events.ENDED_FIRST_OFFSET] >= 0]
        if len(rows):
            self._write(columns_of_ended_rows(rows, of_files=self._of_files))

    def add_open(self, left: "States") -> None:
        """Add the transactions that are still open after the last range."""
        import numpy as np

        from ottla.scan.transaction_rows import of_open

        if self._is_last and len(left.open_rows):
            self._write(of_open(left.open_rows, lambda offsets: np.full_like(offsets, -1)))

    def _write(self, columns: "dict[str, Longs]") -> None:
        from ottla.scan.transaction_rows import to_arrow

        self._file.add(to_arrow(self._schema, self._place, columns))
