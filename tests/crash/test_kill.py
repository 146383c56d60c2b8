"""kill -9 at random moments under the load of three client libraries, then everything that was promised is looked for.

OTTLA_KILLS sets how often (5 in CI, 50 for `make check` and `make conformance`), OTTLA_SEED the moments and the load.
OTTLA_KILL_APACHE=1 kills a real Apache Kafka instead, to see that the harness asks for no more than Kafka gives. It is
no part of conformance: 4.3.1, killed between Prepare and the markers, now and then completes a transaction without
its marker in __consumer_offsets, and the group waits for ever.
"""

import os
import random
import subprocess
import sys
import time
from collections import Counter

import pytest
from aio_worker import AiokafkaWorker
from clients import eventually, start_client
from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from oracle import Findings, Partition, violations
from targets import TARGETS
from worker_histories import anomalies, entries, scan
from workload import GROUP, ORDERS, TOPICS, start_workers

from ottla.testkit.scanner import scan_partition

KILLS = int(os.environ.get("OTTLA_KILLS") or (50 if os.environ.get("OTTLA_CONFORMANCE") == "1" else 5))
TARGET = "apache" if os.environ.get("OTTLA_KILL_APACHE") == "1" else "ottla"
SEED = os.environ.get("OTTLA_SEED") or str(random.SystemRandom().randrange(1 << 32))
RESTART_SHARE = 0.15  # of the kills hit a broker that is just starting
ENDED = {0, 4, 5}  # Empty, CompleteCommit, CompleteAbort
# So kills also happen during rolls and compactions, also of internal topics.
OVERRIDES = {
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.delete.retention.ms": "1000",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.index.interval.bytes": "1024",
    "log.roll.ms": "2000",
    "log.segment.delete.delay.ms": "500",
}


def all_go_on(workers, what):
    """Wait until every client has a new acknowledgement."""
    before = {worker.name: worker.progress for worker in workers}
    deadline = time.monotonic() + 120
    while idle := [worker for worker in workers if worker.progress == before[worker.name]]:
        for worker in workers:
            if worker.failure is not None:
                raise AssertionError(f"{worker.name} gave up {what}") from worker.failure
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} these did not go on: " + "; ".join(worker.whereabouts() for worker in idle))
        time.sleep(0.02)


def kill_and_restart(broker, dice):
    """Kill the broker, and sometimes also the next ones during their start. Return the number of killed processes."""
    broker.kill()
    killed = 1
    while dice.random() < RESTART_SHARE:
        killed += 1
        with broker.log_file.open("ab") as log:
            newborn = subprocess.Popen(broker.command(), stdout=log, stderr=log, start_new_session=True)
            time.sleep(dice.uniform(0.0, 0.6))
            newborn.kill()
            newborn.wait()
    broker.start()
    return killed


def tell(record_property, killed, workers, findings):
    """Record the numbers of a run without findings in the test report."""
    outcomes, writes = Counter(), []
    for worker in workers:
        for transaction in worker.history:
            sent = [write for write in transaction.writes if write.span.began is not None]
            writes += sent
            if sent:  # while no broker listens many begin and send nothing
                outcomes[f"{worker.library} {transaction.outcome}"] += 1
    numbers = {
        "kill -9": killed,
        **dict(sorted(outcomes.items())),
        "records sent": len(writes),
        "records acknowledged": sum(write.offset is not None for write in writes),
        "records in the logs": sum(map(len, findings.uncommitted.values())),
        "records committed": sum(map(len, findings.committed.values())),
        "records delivered meanwhile": len(findings.seen),
    }
    for name, count in numbers.items():
        record_property(name, count)
    sys.stderr.write(", ".join(f"{name} {count}" for name, count in numbers.items()) + "\n")


def finish(workers):
    for worker in workers:
        worker.stopping.set()
    for worker in workers:
        worker.join(120)
        assert not worker.is_alive(), f"{worker.name} does not end"
        if worker.failure is not None:
            raise AssertionError(f"{worker.name} gave up") from worker.failure


