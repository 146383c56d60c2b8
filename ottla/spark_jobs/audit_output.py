"""The tables that an audit writes: findings and partitions by the driver, transactions by the tasks. shell

`DIR/findings`, `DIR/partitions` and `DIR/transactions`, each a folder of Parquet files or of JSON lines, as Spark and
others read and write them.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.spark_jobs.report.json import partition_rows
from ottla.spark_jobs.scan.listing import local_path

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.spark_jobs.audit_work import Work
    from ottla.spark_jobs.audited import Audit
    from ottla.spark_jobs.scan.states import States
    from ottla.spark_jobs.scan.walk import Step

TABLES = ("findings", "transactions", "partitions")


class OutputFailed(Exception):
    """The tables cannot be written; the text is one line."""


def prepare(directory: str) -> str:
    """Make the folders of the tables. What an audit wrote there before must be gone. Raises OutputFailed."""
    root = Path(local_path(directory)).absolute()
    try:
        for table in TABLES:
            (root / table).mkdir(parents=True, exist_ok=True)
            if any((root / table).iterdir()):
                raise OutputFailed(f"--output {directory}: {root / table} is not empty")
    except OSError as error:
        raise OutputFailed(f"--output {directory}: {error.strerror}") from error
    return str(root)


def clear(directory: str) -> None:
    """Take back what tasks wrote of an audit that begins anew."""
    for path in (Path(directory) / "transactions").iterdir():
        path.unlink()


def write_tables(audit: "Audit", directory: str, form: str) -> None:
    """The tables `findings` and `partitions`. Raises OutputFailed."""
    import pyarrow as pa

    text, number = pa.string(), pa.int64()
    findings = pa.schema(
        [
            ("check", text),
            ("severity", text),
            ("topic", text),
            ("partition", pa.int32()),
            ("offset", number),
            ("producer_id", number),
            ("transactional_id", text),
            ("message", text),
            ("action", text),
            ("file", text),
            ("position", number),
        ]
    )
    rows = list(partition_rows(audit))
    names = {"directory": text, "topic": text, "path": text, "partition": pa.int32(), "segments": pa.int32()}
    partitions = pa.schema([(name, names.get(name, number)) for name in rows[0]]) if rows else pa.schema([])
    try:
        write(Path(directory) / "findings", "part-0", form, [one._asdict() for one in audit.findings], findings)
        write(Path(directory) / "partitions", "part-0", form, rows, partitions)
    except OSError as error:
        raise OutputFailed(f"--output {directory}: {error.strerror}") from error


def write(folder: Path, name: str, form: str, rows: list[dict[str, Any]], schema: "pa.Schema") -> None:
    """One file of a table."""
    if form == "json":
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.json").write_text(lines, encoding="utf-8")
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows, schema), folder / f"{name}.parquet")


class TransactionTable:
    """Writes the transactions of one range, with the columns of the view `transactions`."""

    def __init__(self, work: "Work") -> None:
        import pyarrow as pa

        from ottla.spark_jobs import schemas

        assert work.settings.output is not None
        directory, self._form = work.settings.output
        part = work.part
        self._work = work
        self._path = Path(directory) / "transactions" / f"part-{part.partition:05d}-{part.ordinal:05d}.{self._form}"
        fields = [(name, True) for name in schemas.VIEWS[schemas.TRANSACTIONS]]
        self._schema: pa.Schema = schemas.arrow_schema(schemas.TRANSACTIONS, fields)
        self._writer: Any = None

    def add(self, step: "Step") -> None:
        """The transactions that ended in this step."""
        import pyarrow as pa

        from ottla.protocol.batch import COMMIT
        from ottla.spark_jobs.scan import events

        rows = step.ended[step.ended[:, events.ENDED_FIRST_OFFSET] >= 0]
        if not len(rows):
            return
        fates = ["committed" if fate == COMMIT else "aborted" for fate in rows[:, events.ENDED_FATE].tolist()]
        known = rows[:, events.ENDED_START_MS] >= 0
        took = rows[:, events.ENDED_END_MS] - rows[:, events.ENDED_START_MS]
        columns = {
            "segment": rows[:, events.ENDED_SEGMENT],
            "producerId": rows[:, events.ENDED_PRODUCER_ID],
            "producerEpoch": rows[:, events.ENDED_EPOCH],
            "fate": fates,
            "firstOffset": rows[:, events.ENDED_FIRST_OFFSET],
            "lastOffset": rows[:, events.ENDED_LAST_OFFSET],
            "markerOffset": rows[:, events.ENDED_MARKER_OFFSET],
            "markerPosition": rows[:, events.ENDED_POSITION],
            "markerEpoch": rows[:, events.ENDED_MARKER_EPOCH],
            "coordinatorEpoch": rows[:, events.ENDED_COORDINATOR_EPOCH],
            "records": rows[:, events.ENDED_RECORDS],
            "batches": rows[:, events.ENDED_BATCHES],
            "size": rows[:, events.ENDED_BYTES],
            "startTime": pa.array(rows[:, events.ENDED_START_MS] * 1000, mask=~known),
            "endTime": rows[:, events.ENDED_END_MS] * 1000,
            "durationMs": pa.array(took, mask=~known),
            "lastStableOffset": rows[:, events.ENDED_LAST_STABLE_OFFSET],
        }
        self._write(columns, len(rows))

    def close(self, left: "States") -> None:
        """What is still open, behind the last range."""
        import pyarrow as pa

        from ottla.spark_jobs.scan import states

        rows = left.open_rows
        if self._work.is_last and len(rows):
            known = rows[:, states.OPEN_START_MS] >= 0
            columns = {
                "producerId": rows[:, states.PRODUCER_ID],
                "producerEpoch": rows[:, states.OPEN_EPOCH],
                "fate": ["open"] * len(rows),
                "firstOffset": rows[:, states.FIRST_OFFSET],
                "lastOffset": rows[:, states.OPEN_LAST_OFFSET],
                "records": rows[:, states.OPEN_RECORDS],
                "batches": rows[:, states.OPEN_BATCHES],
                "size": rows[:, states.OPEN_BYTES],
                "startTime": pa.array(rows[:, states.OPEN_START_MS] * 1000, mask=~known),
            }
            self._write(columns, len(rows))
        if self._writer is not None:
            self._writer.close()

    def _write(self, columns: dict[str, Any], count: int) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = self._work.names or {}
        columns["topic"] = [self._work.part.topic] * count
        columns["partition"] = [self._work.part.number] * count
        columns["transactionalId"] = [names.get(int(one)) for one in columns["producerId"]]
        arrays = []
        for field in self._schema:
            values = columns.get(field.name)
            if values is None:
                arrays.append(pa.nulls(count, field.type))
            elif isinstance(values, list):
                arrays.append(pa.array(values, field.type))
            else:
                arrays.append(pa.array(values).cast(field.type))
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if self._form == "parquet":
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._path, self._schema)
            self._writer.write_batch(batch)
            return
        if self._writer is None:
            self._writer = self._path.open("w", encoding="utf-8")
        for row in batch.to_pylist():
            self._writer.write(json.dumps(row, ensure_ascii=False, default=lambda moment: moment.isoformat()) + "\n")
