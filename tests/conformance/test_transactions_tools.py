"""Tools that list, explain and end transactions: kafka-python's, Kafka's own and ours, on Ottla and on Apache Kafka.

Kafka's `TransactionsCommand` prints the same about both, character by character but for times.
"""

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner
from differential.two_phase_tables import OPTIONS
from open_transactions import UNVERIFIED, Client
from targets import TARGETS, run_tool, tool_command
from transaction_states import run_remedy

from ottla.cli.main import main
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec

CALM_MS = 600_000
ROUNDS = 30
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
BROKERS = ["ottla", pytest.param("apache", marks=pytest.mark.conformance)]


class Tools:
    """A broker, a raw client, and the tools of three projects."""

    def __init__(self, target, directory):
        self.broker = TARGETS[target](directory, UNVERIFIED | OPTIONS["two-phase-commit"]).start()
        self.client = Client(self.broker.bootstrap)
        self._names = (f"tools-{number}" for number in itertools.count())

    def close(self):
        self.client.close()
        self.broker.stop()

    def topic(self, partitions=1):
        return self.client.create_topic(next(self._names), partitions)

    def ottla(self, *arguments, code):
        """Run `ottla txn`, check its exit code (None: 0 or 1) and return its JSON."""
        words = ["txn", *map(str, arguments), "-b", self.broker.bootstrap, "--format", "json"]
        result = CliRunner().invoke(main, words)
        assert (result.exit_code, result.stderr) == (result.exit_code % 2 if code is None else code, ""), result.output
        return json.loads(result.stdout)

    def kafka_python(self, *arguments, code=0):
        """Run `kafka-python admin transactions`. Return its JSON, or its output if it must fail."""
        command = [sys.executable, "-m", "kafka.admin", "-b", self.broker.bootstrap, "--format", "json"]
        done = run([*command, "transactions", *map(str, arguments)])
        assert done.returncode == code, done.stderr
        return done.stdout if code else json.loads(done.stdout)

    def java(self, *arguments, code=0):
        """The lines that Kafka's command prints, times taken out; stderr where it must fail."""
        done = run_tool(TRANSACTIONS, "--bootstrap-server", self.broker.bootstrap, *arguments)
        assert done.returncode == code, done.stderr
        if code:
            return done.stderr.strip()
        lines = [[cell.strip() for cell in line.split("\t")[:-1]] for line in done.stdout.splitlines()]
        return [[re.sub(r"^\d{13}$", "TIME", cell) for cell in cells] for cells in (*lines[:1], *sorted(lines[1:]))]

    def execute(self, command):
        """A command that our tools advise, with the Kafka that is here."""
        program, *words = shlex.split(command)
        if program == "ottla":
            run_remedy(command)
            return
        assert program == "kafka-transactions.sh"
        done = run([*tool_command(TRANSACTIONS), *words])
        assert done.returncode == 0, done.stderr


def run(command):
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | {"HEAP": "256m"})


@pytest.fixture(scope="module")
def all_tools(tmp_path_factory):
    started = {}

    def get(target):
        if target not in started:
            started[target] = Tools(target, tmp_path_factory.mktemp(target))
        return started[target]

    yield get
    for tools in started.values():
        tools.close()


@pytest.fixture
def tools(request, all_tools):
    return all_tools(request.param)


@pytest.mark.parametrize("tools", BROKERS, indirect=True)
def test_kafka_python_lists_by_state_producer_age_and_pattern(tools):
    topic = tools.topic()
    open_id, _ = tools.client.begin("listed-open", [(topic, 0)], CALM_MS)
    ended = tools.client.begin("listed-ended", [(topic, 0)], CALM_MS)
    tools.client.end("listed-ended", *ended, commit=True)

    def list_states(*filters):
        (rows,) = tools.kafka_python("list", *filters).values()
        return {row["transactional_id"]: row["state"] for row in rows if row["transactional_id"].startswith("listed")}

    tools.client.until(lambda: list_states() == {"listed-open": "Ongoing", "listed-ended": "CompleteCommit"})
    assert list_states("--state", "CompleteCommit") == {"listed-ended": "CompleteCommit"}
    assert list_states("--state", "Ongoing", "--state", "PrepareAbort") == {"listed-open": "Ongoing"}
    assert list_states("--producer-id", open_id) == {"listed-open": "Ongoing"}
    assert list_states("--id-pattern", "listed-e.*") == {"listed-ended": "CompleteCommit"}
    assert list_states("--id-pattern", "listed") == {}
    assert len(list_states("--duration-filter-ms", 0)) == 2
    assert list_states("--duration-filter-ms", CALM_MS) == {}
    assert "error_code=128" in tools.kafka_python("list", "--id-pattern", "(", code=1)  # which it has no name for


