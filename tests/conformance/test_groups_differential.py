"""Groups and offsets, answer by answer: the same raw requests to Ottla and to Apache Kafka 4.3.1."""

import time

import pytest
from group_end_scripts import SCRIPTS as END_SCRIPTS
from group_requests import TIMEOUT_S, GroupRequests, part, request
from group_scripts import SCRIPTS, offsets_named_three_times

from ottla.protocol.api_keys import ApiKey
from ottla.wire.connection import BlockingConnection

TOPIC = "groups-differential"


def prepare(bootstrap):
    """Create the topic, and the coordinator's topic by asking for it."""
    host, _, port = bootstrap.rpartition(":")
    with BlockingConnection(host, int(port), timeout_s=TIMEOUT_S) as connection:
        topic = part(ApiKey.CREATE_TOPICS, "CreatableTopic", name=TOPIC, num_partitions=2, replication_factor=1)
        connection.send(request(ApiKey.CREATE_TOPICS, topics=[topic], timeout_ms=10_000), 5)
        ask = request(ApiKey.FIND_COORDINATOR, key_type=0, coordinator_keys=["g"])
        listing = request(ApiKey.LIST_GROUPS)
        deadline = time.monotonic() + TIMEOUT_S
        while connection.send(ask, 4).coordinators[0].error_code or connection.send(listing, 3).error_code:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        return bootstrap


@pytest.fixture(scope="module")
def bootstraps(ensemble):
    return [prepare(ensemble.broker(target).bootstrap) for target in ("ottla", "apache")]


def transcript(bootstrap, script):
    requests = GroupRequests(bootstrap, script.__name__.replace("_", "-"), TOPIC)
    try:
        script(requests)
    except Exception as error:
        error.add_note(f"after {requests.lines[-5:]}")
        raise
    finally:
        requests.close()
    return requests.lines


@pytest.mark.conformance
@pytest.mark.maven
@pytest.mark.parametrize("script", [*SCRIPTS, *END_SCRIPTS], ids=lambda script: script.__name__)
def test_ottla_answers_as_kafka_does(bootstraps, script):
    ours, theirs = (transcript(bootstrap, script) for bootstrap in bootstraps)
    differences = [
        (step, our_line, their_line)
        for step, (our_line, their_line) in enumerate(zip(ours, theirs, strict=True))
        if our_line != their_line
    ]
    assert not differences, "\n".join(f"{step}: {us}\n{' ' * 4}{they}" for step, us, they in differences)


@pytest.mark.conformance
@pytest.mark.maven
def test_a_partition_named_three_times_is_answered_once(bootstraps):
    """Kafka answers each mention, with up to 4 KB for 4 bytes (docs/decisions/named-twice.md)."""
    ours, theirs = (transcript(bootstrap, offsets_named_three_times) for bootstrap in bootstraps)
    assert ours[:-1] == theirs[:-1]
    assert [str(lines[-1]).count(TOPIC) for lines in (ours, theirs)] == [1, 3]
