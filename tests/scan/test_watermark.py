"""A replica with records above its high watermark is read up to it; a transaction that ends above it is open."""

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")
pytest.importorskip("pyspark", reason="the spark extra is not installed")

from ottla.scan.listing import UnreadableDirectory
from ottla.spark_jobs.options import read_options
from ottla.spark_jobs.stream.record_stream import RecordStream
from ottla.spark_jobs.stream.stream_options import stream_options
from tests.spark.views import read_view

CAPPED = {"fetchIsolation": "high_watermark"}


@pytest.fixture
def ahead(write_log):
    """Write two plain records, two of a transaction committed at offset 4, one after it, in a new segment."""
    log = write_log()
    log.data(2)
    log.data(2, producer_id=7)
    log.marker(7, commit=True)
    log.roll().data(1)
    return write_log.root


def checkpoint(root, offset):
    (root / "replication-offset-checkpoint").write_text(f"0\n1\nledger 0 {offset}\n")


def offsets(root, **options):
    return [row["offset"] for row in read_view(root, "records", **options)]


@pytest.mark.parametrize(
    ("watermark", "committed", "uncommitted"),
    [
        (0, [], []),
        (2, [0, 1], [0, 1]),
        (3, [0, 1], [0, 1]),
        (4, [0, 1], [0, 1, 2, 3]),
        (5, [0, 1, 2, 3], [0, 1, 2, 3]),
        (6, [0, 1, 2, 3, 5], [0, 1, 2, 3, 5]),
        (99, [0, 1, 2, 3, 5], [0, 1, 2, 3, 5]),
    ],
)
def test_records_above_the_high_watermark_are_not_read(ahead, watermark, committed, uncommitted):
    checkpoint(ahead, watermark)
    assert offsets(ahead, **CAPPED) == committed
    assert offsets(ahead, isolation_level="read_uncommitted", **CAPPED) == uncommitted
    assert offsets(ahead) == [0, 1, 2, 3, 5]


def test_the_fate_of_a_batch_is_that_below_the_watermark(ahead):
    checkpoint(ahead, 4)
    assert [row["fate"] for row in read_view(ahead, "batches", **CAPPED)] == ["none", "open"]


def test_a_partition_that_the_checkpoint_does_not_name_has_none(ahead, write_log):
    checkpoint(ahead, 6)
    write_log("audit").data(1)
    assert {row["topic"] for row in read_view(ahead, "records", **CAPPED)} == {"ledger"}


def test_a_directory_without_the_checkpoint_is_an_error(ahead):
    with pytest.raises(UnreadableDirectory, match="no readable replication-offset-checkpoint"):
        offsets(ahead, **CAPPED)


def test_a_stream_follows_the_watermark(ahead):
    options = stream_options({"path": str(ahead), "startingOffsets": "earliest", **CAPPED})
    assert options.read == read_options({"path": str(ahead), **CAPPED})
    stream = RecordStream(options, [("offset", True)])
    checkpoint(ahead, 0)
    position, found = stream.initialOffset(), []
    for watermark in (3, 4, 5, 6):
        checkpoint(ahead, watermark)
        before, position = position, stream.latestOffset(position, stream.getDefaultReadLimit())
        batches = [batch for task in stream.partitions(before, position) for batch in stream.read(task)]
        found.append([offset for batch in batches for offset in batch.column("offset").to_pylist()])
    assert found == [[0, 1], [], [2, 3], [5]]
