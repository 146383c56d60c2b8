"""Random transactional logs: Spark, the naive models and the broker's Fetch agree at every offset, in both isolations.

A sample; `OTTLA_RANDOM_LOGS=5000 pytest tests/spark/test_three_agree.py` reads 5,000 logs in a few minutes.
"""

import os
import random
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.protocol.snapshot import decode_snapshot
from ottla.scan import events
from ottla.scan.damage_log import DamageLog
from ottla.scan.listing import list_partitions
from ottla.scan.partitions import entering, visible_partitions
from ottla.scan.ranges import cut_partition
from ottla.scan.walk import Walk
from ottla.testkit.scanner import scan_partition
from tests.scan.broker_logs import ISOLATIONS, consume, write_directory
from tests.scan.entering import entering_ranges

pytestmark = pytest.mark.spark

LOGS = int(os.environ.get("OTTLA_RANDOM_LOGS", "240"))
LOGS_PER_DIRECTORY = max(40, LOGS // 10)
DIRECTORIES = range((LOGS + LOGS_PER_DIRECTORY - 1) // LOGS_PER_DIRECTORY)


def rows_of_spark(spark, root, isolation, partitions):
    """Return offset -> (key, value) by partition."""
    reader = spark.read.format("ottla").option("isolation.level", isolation)
    table = reader.schema("partition int, offset bigint, key binary, value binary").load(str(root)).toArrow()
    rows = [{} for _ in range(partitions)]
    columns = (table.column(name).to_pylist() for name in ("partition", "offset", "key", "value"))
    for partition, offset, key, value in zip(*columns, strict=True):
        assert offset not in rows[partition]
        rows[partition][offset] = key, value
    return rows


def rows_of_scanner(folder, ledger, isolation):
    """Return the slow scanner's rows. It knows neither the log start nor what began below the first segment."""
    if isolation == "read_committed" and not ledger.visible(isolation):
        return {}
    records = scan_partition(folder).records(isolation)
    return {record.offset: (record.key, record.value) for record in records if record.offset >= ledger.log_start}


def what_is_visible(fates):
    opened = [(one.producer_id, one.producer_epoch, one.first_offset) for one in fates.open_transactions]
    ends = fates.log_start, fates.log_end, fates.last_stable_offset
    return ends, fates.aborted_ranges.tolist(), opened


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_spark_the_models_and_fetch_agree_at_every_offset(spark, tmp_path, directory):
    root, chance = tmp_path / "log", random.Random(directory)
    ledgers, broker = write_directory(root, directory, LOGS_PER_DIRECTORY)
    fetched = {
        isolation: [consume(broker, index, isolation, chance) for index in range(len(ledgers))]
        for isolation in ISOLATIONS
    }
    broker.stop()
    records = 0
    for isolation in ISOLATIONS:
        in_spark = rows_of_spark(spark, root, isolation, len(ledgers))
        for index, ledger in enumerate(ledgers):
            expected, place = ledger.visible(isolation), (directory, index, isolation)
            assert fetched[isolation][index] == expected, place
            assert in_spark[index] == expected, place
            assert rows_of_scanner(root / f"ledger-{index}", ledger, isolation) == expected, place
            records += len(expected)
    assert records > 20 * LOGS_PER_DIRECTORY


@pytest.mark.parametrize("directory", range(2))
def test_walk_finds_the_brokers_logs_sound_and_states_as_in_their_snapshots(tmp_path, directory):
    ledgers, broker = write_directory(tmp_path / "log", 2_000 + directory, 60)
    broker.stop()
    snapshots = suspected = 0
    for log in list_partitions(str(tmp_path / "log")):
        at_hand = log.segments[0].base_offset
        expected = [marker for marker, aborted in ledgers[log.partition].suspected if aborted >= at_hand]
        suspected += len(expected)
        for target_bytes in (300, 1 << 40):
            parts, anomalies = cut_partition(0, log, target_bytes), []
            for part, start in zip(parts, entering_ranges(log, parts, on_damage="fail"), strict=True):
                for step in Walk(part, start, DamageLog("fail"), check_crc=True):
                    anomalies += step.anomalies.tolist()
                    assert step.gaps.tolist() == [], log.path
            kinds = [(row[events.ANOMALY_KIND], row[events.ANOMALY_OFFSET]) for row in anomalies]
            assert kinds == [(events.EMPTY_COMMIT, marker) for marker in expected], log.path
        for path in [path for path in map(Path, log.snapshots) if int(path.stem) >= at_hand]:
            for part in cut_partition(0, log, 1 << 40):
                leaving = (
                    Walk(part, entering(log), DamageLog("fail"), check_crc=True, limit=int(path.stem)).finish().leaving
                )
                found = {row[0]: tuple(row[1:8]) for row in leaving.rows.tolist()}
                for entry in decode_snapshot(path.read_bytes()):
                    told = entry.producer_epoch, entry.coordinator_epoch, *entry[2:6], entry.current_txn_first_offset
                    assert found[entry.producer_id] == told, path
                snapshots += 1
    assert snapshots > 100
    assert suspected > 0


@pytest.mark.parametrize("directory", range(3))
def test_indexes_of_the_broker_give_the_same_result_as_the_scan(tmp_path, directory):
    _, broker = write_directory(tmp_path / "log", 1_000 + directory, 60)
    broker.stop()
    logs = list_partitions(str(tmp_path / "log"))
    from_indexes = visible_partitions(logs, on_damage="fail", verify=False, threads=2)
    scanned = visible_partitions(logs, on_damage="fail", verify=True, threads=2)
    for log, one, other in zip(logs, from_indexes, scanned, strict=True):
        assert what_is_visible(one) == what_is_visible(other), (directory, log.path)
    assert sum(not one.is_counted for one in from_indexes) > 20
