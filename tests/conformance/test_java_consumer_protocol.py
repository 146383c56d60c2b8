"""Kafka's Java client 4.3.1 with `group.protocol=consumer`, through the steps of the scenario that use members."""

import pytest
from clients import eventually, start_client
from consumer_group_clients import QUICK, record_lines
from scenario import (
    StepContext,
    a_group_of_three_comes_and_goes,
    positions_of_a_live_member_commit_in_its_transaction,
)
from targets import TARGETS

pytestmark = [pytest.mark.conformance, pytest.mark.maven]


@pytest.fixture(scope="module", params=["ottla", "apache"])
def broker(request, tmp_path_factory):
    broker = TARGETS[request.param](tmp_path_factory.mktemp(request.param), QUICK).start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def java_client(broker):
    client = start_client("java", broker.bootstrap, broker.directory, {"group.protocol": "consumer"})
    yield client
    client.close()


def a_pattern_finds_topics_now_and_later(context):
    topics = {*context.topics("orders-1", "orders-2")}
    context.topics("payments")
    member = context.client.member(context.name("workers"), [f"^{context.prefix}.orders-.*"])

    def owns_all():
        return {topic for topic, _ in member.assignment()} == topics

    eventually(owns_all, "the member has the topics that match")
    topics.add(context.topics("orders-3"))
    eventually(owns_all, "the member has the new topic too")
    with context.producer() as producer:
        producer.send_records([(topic, 0, None, topic, []) for topic in topics])
        eventually(lambda: {r.value.decode() for r in member.records()} == topics, "the member received everything")
    member.close()


@pytest.mark.parametrize(
    "step",
    [
        a_pattern_finds_topics_now_and_later,
        a_group_of_three_comes_and_goes,
        positions_of_a_live_member_commit_in_its_transaction,
    ],
)
def test_java_consumer_of_the_consumer_protocol(broker, java_client, step):
    context = StepContext(java_client, step.__name__.replace("_", "-"))
    step(context)
    # Only groups of this protocol have records of members' assignments.
    assert any(context.prefix.encode().hex() in line for line in record_lines(broker.data_dir / "__consumer_offsets-0"))
