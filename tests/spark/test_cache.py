"""`cached`: Spark reads Parquet files, and the rows are those of the data source, field by field."""

import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from tests.spark.cache_reads import live, through_cache

pytestmark = pytest.mark.spark

COMPACTED = Path(__file__).parents[1] / "data" / "compaction" / "kafka-4.3.1.tar.gz"
LEVELS = ("read_committed", "read_uncommitted")


def in_order(table):
    return sorted(table.toArrow().to_pylist(), key=lambda row: (row["topic"], row["partition"], row["offset"]))


@pytest.fixture
def check(spark, tmp_path):
    """Check twice that the cache gives the data source's rows; return the last DataFrame."""
    from ottla.spark_jobs import cached

    def same(root, **options):
        table = spark.read.format("ottla").options(**options).load(str(root))
        expected = in_order(table)
        for _ in range(2):
            mine = cached(spark, str(root), tmp_path / "cache", **options)
            assert mine.schema == table.schema
            assert in_order(mine) == expected
        return mine

    return same


def plan_of(table):
    return table._jdf.queryExecution().optimizedPlan().toString()


@pytest.mark.parametrize("isolation", LEVELS)
@pytest.mark.parametrize("name", ["clean", "unclean"])
def test_files_of_a_real_kafka_read_the_same(check, reference, name, isolation):
    table = check(reference(name), **{"isolation.level": isolation})
    assert table.count() == {"read_committed": 3988, "read_uncommitted": 4996}[isolation]


def test_cached_records_are_read_without_python(check, reference):
    table = check(reference("unclean"))
    assert "ottla" not in plan_of(table).replace("ottla-", "")
    assert all("/records-v1/topic=" in path for path in table.inputFiles())


def test_records_of_open_transactions_are_read_from_the_log(check, write_log):
    log = write_log()
    log.data(3)
    log.data(2, producer_id=7)
    check(write_log.root)
    table = check(write_log.root, **{"isolation.level": "read_uncommitted"})
    assert len(table.inputFiles()) == 1
    assert table.count() == 5


def check_here(root, cache, **options):
    """Check twice in this process that the cache gives the data source's rows in each isolation; return these rows."""
    found = []
    for level in LEVELS:
        given = {"isolation.level": level, **options}
        expected = live(root, **given)
        for _ in range(2):
            assert through_cache(root, cache, **given)[0] == expected
        found += expected
    return found


def test_partitions_that_a_kafka_compacted_read_the_same(tmp_path):
    with tarfile.open(COMPACTED) as archive:
        archive.extractall(tmp_path / "kafka", filter="data")
    folders = sorted({path.parent for path in (tmp_path / "kafka").rglob("*.log")})
    (tmp_path / "log").mkdir()
    for number, folder in enumerate(folders):
        folder.rename(tmp_path / "log" / f"ledger-{number}")
    rows = check_here(tmp_path / "log", tmp_path / "cache")
    assert len({row["partition"] for row in rows}) > 1


OFFSETS = {"startingOffsets": '{"ledger": {"0": 23, "1": -2}}', "endingOffsets": '{"ledger": {"0": 40, "2": 7}}'}


@pytest.mark.parametrize("options", [OFFSETS, {"verify": True, "producerIds": 1}, {"producerIds": "0,1,2,-1"}])
def test_options_read_the_same(check, reference, options):
    for isolation in LEVELS:
        check(reference("unclean"), **{"isolation.level": isolation}, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"topics": "ledger*"},
        {"topics": "ledger,__transaction_state"},
        {"topics": "nothing"},
        {"partitions": "0,2"},
        OFFSETS,
        {"startingTimestamp": "1", "endingTimestamp": "9999999999999"},
        {"on.damage": "report"},
    ],
)
def test_options_read_the_same_without_spark(reference, tmp_path, options):
    check_here(reference("unclean"), tmp_path / "cache", **options)


