"""FindCoordinator: one broker coordinates everything; the first request creates the internal topic."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import FEW, FOR_GROUPS, FOR_TRANSACTIONS
from tests.memory_broker import MemoryBroker

SHARE_GROUPS = 2
SINGLE, BATCH = range(4), range(4, 7)


@pytest.fixture(scope="module")
def broker():
    return MemoryBroker(**FEW)


def place(row):
    return E(row.error_code), row.node_id, row.host, row.port


def here(broker):
    parts = broker.assembly.broker
    return E.NONE, *parts.endpoints["PLAINTEXT"][:3]


@pytest.mark.parametrize("key_type", [FOR_GROUPS, FOR_TRANSACTIONS])
@pytest.mark.parametrize("version", SINGLE)
def test_the_coordinator_of_a_key_is_this_broker(broker, version, key_type):
    assert place(broker.call(K.FIND_COORDINATOR, version, key="k", key_type=key_type)) == here(broker)


@pytest.mark.parametrize("key_type", [FOR_GROUPS, FOR_TRANSACTIONS])
@pytest.mark.parametrize("version", BATCH)
def test_several_keys_are_answered_once_each_in_order(broker, version, key_type):
    asked = {"key_type": key_type, "coordinator_keys": ["b", "a", "b", ""]}
    rows = broker.call(K.FIND_COORDINATOR, version, **asked).coordinators
    assert [(row.key, *place(row), row.error_message) for row in rows] == [
        (key, *here(broker), "") for key in ("b", "a", "")
    ]


@pytest.mark.parametrize("key_type", [SHARE_GROUPS, 3, -1])
@pytest.mark.parametrize("version", range(1, 7))
def test_a_key_type_that_is_not_served_is_refused(broker, version, key_type):
    reply = broker.call(K.FIND_COORDINATOR, version, key="k", key_type=key_type, coordinator_keys=["k"])
    (row,) = reply.coordinators if version in BATCH else (reply,)
    assert place(row) == (E.INVALID_REQUEST, -1, "", -1) and row.error_message


def test_version_0_has_groups_only():
    broker = MemoryBroker(**FEW)
    assert place(broker.call(K.FIND_COORDINATOR, 0, key="k", key_type=FOR_TRANSACTIONS)) == here(broker)
    assert [*broker.assembly.broker.cluster.topics] == ["__consumer_offsets"]


@pytest.mark.parametrize(
    ("key_type", "topic"), [(FOR_GROUPS, "__consumer_offsets"), (FOR_TRANSACTIONS, "__transaction_state")]
)
def test_the_first_request_creates_the_internal_topic(key_type, topic):
    broker = MemoryBroker(**FEW)
    for _ in range(2):
        broker.call_when_ready(K.FIND_COORDINATOR, 1, key="k", key_type=key_type)
        (made,) = broker.assembly.broker.cluster.topics.values()
        assert (made.name, made.partition_count, made.internal) == (topic, 1, True)


@pytest.mark.parametrize("version", [3, 4])
def test_a_coordinator_whose_topic_cannot_be_created_is_unavailable(version):
    broker = MemoryBroker(**FEW)
    metadata = broker.assembly.broker.cluster.metadata_log.partition
    broker.turns.event(lambda: metadata.take_offline("no space"))
    reply = broker.call(K.FIND_COORDINATOR, version, key="k", key_type=0, coordinator_keys=["k"])
    (row,) = reply.coordinators if version in BATCH else (reply,)
    assert place(row) == (E.COORDINATOR_NOT_AVAILABLE, -1, "", -1)