@pytest.mark.parametrize("tools", BROKERS, indirect=True)
def test_kafka_python_describes_a_transaction_and_its_producer(tools):
    topic = tools.topic(2)
    producer_id, epoch = tools.client.begin("described", [(topic, 0), (topic, 1)], CALM_MS)
    described = tools.kafka_python("describe", "--transactional-id", "described")["described"]
    assert described.pop("transaction_start_time_ms") > 0
    assert described == {
        "coordinator_id": 1,
        "state": "Ongoing",
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "transaction_timeout_ms": CALM_MS,
        "topic_partitions": [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}],
    }
    partitions = tools.kafka_python("describe-producers", "-t", topic, "-p", 0, "-p", 1)
    assert set(partitions) == {f"{topic}:0", f"{topic}:1"}
    (producer,) = partitions[f"{topic}:1"]["active_producers"]
    assert producer.pop("last_timestamp") > 0
    assert producer == {
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "last_sequence": 0,
        "coordinator_epoch": -1,
        "current_transaction_start_offset": 0,
    }
    assert "TransactionalIdNotFound" in tools.kafka_python("describe", "--transactional-id", "nobody", code=1)


@pytest.mark.parametrize("tools", BROKERS, indirect=True)
def test_kafka_python_finds_what_is_older_than_the_limit(tools):
    topic = tools.topic()
    producer_id, epoch = tools.client.begin("hanging", [(topic, 0)], CALM_MS)

    def found(limit_ms):
        rows = tools.kafka_python("find-hanging", "--max-transaction-timeout-ms", limit_ms)
        return [row for row in rows if row["transactional_id"] == "hanging"]

    assert found(CALM_MS) == []
    (row,) = found(-300_000)  # the tool adds five minutes
    assert row.pop("age_ms") >= 0
    assert row == {
        "transactional_id": "hanging",
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "state": "Ongoing",
        "coordinator_id": 1,
        "topic_partitions": [{"topic": topic, "partition": 0}],
    }


@pytest.mark.parametrize("tools", BROKERS, indirect=True)
def test_kafka_python_aborts_with_the_right_epochs_only(tools):
    topic = tools.topic()
    producer_id = tools.client.orphan(topic, 0)
    abort = ("abort", "-t", topic, "-p", 0, "--producer-id", producer_id)
    tools.client.produce(topic, 0, "unknown-to-all", producer_id, 3)
    assert "InvalidProducerEpoch" in tools.kafka_python(*abort, "--producer-epoch", 2, "--coordinator-epoch", 5, code=1)
    assert tools.client.last_stable_offset(topic, 0) == 0
    tools.kafka_python(*abort, "--producer-epoch", 3, "--coordinator-epoch", 5)
    assert tools.client.last_stable_offset(topic, 0) == 3
    tools.client.produce(topic, 0, "unknown-to-all", producer_id, 4)
    fenced = tools.kafka_python(*abort, "--producer-epoch", 4, "--coordinator-epoch", 4, code=1)
    assert "TransactionCoordinatorFenced" in fenced
    # -1 is no way around the check, whatever the tool's help says.
    assert "TransactionCoordinatorFenced" in tools.kafka_python(*abort, "--producer-epoch", 4, code=1)
    tools.kafka_python(*abort, "--producer-epoch", 4, "--coordinator-epoch", 5)
    assert tools.client.last_stable_offset(topic, 0) == 5


@pytest.mark.parametrize("tools", BROKERS, indirect=True)
def test_a_partition_without_producers_to_describe_is_refused_in_kafkas_words(tools):
    request = codec.request_class(ApiKey.DESCRIBE_PRODUCERS)
    named = [(tools.topic(), 7), ("nothing", 0), ("", 0), ("a/b", 0), ("..", 0), ("x" * 250, 0)]
    asked = [request.TopicRequest(name=name, partition_indexes=[index]) for name, index in named]
    rows = [topic.partitions[0] for topic in tools.client.connection.send(request(topics=asked)).topics]
    invalid = "Topic name is invalid: "
    assert [(row.error_code, row.error_message) for row in rows] == [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, f"{invalid}the empty string is not allowed"),
        (
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{invalid}'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
        ),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, f"{invalid}'..' is not allowed"),
        (
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{invalid}the length of '{'x' * 250}' is longer than the max allowed length 249",
        ),
    ]


