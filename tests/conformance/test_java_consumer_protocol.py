"""Kafka's Java client with `group.protocol=consumer`: the steps of the scenario that use members, and a program.

The program (JavaConsumer.java) uses consumers in many ways. Both brokers must give it the recorded results.
"""

import os
import subprocess

import pytest
from clients import HERE, clients_jar, kafka_jars, start_client
from consumer_group_clients import QUICK, RECORDED, record_lines
from scenario import (
    StepContext,
    a_group_of_three_comes_and_goes,
    positions_of_a_live_member_commit_in_its_transaction,
)
from targets import TARGETS

pytestmark = [pytest.mark.conformance, pytest.mark.maven]


@pytest.fixture(scope="module", params=["ottla", "apache"])
def broker(request, tmp_path_factory):
    broker = TARGETS[request.param](tmp_path_factory.mktemp(request.param), QUICK).start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def java_client(broker):
    client = start_client("java", broker.bootstrap, broker.directory, {"group.protocol": "consumer"})
    yield client
    client.close()


@pytest.mark.parametrize(
    "step", [a_group_of_three_comes_and_goes, positions_of_a_live_member_commit_in_its_transaction]
)
def test_java_consumer_of_the_consumer_protocol(broker, java_client, step):
    context = StepContext(java_client, step.__name__.replace("_", "-"))
    step(context)
    # Only groups of this protocol have records of members' assignments.
    assert any(context.prefix.encode().hex() in line for line in record_lines(broker.data_dir / "__consumer_offsets-0"))


@pytest.mark.parametrize("version", ["4.3.1", "4.4.0"])
@pytest.mark.parametrize("target", ["ottla", "apache"])
def test_java_consumer_gets_the_recorded_results(target, version, tmp_path):
    newest, jars = clients_jar(version), f"{kafka_jars()}/*"
    source = str(HERE / "drivers" / "JavaConsumer.java")
    subprocess.run(["javac", "-cp", jars, "-d", str(tmp_path), source], check=True, timeout=120)
    broker = TARGETS[target](tmp_path / target, QUICK).start()
    try:
        classpath = os.pathsep.join([str(tmp_path), newest, jars])
        options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
        command = ["java", *options, "-cp", classpath, "JavaConsumer", broker.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    finally:
        broker.stop()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == RECORDED.with_name("java-consumer.txt").read_text().splitlines()
