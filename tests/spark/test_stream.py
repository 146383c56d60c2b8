"""The stream of records: micro-batches up to the last stable offset, each record once, with failures in between."""

import shutil

import pytest

from ottla.testkit.scanner import scan_partition
from tests.spark.streaming import Stream

pytestmark = pytest.mark.spark


@pytest.fixture
def stream():
    """`stream(root, **options)`: run a query in this process up to what is stable; the new rows as (place, value)."""
    query, rows = Stream(), []

    def run(root, **options):
        found = query.run(path=str(root), **{"startingOffsets": "earliest"} | options)
        new = sorted((row["topic"], row["partition"], row["offset"], row["value"]) for row in found)
        rows.extend(new)
        assert len(rows) == len(set(rows)), "a record came twice"
        return new

    return run


@pytest.fixture
def spark_stream(spark, tmp_path):
    """`spark_stream(root, **options)`: the same on Spark, into Parquet."""

    def run(root, **options):
        reader = spark.readStream.format("ottla").option("startingOffsets", "earliest")
        for name, value in options.items():
            reader = reader.option(name, value)
        sink, before = tmp_path / "sink", run.rows
        query = (
            reader.load(str(root))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(sink))
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()
        table = spark.read.schema("topic string, partition int, offset long, value binary").parquet(str(sink))
        run.rows = sorted((row.topic, row.partition, row.offset, bytes(row.value or b"")) for row in table.collect())
        assert len(run.rows) == len(set(run.rows)), "a record came twice"
        return [row for row in run.rows if row not in before]

    run.rows = []
    return run


def committed_rows(root, topic="ledger", partition=0):
    found = scan_partition(root / f"{topic}-{partition}").records("read_committed")
    return [(topic, partition, record.offset, record.value) for record in found]


def test_a_stream_waits_for_open_transactions_and_leaves_out_aborted_ones(spark_stream, write_log):
    log = write_log()
    log.data(2, value=b"plain")
    log.data(2, producer_id=7, value=b"open")
    log.data(1, value=b"behind")
    assert [row[3] for row in spark_stream(write_log.root)] == [b"plain", b"plain"]
    assert spark_stream(write_log.root) == []
    log.data(1, producer_id=8, value=b"aborted")
    log.marker(7, commit=True)
    log.marker(8, commit=False)
    log.roll()
    log.data(1, value=b"next segment")
    assert [row[3] for row in spark_stream(write_log.root)] == [b"open", b"open", b"behind", b"next segment"]
    assert spark_stream.rows == committed_rows(write_log.root)


def test_a_transaction_that_spans_segments_and_batches_is_aborted_as_a_whole(stream, write_log):
    log = write_log()
    log.data(1, producer_id=7, value=b"one")
    log.roll()
    log.data(1, value=b"plain")
    assert stream(write_log.root) == []
    log.data(1, producer_id=7, value=b"two", base_sequence=1)
    log.roll()
    log.marker(7, commit=False)
    assert [row[3] for row in stream(write_log.root)] == [b"plain"]


@pytest.mark.parametrize("largest_task", [1, 1 << 40])
def test_batches_with_unknown_fates_are_not_streamed_as_committed(write_log, monkeypatch, largest_task):
    """An offset that jumps, which no CRC covers, hides the segment behind it from the walk, not from a task there."""
    from ottla.scan import ranges
    from ottla.spark_jobs.stream import record_stream
    from ottla.spark_jobs.stream.stream_options import stream_options

    log = write_log()
    log.data(2, value=b"plain")
    position, path = log.data(2, value=b"damaged"), log.path
    log.roll()
    log.data(2, producer_id=1, value=b"aborted")
    log.marker(1, commit=False)
    log.roll().data(2, value=b"end")
    content = bytearray(path.read_bytes())
    content[position + 4] ^= 0x40
    path.write_bytes(content)
    monkeypatch.setattr(ranges, "SMALLEST_TASK_BYTES", 1)
    monkeypatch.setattr(record_stream, "LARGEST_TASK_BYTES", largest_task)
    given = {"path": str(write_log.root), "on.damage": "report", "startingOffsets": "earliest"}
    stream = record_stream.RecordStream(stream_options(given), [("value", True)])
    start = stream.initialOffset()
    tasks = stream.partitions(start, stream.latestOffset(start, stream.getDefaultReadLimit()))
    values = [value for task in tasks for batch in stream.read(task) for value in batch.column("value").to_pylist()]
    assert values[:2] == [b"plain", b"plain"]
    assert b"aborted" not in values


def test_new_partitions_are_read_from_their_start(stream, write_log):
    write_log().data(1, value=b"first")
    assert len(stream(write_log.root)) == 1
    write_log("ledger", 1).data(1, value=b"second")
    write_log("audit", 0).data(1, value=b"third")
    assert [row[3] for row in stream(write_log.root)] == [b"third", b"second"]


def test_a_limit_makes_more_batches_of_the_same_rows(stream, write_log):
    log = write_log()
    for number in range(20):
        log.data(5, producer_id=number, value=b"%d" % number)
        log.marker(number, commit=number % 3 != 0)
    assert stream(write_log.root, maxOffsetsPerTrigger="7") == committed_rows(write_log.root)


