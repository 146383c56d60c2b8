"""Reads of a view in this process, as in a task, without Spark."""

import pyarrow as pa
import pyarrow.compute as pc

from ottla.scan import schemas
from ottla.spark_jobs.options import read_options
from ottla.spark_jobs.views.registry import view_reader

DOTTED = {"isolation_level": "isolation.level", "on_damage": "on.damage"}


def reader_of(root, view, columns=None, **options):
    given = {DOTTED.get(name, name): value for name, value in options.items()}
    checked = read_options({"path": str(root), "view": view, **given})
    return view_reader(checked, [(name, True) for name in columns or schemas.VIEWS[view]])


def read_all(reader):
    """Return rows as dicts, times as int ms."""
    batches = []
    for task in reader.partitions():
        for batch in reader.read(task):
            batch.validate(full=True)
            batches.append(batch)
    table = pa.Table.from_batches(batches, schema=reader.arrow_schema())
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            in_ms = pc.divide(table.column(index).cast(pa.int64()), 1000)
            table = table.set_column(index, field.name, in_ms)
    return table.to_pylist()


def read_view(root, view, columns=None, **options):
    return read_all(reader_of(root, view, columns, **options))
