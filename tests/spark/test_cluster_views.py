"""The views of a cluster over the wire show what the views of its files show. Tasks are pickled, as Spark does."""

import pickle
import subprocess
import sys

import pyarrow as pa
import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")
pytest.importorskip("pyspark", reason="the spark extra is not installed")

from ottla.audit.pipeline import audit
from ottla.audit.request import Request
from ottla.audit.runner import ThreadRunner
from ottla.scan import schemas
from ottla.scan.listing import UnreadableDirectory
from ottla.spark_jobs.options import OptionError
from ottla.spark_jobs.spark_runner import SparkRunner
from ottla.testkit.corpus.case import files_of
from ottla.testkit.corpus.case_run import BEGIN_MS
from ottla.testkit.corpus.catalogue import CASES
from ottla.wire.address import parse_kafka_address
from tests.corpus import KEEPING, write_files
from tests.spark.views import read_view, reader_of
from tests.thread_broker import ThreadBroker

SOON_MS = 600_000
HERE = {case.name: case for case in CASES}
# Files still have what is below the start of the log, and snapshots know of it; a broker sends neither.
BELOW_THE_START = {
    "everything-deleted",
    "log-starts-in-an-aborted-transaction",
    "log-starts-in-two-aborted-transactions",
}
# The coordinator of this case writes the missing marker when it starts.
SERVED = [case for case in CASES if case.name != "torn-transaction"]
# What brokers do not show of their files.
OF_FILES = {"segment", "position", "markerPosition", "path", "segments", "size", "highWatermark", "file"}


def read_cluster(broker, view, **options):
    reader = reader_of(f"kafka://{broker.bootstrap}", view, **options)
    batches = []
    for task in reader.partitions():
        for batch in reader.read(pickle.loads(pickle.dumps(task))):
            batch.validate(full=True)
            batches.append(batch)
    return pa.Table.from_batches(batches, schema=reader.arrow_schema())


def rows_of(rows, view):
    """Return the rows without the columns of files, in an order."""
    kept = [name for name in schemas.VIEWS[view] if name not in OF_FILES]
    return sorted((tuple((name, row[name]) for name in kept) for row in rows), key=repr)


def in_ms(table):
    """Return rows as dicts, times as int ms, as `read_view` does."""
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(index, field.name, pa.compute.divide(table.column(index).cast(pa.int64()), 1000))
    return table.to_pylist()


READS = [
    (schemas.RECORDS, {}),
    (schemas.RECORDS, {"minPartitions": "7"}),
    (schemas.RECORDS, {"verify": "true", "minPartitions": "7"}),
    (schemas.RECORDS, {"isolation_level": "read_uncommitted", "minPartitions": "7"}),
    (schemas.BATCHES, {}),
    (schemas.BATCHES, {"minPartitions": "7"}),
    (schemas.BATCHES, {"on_damage": "report", "verify": "true", "minPartitions": "7"}),
    (schemas.TRANSACTIONS, {}),
    (schemas.PRODUCERS, {"verify": "true"}),
    (schemas.PARTITIONS, {}),
    (schemas.TRANSACTION_STATE, {"history": "true"}),
    (schemas.TRANSACTION_STATE, {}),
    (schemas.GROUP_OFFSETS, {"history": "true"}),
    (schemas.DAMAGE, {}),
]


@pytest.mark.parametrize("case", SERVED, ids=lambda case: case.name)
def test_the_views_over_the_wire_are_those_of_the_files(case, tmp_path):
    root = write_files(files_of(case), tmp_path) / "data"
    with ThreadBroker(root, now_ms=BEGIN_MS + SOON_MS, **KEEPING) as broker:
        for view, options in READS:
            if case.name in BELOW_THE_START and view not in (schemas.RECORDS, schemas.BATCHES):
                continue
            found = in_ms(read_cluster(broker, view, **options))
            assert rows_of(found, view) == rows_of(read_view(root, view, **options), view), (view, options)


@pytest.fixture(scope="module")
def hanging(tmp_path_factory):
    root = write_files(files_of(HERE["hanging-transaction"]), tmp_path_factory.mktemp("case")) / "data"
    with ThreadBroker(root, now_ms=BEGIN_MS + SOON_MS, **KEEPING) as broker:
        yield broker


def test_brokers_answer_which_transactions_hang(hanging):
    (row,) = in_ms(read_cluster(hanging, schemas.HANGING))
    assert (row["topic"], row["firstOffset"]) == ("hanging-transaction", 2)
    assert f"--bootstrap-server {hanging.bootstrap} abort" in row["action"]


