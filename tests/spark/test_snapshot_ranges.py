"""Ranges of a partition, each walked by its own task, give exactly the results of a single walk over all of it."""

import random
import shutil
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.protocol.batch import build_marker
from ottla.protocol.snapshot import ProducerEntry, decode_snapshot, encode_snapshot
from ottla.scan import schemas, states
from ottla.scan.damage_log import DamagedSegment, DamageLog
from ottla.scan.listing import list_partitions
from ottla.scan.partitions import entering
from ottla.scan.ranges import cut_partition
from ottla.scan.walk import Walk
from ottla.spark_jobs.views import planning
from tests.scan.broker_logs import write_directory
from tests.scan.test_against_scanner import write_random_log
from tests.segment_files import LogWriter
from tests.spark.views import read_all, read_view, reader_of
from tests.spark.wild_logs import write_wild_log

COLUMNS = tuple(name for name in schemas.VIEWS[schemas.TRANSACTIONS] if name != "transactionalId")


@pytest.fixture
def cut(monkeypatch):
    """Return `cut(bytes)`, which sets ranges of that size, each in its own task."""

    def to(size):
        monkeypatch.setattr(planning, "SNAPSHOT_RANGE_BYTES", size)
        monkeypatch.setattr(planning, "SMALL_TASK_BYTES", 0)

    return to


def in_order(rows):
    return sorted(rows, key=lambda row: [(value is None, value) for value in row.values()])


def tasks_of(root):
    return len(reader_of(root, "transactions").partitions())


