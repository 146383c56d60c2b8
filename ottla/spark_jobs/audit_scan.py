"""The audit as a Spark job: each task scans the headers of its ranges, the driver merges what they know. shell

Light to import: an executor that lacks a library must be able to say so.
"""

from typing import TYPE_CHECKING, NamedTuple

from ottla.protocol.errors import ProtocolError
from ottla.spark_jobs.damage import REPORT, Damage
from ottla.spark_jobs.needs import WorkerLacks, check_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.spark_jobs.coordinator import LastRecords, OpenFinding
    from ottla.spark_jobs.fates import PartitionFates, RangeFates
    from ottla.spark_jobs.listing import PartitionLog
    from ottla.spark_jobs.plan import Range

_OFFSET_KEY_VALUE = [("offset", True), ("key", True), ("value", True)]


class AuditFailed(Exception):
    """The directory could not be read through; the text is one line."""


class Audit(NamedTuple):
    """The audited directory: each partition with its fates, and every open transaction with its verdict."""

    directory: str
    now_ms: int
    partitions: "list[tuple[PartitionLog, PartitionFates]]"
    open_transactions: "list[OpenFinding]"

    @property
    def damage(self) -> list[tuple[str, Damage]]:
        """(partition name, damage) of all partitions."""
        return [(log.name, damage) for log, fates in self.partitions for damage in fates.damage]

    @property
    def torn(self) -> list[tuple[str, Damage]]:
        """(partition name, torn tail): not damage, the log ends before it."""
        return [(log.name, tail) for log, fates in self.partitions for tail in fates.torn]

    @property
    def hanging(self) -> "list[OpenFinding]":
        return [one for one in self.open_transactions if one.is_hanging]

    @property
    def has_findings(self) -> bool:
        return bool(self.hanging or self.damage)


class RangeResult(NamedTuple):
    """One range's result, or the reason why it could not be read."""

    partition: int
    ordinal: int
    fates: "RangeFates | None"
    last_records: "LastRecords"
    error: str


def scan_task(ranges: "tuple[Range, ...]") -> "list[RangeResult]":
    """What a task does: a result per range. What cannot be read is told, not raised: no traceback, no retries."""
    results = []
    for part in ranges:
        try:
            check_worker()
            results.append(RangeResult(part.partition, part.ordinal, *scan_one(part), ""))
        except (OSError, ProtocolError, WorkerLacks) as error:
            name = f"{part.topic}-{part.number}"
            results.append(RangeResult(part.partition, part.ordinal, None, {}, f"{name}: {error}"))
    return results


def scan_one(part: "Range") -> "tuple[RangeFates, LastRecords]":
    """Fates of the range and, of the coordinator's log, the last record of each key."""
    from ottla.spark_jobs.coordinator import TOPIC
    from ottla.spark_jobs.scan import scan_range

    fates = scan_range(part, on_damage=REPORT, check_crc=True)
    return fates, last_records(part) if part.topic == TOPIC else {}


def last_records(part: "Range") -> "LastRecords":
    """The last record of each key in `part`, without transactions (the coordinator's log has none)."""
    import numpy as np

    from ottla.spark_jobs import schemas
    from ottla.spark_jobs.damage import DamageLog
    from ottla.spark_jobs.records import RecordScan, Visibility

    scan = RecordScan(schemas.arrow_schema(schemas.RECORDS, _OFFSET_KEY_VALUE), DamageLog(REPORT))
    everything = Visibility(False, part.log_start, 2**63 - 1, np.empty((0, 3), dtype=np.int64))
    last: LastRecords = {}
    for batch in scan.read(part, everything):
        last.update(zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True))
    last.pop(None, None)  # type: ignore[call-overload]
    return last


def audit(spark: "SparkSession", directory: str, topics: tuple[str, ...], now_ms: int) -> Audit:
    """Audit `directory`: partitions of the topics that match (none: all), internal ones too.

    Raises UnreadableDirectory, or AuditFailed if a task could not read its files.
    """
    from ottla.spark_jobs.coordinator import TOPIC
    from ottla.spark_jobs.listing import list_partitions, select_topics
    from ottla.spark_jobs.plan import LARGEST_TASK_BYTES, plan_tasks

    logs = list_partitions(directory)
    chosen = {log.name for log in (select_topics(logs, topics) if topics else logs)}
    logs = [log for log in logs if log.name in chosen or log.topic == TOPIC]
    tasks = plan_tasks(logs, spark.sparkContext.defaultParallelism, LARGEST_TASK_BYTES)
    return merge(directory, now_ms, logs, run(spark, tasks), chosen)


def run(spark: "SparkSession", tasks: "list[tuple[Range, ...]]") -> list[RangeResult]:
    """The results of all tasks, in order of partition and range.

    An RDD, not mapInArrow: a task gets its own ranges alone, costs half as much to start, and needs no pandas.
    """
    if not tasks:
        return []
    results: list[RangeResult] = spark.sparkContext.parallelize(tasks, len(tasks)).flatMap(scan_task).collect()
    for result in results:
        if result.error:
            raise AuditFailed(result.error)
    return sorted(results, key=lambda result: (result.partition, result.ordinal))


def merge(
    directory: str, now_ms: int, logs: "list[PartitionLog]", results: list[RangeResult], chosen: set[str]
) -> Audit:
    """Partitions, verdicts and damage from the results of all ranges."""
    from ottla.spark_jobs.coordinator import TOPIC, Coordinator
    from ottla.spark_jobs.scan import merge_partition

    ranges: dict[int, list[RangeFates]] = {}
    last: LastRecords = {}
    for result in results:
        assert result.fates is not None
        ranges.setdefault(result.partition, []).append(result.fates)
        last.update(result.last_records)
    coordinator = Coordinator(last, at_hand=any(log.topic == TOPIC for log in logs))
    partitions = [
        (log, merge_partition(log, ranges.get(index, []))) for index, log in enumerate(logs) if log.name in chosen
    ]
    found = [
        coordinator.judge(log.topic, log.partition, one, now_ms)
        for log, fates in partitions
        for one in fates.open_transactions
    ]
    return Audit(directory, now_ms, partitions, found)
