"""`ottla_broker.group`: groups of both protocols, of a broker that the kit has started and of any other."""

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.testkit.kit.broker import Broker
from ottla.testkit.kit.groups import GroupMember
from ottla.testkit.kit.wire import KafkaError
from tests.wire.testkit.test_plugin import run
from tests.wire.testkit.test_recipes_groups import poll_until


@pytest.mark.slow  # in real time, with another client library than kafka-python
def test_a_group_of_the_consumer_protocol_is_described(kafka_group_member, kafka_topic_factory, ottla_broker):
    orders, payments = kafka_topic_factory("orders", partitions=2), kafka_topic_factory("payments")
    options = {"client.id": "billing-1", "group.instance.id": "b1", "group.remote.assignor": "range"}
    member = kafka_group_member(orders, payments, group_id="billing", **options)
    poll_until(lambda: len(member.assignment()) == 3, member)
    group = ottla_broker.wait_until_stable("billing", members=1)
    assert group[:-1] == ("billing", "consumer", "consumer", "Stable", 2, 2, "range")
    owned = (("orders", 0), ("orders", 1), ("payments", 0))
    member_id = group.member("billing-1").member_id
    assert group.members == (
        GroupMember(member_id, "billing-1", "b1", "consumer", 2, ("orders", "payments"), "", owned, owned),
    )
    shown = f"  billing-1 {member_id}: epoch 2, orders-0, orders-1, payments-0"
    assert group.describe() == f"billing: Stable, epoch 2, assignment epoch 2, 1 members\n{shown}"
    with pytest.raises(LookupError, match="0 members have the client id other: billing: Stable"):
        group.member("other")
    other = Broker(ottla_broker.bootstrap)  # as with --ottla-bootstrap
    assert other.group("billing") == group
    other.close()
    member.close()
    assert ottla_broker.group("billing").epoch == 2, "a static member comes back"


@pytest.mark.slow
def test_a_classic_group_is_described(kafka_consumer, kafka_topic_factory, ottla_broker):
    topic = kafka_topic_factory("orders", partitions=2)
    consumer = kafka_consumer(topic, group_id="billing", client_id="billing-1", group_instance_id="b1")
    while not consumer.assignment():
        consumer.poll(1_000)
    group = ottla_broker.wait_until_stable("billing", members=1)
    assert group[:-1] == ("billing", "classic", "consumer", "Stable", -1, -1, "range")
    owned = (("orders", 0), ("orders", 1))
    member_id = group.member("billing-1").member_id
    assert group.members == (GroupMember(member_id, "billing-1", "b1", "classic", -1, ("orders",), "", owned, owned),)
    assert group.describe() == f"billing: Stable, 1 members\n  billing-1 {member_id}: orders-0, orders-1"


def test_a_group_of_a_client_with_its_own_assignment_has_no_partitions(ottla_broker):
    ask = ottla_broker.wire.ask
    ottla_broker.wire.coordinator("workers", 0)
    joined = ask(
        ApiKey.JOIN_GROUP,
        3,
        group_id="workers",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="connect",
        protocols=[{"name": "eager", "metadata": b"\xff\xffurl"}],
    )
    rows = [{"member_id": joined.member_id, "assignment": b"\x00"}]
    ask(ApiKey.SYNC_GROUP, 2, group_id="workers", generation_id=1, member_id=joined.member_id, assignments=rows)
    group = ottla_broker.group("workers")
    assert (group.protocol_type, group.assignor, group.state) == ("connect", "eager", "Stable")
    assert [(member.topics, member.assigned) for member in group.members] == [((), ())]


@pytest.mark.slow
def test_an_unknown_group_is_an_error_that_lists_the_groups(kafka_consumer, kafka_topic, ottla_broker):
    consumer = kafka_consumer(kafka_topic, group_id="billing")
    while not consumer.assignment():
        consumer.poll(1_000)
    with pytest.raises(KafkaError, match=r"there is no group biling, only \['billing'\]: GROUP_ID_NOT_FOUND") as raised:
        ottla_broker.group("biling")
    assert raised.value.error is ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(TimeoutError, match=r"not stable in 0.05 s: there is no group biling"):
        ottla_broker.wait_until_stable("biling", timeout_s=0.05)
    with pytest.raises(TimeoutError, match=r"not stable in 0.05 s: billing: Stable, 1 members\n  kafka-python"):
        ottla_broker.wait_until_stable("billing", members=2, timeout_s=0.05)


@pytest.mark.slow
def test_a_member_without_the_library_is_skipped_with_the_reason(tmp_path):
    (tmp_path / "conftest.py").write_text("import sys\nsys.modules['confluent_kafka'] = None\n")
    code, output = run(tmp_path, "def test_member(kafka_group_member): ...\n", "-rs")
    assert code == 0, output
    assert "the consumer protocol of groups needs confluent-kafka: install it" in output
