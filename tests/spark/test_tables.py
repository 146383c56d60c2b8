"""The functions for notebooks return the findings of their check, and statistics that equal those of the views."""

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.scan import schemas
from tests.spark.views import read_view, reader_of

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def few_tasks(spark):
    """Use few shuffle partitions: small data does not need 200."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


def frame_of(spark, root, view, **options):
    """Return the view as a DataFrame from another source, without the data source."""
    import pyarrow as pa

    reader = reader_of(root, view, **options)
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    return spark.createDataFrame(pa.Table.from_batches(batches, schema=reader.arrow_schema()))


def test_functions_select_the_findings_of_their_check(spark):
    from ottla.spark_jobs import gaps, hanging, sequence, torn, zombie

    functions = (gaps, hanging, sequence, torn, zombie)
    checks = [function.__name__ for function in functions]
    columns = list(schemas.VIEWS["findings"])
    rows = [(check, "error", "ledger", 1, 7, 3, "id", f"message of {check}", "", "", 0) for check in ["index", *checks]]
    findings = spark.createDataFrame(rows, schemas.ddl("findings"))
    selected = [function(findings) for function in functions]
    assert [frame.columns for frame in selected] == [columns[1:]] * len(functions)
    both = selected[0]
    for frame in selected[1:]:
        both = both.union(frame)
    assert sorted(map(tuple, both.collect())) == sorted(row[1:] for row in rows[1:])


def test_functions_refuse_a_frame_of_another_view(spark):
    from ottla.spark_jobs import torn

    batches = spark.createDataFrame([], schemas.ddl("batches"))
    with pytest.raises(ValueError, match=r"torn\(\) takes the view findings.* no column check, .*view\", \"findings"):
        torn(batches)


def test_shape_and_throughput_count_every_record_once(spark, reference):
    from ottla.spark_jobs import shape, throughput

    root = reference("clean")
    partitions = read_view(root, "partitions")
    found = {(row.topic, row.partition): row for row in shape(frame_of(spark, root, "transactions")).collect()}
    for row in partitions:
        mine = found.get((row["topic"], row["partition"]))
        if mine is None:
            assert row["committedTransactions"] == row["abortedTransactions"] == row["openTransactions"] == 0
            continue
        assert (mine.committed, mine.aborted, mine.open) == (
            row["committedTransactions"],
            row["abortedTransactions"],
            row["openTransactions"],
        )
        assert mine.records == row["committedRecords"] + row["abortedRecords"] + row["openRecords"]
        assert mine.recordsMedian <= mine.records95 <= mine.recordsMost
    rows = throughput(frame_of(spark, root, "batches"), "10 seconds").collect()
    assert sum(row.abortedRecords for row in rows) == sum(row["abortedRecords"] for row in partitions)
    assert sum(row.batches + row.controlBatches for row in rows) == sum(row["batches"] for row in partitions)
    parts = ("plainRecords", "committedRecords", "abortedRecords", "openRecords")
    assert sum(row.records for row in rows) == sum(row[part] for row in partitions for part in parts)