def write_snapshots(root):
    """Write a snapshot at the start of each segment but the first, as a broker does, and flush all of it."""
    lines = []
    for log in list_partitions(str(root)):
        for segment in log.segments[1:]:
            rows = []
            for part in cut_partition(0, log, log.size_bytes + 1):
                walk = Walk(part, entering(log), DamageLog("fail"), check_crc=False, limit=segment.base_offset)
                rows = walk.finish().leaving.rows[:, : states.FIRST_OFFSET + 1].tolist()
            entries = [ProducerEntry(row[0], row[1], *row[3:7], row[2], row[7]) for row in rows]
            Path(segment.path).with_suffix(".snapshot").write_bytes(encode_snapshot(entries))
        lines.append(f"{log.topic} {log.partition} {log.segments[-1].base_offset}")
    (root / "recovery-point-offset-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))


@pytest.mark.parametrize("seed", range(4))
def test_random_logs_in_ranges_have_the_transactions_of_one_walk(tmp_path, cut, seed):
    root = tmp_path / "log"
    root.mkdir()
    (root / "meta.properties").write_text("version=1\n")
    for number in range(12):
        chance = random.Random(100 * seed + number)
        writer = LogWriter(root, "log", number)
        if number % 3:
            write_random_log(writer, chance, steps=150)
        else:
            write_wild_log(writer, chance)
    write_snapshots(root)
    expected = in_order(read_view(root, "transactions", COLUMNS, verify="true"))
    one_by_one = tasks_of(root)
    for size in (1, chance.randrange(500, 20_000)):
        cut(size)
        assert in_order(read_view(root, "transactions", COLUMNS)) == expected
    assert tasks_of(root) > one_by_one + 12
    assert {row["fate"] for row in expected} == {"committed", "aborted", "open"}


@pytest.mark.parametrize("directory", range(4))
def test_logs_of_the_broker_in_ranges_have_the_transactions_of_one_walk(tmp_path, cut, directory):
    """Segments are dropped, log starts raised, the broker is killed: snapshots contain transactions below the log."""
    root = tmp_path / "log"
    write_directory(root, 3_000 + directory, 60)[1].stop()
    expected = in_order(read_view(root, "transactions", COLUMNS, verify="true"))
    before = tasks_of(root)
    cut(1)
    assert in_order(read_view(root, "transactions", COLUMNS)) == expected
    assert tasks_of(root) > before + 100


@pytest.mark.parametrize("name", ["clean", "unclean"])
def test_directories_of_kafka_in_ranges_have_the_transactions_of_one_walk(reference, cut, name):
    given = {"topics": "*"}
    expected = in_order(read_view(reference(name), "transactions", verify="true", **given))
    cut(1)
    assert in_order(read_view(reference(name), "transactions", **given)) == expected


@pytest.fixture
def long_log(write_log):
    """Four segments: 7 writes in all of them and ends in the last, 8 hangs since the first, 9 is short."""
    log = write_log()
    for index in range(4):
        if index:
            log.roll()
        log.data(2, producer_id=7, base_sequence=2 * index, timestamp_ms=1_000 * index)
        if index == 0:
            log.data(3, producer_id=8)
        log.data(1, producer_id=9, base_sequence=index)
        log.marker(9, commit=False)
    log.marker(7, commit=True)
    write_snapshots(write_log.root)
    return write_log.root


def test_a_transaction_over_all_ranges_has_one_row_with_all_records(long_log, cut):
    cut(1)
    assert tasks_of(long_log) == 4
    rows = {row["producerId"]: row for row in read_view(long_log, "transactions") if row["producerId"] != 9}
    assert sorted(rows) == [7, 8]
    assert (rows[7]["firstOffset"], rows[7]["records"], rows[7]["batches"], rows[7]["startTime"]) == (0, 8, 4, 0)
    assert (rows[8]["firstOffset"], rows[8]["records"], rows[8]["fate"]) == (2, 3, "open")


def test_a_task_receives_only_the_segments_of_its_range(long_log, cut):
    cut(1)
    first, *others = (task.ranges[0] for task in reader_of(long_log, "transactions").plan())
    assert len(first.log.segments) == 1
    for one in others:
        assert (len(one.log.segments), len(one.log.snapshots)) == (1, 1)
        assert [segment.path for segment in one.load_partition().segments] == [
            str(path) for path in sorted(long_log.glob("ledger-0/*.log")) if str(path) <= one.log.segments[0].path
        ]


def test_rereading_stops_after_the_last_batch_of_an_open_transaction(long_log, cut):
    """8 wrote only in the first segment, so the last task, which returns its row, reads no segment in between."""
    cut(1)
    reader = reader_of(long_log, "transactions", ("producerId", "records"))
    last = reader.partitions()[-1]
    for path in sorted(long_log.glob("ledger-0/*.log"))[1:3]:
        path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(DamagedSegment):  # 7 wrote there
        list(reader.read(last))
    (one,) = last.value.ranges
    snapshot = Path(one.log.segments[0].path).with_suffix(".snapshot")
    entries = [entry for entry in decode_snapshot(snapshot.read_bytes()) if entry.producer_id != 7]
    snapshot.write_bytes(encode_snapshot(entries))
    rows = [row for batch in reader.read(last) for row in batch.to_pylist()]
    assert {"producerId": 8, "records": 3} in rows


def test_columns_known_from_a_snapshot_need_no_earlier_segments(long_log, cut):
    cut(1)
    reader = reader_of(long_log, "transactions", ("producerId", "firstOffset", "fate", "lastStableOffset"))
    last = reader.partitions()[-1]
    for path in sorted(long_log.glob("ledger-0/*.log"))[:3]:
        path.unlink()
    rows = [row for batch in reader.read(last) for row in batch.to_pylist()]
    assert [row["firstOffset"] for row in rows if row["producerId"] == 7] == [0]


@pytest.mark.parametrize("content", [b"", b"\0\1damaged", None], ids=["empty", "damaged", "missing"])
def test_without_a_sound_snapshot_a_range_is_walked_up_to(long_log, cut, content):
    expected = in_order(read_view(long_log, "transactions", verify="true"))
    snapshot = sorted(long_log.glob("ledger-0/*.snapshot"))[1]
    cut(1)
    reader = reader_of(long_log, "transactions")
    tasks = reader.partitions()
    if content is None:
        snapshot.unlink()
    else:
        snapshot.write_bytes(content)
    rows = in_order(read_all(reader))
    assert rows == expected
    assert len(tasks) == 4


def change_snapshot(path, change):
    path.write_bytes(encode_snapshot(change(decode_snapshot(path.read_bytes()))))


@pytest.mark.parametrize(
    "change",
    [
        lambda entries: [entry for entry in entries if entry.producer_id != 8],
        lambda entries: [*entries, ProducerEntry(10, 0, 0, 3, 0, 0, -1, 3)],
        lambda entries: [entry._replace(current_txn_first_offset=-1) for entry in entries],
        lambda entries: [
            entry._replace(current_txn_first_offset=3) if entry.producer_id == 8 else entry for entry in entries
        ],
    ],
    ids=["a transaction is left out", "one too many", "none is open", "another first offset"],
)
def test_a_snapshot_that_contradicts_the_log_fails_without_verify(long_log, cut, change):
    expected = in_order(read_view(long_log, "transactions", verify="true"))
    snapshot = sorted(long_log.glob("ledger-0/*.snapshot"))[1]
    change_snapshot(snapshot, change)
    cut(1)
    with pytest.raises(DamagedSegment, match=rf"{snapshot.name}: the open transactions .*verify"):
        read_view(long_log, "transactions")
    assert in_order(read_view(long_log, "transactions", verify="true")) == expected


def test_ranges_begin_only_where_a_broker_would_rely_on_the_snapshot(long_log, cut):
    cut(1)
    for recovery_point, tasks in ((0, 1), (8, 2), (12, 3), (10**6, 4)):
        (long_log / "recovery-point-offset-checkpoint").write_text(f"0\n1\nledger 0 {recovery_point}\n")
        assert tasks_of(long_log) == tasks
    (long_log / "recovery-point-offset-checkpoint").unlink()
    assert tasks_of(long_log) == 1


@pytest.mark.parametrize("option", [{"verify": "true"}, {"on_damage": "report"}])
def test_walks_that_rely_on_no_snapshot_are_not_cut(long_log, cut, option):
    cut(1)
    assert len(reader_of(long_log, "transactions", **option).partitions()) == 1


def test_partition_that_was_compacted_is_not_cut(long_log, cut):
    """Compaction removes batches that an older snapshot refers to."""
    cut(1)
    (long_log / "cleaner-offset-checkpoint").write_text("0\n1\nledger 0 2\n")
    assert tasks_of(long_log) == 1


def test_transaction_that_began_below_the_log_is_carried_through_ranges(long_log, cut, tmp_path):
    """Retention removed the first segment; a snapshot still has 7 and 8, whose first batches are gone."""
    shutil.copytree(long_log, tmp_path / "copy")
    first = sorted((tmp_path / "copy" / "ledger-0").glob("*.log"))[0]
    first.unlink()
    expected = in_order(read_view(tmp_path / "copy", "transactions", verify="true"))
    cut(1)
    assert tasks_of(tmp_path / "copy") == 3
    assert in_order(read_view(tmp_path / "copy", "transactions")) == expected
    (eight,) = [row for row in expected if row["producerId"] == 8]
    assert (eight["firstOffset"], eight["records"], eight["lastOffset"], eight["segment"]) == (2, 0, None, None)


def test_markers_of_a_range_have_the_stable_offset_of_what_was_carried_in(write_log, cut):
    log = write_log()
    log.data(1, producer_id=1)
    log.roll()
    log.data(1, producer_id=2)
    log.append(build_marker(2, 0, 0, False, 5))
    log.append(build_marker(1, 0, 0, False, 6))
    write_snapshots(write_log.root)
    cut(1)
    rows = {row["producerId"]: row["lastStableOffset"] for row in read_view(write_log.root, "transactions")}
    assert rows == {1: 4, 2: 0}