@pytest.mark.parametrize("tools", BROKERS, indirect=True)
def test_why_explains_an_open_transaction_and_how_to_end_it(tools):
    topic = tools.topic(2)
    assert tools.ottla("why", topic, 0, code=0)["partition"][0]["held_back"] == 0
    tools.client.produce(topic, 0)
    producer_id, epoch = tools.client.begin("it's first", [(topic, 0)], CALM_MS)
    tools.client.begin("second", [(topic, 1), (topic, 0)], CALM_MS)
    tools.client.orphan(topic, 0)
    tools.client.produce(topic, 0, count=3)
    document = tools.ottla("why", topic, 0, code=1)
    (partition,) = document["partition"]
    assert (partition["last_stable_offset"], partition["high_watermark"], partition["held_back"]) == (1, 7, 6)
    first, second, third = document["open transactions"]
    assert 0 <= first.pop("age_ms") < CALM_MS and 0 < first.pop("time_left_ms") <= CALM_MS
    assert first == {
        "start_offset": 1,
        "frees": 1,
        "producer_id": producer_id,
        "epoch": epoch,
        "transactional_id": "it's first",
        "coordinator": 1,
        "state": "Ongoing",
        "standing": "in time",
        "reason": "its producer has time left to end it",
    }
    assert (second["transactional_id"], second["frees"]) == ("second", 1)
    assert (third["standing"], third["transactional_id"], third["frees"]) == ("forgotten", None, 4)
    assert tools.ottla("why", topic, 1, code=1)["open transactions"][0]["transactional_id"] == "second"

    fence = [row["command"] for row in document["remedies"] if (row["command"] or "").startswith("ottla txn fence")]
    tools.execute(fence[0])
    tools.client.until(lambda: tools.client.last_stable_offset(topic, 0) == 2)
    rows = tools.ottla("why", topic, 0, code=1)["open transactions"]
    assert [row["transactional_id"] for row in rows] == ["second", None]


def reopen(tools, topic):
    """A transaction that was committed, and a late batch of its producer behind the marker."""
    producer_id, epoch = tools.client.begin("late", [(topic, 0)], CALM_MS)
    tools.client.end("late", producer_id, epoch, commit=True)
    tools.client.until(lambda: tools.client.last_stable_offset(topic, 0) == 2)
    tools.client.produce(topic, 0, "late", producer_id, epoch, sequence=1)
    return producer_id


def of_topic(document, table, topic):
    return [row for row in document[table] if row["topic"] == topic]


@pytest.mark.parametrize("tools", BROKERS, indirect=True)
def test_orphans_are_found_with_the_command_that_aborts_them(tools):
    topic = tools.topic(3)
    unknown, late = tools.client.orphan(topic, 2), reopen(tools, topic)
    tools.client.begin("alive", [(topic, 1)], CALM_MS)
    document = tools.ottla("orphans", code=1)
    assert [
        (row["partition"], row["producer_id"], row["start_offset"], row["transactional_id"], row["state"])
        for row in of_topic(document, "orphans", topic)
    ] == [(0, late, 2, "late", "CompleteCommit"), (2, unknown, 0, None, None)]
    for row in of_topic(document, "remedies", topic):
        if row["command"].startswith("ottla"):
            tools.execute(row["command"])
    tools.ottla("orphans", "--topic", topic, code=0)
    assert [tools.client.last_stable_offset(topic, each) for each in range(3)] == [4, 0, 2]
    assert tools.ottla("why", topic, 2, code=0)["partition"][0]["last_stable_offset"] == 2


@pytest.mark.parametrize("tools", BROKERS, indirect=True)
def test_running_transactions_are_not_reported_as_orphans(tools):
    """Transactions begin and end all the time between the questions; none of them is forgotten."""
    topic = tools.topic(2)
    stop, ended = threading.Event(), []

    def work(number):
        client = Client(tools.broker.bootstrap)
        name, places = f"busy-{number}", [(topic, 0), (topic, 1)]
        while not stop.is_set():
            client.end(name, *client.begin(name, places, CALM_MS), commit=number % 2 == 0)
            ended.append(number)
        client.close()

    with ThreadPoolExecutor(3) as pool:
        workers = [pool.submit(work, number) for number in range(3)]
        try:
            open_seen = 0
            for _ in range(ROUNDS):
                document = tools.ottla("orphans", "--topic", topic, code=0)
                open_seen += int(re.search(r"(\d+) open in 2 partitions", document["answer"])[1])
                for row in tools.ottla("why", topic, 1, code=None).get("open transactions", []):
                    assert row["standing"] in ("in time", "ending"), row
        finally:
            stop.set()
        for worker in workers:
            worker.result()
    assert open_seen > 0 and len(ended) > ROUNDS