def test_retention_is_an_error_only_if_it_deletes_unread_records(stream, write_log):
    log = write_log()
    log.data(3, value=b"a")
    first = log.path
    log.roll()
    log.data(3, value=b"b")
    second = log.path
    assert len(stream(write_log.root)) == 6
    first.unlink()
    log.roll()
    log.data(1, value=b"c")
    assert [row[3] for row in stream(write_log.root)] == [b"c"]
    log.data(1, value=b"lost")
    third = log.path
    log.roll()
    log.data(1, value=b"d")
    second.unlink()
    third.unlink()
    with pytest.raises(Exception, match="begins at 8, but the next offset is 7"):
        stream(write_log.root)
    assert [row[3] for row in stream(write_log.root, failOnDataLoss="false")] == [b"d"]


def test_a_torn_tail_is_read_when_it_is_whole(stream, write_log):
    log = write_log()
    log.data(1, value=b"whole")
    position = log.data(4, value=b"torn")
    content = log.path.read_bytes()
    log.path.write_bytes(content[: position + 70])
    assert [row[3] for row in stream(write_log.root)] == [b"whole"]
    log.path.write_bytes(content)
    assert [row[3] for row in stream(write_log.root)] == [b"torn"] * 4


def test_a_log_that_was_cut_below_what_was_read_is_an_error(stream, write_log):
    log = write_log()
    log.data(1, value=b"kept")
    position = log.data(1, value=b"cut")
    assert len(stream(write_log.root)) == 2
    log.path.write_bytes(log.path.read_bytes()[:position])
    with pytest.raises(Exception, match="the log was cut"):
        stream(write_log.root)


def test_a_topic_that_was_made_again_is_an_error_or_read_from_its_start(stream, write_log):
    def write_id(topic_id):
        (write_log.root / "ledger-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")

    write_log().data(1, value=b"old")
    write_id("AAAAAAAAAAAAAAAAAAAAAQ")
    assert len(stream(write_log.root)) == 1
    shutil.rmtree(write_log.root / "ledger-0")
    log = write_log()
    log.data(3, value=b"new")
    write_id("AAAAAAAAAAAAAAAAAAAAAg")
    with pytest.raises(Exception, match="was deleted and created again"):
        stream(write_log.root)
    assert len(stream(write_log.root, failOnDataLoss="false")) == 3


def test_offsets_to_begin_at_are_numbers_and_words(stream, write_log):
    for number in range(3):
        log = write_log("ledger", number)
        log.data(2, value=b"%d" % number)
    begin = {"startingOffsets": '{"ledger": {"0": 1, "1": -1, "2": -2}}', "includeHeaders": "true"}
    assert [row[1:3] for row in stream(write_log.root, **begin)] == [(0, 1), (2, 0), (2, 1)]
    log = write_log("ledger", 1, base_offset=2)
    log.data(1)
    assert [row[1:3] for row in stream(write_log.root, **begin)] == [(1, 2)]


def test_a_time_to_begin_at(stream, write_log):
    log = write_log()
    for timestamp_ms in (1_000, 3_000, 2_000, 4_000):
        log.data(1, timestamp_ms=timestamp_ms)
    write_log("audit").data(1, timestamp_ms=1_000)
    assert [row[:3] for row in stream(write_log.root, startingTimestamp="2500")] == [
        ("ledger", 0, offset) for offset in (1, 2, 3)
    ]


def test_a_stream_that_starts_above_the_stable_offset_waits(stream, write_log):
    log = write_log()
    log.data(2, producer_id=7, value=b"open")
    log.data(2, value=b"behind")
    begin = {"startingOffsets": '{"ledger": {"0": 3}}'}
    assert stream(write_log.root, **begin) == []
    log.marker(7, commit=True)
    assert [row[2:] for row in stream(write_log.root, **begin)] == [(3, b"behind")]


def test_everything_that_kafkas_consumer_returned(spark_stream, reference, consume):
    rows = spark_stream(reference("unclean"), maxOffsetsPerTrigger="1500")
    expected = sorted((row["topic"], row["partition"], row["offset"]) for row in consume("read_committed")[1])
    assert [row[:3] for row in rows] == expected


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("endingOffsets", "latest", "is for spark.read"),
        ("subscribe", "ledger", "option topics names topics"),
        ("kafka.bootstrap.servers", "localhost:9092", r"\.load\(DIR\) names the log directory"),
        ("includeHeaders", "false", "the column headers is always there"),
        ("startingOffsetsByTimestamp", '{"ledger": {"0": 5}}', "option startingTimestamp is one time"),
        (
            "startingOffsets",
            '{"ledgre": {"0": 5}}',
            r"names ledgre-0, which is not among the 1 partitions .*\(ledger-0\)",
        ),
        ("startingOffsets", '{"ledger": {"0": 5, "7": -1}}', "names ledger-7, which is not among"),
        ("failOnDataLoss", "maybe", "must be true or false"),
        ("maxOffsetsPerTrigger", "-1", "must be a number above 0"),
        ("startingOffsets", "somewhere", "must be earliest or JSON"),
    ],
)
def test_options_that_a_stream_does_not_take(stream, write_log, option, value, words):
    write_log().data(1)
    with pytest.raises(Exception, match=words):
        stream(write_log.root, **{option: value})


def test_an_option_that_a_stream_does_not_take_is_an_error_on_spark(spark_stream, write_log):
    write_log().data(1)
    with pytest.raises(Exception, match="names ledger-7, which is not among"):
        spark_stream(write_log.root, startingOffsets='{"ledger": {"0": 5, "7": -1}}')
