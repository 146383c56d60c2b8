"""The views through Spark itself: types, filters pushed down or not, Spark Connect, a cluster that is shipped to."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.scan import schemas
from tests.s3_server import s3_server
from tests.spark.views import read_view
from tests.timeout import EVENT_TIMEOUT_S

pytestmark = pytest.mark.spark

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def load(spark):
    def read(root, **options):
        return spark.read.format("ottla").options(**options).load(str(root))

    return read


def test_every_view_arrives_with_its_types_and_rows(spark, load, reference):
    views = [view for view in schemas.VIEWS if view != schemas.HANGING]
    for view in views:
        frame = load(reference("clean"), view=view)
        assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == list(
            schemas.VIEWS[view].items()
        )
    # One query for all: a view is more costly to plan than to read.
    counts = " union all ".join(f"select '{view}', count(*) from {view}_rows" for view in views)
    for view in views:
        load(reference("clean"), view=view).createOrReplaceTempView(f"{view}_rows")
    expected = {view: len(read_view(reference("clean"), view)) for view in views}
    assert {row[0]: row[1] for row in spark.sql(counts).collect()} == expected


@pytest.fixture
def half_damaged_log(write_log):
    """Write a directory whose partition 1 cannot be read, so a query succeeds only without reading it."""
    for partition in (0, 1):
        log = write_log(partition=partition)
        for _ in range(3):
            log.data(10)
    data = bytearray(log.path.read_bytes())
    data[80] ^= 0xFF
    log.path.write_bytes(data)
    return write_log.root


@pytest.fixture
def pushing(spark):
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


def test_filters_are_pushed_down_where_the_read_and_spark_ask_for_it(load, half_damaged_log, pushing):
    def some(**options):
        frame = load(half_damaged_log, **{"isolation.level": "read_uncommitted", **options})
        return sorted(row.offset for row in frame.where("partition = 0 and offset between 7 and 12").collect())

    expected = list(range(7, 13))
    assert some(partitions="0") == expected
    assert some(pushdown="true") == expected
    with pytest.raises(Exception, match="CRC mismatch"):
        some()


def test_pushdown_true_fails_if_spark_does_not_push_the_filter(load, half_damaged_log):
    assert load(half_damaged_log, partitions="0").where("offset < 3").count() == 3
    with pytest.raises(Exception, match=PUSHDOWN):
        load(half_damaged_log, pushdown="true").where("offset < 3").count()


@pytest.mark.parametrize("view", ["records", "batches", "segments"])
def test_one_frame_filtered_twice_has_the_rows_of_both_filters(load, write_log, pushing, view):
    """Spark keeps the tasks of the last filters that were pushed for every use of a frame."""
    for partition in (0, 1):
        log = write_log(partition=partition)
        for _ in range(3 + partition):
            log.data(10)
    frame = load(write_log.root, view=view, **{"isolation.level": "read_uncommitted"})
    rows = read_view(write_log.root, view, isolation_level="read_uncommitted")
    of = {partition: sum(row["partition"] == partition for row in rows) for partition in (0, 1)}
    first, second = (frame.where(f"partition = {partition}") for partition in (0, 1))

    assert first.union(second).count() == len(rows)
    pairs = first.alias("one").join(second.alias("other"), "topic").count()
    assert pairs == of[0] * of[1] > 0
    assert [first.count(), frame.count(), second.count(), first.count()] == [of[0], len(rows), of[1], of[0]]
    frame.createOrReplaceTempView("pushed_twice")
    counts = "select (select count(*) from pushed_twice where partition = 0), (select count(*) from pushed_twice)"
    assert tuple(frame.sparkSession.sql(counts).first()) == (of[0], len(rows))


def run_apart(code, *arguments, **environment):
    """Run `code` in a separate Python with its own Spark; its last output is JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "TZ": "UTC", "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=EVENT_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


OVER_CONNECT = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").getOrCreate()
view = lambda name: spark.read.format("ottla").option("view", name).load(sys.argv[1])
from ottla.spark_jobs import hanging
open_now = hanging(view("findings"))
print(json.dumps([view("records").count(), sorted(row.transactionalId for row in open_now.collect())]))
spark.stop()
"""


CONNECT_NEEDS = [name for name in ("grpc", "grpc_status", "pandas") if importlib.util.find_spec(name) is None]


@pytest.mark.skipif(bool(CONNECT_NEEDS), reason=f"Spark Connect's client needs {', '.join(CONNECT_NEEDS)}")
def test_views_and_functions_work_over_spark_connect(reference):
    assert run_apart(OVER_CONNECT, reference("clean")) == [3988, ["hanging-01", "tv2-01"]]


ON_A_CLUSTER = """
import json, sys
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local-cluster[1,2,1024]")
    .config("spark.ui.enabled", "false")
    .config("spark.submit.pyFiles", sys.argv[2])
    .config("spark.executorEnv.PYTHONPATH", "")
    .config("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .getOrCreate()
)
from ottla.spark_jobs.source import OttlaSource
spark.dataSource.register(OttlaSource)
def where(_):
    import ottla
    return ottla.__file__
places = spark.sparkContext.parallelize(range(4), 4).map(where).collect()
rows = spark.read.format("ottla").load(sys.argv[1]).count()
opened = spark.read.format("ottla").option("view", "transactions").load(sys.argv[1]).where("fate = 'open'").count()
print(json.dumps([rows, opened, sorted({place.split("/")[-3] for place in places})]))
spark.stop()
"""


def test_package_is_shipped_to_the_executors_of_a_cluster(reference, tmp_path):
    from ottla.spark_jobs.session import pack_packages

    archive = pack_packages(tmp_path)
    # Only the driver's process finds the source tree; executors find what was shipped before what is installed.
    found = run_apart(ON_A_CLUSTER, reference("clean"), archive)
    assert found == [3988, 2, ["ottla.zip"]]


def test_records_from_s3_reach_spark(reference, spark):
    with s3_server() as (upload, _):
        uri = upload(reference("unclean"), "unclean")
        for isolation, count in (("read_committed", 3988), ("read_uncommitted", 4996)):
            assert spark.read.format("ottla").option("isolation.level", isolation).load(uri).count() == count
