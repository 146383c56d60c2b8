"""Functions for notebooks, from DataFrame to DataFrame: findings of one check, and statistics. free

Findings are judged by the audit: these functions select rows of the view `findings`. Column names and types are those
of the views (docs/data-source.md).
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ottla.scan import schemas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = ("topic", "partition")


def hanging(findings: "DataFrame") -> "DataFrame":
    """Return the findings on open transactions that are overdue, forgotten or decided, or have no verdict.

    The columns are those of the view `findings` without `check`: severity, topic, partition, offset (of the first
    record), producerId, transactionalId, message, action, file, position (in `file`, bytes). Raises ValueError for a
    DataFrame without them.
    """
    return _of_check("hanging", findings)


def torn(findings: "DataFrame") -> "DataFrame":
    """Return the findings on decisions and markers that differ; columns and errors as for `hanging`."""
    return _of_check("torn", findings)


def sequence(findings: "DataFrame") -> "DataFrame":
    """Return the findings on sequences of producers; columns and errors as for `hanging`."""
    return _of_check("sequence", findings)


def zombie(findings: "DataFrame") -> "DataFrame":
    """Return the findings on writes of fenced producers and coordinators; columns and errors as for `hanging`."""
    return _of_check("zombie", findings)


def gaps(findings: "DataFrame") -> "DataFrame":
    """Return the findings on offsets without a record; columns and errors as for `hanging`."""
    return _of_check("gaps", findings)


def _of_check(check: str, findings: "DataFrame") -> "DataFrame":
    columns = list(schemas.VIEWS[schemas.FINDINGS])
    if missing := [name for name in columns if name not in findings.columns]:
        raise ValueError(
            f"{check}() takes the view findings, and this DataFrame has no column {', '.join(missing)}: load "
            'spark.read.format("ottla").option("view", "findings").load(DIR)'
        )
    return findings.where(F.col("check") == check).select(*columns[1:])


def shape(transactions: "DataFrame") -> "DataFrame":
    """Return statistics of the ended transactions of each partition.

    topic, partition, committed, aborted, open (transactions with data), records, size (bytes, without markers),
    abortedShare (of the ended, 0 to 1), recordsMedian, records95, recordsMost, durationMedianMs, duration95Ms,
    durationMostMs, markerShare (markers among all offsets that the transactions take, 0 to 1).
    """
    with_data = F.col("firstOffset").isNotNull()
    ended = with_data & (F.col("fate") != "open")
    counts = {fate: F.sum((with_data & (F.col("fate") == fate)).cast("bigint")) for fate in ("committed", "aborted")}
    markers = F.count("markerOffset")
    records, duration = F.when(ended, F.col("records")), F.when(ended, F.col("durationMs"))
    return transactions.groupBy(*_LOG).agg(
        *(column.alias(name) for name, column in counts.items()),
        F.sum((F.col("fate") == "open").cast("bigint")).alias("open"),
        F.sum("records").alias("records"),
        F.sum("size").alias("size"),
        F.try_divide(counts["aborted"], counts["committed"] + counts["aborted"]).alias("abortedShare"),
        F.percentile(records, F.lit(0.5)).alias("recordsMedian"),
        F.percentile(records, F.lit(0.95)).alias("records95"),
        F.max(records).alias("recordsMost"),
        F.percentile(duration, F.lit(0.5)).alias("durationMedianMs"),
        F.percentile(duration, F.lit(0.95)).alias("duration95Ms"),
        F.max(duration).alias("durationMostMs"),
        F.try_divide(markers, markers + F.sum("records")).alias("markerShare"),
    )


def throughput(batches: "DataFrame", interval: str = "1 minute") -> "DataFrame":
    """Return counts of writes in each `interval` (by the batches' largest timestamps), and of the aborted ones.

    topic, partition, start (timestamp), records, size (bytes), batches, controlBatches, abortedRecords, abortedSize.
    """
    data, aborted = ~F.col("isControl"), F.col("fate") == "aborted"
    return (
        batches.groupBy(*_LOG, F.window("maxTimestamp", interval).alias("window"))
        .agg(
            F.sum(F.when(data, F.col("recordCount")).otherwise(0)).alias("records"),
            F.sum(F.when(data, F.col("size")).otherwise(0)).alias("size"),
            F.sum(data.cast("bigint")).alias("batches"),
            F.sum(F.col("isControl").cast("bigint")).alias("controlBatches"),
            F.sum(F.when(aborted, F.col("recordCount")).otherwise(0)).alias("abortedRecords"),
            F.sum(F.when(aborted, F.col("size")).otherwise(0)).alias("abortedSize"),
        )
        .select(
            *_LOG,
            F.col("window.start").alias("start"),
            *("records", "size", "batches", "controlBatches", "abortedRecords", "abortedSize"),
        )
    )
