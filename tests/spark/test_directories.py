"""Several log directories in one load: the disks of a broker, or the brokers of a cluster."""

import json

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.protocol.batch import build_record_batch
from ottla.protocol.internal_topics.transaction_records import (
    TransactionValue,
    encode_transaction_value,
    transaction_key,
)
from ottla.scan import snapshot_ranges
from ottla.scan.listing import UnreadableDirectory
from ottla.spark_jobs.options import DataLost, OptionError, read_options
from ottla.spark_jobs.stream.watch import Watch
from ottla.spark_jobs.views.registry import view_reader
from tests.segment_files import LogWriter
from tests.spark.streaming import Stream
from tests.spark.views import read_all, schemas

pytestmark = pytest.mark.spark

HOUR_MS = 3_600_000
ONGOING = 1


class Disks:
    """Log directories a and b: ledger-0 with an aborted transaction in a; ledger-1 with an open one, audit-0 in b.

    What the coordinator says of both producers is in a.
    """

    def __init__(self, root):
        self.a, self.b = root / "a", root / "b"
        for directory in (self.a, self.b):
            directory.mkdir()
            (directory / "meta.properties").write_text("version=1\ncluster.id=one\n")
        self.first = LogWriter(self.a, "ledger", 0)
        self.first.data(2, value=b"a")
        self.first.data(1, producer_id=7, value=b"aborted")
        self.first.marker(7, commit=False)
        self.second = LogWriter(self.b, "ledger", 1)
        self.second.data(3, value=b"b")
        self.second.data(1, producer_id=8, timestamp_ms=HOUR_MS, value=b"open")
        self.second.data(1, value=b"behind")
        LogWriter(self.b, "audit", 0).data(1, value=b"c")
        states = LogWriter(self.a, "__transaction_state", 0)
        for producer_id in (7, 8):
            value = TransactionValue(producer_id, 0, 60_000, ONGOING, (("ledger", (1,)),), HOUR_MS, HOUR_MS)
            key = transaction_key(f"order-{producer_id}")
            states.append(build_record_batch(key, encode_transaction_value(value), HOUR_MS))

    @property
    def paths(self):
        return [str(self.a), str(self.b)]


@pytest.fixture
def disks(tmp_path):
    return Disks(tmp_path)


def rows(paths, view="records", columns=None, **options):
    """Read a view in this process, as tasks would."""
    checked = read_options({"paths": json.dumps([str(path) for path in paths]), "view": view, **options})
    return read_all(view_reader(checked, [(name, True) for name in columns or schemas.VIEWS[view]]))


def places(found):
    return sorted((row["topic"], row["partition"], row["offset"]) for row in found)


def test_a_load_of_several_paths_is_one_table(spark, disks):
    table = spark.read.format("ottla").load(disks.paths)
    assert sorted((row.topic, row.partition, row.offset) for row in table.collect()) == [
        ("audit", 0, 0),
        ("ledger", 0, 0),
        ("ledger", 0, 1),
        ("ledger", 1, 0),
        ("ledger", 1, 1),
        ("ledger", 1, 2),
    ]
    narrow = spark.read.format("ottla").option("topics", "ledger").schema("offset bigint").load(disks.paths)
    assert narrow.where("offset > 0").count() == 3
    assert spark.read.format("ottla").load(disks.paths[:1]).count() == 2


def test_a_table_of_the_catalog_has_several_paths(spark, disks):
    given = json.dumps(disks.paths)
    spark.sql(f"CREATE TABLE both USING ottla OPTIONS (paths '{given}', topics 'ledger')")
    try:
        assert spark.sql("SELECT * FROM both").count() == 5
        assert spark.sql("SELECT * FROM both WITH (partitions '1')").count() == 3
    finally:
        spark.sql("DROP TABLE both")


def test_a_stream_follows_several_paths(disks):
    query = Stream()

    def run():
        found = query.run(startingOffsets="earliest", paths=json.dumps(disks.paths))
        return sorted((row["topic"], row["partition"], row["offset"]) for row in found)

    assert run() == [("audit", 0, 0), ("ledger", 0, 0), ("ledger", 0, 1), *(("ledger", 1, n) for n in range(3))]
    disks.second.marker(8, commit=True)
    disks.first.data(1)
    assert run() == [("ledger", 0, 4), ("ledger", 1, 3), ("ledger", 1, 4)]


def test_each_partition_ends_at_its_own_stable_offset_or_watermark(disks):
    everything = [("audit", 0, 0), ("ledger", 0, 0), ("ledger", 0, 1), *(("ledger", 1, n) for n in range(3))]
    assert places(rows(disks.paths)) == everything
    (disks.a / "replication-offset-checkpoint").write_text("0\n1\nledger 0 2\n")
    with pytest.raises(UnreadableDirectory, match=f"{disks.b}: it has no readable replication-offset-checkpoint"):
        rows(disks.paths, fetchIsolation="high_watermark")
    # Watermarks of the other directory's partitions have no effect.
    (disks.b / "replication-offset-checkpoint").write_text("0\n2\nledger 0 0\nledger 1 3\n")
    assert places(rows(disks.paths, fetchIsolation="high_watermark")) == [
        ("ledger", 0, 0),
        ("ledger", 0, 1),
        *(("ledger", 1, n) for n in range(3)),
    ]
    marks = {(row["topic"], row["partition"]): row["highWatermark"] for row in rows(disks.paths, "partitions")}
    assert marks == {("audit", 0): None, ("ledger", 0): 2, ("ledger", 1): 3}


