"""kill -9 of the members of a group of the consumer protocol, and of the broker, while they copy records exactly once.

Three members of one group copy what is committed in transactions, each record to the same partition of another topic.
Members are also stopped until others have their partitions, then go on with what they had read. At the end each
partition of the copies has the committed records of its source, in order, once. OTTLA_KILLS, OTTLA_SEED and
OTTLA_KILL_APACHE as in test_kill.py. The members run over confluent-kafka or Apache Kafka's Java client.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from clients import eventually, kafka_jars, start_client
from targets import TARGETS
from test_kill import KILLS, OVERRIDES, SEED, TARGET, finish
from workload import EVENT_TIMEOUT_S, LEDGER, ConfluentWorker

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
if confluent_kafka.libversion()[1] < 0x020C0000:
    pytest.skip("librdkafka before 2.12 does not have the consumer protocol of Kafka 4", allow_module_level=True)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900 + 20 * KILLS)]
HERE = Path(__file__).parent
GROUP = "copiers"
MEMBERS = ["copier-1", "copier-2", "copier-3"]
PARTITIONS = {"financial-ledger": 3, "audit-log": 2}
PAUSE_SHARE, BROKER_SHARE = 0.2, 0.1
# A member that is killed keeps its partitions until its session ends.
QUICK = {
    "group.consumer.session.timeout.ms": "1500",
    "group.consumer.min.session.timeout.ms": "1500",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "100",
}


class Copier:
    """A process that copies, and is started again whenever it ends."""

    def __init__(self, command, log_file, copied):
        self.command, self.log_file, self.copied = command, log_file, copied
        self.ends = -1  # ends that no signal of this test asked for
        self.process = None
        self.start_again()

    def start_again(self):
        if self.process is None or self.process.poll() is not None:
            self.ends += 1
            self.start()

    def start(self):
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=log, text=True)
        threading.Thread(target=self._count, args=[self.process.stdout], daemon=True).start()

    def _count(self, lines):
        for line in lines:
            self.copied.update(line.split())

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.start()

    def stop(self):
        self.process.terminate()
        self.process.wait(EVENT_TIMEOUT_S)


class Job:
    """The copiers. `copied` counts the transactions of each partition."""

    def __init__(self, broker, command, directory):
        self.broker, self.copied, self.log_file = broker, Counter(), directory / "members.log"
        arguments = [[*command, broker.bootstrap, GROUP, name, *PARTITIONS] for name in MEMBERS]
        self.members = [Copier(argument, self.log_file, self.copied) for argument in arguments]

    def await_copies_of_each_partition(self, what, *paused):
        """Wait until records of each partition were copied. Start members again, but for those that are paused."""
        before, deadline = self.copied.copy(), time.monotonic() + EVENT_TIMEOUT_S
        names = [f"{topic}-{number}" for topic, number in LEDGER]
        while idle := [name for name in names if self.copied[name] == before[name]]:
            assert time.monotonic() < deadline, f"{what} nobody copies {idle}: {self.log_file.read_text()[-3000:]}"
            for member in self.members:
                if member not in paused:
                    member.start_again()
            time.sleep(0.02)

    def hit(self, dice, what):
        """Kill a member or the broker, or pause a member. Return the number of killed processes."""
        member, fate = dice.choice(self.members), dice.random()
        if fate < BROKER_SHARE:
            self.broker.kill()
            self.broker.start()
        elif fate < BROKER_SHARE + PAUSE_SHARE:
            member.process.send_signal(signal.SIGSTOP)
            self.await_copies_of_each_partition(f"{what}, while one is paused,", member)
            member.process.send_signal(signal.SIGCONT)
            return 0
        else:
            member.kill()
        return 1


def command_of(client, directory):
    if client == "confluent-kafka":
        return [sys.executable, str(HERE / "copying_member.py")]
    classpath = f"{kafka_jars()}/*"
    source = str(HERE / "CopyingMember.java")
    subprocess.run(["javac", "-cp", classpath, "-d", str(directory), source], check=True, timeout=EVENT_TIMEOUT_S)
    options = [
        "-Xmx128m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
    ]
    return ["java", *options, "-cp", f"{directory}{os.pathsep}{classpath}", "CopyingMember"]


def values_by_partition(client, topics):
    """Return the committed values of each partition, in order."""
    counts = {topic: PARTITIONS[topic.removeprefix("copy-of-")] for topic in topics}
    values = {f"{topic}-{number}": [] for topic, count in counts.items() for number in range(count)}
    for record in client.read(topics):
        values[f"{record.topic}-{record.partition}"].append(record.value.decode())
    return values


@pytest.mark.parametrize(
    "client", ["confluent-kafka", pytest.param("java", marks=[pytest.mark.maven, pytest.mark.conformance])]
)
def test_members_that_are_killed_copy_each_record_once(client, tmp_path, record_property):
    record_property("seed", SEED)
    sys.stderr.write(f"seed {SEED}, {KILLS} kills\n")
    dice = random.Random(SEED)
    command = command_of(client, tmp_path)
    broker = TARGETS[TARGET](tmp_path / TARGET, OVERRIDES | QUICK).start()
    job = None
    try:
        reader = start_client("kafka-python", broker.bootstrap, tmp_path)
        for topic, count in PARTITIONS.items():
            reader.create_topics([topic, f"copy-of-{topic}"], count)
        feeders = [ConfluentWorker(f"feeder-{number}", broker.bootstrap, SEED) for number in (1, 2)]
        for feeder in feeders:
            feeder.start()
        job = Job(broker, command, tmp_path)
        job.await_copies_of_each_partition("before the first kill")
        killed = rounds = 0
        while killed < KILLS:
            time.sleep(dice.uniform(0.0, 0.8))
            rounds += 1
            what = f"in round {rounds} (seed {SEED})"
            killed += job.hit(dice, what)
            job.await_copies_of_each_partition(what)
        finish(feeders)
        sources = values_by_partition(reader, list(PARTITIONS))
        copies = [f"copy-of-{topic}" for topic in PARTITIONS]
        expected = {f"copy-of-{partition}": values for partition, values in sources.items()}

        def is_copied():
            for member in job.members:
                member.start_again()
            found = values_by_partition(reader, copies)
            return all(len(found[partition]) >= len(values) for partition, values in expected.items())

        eventually(is_copied, "all is copied", EVENT_TIMEOUT_S)
        for member in job.members:
            member.stop()
        assert values_by_partition(reader, copies) == expected, f"seed {SEED}"
        numbers = {"killed": killed, "rounds": rounds, "copies": sum(map(len, sources.values()))}
        numbers |= {"transactions": sum(job.copied.values()), "ended by an error": sum(m.ends for m in job.members)}
        sys.stderr.write(", ".join(f"{name} {count}" for name, count in numbers.items()) + "\n")
        for name, count in numbers.items():
            record_property(name, count)
        reader.close()
    finally:
        for member in job.members if job else ():
            member.process.kill()
            member.process.wait()
        broker.stop()
