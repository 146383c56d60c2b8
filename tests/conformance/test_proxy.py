"""The proxy in front of Ottla and of Apache Kafka 4.3.1: each fault strikes, the client goes on as it should, and the
history of what passed holds against the logs."""

import json
import threading
from typing import NamedTuple

import pytest
from clients import start_client
from kafka import KafkaConsumer, TopicPartition
from targets import TARGETS

from ottla.testkit.checker import check_files
from ottla.testkit.history import checker_lines
from ottla.testkit.proxying import ProxyServer
from tests.timeout import EVENT_TIMEOUT_S

CLIENTS = ["kafka-python", "aiokafka", "confluent-kafka", pytest.param("java", marks=pytest.mark.maven)]


class ProxiedClient(NamedTuple):
    """A client behind a proxy, and a unique name."""

    proxy: ProxyServer
    client: object
    broker: object
    name: str

    def fault(self, api, **what):
        return self.proxy.add(api=api, where={"transactional_id": self.name}, **what)

    def commit(self, *values):
        """A transaction of these values, in a topic of this name."""
        self.client.create_topics([self.name])
        with self.client.producer(self.name) as producer:
            self.commit_with(producer, *values)

    def commit_with(self, producer, *values):
        producer.begin()
        producer.send(self.name, *[f"{self.name}-{value}".encode() for value in values])
        producer.commit()

    def visible(self, isolation="read_committed"):
        return [value.removeprefix(f"{self.name}-") for value in self.client.values([self.name], isolation)]


def lost_reply_to_a_commit(proxied):
    fault = proxied.fault("EndTxn", at="reply", do="drop")
    proxied.commit("a")
    assert proxied.visible() == ["a"]
    assert fault.hits == 1


def commit_that_never_arrives(proxied):
    fault = proxied.fault("EndTxn", at="request", do="drop")
    proxied.commit("a")
    assert proxied.visible() == ["a"]
    assert fault.hits == 1


def concurrent_transactions(proxied):
    fault = proxied.fault("EndTxn", at="request", do="reply", error="CONCURRENT_TRANSACTIONS", times=5)
    proxied.commit("a")
    assert proxied.visible() == ["a"]
    assert fault.hits == 5


def coordinator_elsewhere(proxied):
    fault = proxied.fault("EndTxn", at="request", do="reply", error="NOT_COORDINATOR", times=2)
    asked = proxied.proxy.requests["FindCoordinator"]
    proxied.commit("a")
    assert proxied.visible() == ["a"]
    assert fault.hits == 2
    assert proxied.proxy.requests["FindCoordinator"] > asked + 1


def lost_reply_to_a_produce(proxied):
    fault = proxied.fault("Produce", at="reply", do="drop")
    proxied.commit("a", "b")
    assert proxied.visible("read_uncommitted") == ["a", "b"]
    assert fault.hits == 1


def produce_twice(proxied):
    fault = proxied.fault("Produce", at="request", do="duplicate")
    proxied.commit("a", "b")
    assert proxied.visible("read_uncommitted") == ["a", "b"]
    assert fault.hits == 1


def leader_elsewhere(proxied):
    fault = proxied.fault("Produce", at="request", do="reply", error="NOT_LEADER_OR_FOLLOWER", times=2)
    proxied.commit("a")
    assert proxied.visible() == ["a"]
    assert fault.hits == 2


def lost_reply_to_offsets(proxied):
    fault = proxied.fault("TxnOffsetCommit", at="reply", do="drop")
    proxied.client.create_topics([proxied.name])
    with proxied.client.producer(proxied.name) as producer:
        producer.begin()
        producer.send(proxied.name, proxied.name.encode())
        producer.send_offsets(proxied.name, proxied.name, {0: 1})
        producer.commit()
    assert proxied.client.fetch_offsets(proxied.name, proxied.name) == [1]
    assert fault.hits == 1


def held_commit(proxied):
    """Hold a commit: no reader sees the record before the release, every reader sees it afterwards."""
    fault = proxied.fault("EndTxn", at="request", do="hold")
    committing = threading.Thread(target=proxied.commit, args=("a",))
    committing.start()
    proxied.proxy.await_hits(fault)
    partition = TopicPartition(proxied.name, 0)
    how = {"bootstrap_servers": proxied.broker.bootstrap, "group_id": None}
    consumers = [KafkaConsumer(**how, isolation_level=level) for level in ("read_committed", "read_uncommitted")]
    ends = [consumer.end_offsets([partition])[partition] for consumer in consumers]
    proxied.proxy.plan.release(fault.id)
    committing.join(EVENT_TIMEOUT_S)
    for consumer in consumers:
        consumer.close()
    assert ends == [0, 1]
    assert proxied.visible() == ["a"]


def abort_whose_reply_is_lost(proxied):
    fault = proxied.fault("EndTxn", at="reply", do="drop")
    proxied.client.create_topics([proxied.name])
    with proxied.client.producer(proxied.name) as producer:
        producer.begin()
        producer.send(proxied.name, f"{proxied.name}-gone".encode())
        producer.abort()
        proxied.commit_with(producer, "kept")
    assert proxied.visible() == ["kept"]
    assert fault.hits == 1


PLAYS = [
    lost_reply_to_a_commit,
    commit_that_never_arrives,
    concurrent_transactions,
    coordinator_elsewhere,
    lost_reply_to_a_produce,
    produce_twice,
    leader_elsewhere,
    lost_reply_to_offsets,
    held_commit,
    abort_whose_reply_is_lost,
]


@pytest.mark.parametrize("client_name", CLIENTS)
@pytest.mark.parametrize("target", ["ottla", pytest.param("apache", marks=pytest.mark.conformance)])
def test_clients_go_on_and_the_history_holds(target, client_name, tmp_path):
    broker = TARGETS[target](tmp_path / target).start()
    try:
        with ProxyServer(broker.bootstrap) as proxy:
            client = start_client(client_name, proxy.bootstrap, tmp_path)
            for play in PLAYS:
                play(ProxiedClient(proxy, client, broker, f"{play.__name__}-{client_name}"))
            client.close()
            lines = checker_lines(proxy.journal.since(0))
    finally:
        broker.stop()
    history = tmp_path / "history.jsonl"
    history.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert check_files(history, broker.data_dir) == []
    done = [line["f"] for line in lines if line["type"] == "ok"]
    assert {"init", "send", "end", "offsets", "poll"} <= set(done)
    assert done.count("end") == len(PLAYS) + 1
