"""Random transactional logs that Ottla's cleaner compacted: Spark and the second scanner read the same."""

from types import SimpleNamespace

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.broker.config import Config
from ottla.broker.log.cleaning.log_cleaner import LogCleaner
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_manager import LogManager
from ottla.protocol.snapshot import ProducerEntry, encode_snapshot
from ottla.scan import schemas
from ottla.spark_jobs.views import planning
from ottla.testkit.scanner import scan_partition
from tests.scan.broker_logs import TOPIC, TOPIC_ID, UnsyncedDisk, write_directory
from tests.spark.views import read_view, reader_of

PARTITIONS = 40
COLUMNS = tuple(name for name in schemas.VIEWS[schemas.TRANSACTIONS] if name != "transactionalId")


class Disk(UnsyncedDisk):
    """A disk whose syncs end at once."""

    __slots__ = ()

    def start_sync(self, paths, on_end=None):
        del paths
        if on_end is not None:
            on_end()
        return SimpleNamespace(done=True, error=None)


def in_order(rows):
    return sorted(rows, key=lambda row: [(value is None, value) for value in row.values()])


def clean(root, broker, rounds):
    """Compact everything possible `rounds` times, with enough time in between for markers to be removed.

    Returns what the broker then has as log start and last stable offset of each partition.
    """
    disk = Disk(2_000)
    manager = LogManager(disk, broker.clock, broker.turns, Config(log_dirs=str(root)))
    manager.open()
    settings = LogConfig(cleanup_policy="compact,delete", min_cleanable_dirty_ratio=0.0, delete_retention_ms=1_000)
    partitions = [manager.open_partition(TOPIC, index, TOPIC_ID, 0, settings) for index in range(PARTITIONS)]
    for _ in range(rounds):
        broker.clock.ms += 2_000
        for partition in partitions:
            manager.done_cleaning(partition, 0)
        LogCleaner(manager, disk, broker.clock, broker.turns, 1 << 20).start()
    ends = [(partition.log_start_offset, partition.last_stable_offset) for partition in partitions]
    manager.close()
    return ends


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("seed", range(2))
def test_views_of_compacted_logs_are_those_of_the_scanner(tmp_path, monkeypatch, rounds, seed):
    root = tmp_path / "log"
    _, broker = write_directory(root, 5_000 + seed, PARTITIONS)
    broker.stop()
    before = sum(path.stat().st_size for path in root.glob("*/*.log"))
    ends = clean(root, broker, rounds)
    assert sum(path.stat().st_size for path in root.glob("*/*.log")) < 0.9 * before
    monkeypatch.setattr(planning, "SNAPSHOT_RANGE_BYTES", 1)
    transactions = in_order(read_view(root, "transactions", COLUMNS, verify="true"))
    assert in_order(read_view(root, "transactions", COLUMNS)) == transactions
    records = {
        (isolation, verify): read_view(
            root, "records", ("partition", "offset"), isolation_level=isolation, verify=verify
        )
        for isolation in ("read_committed", "read_uncommitted")
        for verify in ("true", "false")
    }
    found = read_view(root, "partitions", ("partition", "logStart", "lastStableOffset"))
    assert [(row["logStart"], row["lastStableOffset"]) for row in found] == [ends[row["partition"]] for row in found]
    for index, (start, stable) in enumerate(ends):
        # It does not know transactions that began below the first segment.
        scanned = scan_partition(root / f"{TOPIC}-{index}")
        for (isolation, _), rows in records.items():
            limit = stable if isolation == "read_committed" else scanned.log_end_offset
            expected = [one.offset for one in scanned.records(isolation) if start <= one.offset < limit]
            assert [row["offset"] for row in rows if row["partition"] == index] == expected, (index, isolation)
        markers = [batch.base_offset for batch in scanned.batches if batch.marker]
        mine = [row for row in transactions if row["partition"] == index and row["markerOffset"] is not None]
        assert sorted(row["markerOffset"] for row in mine) == [at for at in markers if at >= start]
    assert len(reader_of(root, "transactions").partitions()) < 2 * PARTITIONS


def test_a_transaction_compacted_with_its_marker_is_not_open(write_log):
    """All began below the log: 1 was cleaned with its marker, 2 is still open, only the marker of 3 is left."""
    log = write_log(base_offset=100)

    def snapshot(offset, *opened):
        entries = [ProducerEntry(pid, 0, 0, first, 0, 1_000, -1, first) for pid, first in opened]
        (log.folder / f"{offset:020d}.snapshot").write_bytes(encode_snapshot(entries))

    snapshot(100, (1, 60), (2, 95), (3, 70))
    log.next_offset = 110
    log.marker(3, commit=True)
    log.roll()
    log.data(1, producer_id=1, base_sequence=9)
    snapshot(log.next_offset, (1, 111), (2, 95))
    (write_log.root / "cleaner-offset-checkpoint").write_text("0\n1\nledger 0 111\n")
    rows = read_view(write_log.root, "transactions", ("producerId", "firstOffset", "fate"), verify="true")
    assert in_order(rows) == [
        {"producerId": 1, "firstOffset": 111, "fate": "open"},
        {"producerId": 2, "firstOffset": 95, "fate": "open"},
        {"producerId": 3, "firstOffset": None, "fate": "committed"},
    ]