def test_findings_are_those_of_the_audit_of_a_cluster(hanging):
    (row,) = [row for row in in_ms(read_cluster(hanging, schemas.FINDINGS)) if row["severity"] == "error"]
    assert (row["check"], row["offset"]) == ("hanging", 2)


def test_segments_are_files():
    with pytest.raises(OptionError, match="the view segments shows files, which brokers do not send: load a log dir"):
        reader_of("kafka://127.0.0.1:1", schemas.SEGMENTS)


def test_columns_of_files_are_null(hanging):
    rows = in_ms(read_cluster(hanging, schemas.BATCHES))
    assert rows
    assert {(row["segment"], row["position"]) for row in rows} == {(None, None)}
    records = in_ms(read_cluster(hanging, schemas.RECORDS, isolation_level="read_uncommitted"))
    assert {row["segment"] for row in records} == {None}


def test_offsets_and_times_bound_a_read(hanging):
    def offsets(**options):
        rows = in_ms(read_cluster(hanging, schemas.RECORDS, isolation_level="read_uncommitted", **options))
        return [row["offset"] for row in rows]

    everything = offsets()
    assert len(everything) > 2
    place = '{"hanging-transaction": {"0": %d}}'
    assert offsets(startingOffsets=place % everything[1]) == everything[1:]
    assert offsets(endingOffsets=place % everything[1]) == everything[:1]
    assert offsets(producerIds="123456") == []
    assert offsets(startingTimestamp=str(2**45)) == []
    assert offsets(startingTimestamp="0", endingTimestamp=str(2**45)) == everything


def test_only_the_path_of_the_properties_is_in_a_task(hanging, tmp_path, monkeypatch):
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=PLAINTEXT\nssl.key.password=hidden-secret\n")
    monkeypatch.chdir(tmp_path)
    for view in (schemas.RECORDS, schemas.BATCHES, schemas.TRANSACTIONS, schemas.FINDINGS):
        reader = reader_of(f"kafka://{hanging.bootstrap}", view, **{"command.config": config.name})
        pickled = pickle.dumps((reader, reader.partitions()))
        assert b"hidden-secret" not in pickled
        assert str(config).encode() in pickled


@pytest.mark.parametrize(
    ("address", "options", "error"),
    [
        ("kafka://127.0.0.1:1", {}, "127.0.0.1:1: nothing listens there"),
        ("kafka://127.0.0.1", {}, "127.0.0.1 is not HOST:PORT"),
        ("kafka://user:secret@127.0.0.1:9092", {}, "an address has no user, secret or option; option command.config"),
        ("kafka://127.0.0.1:1", {"command.config": "/no/such/file"}, "/no/such/file"),
        ("/tmp", {"command.config": "/no/such/file"}, "option command.config is for clusters"),
    ],
)
def test_an_address_that_cannot_be_read_is_refused(address, options, error):
    with pytest.raises((OptionError, UnreadableDirectory), match=error) as refused:
        reader_of(address, schemas.RECORDS, **options).partitions()
    assert "secret@" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_one_address_is_loaded_alone():
    from ottla.spark_jobs.options import read_options

    with pytest.raises(OptionError, match="load one kafka:// address alone"):
        read_options({"paths": '["kafka://127.0.0.1:1", "/tmp"]'})


@pytest.mark.spark
def test_spark_reads_a_cluster(spark, hanging):
    reader = spark.read.format("ottla").option("minPartitions", "3").option("isolation.level", "read_uncommitted")
    frame = reader.load(f"kafka://{hanging.bootstrap}")
    read = read_cluster(hanging, schemas.RECORDS, isolation_level="read_uncommitted")
    expected = [row["offset"] for row in in_ms(read)]
    assert expected
    assert sorted(row.offset for row in frame.select("offset").collect()) == expected


@pytest.mark.spark
def test_tasks_of_spark_audit_a_cluster_as_threads_do(spark, hanging):
    address = f"kafka://{hanging.bootstrap}"
    request = Request((address,), (), BEGIN_MS + SOON_MS, address=parse_kafka_address(address))
    found = audit(SparkRunner(spark), request).findings
    assert found
    assert found == audit(ThreadRunner(1), request).findings


def test_readers_of_files_do_not_load_the_connection():
    program = (
        "import sys; import ottla.spark_jobs.views.registry, ottla.spark_jobs.views.planning, ottla.scan.records; "
        "print([name for name in sys.modules if name.startswith('ottla.wire.')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
