"""Transaction version of each client at each level of `transaction.version`, seen in its epochs.

In transactions V2 (KIP-890) each transaction moves the epoch of its producer; in V1 only a new instance does.
"""

import pytest
from clients import eventually, start_client
from targets import Ottla

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.wire.connection import BlockingConnection

CLIENTS = ["kafka-python", "aiokafka", "confluent-kafka", pytest.param("java", marks=pytest.mark.maven)]
SAFE_DOWNGRADE, UPGRADE = 2, 1


class Broker:
    """Ottla on its own, and what a raw connection sees of it."""

    def __init__(self, directory, level):
        self.process = Ottla(directory, {"transaction.version": str(level)}).start()
        host, _, port = self.process.bootstrap.rpartition(":")
        self._connection = BlockingConnection(host, int(port))

    def state(self, transactional_id):
        """(state, epoch)."""
        request = codec.request_class(ApiKey.DESCRIBE_TRANSACTIONS)
        (row,) = self._connection.send(request(transactional_ids=[transactional_id])).transaction_states
        assert row.error_code == ErrorCode.NONE
        return row.transaction_state, row.producer_epoch

    def set_level(self, level, upgrade_type):
        request = codec.request_class(ApiKey.UPDATE_FEATURES)
        update = request.FeatureUpdateKey(
            feature="transaction.version", max_version_level=level, upgrade_type=upgrade_type
        )
        assert self._connection.send(request(feature_updates=[update]), 2).error_code == ErrorCode.NONE

    def stop(self):
        self._connection.close()
        self.process.stop()


@pytest.fixture
def broker_at(tmp_path):
    started = []

    def start(level):
        started.append(Broker(tmp_path / f"level-{level}", level))
        return started[-1]

    yield start
    for broker in started:
        broker.stop()


@pytest.fixture
def client_of(tmp_path):
    started = []

    def start(name, broker):
        started.append(start_client(name, broker.process.bootstrap, tmp_path))
        return started[-1]

    yield start
    for client in started:
        client.close()


def transactions(broker, producer, topic, *outcomes):
    """The epoch after each transaction, with its markers."""
    epochs = []
    for outcome in outcomes:
        producer.begin()
        producer.send(topic, outcome)
        getattr(producer, outcome)()
        ended = "CompleteCommit" if outcome == "commit" else "CompleteAbort"
        eventually(lambda ended=ended: broker.state("t")[0] == ended, ended)
        epochs.append(broker.state("t")[1])
    return epochs


@pytest.mark.parametrize("name", CLIENTS)
def test_only_v2_clients_raise_the_epoch_with_each_transaction(broker_at, client_of, name):
    broker = broker_at(2)
    client = client_of(name, broker)
    client.create_topics(["ledger"])
    with client.producer("t") as producer:
        epochs = transactions(broker, producer, "ledger", "commit", "abort", "commit")
    assert epochs == ([1, 2, 3] if name == "java" else [0, 0, 0])
    assert client.values(["ledger"]) == ["commit", "commit"]


@pytest.mark.maven
@pytest.mark.parametrize("level", [0, 1])
def test_a_v2_client_uses_v1_below_transaction_version_2(broker_at, client_of, level):
    broker = broker_at(level)
    client = client_of("java", broker)
    client.create_topics(["ledger"])
    with client.producer("t") as producer:
        assert transactions(broker, producer, "ledger", "commit", "abort", "commit") == [0, 0, 0]
    assert client.values(["ledger"]) == ["commit", "commit"]


@pytest.mark.maven
def test_a_new_instance_takes_up_the_level_of_its_day(broker_at, client_of):
    """The requests of one instance may change with its transactions; a new one begins with what is finalized."""
    broker = broker_at(2)
    client = client_of("java", broker)
    client.create_topics(["ledger"])
    expected = []
    for level, upgrade_type, grows in (
        (2, UPGRADE, 1),
        (1, SAFE_DOWNGRADE, 0),
        (2, UPGRADE, 1),
        (0, SAFE_DOWNGRADE, 0),
    ):
        broker.set_level(level, upgrade_type)
        with client.producer("t") as producer:
            first = broker.state("t")[1]
            epochs = transactions(broker, producer, "ledger", "commit", "abort", "commit")
            assert epochs == [first + grows * each for each in (1, 2, 3)], level
        expected += ["commit", "commit"]
    assert client.values(["ledger"]) == expected


@pytest.mark.maven
def test_a_producer_keeps_committing_while_the_level_changes(broker_at, client_of):
    broker = broker_at(1)
    client = client_of("java", broker)
    client.create_topics(["ledger"])
    with client.producer("t") as producer:
        transactions(broker, producer, "ledger", "commit")
        broker.set_level(2, UPGRADE)
        transactions(broker, producer, "ledger", "commit", "abort")
        broker.set_level(1, SAFE_DOWNGRADE)
        transactions(broker, producer, "ledger", "commit")
    assert client.values(["ledger"]) == ["commit"] * 3
