"""From Ottla to Apache Kafka 4.3.1 and back over the wire: each directory is a pull from the broker before it."""

import hashlib
import subprocess
import sys

import pytest
from kafka import KafkaConsumer
from targets import ApacheKafka, Ottla, free_port
from test_graduation import OVERRIDES, TOPICS, GraduatedKafka, fill, graduate, observe, ottla, play

__all__ = ["ottla"]


class FrozenOttla(Ottla):
    """`ottla serve --as-pulled` on a copy, with a clock that `advance` moves."""

    def __init__(self, directory, copy):
        super().__init__(directory)
        self.data_dir = copy
        self.admin = f"127.0.0.1:{free_port()}"

    def command(self):
        return [*super().command(), "--as-pulled", "--test-control", "--admin-listen", self.admin]

    def is_ready(self):
        is_ready = super().is_ready()
        if is_ready:  # the file has a line for the admin port, too
            self.bootstrap = self.ready_file.read_text().splitlines()[0].rpartition("//")[2]
        return is_ready

    def advance(self, duration):
        command = [sys.executable, "-m", "ottla.cli.main", "ctl", "clock", "advance", duration]
        subprocess.run([*command, "--admin", f"http://{self.admin}"], check=True, capture_output=True, timeout=600)


def files_of(root):
    """Return the SHA-256 of each file of the partitions, without those of the metadata."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.glob("*-*/*")
        if path.parent.name != "__cluster_metadata-0"
    }


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


@pytest.mark.maven
@pytest.mark.slow
def test_a_copy_of_kafka_is_served_unchanged_and_restored(tmp_path):
    source, copy = ApacheKafka(tmp_path / "source", OVERRIDES).start(), tmp_path / "copy"
    try:
        opened = fill(source.bootstrap)
        member = KafkaConsumer(*TOPICS, bootstrap_servers=source.bootstrap, group_id="members")
        while not member.assignment():
            member.poll(timeout_ms=100)
        before = observe(source.bootstrap)
        pull(source.bootstrap, copy)
        member.close(autocommit=False)
    finally:
        source.stop()
    assert ("left-open", opened[0], "TransactionState.ONGOING") in before["transactions"]
    files = files_of(copy)
    served = FrozenOttla(tmp_path / "served", copy).start()
    try:
        assert observe(served.bootstrap) == before
        served.advance("1h")
        assert observe(served.bootstrap) == before
        assert files_of(copy) == files
    finally:
        served.stop()
    kafka = GraduatedKafka(tmp_path / "kafka", copy)
    done = graduate(copy, kafka.properties)
    assert done.returncode == 0, done.stderr
    kafka.start()
    try:
        assert observe(kafka.bootstrap) == before
    finally:
        kafka.stop()
