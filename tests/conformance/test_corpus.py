"""The cases of the corpus under Apache Kafka 4.3.1: it and its consumer say of each what case.json says."""

import pytest
from clients import start_client
from targets import Broker, answers_api_versions, free_port, kafka_command
from test_written_files import SUFFIXES, dump

from ottla.testkit.corpus.case import files_of
from ottla.testkit.corpus.catalogue import CASES
from tests.corpus import KEEPING, consume, expected_of, expected_records, is_internal, told_by, write_files
from tests.thread_broker import ThreadBroker

ISOLATIONS = ("read_committed", "read_uncommitted")


class KafkaOnCase(Broker):
    """Apache Kafka with the properties next to the directory, except their ports."""

    name = "Apache Kafka 4.3.1"
    start_timeout_s = 300.0

    def __init__(self, directory):
        super().__init__(directory)
        port = free_port(span=2)
        self.bootstrap = f"127.0.0.1:{port}"
        properties = directory / "server.properties"
        text = properties.read_text().replace("9092", str(port)).replace("9093", str(port + 1))
        properties.write_text(text.replace("localhost", "127.0.0.1").replace("=data\n", f"={directory / 'data'}\n"))

    def command(self):
        return kafka_command(self.directory)

    def is_ready(self):
        return answers_api_versions(self.bootstrap)


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    """Return the directory where the client is compiled once."""
    return tmp_path_factory.mktemp("clients")


@pytest.mark.conformance
@pytest.mark.maven
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kafka_and_its_consumer_read_a_case_as_specified(case, tmp_path, clients):
    files = files_of(case)
    expected = expected_of(files)
    kafka = KafkaOnCase(write_files(files, tmp_path / "case")).start()
    try:
        said, written = told_by(kafka.bootstrap, expected)
        assert said == written
        for isolation in ISOLATIONS:
            assert consume(kafka.bootstrap, expected, isolation) == expected_records(expected, isolation)
        assert read_by("java", kafka.bootstrap, expected, clients) == {
            isolation: expected_records(expected, isolation) for isolation in ISOLATIONS
        }
    finally:
        kafka.stop()


@pytest.mark.conformance
@pytest.mark.parametrize("name", ["aiokafka", "confluent-kafka"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_other_clients_read_it_from_ottla(case, name, tmp_path):
    files = files_of(case)
    expected = expected_of(files)
    with ThreadBroker(write_files(files, tmp_path) / "data", **KEEPING) as served:
        assert read_by(name, served.bootstrap, expected, tmp_path) == {
            isolation: expected_records(expected, isolation) for isolation in ISOLATIONS
        }


def read_by(name, bootstrap, expected, directory):
    """Read with a client. Return the records in the shape of `expected_records`."""
    topics = sorted({partition["topic"] for partition in expected["partitions"] if not is_internal(partition)})
    client = start_client(name, bootstrap, directory)
    found = {}
    for isolation in ISOLATIONS:
        rows = found[isolation] = {place: [] for place in expected_records(expected, isolation)}
        for r in client.read(topics, isolation):
            rows[r.topic, r.partition].append((r.offset, *r.timestamp, r.key, r.value, [tuple(h) for h in r.headers]))
    client.close()
    return found


@pytest.mark.conformance
@pytest.mark.maven
def test_kafkas_tool_finds_fault_with_the_torn_end_only(tmp_path):
    for case in CASES:
        write_files(files_of(case), tmp_path / case.name)
    files = {path for path in tmp_path.rglob("*") if path.suffix in SUFFIXES}
    torn = {path for path in files if path.parent.name == "torn-end-0"}
    compacted = [case.name for case in CASES if case.name.startswith("compacted-")]
    dump(tmp_path, files - torn, "--deep-iteration", compacted=compacted)
    with pytest.raises(AssertionError, match="invalid bytes at the end of"):
        dump(tmp_path, torn, "--deep-iteration")
