"""From Ottla to Apache Kafka 4.3.1 and back over the wire: each directory is a pull from the broker before it."""

import subprocess
import sys

import pytest
from targets import Ottla
from test_graduation import OVERRIDES, TOPICS, GraduatedKafka, graduate, observe, ottla, play

__all__ = ["ottla"]


def pull(bootstrap, directory):
    command = [sys.executable, "-m", "ottla.cli.main", "pull", f"kafka://{bootstrap}", str(directory)]
    done = subprocess.run(
        [*command, "--topics", ",".join(TOPICS), "--groups", "--transactions"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.maven
@pytest.mark.slow
def test_everything_is_restored_from_a_copy(ottla, tmp_path):
    before = observe(ottla.bootstrap)
    assert ("left-open", ottla.open[0], "TransactionState.ONGOING") in before["transactions"]
    copy = tmp_path / "copy"
    pull(ottla.bootstrap, copy)
    kafka = GraduatedKafka(tmp_path / "kafka", copy)
    done = graduate(copy, kafka.properties)
    assert done.returncode == 0, done.stderr
    kafka.start()
    try:
        assert observe(kafka.bootstrap) == before
        back = Ottla(tmp_path / "back", OVERRIDES)
        pull(kafka.bootstrap, back.data_dir)
        play(kafka.bootstrap, "order-processor-01", 8, 60)
        pull(kafka.bootstrap, back.data_dir)
        at_kafka = observe(kafka.bootstrap)
    finally:
        kafka.stop()
    assert len(at_kafka["uncommitted"][0]) == len(before["uncommitted"][0]) + 8 * len(TOPICS)
    back.start()
    try:
        assert observe(back.bootstrap) == at_kafka
    finally:
        back.stop()
