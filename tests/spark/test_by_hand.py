"""Plans that name the read, and errors without tracebacks of Spark's processes, as a person sees them."""

import traceback

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from pyspark.errors import PySparkException

from ottla.scan.listing import UnreadableDirectory
from ottla.spark_jobs import load
from ottla.spark_jobs.loading import describe_read
from ottla.spark_jobs.options import OptionError, read_options

pytestmark = pytest.mark.spark


def test_a_plan_names_the_read(spark, write_log, capsys):
    write_log().data(3)
    write_log("audit").data(1)
    read = load(spark, str(write_log.root), topics="ledger", verify=True)
    assert [row.offset for row in read.orderBy("offset").collect()] == [0, 1, 2]
    read.explain()
    assert f"BatchScan ottla: records of ledger in {write_log.root}[" in capsys.readouterr().out
    batches = load(spark, [str(write_log.root)], schema="lastOffset bigint", view="batches")
    assert sorted(map(tuple, batches.collect())) == [(0,), (2,)]
    batches.explain()
    assert f"BatchScan ottla: batches in {write_log.root}[" in capsys.readouterr().out
    spark.read.format("ottla").load(str(write_log.root)).explain()
    assert "BatchScan ottla[" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (
            {"path": "kafka://b-1:9096,b-2:9096", "topics": "a,b-*"},
            "ottla: records of a,b-* in kafka://b-1:9096,b-2:9096",
        ),
        ({"paths": '["/disk1", "/disk2"]', "view": "findings"}, "ottla: findings in /disk1, /disk2"),
        ({"path": "s3://logs/kafka?region=eu-north-1"}, "ottla: records in s3://logs/kafka"),
        ({"path": "/a\nb"}, "ottla: records in /a\\nb"),
        ({"path": "/" + "x" * 300}, "ottla: records in /" + "x" * 178 + "..."),
    ],
)
def test_the_name_of_a_read_is_short_and_has_no_secret(given, name):
    assert describe_read(read_options(given)) == name


@pytest.mark.parametrize(
    ("path", "options", "kind", "text"),
    [
        ("", {"startingOffset": "earliest"}, OptionError, "no option 'startingOffset'; did you mean startingOffsets?"),
        ("", {"view": "transaction"}, OptionError, "option view is 'transaction'; did you mean transactions?"),
        ("none", {}, UnreadableDirectory, "none: No such file or directory"),
    ],
)
def test_load_refuses_at_once_in_few_lines(spark, write_log, path, options, kind, text):
    write_log().data(1)
    with pytest.raises(kind) as raised:
        load(spark, str(write_log.root / path), **options)
    assert str(raised.value).endswith(text)
    lines = "".join(traceback.format_exception(raised.value)).splitlines()
    assert len(lines) == 6, lines


def read_with_a_wrong_option(root):
    return {"startingOffset": "earliest"}, "did you mean startingOffsets?"


def read_another_column(root):
    return {"schema": "offsets long"}, "did you mean offset?"


def read_another_partition(root):
    return {"startingOffsets": '{"ledgre": {"0": 1}}'}, "which is not among the 1 partitions that are read (ledger-0)"


def read_damage(root):
    path = root / "ledger-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[90] ^= 0xFF
    path.write_bytes(data)
    return {}, 'option("on.damage", "report") reads what is sound'


@pytest.mark.parametrize("fail", [read_with_a_wrong_option, read_another_column, read_another_partition, read_damage])
def test_an_explained_error_has_no_traceback_of_a_process_of_spark(spark, write_log, fail):
    log = write_log()
    log.data(10, value=b"x" * 40)
    log.data(1)
    options, text = fail(write_log.root)
    reader = spark.read.format("ottla")
    if schema := options.pop("schema", None):
        reader = reader.schema(schema)
    with pytest.raises(PySparkException) as raised:
        reader.options(**options).load(str(write_log.root)).count()
    said = str(raised.value)
    assert text in said and "Traceback" not in said
    assert len(said.splitlines()) <= 3


def test_another_error_keeps_its_traceback(spark, write_log):
    """The variable that hides tracebacks does not outlive the process that failed."""
    from pyspark.sql.functions import udf

    write_log().data(1)
    with pytest.raises(PySparkException):
        spark.read.format("ottla").option("startingOffset", "1").load(str(write_log.root))

    @udf
    def divide(number):
        return 1 // number

    with pytest.raises(PySparkException, match=r"Traceback[\s\S]*in divide[\s\S]*ZeroDivisionError"):
        spark.range(1).select(divide("id")).collect()
