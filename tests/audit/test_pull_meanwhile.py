"""Pulls of a cluster whose transactions and topics change, and audits of their copies."""

import json
import math
import time

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from ottla.audit.pipeline import audit
from ottla.audit.request import Request
from ottla.audit.runner import ThreadRunner
from ottla.cli.pull import partition
from ottla.cli.pull.mark import MARK
from ottla.wire import partition_stream
from ottla.wire.cluster import Cluster
from tests.audit.test_pull import produce, pull_json, run
from tests.thread_broker import ThreadBroker
from tests.timeout import EVENT_TIMEOUT_S


def begin(broker, transactional_id):
    """Write a record in a transaction, and return its producer."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=transactional_id)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("ledger", b"x").get(EVENT_TIMEOUT_S)
    return producer


@pytest.mark.slow
def test_no_transaction_after_the_copy_of_the_decisions_is_called_forgotten(tmp_path):
    copy = tmp_path / "copy"

    def verdicts(later_ms):
        found = audit(ThreadRunner(1), Request((str(copy),), (), round(time.time() * 1000) + later_ms))
        faults = [one.message for one in found.findings if one.severity in ("error", "warning")]
        return [str(one.verdict) for one in found.open_transactions], faults

    with ThreadBroker(tmp_path / "source") as broker:
        ended = begin(broker, "ended")
        ended.commit_transaction()
        pull_json(broker, copy, "--topics", "ledger", "--transactions")
        ended.begin_transaction()
        ended.send("ledger", b"x").get(EVENT_TIMEOUT_S)
        ended.commit_transaction()
        opened = begin(broker, "open")
        pull_json(broker, copy, "--topics", "ledger")
        document = json.loads((copy / MARK).read_bytes())
        for one in document["topics"]["__transaction_state"]["partitions"].values():
            one["copied_ms"] -= 3_600_000
        (copy / MARK).write_text(json.dumps(document))
        for later_ms in (0, 3_600_000):
            assert verdicts(later_ms) == (["unverifiable"], [])
        pull_json(broker, copy, "--topics", "ledger", "--transactions")
        for later_ms in (0, 3_600_000):
            assert verdicts(later_ms) == (["in time"], [])
        opened.close()
        ended.close()


def test_a_topic_that_is_deleted_while_it_is_read_is_left_out(tmp_path, monkeypatch):
    read = partition.read_runs
    with ThreadBroker(tmp_path / "source") as broker:
        produce(broker, range(3))

        def delete_after(window, log):
            yield from read(window, log)
            admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
            admin.delete_topics([window.topic])
            admin.close()

        monkeypatch.setattr(partition, "read_runs", delete_after)
        result = run(broker, tmp_path / "copy", "--topics", "*")
    assert result.exit_code == 1
    assert "ledger: the topic was deleted while it was read" in result.stdout


def test_leaders_are_asked_for_once(tmp_path, monkeypatch):
    monkeypatch.setattr(partition_stream, "NEW_S", math.inf)
    ask, asked = Cluster.topology, []

    def count(cluster, topics=None, **options):
        asked.append(topics)
        return ask(cluster, topics, **options)

    monkeypatch.setattr(Cluster, "topology", count)
    with ThreadBroker(tmp_path / "source") as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        admin.create_topics([NewTopic("many", 5, 1), *(NewTopic(f"other-{number}", 1, 1) for number in range(5))])
        admin.close()
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        for topic, number in [("many", number) for number in range(5)] + [(f"other-{at}", 0) for at in range(5)]:
            producer.send(topic, b"x", partition=number).get(EVENT_TIMEOUT_S)
        producer.close()
        rows = pull_json(broker, tmp_path / "copy", "--topics", "*")["partitions"]
    assert sum(row["batches"] for row in rows) == 10
    assert len(asked) == 4  # the listing, the first and last offsets, and whether a topic is another one at the end
