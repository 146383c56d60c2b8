"""The data source: equal to what Kafka's own consumer returned, field by field; options, pruning, damage."""

import hashlib
from datetime import UTC, datetime, timedelta

import pytest

pytestmark = pytest.mark.spark

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def read(spark):
    def load(root, schema=None, **options):
        reader = spark.read.format("ottla")
        for name, value in options.items():
            reader = reader.option(name.replace("_", "."), value)
        return (reader.schema(schema) if schema else reader).load(str(root))

    return load


def digest(value):
    return None if value is None else hashlib.sha256(value).hexdigest()


def consumed_row(row):
    """Return a row of the table in the form of `consumed.jsonl`."""
    moment = row["timestamp"].replace(tzinfo=UTC) if row["timestamp"].tzinfo is None else row["timestamp"]
    return {
        "topic": row["topic"],
        "partition": row["partition"],
        "offset": row["offset"],
        "timestamp": (moment - EPOCH) // timedelta(milliseconds=1),
        "timestamp_type": row["timestampType"],
        "key": None if row["key"] is None else row["key"].decode(),
        "value_sha256": digest(row["value"]),
        "value_len": -1 if row["value"] is None else len(row["value"]),
        "headers": [
            [pair["key"], None if pair["value"] is None else pair["value"].decode()] for pair in row["headers"] or []
        ],
    }


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("name", ["clean", "unclean"])
def test_records_equal_what_kafkas_consumer_returned(read, reference, consume, name, isolation):
    table = read(reference(name), isolation_level=isolation).toArrow()
    rows = [consumed_row(row) for row in table.to_pylist()]
    expected = [{name: value for name, value in row.items() if name != "isolation"} for row in consume(isolation)[1]]

    def place(row):
        return row["topic"], row["partition"], row["offset"]

    assert sorted(rows, key=place) == sorted(expected, key=place)
    assert len(rows) == {"read_committed": 3988, "read_uncommitted": 4996}[isolation]


def test_default_is_read_committed_and_user_topics_only(read, reference):
    frame = read(reference("clean"))
    assert frame.count() == 3988
    assert not [row.topic for row in frame.select("topic").distinct().collect() if row.topic.startswith("__")]


def test_topics_are_globs(read, reference):
    frame = read(reference("clean"), topics="ledger, codec-*")
    assert {row.topic for row in frame.select("topic").distinct().collect()} == {
        "ledger",
        "codec-gzip",
        "codec-snappy",
        "codec-lz4",
        "codec-zstd",
    }
    assert read(reference("clean"), topics="__consumer_offsets").count() == 10
    assert read(reference("clean"), topics="nothing-here").count() == 0


def test_schema_prunes_and_orders_columns(read, reference):
    frame = read(reference("clean"), schema="offset long, key binary", topics="compacted")
    assert frame.columns == ["offset", "key"]
    assert sorted(row.offset for row in frame.collect()) == sorted(
        row.offset for row in read(reference("clean"), topics="compacted").collect()
    )


def test_columns_are_named_in_any_case(read, write_log):
    write_log().data(2)
    frame = read(write_log.root, schema="OFFSET long, timestamptype int")
    assert frame.columns == ["OFFSET", "timestamptype"]
    assert [tuple(row) for row in frame.orderBy("offset").collect()] == [(0, 0), (1, 0)]


def read_all_segments(root):
    return {path: path.read_bytes() for path in root.rglob("*.log")}


def test_a_table_of_the_catalog_keeps_its_options(spark, write_log):
    write_log().data(3)
    write_log("audit").data(1)
    before = read_all_segments(write_log.root)
    spark.sql(f"CREATE TABLE kept USING ottla OPTIONS (path '{write_log.root}', topics 'ledger')")
    try:
        assert [row.offset for row in spark.sql("SELECT offset FROM kept ORDER BY offset").collect()] == [0, 1, 2]
        assert spark.sql("SELECT * FROM kept WITH (topics 'audit')").count() == 1
    finally:
        spark.sql("DROP TABLE kept")
    assert read_all_segments(write_log.root) == before


def test_producer_columns_are_those_of_the_batch_and_sequences_count_on(read, write_log):
    log = write_log()
    log.data(3, producer_id=9, epoch=2, base_sequence=2**31 - 2)
    log.marker(9, commit=True)
    log.data(1)
    rows = read(write_log.root).orderBy("offset").collect()
    assert [(row.producerId, row.producerEpoch, row.sequence) for row in rows] == [
        (9, 2, 2**31 - 2),
        (9, 2, 2**31 - 1),
        (9, 2, 0),
        (-1, -1, -1),
    ]
    assert [row.headers for row in rows] == [None] * 4


def test_read_committed_stops_at_the_first_open_transaction(read, write_log):
    log = write_log()
    log.data(2)
    log.data(2, producer_id=1)
    log.data(2)
    assert read(write_log.root).count() == 2
    assert read(write_log.root, isolation_level="read_uncommitted").count() == 6


