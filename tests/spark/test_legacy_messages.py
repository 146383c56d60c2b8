"""Messages of magic 0 and 1 in the views of the data source."""

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.protocol.batch_header import iter_batches
from ottla.spark_jobs import cached
from tests.legacy_messages import Expected, legacy_log
from tests.spark.views import read_view

CONTENT, RECORDS = legacy_log()
CODECS = ["none", "gzip", "snappy", "lz4"]
COLUMNS = ("offset", "timestamp", "timestampType", "key", "value")


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "old-0"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(CONTENT)
    return folder.parent


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_records_view_has_every_record(directory, isolation):
    rows = read_view(directory, "records", isolation_level=isolation)
    assert [Expected(*(row[name] for name in COLUMNS)) for row in rows] == RECORDS


def test_records_view_reads_the_requested_columns(directory):
    rows = read_view(directory, "records", startingOffsets="earliest", columns=("offset", "key"))
    assert [(row["offset"], row["key"]) for row in rows] == [(one.offset, one.key) for one in RECORDS]


@pytest.mark.parametrize("late_by_ms", [0, 1])
def test_reading_begins_at_a_time(directory, late_by_ms):
    for time in {one.timestamp for one in RECORDS if one.timestamp >= 0}:
        rows = read_view(directory, "records", startingTimestamp=str(time + late_by_ms))
        first = next((one.offset for one in RECORDS if one.timestamp >= time + late_by_ms), len(RECORDS))
        assert [row["offset"] for row in rows] == list(range(first, len(RECORDS))), time


def test_batches_view_has_each_message_as_it_is_stored(directory):
    rows = read_view(directory, "batches")
    places = [(at, header.size_bytes, header.last_offset, header.crc) for at, header in iter_batches(CONTENT)]
    assert [(row["position"], row["size"], row["lastOffset"], row["crc"]) for row in rows] == places
    assert [row["baseOffset"] for row in rows][1:] == [row["lastOffset"] + 1 for row in rows][:-1]
    assert sum(row["recordCount"] for row in rows) == len(RECORDS)
    headers = [header for _, header in iter_batches(CONTENT)]
    assert [row["codec"] for row in rows] == [CODECS[header.compression] for header in headers]
    assert [row["attributes"] for row in rows] == [header.attributes for header in headers]
    assert [row["timestampType"] for row in rows] == [
        -1 if header.magic == 0 else int(header.is_log_append_time) for header in headers
    ]


def test_partitions_and_segments_are_sound(directory):
    (partition,) = read_view(directory, "partitions")
    assert (partition["logStart"], partition["logEnd"]) == (0, len(RECORDS))
    assert read_view(directory, "damage") == []


@pytest.mark.spark
def test_spark_reads_every_record(spark, directory):
    rows = spark.read.format("ottla").load(str(directory)).select(*COLUMNS).orderBy("offset").collect()
    assert [
        Expected(row.offset, round(row.timestamp.timestamp() * 1000), row.timestampType, row.key, row.value)
        for row in rows
    ] == RECORDS


@pytest.mark.spark
def test_cached_log_has_every_record(spark, directory, tmp_path):
    expected = [(one.offset, one.key, one.value) for one in RECORDS]
    for _ in range(2):
        frame = cached(spark, str(directory), str(tmp_path / "cache"))
        assert [(row.offset, row.key, row.value) for row in frame.orderBy("offset").collect()] == expected
