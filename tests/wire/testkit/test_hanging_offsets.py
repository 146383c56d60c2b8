"""A transaction that hangs in `__consumer_offsets` alone: every search for hanging transactions finds it there."""

import json
import re
import time

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.protocol.api_keys import ApiKey
from ottla.testkit.kit.wire import GROUP

OFFSETS = "__consumer_offsets"
UNVERIFIED = {"transaction.partition.verification.enable": False}

pytestmark = pytest.mark.ottla(transaction_version=1, properties=UNVERIFIED)


@pytest.fixture
def hanging(ottla_broker, kafka_topic, kafka_group_id):
    """The group, after an offset commit of a transaction arrived when the transaction had ended."""
    late = ottla_broker.producer_by_hand("tx-1", version=1)
    late.send(kafka_topic, b"in time")
    late.commit()
    ottla_broker.assert_no_open_transactions()
    ottla_broker.wire.coordinator(kafka_group_id, GROUP)  # so that the log of the group exists
    ended = ottla_broker.transaction("tx-1")
    row = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    reply = ottla_broker.wire.ask(
        ApiKey.TXN_OFFSET_COMMIT,
        0,
        transactional_id="tx-1",
        group_id=kafka_group_id,
        producer_id=ended.producer_id,
        producer_epoch=ended.producer_epoch,
        topics=[{"name": kafka_topic, "partitions": [row]}],
    )
    assert reply.topics[0].partitions[0].error_code == 0
    return kafka_group_id


def command(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments]).stdout


def in_orphans(broker):
    found = json.loads(command("txn", "orphans", "-b", broker.bootstrap, "--format", "json"))
    return [(row["topic"], row["partition"]) for row in found["orphans"]]


def in_why(broker):
    found = json.loads(command("txn", "why", OFFSETS, 0, "-b", broker.bootstrap, "--format", "json"))
    return [(row["topic"], row["partition"]) for row in found["partition"]]


def in_top(broker):
    found = json.loads(command("top", "--once", "-b", broker.bootstrap, "--format", "json"))
    return [(row["topic"], row["partition"]) for row in found["partitions"]]


def in_admin(broker):
    found = broker.admin().get("/v1/partitions")["partitions"]
    return [(row["topic"], row["partition"]) for row in found if row["open"]]


def in_audit(broker):
    later_ms = round(time.time() * 1000) + 7_200_000
    lines = command("audit", broker.data_dir, "--format", "json", "--as-of", later_ms).splitlines()
    rows = [json.loads(line) for line in lines]
    return [(row["topic"], row["partition"]) for row in rows if row.get("check") == "hanging"]


def in_kit(broker):
    return [(each.topic, each.partition) for each in broker.hanging_transactions()]


@pytest.mark.parametrize("search", [in_kit, in_orphans, in_why, in_top, in_admin, in_audit])
def test_every_search_finds_a_hanging_transaction_in_consumer_offsets(search, hanging, ottla_broker):
    if search is in_audit:
        pytest.importorskip("numba", reason="the audit extra is not installed")
    assert set(search(ottla_broker)) == {(OFFSETS, 0)}


def test_errors_and_describe_name_the_hanging_transaction(hanging, ottla_broker, kafka_topic):
    line = rf"{OFFSETS}-0 from offset \d+: producer id"
    with pytest.raises(AssertionError, match=f"1 transactions hang\n  {line}"):
        ottla_broker.assert_no_open_transactions()
    with pytest.raises(AssertionError, match=f"hanging transactions:\n  {line}"):
        ottla_broker.assert_committed(kafka_topic, [])
    with pytest.raises(TimeoutError, match=f"hanging transactions:\n  {line}"):
        ottla_broker.wait_until_lag_zero(hanging, timeout_s=0)
    assert re.search(f"hanging transactions:\n  {line}", ottla_broker.describe())


def test_the_next_transaction_of_its_producer_does_not_hide_it(hanging, ottla_broker, kafka_topic):
    again = ottla_broker.producer_by_hand("tx-1", version=1)
    again.send(kafka_topic, b"the next")
    assert in_kit(ottla_broker) == [(OFFSETS, 0)]
    again.abort()


def test_a_hanging_transaction_is_removed_at_the_end_of_its_test(hanging, ottla_broker):
    ottla_broker.end()
    ottla_broker.assert_no_open_transactions()