def test_records_below_the_log_start_are_not_returned(read, write_log):
    write_log().data(5)
    (write_log.root / "log-start-offset-checkpoint").write_text("0\n1\nledger 0 3\n")
    assert sorted(row.offset for row in read(write_log.root).collect()) == [3, 4]


def test_filter_and_limit_work_though_nothing_is_pushed_down(read, reference):
    frame = read(reference("clean"))
    assert (
        frame.filter("topic = 'ledger' and partition = 2 and offset < 10").count()
        == frame.filter("offset < 10 and partition = 2").where("topic = 'ledger'").count()
    )
    assert len(frame.limit(3).collect()) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"isolation_level": "committed"}, "isolation.level is 'committed'; did you mean read_committed"),
        ({"isolation_levle": "read_committed"}, r"no option 'isolation.levle'; did you mean isolation.level\?"),
        ({"startingOffset": "earliest"}, r"no option 'startingoffset'; did you mean startingOffsets\?"),
        ({"color": "red"}, "no option 'color'; there is isolation.level, on.damage"),
        ({"subscribePattern": "ledger.*"}, "option topics takes globs"),
        ({"maxOffsetsPerTrigger": "5"}, "spark.readStream has it"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss must be true or false"),
        (
            {"startingOffsets": '{"ledger": {"0": -1}}', "endingOffsets": "latest"},
            "endingOffsets is for spark.read and -1 in startingOffsets is for spark.readStream",
        ),
        (
            {"maxOffsetsPerTrigger": "5", "endingOffsets": "latest"},
            "endingOffsets is for spark.read and maxOffsetsPerTrigger is for spark.readStream",
        ),
        ({"startingOffsets": '{"ledgre": {"0": 1}}'}, "startingOffsets names ledgre-0, which is not among"),
        ({"endingOffsets": '{"ledger": {"99": 1}}'}, "endingOffsets names ledger-99, which is not among"),
        ({"view": "nothing"}, "view must be one of records, batches, "),
        ({"schema": "offset string"}, "column offset of the records is bigint, not string"),
        ({"schema": "offsets long"}, r"no column 'offsets'; did you mean offset\?"),
        ({"view": "record"}, r"option view is 'record'; did you mean records\?"),
    ],
)
def test_invalid_options_are_refused_with_a_message(read, reference, options, message):
    with pytest.raises(Exception, match=message):
        read(reference("clean"), **options).count()


def test_a_missing_or_wrong_directory_is_an_error(read, tmp_path):
    with pytest.raises(Exception, match="No such file or directory"):
        read(tmp_path / "none").count()
    with pytest.raises(Exception, match="not a log directory"):
        read(tmp_path).count()


@pytest.fixture
def bad_log(write_log):
    """Write three batches of ten to ledger-0, the middle one with a flipped byte; ten sound records elsewhere."""
    log = write_log()
    log.positions = [log.data(10, value=b"x" * 40) for _ in range(3)]
    data = bytearray(log.path.read_bytes())
    data[log.positions[1] + 90] ^= 0xFF
    log.path.write_bytes(data)
    write_log("audit-log").data(10)
    return log


def test_damage_fails_the_job_and_names_file_and_position(read, write_log, bad_log):
    with pytest.raises(Exception, match=f"{bad_log.path}: position {bad_log.positions[1]} to {bad_log.positions[2]}"):
        read(write_log.root).collect()


def test_reported_damage_leaves_what_is_sound(read, write_log, bad_log):
    rows = read(write_log.root, on_damage="report", topics="ledger").collect()
    assert sorted(row.offset for row in rows) == [*range(10), *range(20, 30)]
    assert read(write_log.root, on_damage="report").count() == 30


def test_damage_view_lists_it(read, write_log, bad_log):
    rows = read(write_log.root, view="damage").collect()
    assert [(row.topic, row.partition, row.file, row.position, row.end) for row in rows] == [
        ("ledger", 0, str(bad_log.path), bad_log.positions[1], bad_log.positions[2])
    ]
    assert "CRC mismatch" in rows[0].reason


def test_batch_that_does_not_decompress_is_damage(read, write_log):
    from ottla.protocol.batch import build_batch
    from ottla.protocol.batch_header import seal

    log = write_log()
    for codec in (1, 2, 3, 4):
        batch = build_batch([(b"k", b"v" * 100)], timestamp_ms=1, compression=codec)
        batch[61:] = bytes(len(batch) - 61)
        seal(batch)
        log.append(batch)
        log.data(1)
    rows = read(write_log.root, on_damage="report").collect()
    assert sorted(row.offset for row in rows) == [1, 3, 5, 7]
    with pytest.raises(Exception, match=f"{log.path}: position 0 .*not a gzip member"):
        read(write_log.root).collect()


def test_writing_is_refused_with_the_formats_to_use_instead(spark, tmp_path):
    for mode in ("append", "overwrite"):
        with pytest.raises(Exception, match=r"only reads.*format kafka.*format parquet"):
            spark.range(3).write.format("ottla").mode(mode).save(str(tmp_path))
    frame = spark.readStream.format("rate").load()
    stream = frame.writeStream.format("ottla").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match=r"only reads.*format kafka"):
        stream.start(str(tmp_path)).processAllAvailable()