def test_transactional_ids_are_collected_from_all_directories(disks):
    found = rows(disks.paths, "transactions")
    assert {(row["partition"], row["transactionalId"], row["fate"]) for row in found} == {
        (0, "order-7", "aborted"),
        (1, "order-8", "open"),
    }
    assert {row["transactionalId"] for row in rows([disks.b], "transactions")} == {None}
    assert {row["transactionalId"] for row in rows(disks.paths, "producers")} == {"order-7", "order-8"}
    assert {row["transactionalId"] for row in rows(disks.paths, "transaction_state")} == {"order-7", "order-8"}


def test_hanging_uses_the_coordinator_log_of_another_directory(disks):
    options = read_options({"paths": json.dumps(disks.paths), "view": "hanging"})
    (one,) = Watch(options).find_hanging(2 * HOUR_MS)
    assert (one.partition, one.transactional_id, str(one.verdict)) == (1, "order-8", "overdue")


def test_compacted_partitions_are_known_by_the_checkpoint_of_their_directory(disks, monkeypatch):
    """They are read from their beginning, not from a snapshot."""
    cut = []
    monkeypatch.setattr(snapshot_ranges, "cut_at_snapshots", lambda log, size: cut.append(log.name) or [])
    (disks.b / "cleaner-offset-checkpoint").write_text("0\n1\nledger 1 4\n")
    rows(disks.paths, "transactions")
    assert cut == ["audit-0", "ledger-0"]


def test_copies_of_a_partition_are_refused_with_both_places(disks):
    LogWriter(disks.a, "ledger", 1).data(3, value=b"b")
    told = f"ledger-1 in both {disks.a} and {disks.b}: copies of a partition have the same records"
    for view in ("records", "batches", "transactions", "producers", "hanging"):
        with pytest.raises(OptionError, match=told):
            rows(disks.paths, view)
    assert len(rows(disks.paths, partitions="0")) == 3
    assert len(rows(disks.paths, topics="audit")) == 1
    LogWriter(disks.b, "__transaction_state", 0)
    with pytest.raises(OptionError, match="__transaction_state-0 in both"):
        rows(disks.paths, "transaction_state")
    assert len(rows(disks.paths, "producers", partitions="0")) == 1


def test_views_that_name_files_show_all_copies(disks):
    copy = LogWriter(disks.a, "ledger", 1)
    copy.data(3, value=b"b")
    ends = {row["path"]: row["logEnd"] for row in rows(disks.paths, "partitions", topics="ledger")}
    assert ends == {str(disks.a / "ledger-0"): 4, str(copy.folder): 3, str(disks.b / "ledger-1"): 5}
    assert {row["path"] for row in rows(disks.paths, "segments", partitions="1")} == {
        str(copy.path),
        str(disks.second.path),
    }
    content = bytearray(copy.path.read_bytes())
    content[-1] ^= 1
    copy.path.write_bytes(content + bytes(100))
    copy.roll()
    assert {row["file"] for row in rows(disks.paths, "damage")} == {str(disks.a / "ledger-1" / f"{0:020d}.log")}


def test_directories_of_two_clusters_are_refused(disks):
    (disks.b / "meta.properties").write_text("cluster.id=two\n")
    with pytest.raises(OptionError, match=f"together: {disks.a} of one, {disks.b} of two"):
        rows(disks.paths)
    (disks.b / "meta.properties").unlink()
    assert len(rows(disks.paths)) == 6


def test_a_directory_that_is_missing_is_named(disks):
    with pytest.raises(UnreadableDirectory, match=f"{disks.b}-not: No such file"):
        rows([disks.a, f"{disks.b}-not"])


def test_deleted_starting_offsets_are_an_error_naming_the_directory(disks):
    (disks.b / "log-start-offset-checkpoint").write_text("0\n1\nledger 1 2\n")
    given = {"startingOffsets": '{"ledger": {"0": 1, "1": 1}}'}
    with pytest.raises(DataLost, match=f"{disks.b}: ledger-1 begins at 2, startingOffsets names 1"):
        rows(disks.paths, **given)
    given["startingOffsets"] = '{"ledger": {"0": 1, "1": 2}}'
    assert places(rows(disks.paths, topics="ledger", **given)) == [("ledger", 0, 1), ("ledger", 1, 2)]


@pytest.mark.parametrize("given", ["/a,/b", "[]", "{}", '["/a", ""]', '["/a", 1]'])
def test_paths_that_are_no_list_are_refused(given):
    with pytest.raises(OptionError, match="option paths must be JSON such as"):
        read_options({"paths": given})


def test_a_comma_is_part_of_a_path(tmp_path):
    with pytest.raises(UnreadableDirectory, match=f"{tmp_path}/a,{tmp_path}/b: No such file"):
        rows([f"{tmp_path}/a,{tmp_path}/b"])
    assert read_options({"paths": '["/a", "/a"]'}).paths == ("/a",)
