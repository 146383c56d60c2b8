"""Kafka's Java client 4.3.1 with `group.protocol=consumer`, through the steps of the scenario that use groups."""

import pytest
from clients import start_client
from consumer_group_clients import QUICK
from scenario import (
    StepContext,
    a_group_of_three_comes_and_goes,
    positions_of_a_live_member_commit_in_its_transaction,
)
from targets import TARGETS

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import AdminClient

pytestmark = [pytest.mark.conformance, pytest.mark.maven]


@pytest.fixture(scope="module", params=["ottla", "apache"])
def java_client(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp(request.param)
    broker = TARGETS[request.param](directory / "broker", QUICK).start()
    client = start_client("java", broker.bootstrap, directory, {"group.protocol": "consumer"})
    yield client
    client.close()
    broker.stop()


@pytest.mark.parametrize(
    "step", [a_group_of_three_comes_and_goes, positions_of_a_live_member_commit_in_its_transaction]
)
def test_java_consumer_of_the_consumer_protocol(java_client, step):
    context = StepContext(java_client, step.__name__.replace("_", "-"))
    step(context)
    listed = AdminClient({"bootstrap.servers": java_client.bootstrap}).list_consumer_groups().result().valid
    assert [group.type for group in listed if group.group_id.startswith(context.prefix)] == [ConsumerGroupType.CONSUMER]