def test_times_between_records_read_the_same(spark, check, reference):
    records = spark.read.format("ottla").load(str(reference("unclean")))
    moments = records.selectExpr("unix_millis(timestamp) as ms").sort("ms").toArrow().column("ms").to_pylist()
    first, end = moments[len(moments) // 3], moments[len(moments) * 2 // 3]
    check(reference("unclean"), startingTimestamp=str(first), endingTimestamp=str(end))


def test_several_directories_read_as_one(spark, tmp_path, write_log, check):
    from ottla.spark_jobs import cached
    from tests.segment_files import LogWriter

    write_log("ledger", 0).data(2)
    LogWriter(tmp_path / "other", "ledger", 1).data(3)
    paths = [str(write_log.root), str(tmp_path / "other")]
    for _ in range(2):
        assert in_order(cached(spark, paths, tmp_path / "cache")) == in_order(spark.read.format("ottla").load(paths))


@pytest.mark.parametrize("topic", ["007", "1e3", "__HIVE_DEFAULT_PARTITION__", "2020-01-01", "a.b_c-d", "true"])
def test_a_topic_keeps_its_name(check, write_log, topic):
    write_log(topic).data(2)
    assert {row["topic"] for row in in_order(check(write_log.root, topics=topic))} == {topic}


def test_values_at_the_edges_read_the_same(check, write_log):
    log = write_log()
    for time_ms in (-62_135_596_800_000, -2_208_988_800_001, -1, 0, 253_402_300_799_999):
        log.data(1, timestamp_ms=time_ms)
    log.data(1, value=b"")
    log.data(1, value=None)
    log.data(1, value=bytes(range(256)))
    check(write_log.root)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.sql.files.ignoreCorruptFiles", "true"),
        ("spark.sql.files.ignoreMissingFiles", "true"),
        ("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY"),
        ("spark.sql.parquet.enableVectorizedReader", "false"),
        ("spark.sql.caseSensitive", "true"),
        ("spark.sql.sources.partitionColumnTypeInference.enabled", "false"),
    ],
)
def test_spark_settings_change_no_rows_and_hide_no_corrupt_file(spark, check, write_log, name, value, tmp_path):
    log = write_log("007")
    log.data(2, timestamp_ms=-5_000_000_000_000)
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        table = check(write_log.root)
        (path,) = (tmp_path / "cache").rglob("*.parquet")
        content = path.read_bytes()
        path.write_bytes(bytes(len(content)))
        with pytest.raises(Exception, match=r"\.parquet"):
            table.sparkSession.createDataFrame(table.toArrow())
    finally:
        spark.conf.set(name, before)


def test_many_files_are_one_read(check, write_log):
    for partition in range(40):
        write_log("ledger", partition).data(2)
    assert len(check(write_log.root).inputFiles()) == 40


def test_sql_reads_a_view_of_it(spark, write_log, tmp_path):
    from ottla.spark_jobs import cached

    write_log().data(3)
    cached(spark, str(write_log.root), tmp_path / "cache").createOrReplaceTempView("ledger")
    assert spark.sql("SELECT count(*) FROM ledger WHERE partition = 0").collect()[0][0] == 3


def test_queries_at_once_fill_a_cache(spark, reference, tmp_path):
    from ottla.spark_jobs import cached

    expected = in_order(spark.read.format("ottla").load(str(reference("unclean"))))
    with ThreadPoolExecutor(3) as threads:
        found = list(
            threads.map(lambda _: in_order(cached(spark, str(reference("unclean")), tmp_path / "cache")), range(3))
        )
    assert all(rows == expected for rows in found)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"view": "batches"}, "has no option view"),
        ({"fetchIsolation": "high_watermark"}, "has no option fetchIsolation"),
        ({"minPartitions": "3"}, "has no option minPartitions"),
        ({"isolation.level": "some"}, "must be one of read_committed"),
    ],
)
def test_options_that_it_does_not_take(spark, write_log, tmp_path, options, words):
    from ottla.spark_jobs import cached
    from ottla.spark_jobs.options import OptionError

    write_log().data(1)
    with pytest.raises(OptionError, match=words):
        cached(spark, str(write_log.root), tmp_path / "cache", **options)
    assert not (tmp_path / "cache").exists()


def test_places_that_a_cache_cannot_be(spark, write_log, tmp_path):
    from ottla.audit.outputs import OutputFailed
    from ottla.spark_jobs import cached
    from ottla.spark_jobs.options import OptionError

    write_log().data(1)
    root = str(write_log.root)
    for inside in (write_log.root, write_log.root / "cache", write_log.root / "ledger-0"):
        with pytest.raises(OutputFailed, match="in the log directory"):
            cached(spark, root, inside)
    with pytest.raises(OptionError, match="as a pattern"):
        cached(spark, root, tmp_path / "cache[1]")
    with pytest.raises(OptionError, match="local folder"):
        cached(spark, root, "s3://bucket/cache")
    with pytest.raises(OptionError, match="on local disks"):
        cached(spark, "s3://bucket/log", tmp_path / "cache")
    assert sorted(path.name for path in write_log.root.iterdir()) == ["ledger-0", "meta.properties"]


def test_the_option_of_the_data_source_names_the_function(spark, write_log, tmp_path):
    write_log().data(1)
    for option in ("cache", "CACHE"):
        with pytest.raises(Exception, match=r"ottla\.spark_jobs\.cached\(spark, DIR, CACHE\)"):
            spark.read.format("ottla").option(option, str(tmp_path)).load(str(write_log.root))


def test_a_session_without_a_jvm_is_refused(write_log, tmp_path):
    from ottla.spark_jobs import cached
    from ottla.spark_jobs.cache.upkeep import CacheFailed

    with pytest.raises(CacheFailed, match="does not work with Spark Connect"):
        cached(object(), str(write_log.root), tmp_path / "cache")
