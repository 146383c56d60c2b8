"""Audits of Ottla's own directory while it runs, after kill -9, and after a stop: they have no findings."""

import contextlib
import random
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from ottla.audit.pipeline import audit
from ottla.audit.request import Request
from ottla.audit.runner import ThreadRunner
from tests.timeout import EVENT_TIMEOUT_S

TOPICS = {"orders": {}, "settlements": {"segment.ms": "100"}, "balances": {"cleanup.policy": "compact"}}


@contextlib.contextmanager
def serving(data_dir):
    """Yield (process, bootstrap) of a broker; kill it at the end if it still runs."""
    ready = data_dir.with_name("ready")
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "ottla.cli.main", "serve", "--listen", "127.0.0.1:0", "--data-dir", data_dir]
    process = subprocess.Popen([*map(str, command), "--ready-file", str(ready)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while not (ready.exists() and ready.read_text().endswith("\n")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        yield process, ready.read_text().split()[1].rpartition("//")[2]
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def play(bootstrap, seed, transactions=60):
    """Run transactions over all topics, a third aborted, with positions; leave the last one open."""
    dice = random.Random(seed)
    producers = []
    for number in range(3):
        producers.append(KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"settler-{number}"))
        producers[-1].init_transactions()
    for number in range(transactions):
        producer = dice.choice(producers)
        producer.begin_transaction()
        for _ in range(dice.randrange(1, 6)):
            topic, partition = dice.choice([*TOPICS]), dice.randrange(2)
            producer.send(topic, key=b"%d" % dice.randrange(5), value=dice.randbytes(2_000), partition=partition)
        offsets = {TopicPartition("orders", 0): OffsetAndMetadata(number, "", -1)}
        producer.send_offsets_to_transaction(offsets, "settlement")
        if dice.random() < 0.3:
            producer.flush()
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producers[0].begin_transaction()
    producers[0].send("orders", key=b"open", value=b"open", partition=1).get(timeout=EVENT_TIMEOUT_S)
    return producers


def findings(data_dir):
    """Return the errors and warnings of an audit one minute in the future, and the audit."""
    found = audit(ThreadRunner(1), Request((str(data_dir),), (), time.time_ns() // 1_000_000))
    return [(one.check, one.place, one.message) for one in found.at_least("warning")], found


@pytest.mark.slow
def test_a_directory_is_clean_while_running_killed_or_stopped(tmp_path):
    data_dir = tmp_path / "data"
    with serving(data_dir) as (process, bootstrap):
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        wanted = {"num_partitions": 2, "replication_factor": 1}
        admin.create_topics({name: {**wanted, "configs": configs} for name, configs in TOPICS.items()})
        kept = play(bootstrap, 1)
        wrong, live = findings(data_dir)
        assert wrong == []
        assert [(one.topic, one.verdict) for one in live.open_transactions] == [("orders", "in time")]
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert findings(data_dir)[0] == []
    with serving(data_dir) as (process, bootstrap):
        kept += play(bootstrap, 2)
        consumer = KafkaConsumer("settlements", bootstrap_servers=bootstrap, group_id="reader")
        consumer.poll(timeout_ms=2_000)
        consumer.commit()
        kept.append(consumer)
        assert findings(data_dir)[0] == []
        process.terminate()
        assert process.wait(EVENT_TIMEOUT_S) == 0
    wrong, stopped = findings(data_dir)
    assert wrong == []
    total = sum(one.committed.transactions for one in stopped.partitions)
    assert total > 60 and sum(one.aborted.transactions for one in stopped.partitions) > 20
    later = audit(ThreadRunner(1), Request((str(data_dir),), (), time.time_ns() // 1_000_000 + 10_000_000))
    assert {(one.check, one.topic) for one in later.at_least("warning")} == {("hanging", "orders")}
    assert [one.severity for one in later.findings if one.check == "torn"] == []
    for client in kept:
        with contextlib.suppress(Exception):
            client.close(timeout=0)
