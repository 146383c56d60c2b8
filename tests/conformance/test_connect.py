"""Kafka Connect with its default factors of 3 runs unchanged on three brokers of one process.

A worker in distributed mode copies the lines of a file into a topic, in transactions (`exactly.once.source.support`),
and the records of the topic into another file.
"""

import contextlib

import pytest
from clients import eventually
from connect_worker import Worker, read_lines
from kafka import KafkaAdminClient

from tests.timeout import EVENT_TIMEOUT_S

pytestmark = [pytest.mark.conformance, pytest.mark.maven, pytest.mark.ottla(brokers=3)]


@pytest.fixture
def worker(ottla_broker, tmp_path):
    started = Worker(ottla_broker.bootstrap, tmp_path)
    yield started
    started.kill()


def list_factors(broker):
    """Return the replication factor of each topic."""
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        return {topic["name"]: len(topic["partitions"][0]["replica_nodes"]) for topic in admin.describe_topics()}


def test_connect_copies_each_line_once_while_leaders_move_and_brokers_stop(worker, ottla_broker, tmp_path):
    source, copy, written = tmp_path / "source.txt", tmp_path / "copy.txt", []

    def write(what):
        lines = [f"{what} {number}" for number in range(50)]
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
        written.extend(lines)

    def wait_for_copy(what):
        eventually(lambda: set(read_lines(copy)) >= set(written), f"{what}: all lines are copied", EVENT_TIMEOUT_S)

    write("first")
    factors = {"topic.creation.default.replication.factor": "3", "topic.creation.default.partitions": "1"}
    worker.run_connector("source", "Source", file=str(source), topic="lines", **factors)
    eventually(lambda: "lines" in list_factors(ottla_broker), "the connector creates its topic", EVENT_TIMEOUT_S)
    worker.run_connector("sink", "Sink", file=str(copy), topics="lines")
    wait_for_copy("first")
    assert set(list_factors(ottla_broker).values()) == {3}

    # A worker that has lost its membership starts its tasks again, which then ask for leaders and coordinators.
    ottla_broker.move_leader("lines", 0, to=2, optional=True)
    ottla_broker.move_coordinator("connect-source-0", to=2, optional=True)
    write("moved")
    wait_for_copy("moved")
    for broker in (1, 2, 3):
        ottla_broker.stop_broker(broker)
        write(f"without broker {broker}")
        wait_for_copy(f"without broker {broker}")
        ottla_broker.start_broker(broker)
    assert worker.runs("source") and worker.runs("sink")
    ottla_broker.assert_committed("lines", written)
