"""Reads of a log through a cache in this process: it calls the tasks, and Arrow reads the files instead of Spark."""

from pathlib import Path

import pyarrow.parquet as pq

from ottla.scan import schemas
from ottla.spark_jobs.cache.filling import fill
from ottla.spark_jobs.cache.names import FOLDER
from ottla.spark_jobs.cache.upkeep import live_options, parts, up_to_date
from ottla.spark_jobs.options import read_options
from ottla.spark_jobs.views.registry import view_reader

COLUMNS = tuple(schemas.VIEWS[schemas.RECORDS])


def in_order(rows):
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def live(root, **options):
    """Return the rows of the data source."""
    return _read(read_options({"path": str(root), **options}))


def _read(options):
    reader = view_reader(options, [(name, True) for name in COLUMNS])
    return in_order(row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist())


def through_cache(root, cache, filled=None, **options):
    """Return the rows, and the number that came from the data source. Written files are added to `filled`."""
    checked = read_options({"path": str(root), **options})

    def run(fills):
        if filled is not None:
            filled.extend(fills)
        return [fill(one) for one in fills]

    caches = up_to_date(Path(cache) / FOLDER, checked, run)
    rows = []
    for part in parts(caches, committed_only=checked.isolation_level == "read_committed"):
        first, end = part.bounds or (0, 2**63 - 1)
        for path in part.files:
            found = pq.ParquetFile(path).read().to_pylist()
            rows += [
                {"topic": part.topic, "partition": part.partition, **row}
                for row in found
                if first <= row["offset"] < end
            ]
    given = live_options(caches, checked)
    behind = [] if given is None else _read(read_options({"path": str(root), **given}))
    return in_order(rows + behind), len(behind)