@pytest.mark.maven
@pytest.mark.slow
@pytest.mark.parametrize("tools", BROKERS, indirect=True)
def test_kafkas_own_command_lists_and_describes(tools):
    topic = tools.topic(2)
    producer_id, epoch = tools.client.begin("java-1", [(topic, 0), (topic, 1)], CALM_MS)
    tools.client.end("java-2", *(other := tools.client.begin("java-2", [(topic, 1)], CALM_MS)), commit=False)
    tools.client.until(lambda: tools.client.last_stable_offset(topic, 1) is not None)
    assert tools.java("list", "--transactional-id-pattern", "java-.*") == [
        ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"],
        ["java-1", "1", str(producer_id), "Ongoing"],
        ["java-2", "1", str(other[0]), "CompleteAbort"],
    ]
    assert len(tools.java("list", "--transactional-id-pattern", "java-.*", "--duration-filter", CALM_MS)) == 1
    header, row = tools.java("describe", "--transactional-id", "java-1")
    assert header == [
        *("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState"),
        *("TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions"),
    ]
    assert int(row.pop(7)) >= 0
    assert set(row.pop().split(",")) == {f"{topic}-0", f"{topic}-1"}
    assert row == ["1", "java-1", str(producer_id), str(epoch), "Ongoing", str(CALM_MS), "TIME"]
    assert tools.java("describe", "--transactional-id", "nobody", code=1) == (
        "Failed to describe transaction state of transactional-id `nobody`: DescribeTransactions request for "
        "transactionalId `nobody` failed because the ID could not be found. Enable debug logging for additional detail."
    )
    assert tools.java("describe-producers", "--topic", topic, "--partition", 1) == [
        [
            *("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence"),
            *("LastTimestamp", "CurrentTransactionStartOffset"),
        ],
        [str(producer_id), "0", "-1", "0", "TIME", "0"],
        [str(other[0]), "0", "0", "0", "TIME", "None"],
    ]


@pytest.mark.maven
@pytest.mark.slow
@pytest.mark.parametrize("tools", BROKERS, indirect=True)
def test_kafkas_own_command_finds_and_aborts(tools):
    topic = tools.topic(2)
    unknown, other = tools.client.orphan(topic, 0), tools.client.orphan(topic, 1, number=1)
    tools.client.begin("java-alive", [(topic, 0)], CALM_MS)
    find = ("find-hanging", "--topic", topic, "--max-transaction-timeout", 0)
    header = ["Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp"]
    assert tools.java(*find) == [
        [*header, "Duration(min)"],
        [topic, "0", str(unknown), "0", "-1", "0", "TIME", "0"],
        [topic, "1", str(other), "0", "-1", "0", "TIME", "0"],
    ]
    for row in of_topic(tools.ottla("orphans", code=1), "remedies", topic):
        if row["partition"] == 0 and row["command"].startswith("kafka-transactions.sh"):
            tools.execute(row["command"])
    assert tools.client.last_stable_offset(topic, 0) == 1
    again = ("abort", "--topic", topic, "--partition", 0, "--start-offset", 0)
    assert (
        tools.java(*again, code=1)
        == f"Could not find any open transactions starting at offset 0 on partition {topic}-0"
    )
    of_older = ("--producer-id", other, "--producer-epoch", 0, "--coordinator-epoch", -1)
    assert tools.java("abort", "--topic", topic, "--partition", 1, *of_older) == []
    assert tools.client.last_stable_offset(topic, 1) == 2
    assert tools.java(*find) == [[*header, "Duration(min)"]]


@pytest.mark.maven
@pytest.mark.slow
@pytest.mark.parametrize("two_phase", [False, True])
@pytest.mark.parametrize("tools", BROKERS, indirect=True)
def test_kafkas_own_command_terminates_a_transaction(tools, two_phase):
    topic = tools.topic()
    tools.client.begin("java-stuck", [(topic, 0)], CALM_MS, two_phase=two_phase)
    told = tools.ottla("why", topic, 0, code=1)
    assert told["open transactions"][0]["standing"] == "in time"
    assert ("never times out" in told["remedies"][0]["advice"]) is two_phase
    commands = [row["command"] or "" for row in told["remedies"]]
    (command,) = [command for command in commands if "forceTerminateTransaction" in command]
    tools.execute(command)
    tools.client.until(lambda: tools.client.last_stable_offset(topic, 0) == 2)
    tools.ottla("why", topic, 0, code=0)
