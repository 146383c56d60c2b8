"""Spark's own Kafka source and sink, in batches and in a stream through kills: a row of docs/compatibility.md.

The sink promises each record at least once. `failOnDataLoss` is true, its default: a query fails if it takes markers
or aborted records for lost ones.
"""

import json
import os
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
from cache_folder import CACHE
from clients import QUICK_JVM, eventually
from scenario import StepContext

from benchmarks.parts.kafka_source.connector import connector
from tests.timeout import EVENT_TIMEOUT_S

PROGRAM = Path(__file__).parent / "drivers" / "spark_kafka.py"
SPARK = "4.2.0"
NAME = f"Spark {SPARK}, Kafka source (read_committed) and sink (at least once), in batches and a stream through kills"
COMMITTED, EVERYTHING = "read_committed", "read_uncommitted"
PARTITIONS, TRANSACTIONS, ROWS, KILLS = 3, 40, 200, 2
LONG_MS = 3_000 * EVENT_TIMEOUT_S

pytestmark = [pytest.mark.conformance, pytest.mark.maven]


def fetch_source():
    """Return the jars of the source and a Python with the Spark of its version, both fetched on first use."""
    try:
        return connector(CACHE, SPARK, same_spark=False)
    except (SystemExit, ImportError) as lacking:
        pytest.skip(str(lacking).splitlines()[0])


@pytest.fixture(params=["ottla", "apache"])
def context(ensemble, cell, request):
    cell(request.param, NAME)
    return StepContext(ensemble.client(request.param, "confluent-kafka"), request.function.__name__.replace("_", "-"))


@pytest.fixture
def run_spark(context, tmp_path):
    """Return a context manager that runs the program, and kills it if it still runs at the end.

    It needs a `context`, which names the cell even if the source is missing here.
    """
    source = fetch_source()
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    env |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SUBMIT_OPTS": " ".join(QUICK_JVM), "TMPDIR": str(tmp_path)}

    @contextmanager
    def run(operation, *arguments):
        command = [source.python, str(PROGRAM), ",".join(source.jars), str(tmp_path), operation, json.dumps(arguments)]
        pipes = {"stdout": subprocess.PIPE, "text": True}
        with (tmp_path / "spark.log").open("ab") as log:
            process = subprocess.Popen(command, stderr=log, cwd=tmp_path, env=env, start_new_session=True, **pipes)
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # with its JVM
            process.communicate()

    return run


def run_to_end(run_spark, operation, *arguments):
    """Return the lines that the program prints, which must succeed."""
    with run_spark(operation, *arguments) as process:
        printed, _ = process.communicate(timeout=EVENT_TIMEOUT_S)
        assert process.returncode == 0, f"{operation} failed: see spark.log"
    return [json.loads(line) for line in printed.splitlines()]


def write_transactions(producer, topic, first):
    """Write transactions to all partitions, of which every third and the last abort. Return the committed values."""
    committed = []
    for number in range(first, first + TRANSACTIONS):
        values = [f"{number} {part}" for part in range(2 * PARTITIONS)]
        is_aborted = number % 3 == 0 or number == first + TRANSACTIONS - 1
        producer.begin()
        producer.send_records([(topic, part % PARTITIONS, None, value, ()) for part, value in enumerate(values)])
        if is_aborted:
            producer.abort()
        else:
            producer.commit()
            committed += values
    return committed


def rows_of(records):
    """Return records as Spark's program prints them."""
    return [
        [
            *(each.partition, each.offset, each.timestamp[1]),
            *(None if data is None else data.hex().upper() for data in (each.key, each.value)),
            [[name, data.hex().upper()] for name, data in each.headers] or None,
        ]
        for each in sorted(records, key=lambda each: each[1:3])
    ]


def test_batches_have_the_records_that_other_clients_see(context, run_spark):
    client, server = context.client, {"kafka.bootstrap.servers": context.client.bootstrap}
    table, ledger = context.topics("table", "ledger", partitions=PARTITIONS)
    assert run_to_end(run_spark, "write", ROWS, server | {"topic": table}) == []
    written = client.read([table])
    assert sorted(each.value.decode() for each in written) == sorted(f"row {number}" for number in range(ROWS))
    assert all(each.headers == [("number", each.key)] and int(each.key) % 3 == each.partition for each in written)
    with context.producer("writer") as producer:
        committed = write_transactions(producer, ledger, 0)
    ends = {
        "startingOffsets": json.dumps({table: {"0": 10, "1": -2, "2": 3}}),
        "endingOffsets": json.dumps({table: {"0": 20, "1": 5, "2": -1}}),
    }
    wanted = {0: range(10, 20), 1: range(5), 2: range(3, ROWS)}
    options = server | {"startingOffsets": "earliest", "endingOffsets": "latest", "includeHeaders": "true"}
    queries = [
        options | {"subscribe": table},
        options | {"subscribe": table} | ends,
        options | {"subscribe": ledger, "kafka.isolation.level": COMMITTED},
        options | {"subscribe": ledger, "kafka.isolation.level": EVERYTHING},
    ]
    seen = client.read([ledger])
    assert sorted(each.value.decode() for each in seen) == sorted(committed)
    assert run_to_end(run_spark, "read", *queries) == [
        rows_of(written),
        rows_of(each for each in written if each.offset in wanted[each.partition]),
        rows_of(seen),
        rows_of(client.read([ledger], EVERYTHING)),
    ]


def test_a_stream_through_kills_copies_what_is_committed(context, run_spark, tmp_path):
    client, server = context.client, {"kafka.bootstrap.servers": context.client.bootstrap}
    source, sink = context.topics("source", "sink", partitions=PARTITIONS)
    query = [
        server | {"subscribe": source, "startingOffsets": "earliest", "kafka.isolation.level": COMMITTED,
                  "maxOffsetsPerTrigger": "60"},
        server | {"topic": sink, "checkpointLocation": str(tmp_path / "checkpoint")},
    ]  # fmt: skip
    committed = set()

    def copies():
        return set(client.values([sink]))

    with context.producer("writer") as writer, context.producer("late", transaction_timeout_ms=LONG_MS) as late:
        for part in range(KILLS):
            new = set(write_transactions(writer, source, part * TRANSACTIONS))
            committed |= new
            with run_spark("copy", *query):
                eventually(lambda new=new: copies() & new, f"the stream copies part {part}", EVENT_TIMEOUT_S)
        late.begin()
        late.send_records([(source, partition, None, "late", ()) for partition in range(PARTITIONS)])
        held_back = {"late", *write_transactions(writer, source, KILLS * TRANSACTIONS)}
        with run_spark("copy", *query):
            eventually(lambda: copies() >= committed, "the stream reaches the open transaction", EVENT_TIMEOUT_S)
            assert copies() == committed
            late.commit()
            committed |= held_back
            eventually(lambda: copies() >= committed, "the stream reaches the end", EVENT_TIMEOUT_S)
    assert copies() == committed
