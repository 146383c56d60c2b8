"""`ottla top` shows the same of the same cluster, Ottla's or Apache Kafka's."""

import json

import pytest
from click.testing import CliRunner
from open_transactions import FOREIGN_PRODUCER_ID, UNVERIFIED, Client
from targets import TARGETS

from ottla.cli.main import main
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec

CALM_MS = 600_000


@pytest.fixture(params=["ottla", pytest.param("apache", marks=pytest.mark.conformance)])
def broker(request, tmp_path):
    broker = TARGETS[request.param](tmp_path, UNVERIFIED).start()
    yield broker
    broker.stop()


def commit(client, group, topic, offset):
    find = codec.request_class(ApiKey.FIND_COORDINATOR)
    client.until(lambda: not client.connection.send(find(key=group, key_type=0), 2).error_code)
    request = codec.request_class(ApiKey.OFFSET_COMMIT)
    row = request.OffsetCommitRequestTopic
    partition = row.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    asked = request(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        retention_time_ms=-1,
        topics=[row(name=topic, partitions=[partition])],
    )
    client.until(
        lambda: not any(row.error_code for topic in client.connection.send(asked, 7).topics for row in topic.partitions)
    )


def join(client, group, topic):
    """Join a group of the consumer protocol."""
    heartbeat = codec.request_class(ApiKey.CONSUMER_GROUP_HEARTBEAT)(
        group_id=group,
        member_id="one",
        member_epoch=0,
        rebalance_timeout_ms=CALM_MS,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    client.until(lambda: not client.connection.send(heartbeat, 1).error_code)


def top(broker, *arguments):
    done = CliRunner().invoke(main, ["top", "--once", "-b", broker.bootstrap, *arguments], catch_exceptions=False)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def test_top_lists_open_and_forgotten_transactions_and_lag(broker):
    assert CliRunner().invoke(main, ["health", "-b", broker.bootstrap, "--wait", "60s"]).exit_code == 0
    client = Client(broker.bootstrap)
    try:
        ledger, lost = client.create_topic("ledger", 2), client.create_topic("lost")
        client.produce(ledger, 0, count=5)
        commit(client, "readers", ledger, 2)
        join(client, "members", ledger)
        producer_id, epoch = client.begin("order-1", [(ledger, 0), (ledger, 1)], CALM_MS)
        client.produce(ledger, 0, count=3)
        client.produce(lost, 0, "nobody", FOREIGN_PRODUCER_ID, 0)
        found = json.loads(top(broker, "--format", "json"))
        text = top(broker)
    finally:
        client.close()
    assert found["answer"] == (
        "1 open transaction, 0 overdue; 6 offsets held back in 3 partitions (1 of them by a transaction that will "
        "never end); 2 groups, the largest lag is 7."
    )
    (transaction,) = found["transactions"]
    assert transaction.pop("age_ms") + transaction.pop("time_left_ms") == CALM_MS
    assert transaction == {
        "transactional_id": "order-1",
        "state": "Ongoing",
        "producer_id": producer_id,
        "epoch": epoch,
        "coordinator": 1,
        "partitions": 2,
        "where": "ledger-0, ledger-1",
    }
    rows = [tuple(value for name, value in row.items() if name != "age_ms") for row in found["partitions"]]
    assert rows[0] == ("lost", 0, 0, 1, 1, "forgotten", None, FOREIGN_PRODUCER_ID)
    assert sorted(rows[1:]) == [
        ("ledger", 0, 5, 9, 4, "in time", "order-1", producer_id),
        ("ledger", 1, 0, 1, 1, "in time", "order-1", producer_id),
    ]
    groups = [tuple(value for name, value in row.items() if name != "coordinator") for row in found["groups"]]
    assert groups == [
        ("readers", "classic", "Empty", None, None, 1, 7, 3),
        ("members", "consumer", "Stable", 2, 2, 0, 0, 0),
    ]
    assert "not answered" not in found
    assert text.startswith(found["answer"])