def log_ends(bootstrap):
    """Return (high watermark, last stable offset) of every partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    ends = []
    for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
        partitions = [TopicPartition(topic, n) for topic, count in TOPICS.items() for n in range(count)]
        rows = admin.list_offsets({p: OffsetSpec.latest() for p in partitions}, isolation_level=level)
        ends.append({Partition(p.topic, p.partition): row.result(20).offset for p, row in rows.items()})
    return {partition: (ends[0][partition], ends[1][partition]) for partition in ends[0]}


def is_settled(bootstrap):
    """Return whether no transaction is open; False also while a starting broker refuses to answer."""
    try:
        return all(high == stable for high, stable in log_ends(bootstrap).values())
    except KafkaException:
        return False


def group_positions(bootstrap):
    options = {"bootstrap.servers": bootstrap, "group.id": GROUP, "isolation.level": "read_committed"}
    consumer = Consumer(options | {"log_level": 0})
    rows = eventually(lambda: _stable(consumer), "the group's positions are free of transactions")
    consumer.close()
    return {Partition(row.topic, row.partition): max(row.offset, 0) for row in rows}


def _stable(consumer):
    rows = consumer.committed([TopicPartition(*partition) for partition in ORDERS], 20)
    return rows if all(row.error is None for row in rows) else None


def by_partition(records):
    rows = {Partition(topic, n): [] for topic, count in TOPICS.items() for n in range(count)}
    for record in records:
        rows[Partition(record.topic, record.partition)].append((record.offset, record.value.decode()))
    return rows


def look_for_everything(broker, directory, client_name, seen=()):
    """Return the findings of one client library."""
    eventually(lambda: is_settled(broker.bootstrap), "every transaction has ended", timeout_s=70)
    client = start_client(client_name, broker.bootstrap, directory)
    topics = list(TOPICS)
    findings = Findings(
        committed=by_partition(client.read(topics)),
        uncommitted=by_partition(client.read(topics, "read_uncommitted")),
        ends=log_ends(broker.bootstrap),
        positions=group_positions(broker.bootstrap),
        seen=list(seen),
    )
    client.close()
    return findings


def agree_with_the_files(data_dir, findings):
    """Check that the second scanner finds the same records in the files as the clients, and no open transaction."""
    for partition in findings.uncommitted:
        found = scan_partition(data_dir / f"{partition.topic}-{partition.number}")
        assert found.damages == []
        for isolation, rows in (("read_committed", findings.committed), ("read_uncommitted", findings.uncommitted)):
            assert [(r.offset, r.value.decode()) for r in found.records(isolation)] == rows[partition]
    states = {}
    for directory in sorted(data_dir.glob("__*-[0-9]*")):
        found = scan_partition(directory)
        assert found.damages == []
        assert found.last_stable_offset == found.log_end_offset, f"an open transaction in {directory.name}"
        if directory.name.startswith("__transaction_state"):
            # The status follows version, producer id, epoch and timeout, in both versions of the value.
            states |= {r.key: r.value[16] for r in found.records() if r.value is not None}
    assert states
    assert set(states.values()) <= ENDED


@pytest.mark.slow
def test_a_killed_broker_keeps_all_acknowledged_transactions(tmp_path, record_property):
    record_property("seed", SEED)
    sys.stderr.write(f"seed {SEED}, {KILLS} kills\n")
    dice = random.Random(SEED)
    broker = TARGETS[TARGET](tmp_path / TARGET, OVERRIDES).start()
    try:
        client = start_client("confluent-kafka", broker.bootstrap, tmp_path)
        for topic, partitions in TOPICS.items():
            client.create_topics([topic], partitions)
        client.close()
        workers = start_workers(broker.bootstrap, SEED, AiokafkaWorker)
        all_go_on(workers, "before the first kill")
        killed = 0
        for number in range(1, KILLS + 1):
            time.sleep(dice.uniform(0.0, 0.8))
            killed += kill_and_restart(broker, dice)
            all_go_on(workers, f"after kill {number} (seed {SEED})")
        finish(workers)
        history = [transaction for worker in workers for transaction in worker.history]
        finals = {}
        for reader in ("confluent-kafka", "kafka-python", "aiokafka"):
            findings = finals[reader] = look_for_everything(broker, tmp_path, reader, workers[-1].seen)
            assert violations(history, findings) == [], f"seed {SEED}, read with {reader}"
        assert broker.stop() in (0, 143)  # the JVM says 143
        if TARGET == "ottla":
            agree_with_the_files(broker.data_dir, findings)
            told = entries(workers, finals)
            assert [str(anomaly) for anomaly in anomalies(told, scan(broker.data_dir))] == [], f"seed {SEED}"
        broker.start()
        again = look_for_everything(broker, tmp_path, "confluent-kafka")
        assert (again.committed, again.ends) == (findings.committed, findings.ends), "a clean restart changed the logs"
        tell(record_property, killed, workers, findings)
    finally:
        broker.stop()
