"""Kafka's Java client 4.3.1 with `group.protocol=consumer`, through the steps of the scenario that use groups."""

import pytest
from clients import start_client
from consumer_group_clients import QUICK
from scenario import (
    StepContext,
    a_group_of_three_comes_and_goes,
    positions_become_visible_with_the_commit,
    positions_of_a_live_member_commit_in_its_transaction,
)
from targets import TARGETS

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
    "step",
    [
        a_group_of_three_comes_and_goes,
        positions_become_visible_with_the_commit,
        positions_of_a_live_member_commit_in_its_transaction,
    ],
)
def test_java_consumer_of_the_consumer_protocol(java_client, step):
    step(StepContext(java_client, step.__name__.replace("_", "-")))
