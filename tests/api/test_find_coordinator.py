"""FindCoordinator: one broker coordinates everything; the first request creates the internal topic."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import FEW, FOR_GROUPS, FOR_TRANSACTIONS
from tests.lone import Lone

SHARE_GROUPS = 2
SINGLE, BATCH = range(4), range(4, 7)


@pytest.fixture(scope="module")
def lone():
    return Lone(**FEW)


def place(row):
    return E(row.error_code), row.node_id, row.host, row.port


def here(lone):
    broker = lone.assembly.broker
    return E.NONE, *broker.endpoints["PLAINTEXT"][:3]


@pytest.mark.parametrize("key_type", [FOR_GROUPS, FOR_TRANSACTIONS])
@pytest.mark.parametrize("version", SINGLE)
def test_the_coordinator_of_a_key_is_this_broker(lone, version, key_type):
    assert place(lone.call(K.FIND_COORDINATOR, version, key="k", key_type=key_type)) == here(lone)


@pytest.mark.parametrize("key_type", [FOR_GROUPS, FOR_TRANSACTIONS])
@pytest.mark.parametrize("version", BATCH)
def test_several_keys_are_answered_once_each_in_order(lone, version, key_type):
    asked = {"key_type": key_type, "coordinator_keys": ["b", "a", "b", ""]}
    rows = lone.call(K.FIND_COORDINATOR, version, **asked).coordinators
    assert [(row.key, *place(row), row.error_message) for row in rows] == [
        (key, *here(lone), "") for key in ("b", "a", "")
    ]


@pytest.mark.parametrize("key_type", [SHARE_GROUPS, 3, -1])
@pytest.mark.parametrize("version", range(1, 7))
def test_a_key_type_that_is_not_served_is_refused(lone, version, key_type):
    reply = lone.call(K.FIND_COORDINATOR, version, key="k", key_type=key_type, coordinator_keys=["k"])
    (row,) = reply.coordinators if version in BATCH else (reply,)
    assert place(row) == (E.INVALID_REQUEST, -1, "", -1) and row.error_message


def test_version_0_has_groups_only():
    lone = Lone(**FEW)
    assert place(lone.call(K.FIND_COORDINATOR, 0, key="k", key_type=FOR_TRANSACTIONS)) == here(lone)
    assert [*lone.assembly.broker.cluster.topics] == ["__consumer_offsets"]


@pytest.mark.parametrize(
    ("key_type", "topic"), [(FOR_GROUPS, "__consumer_offsets"), (FOR_TRANSACTIONS, "__transaction_state")]
)
def test_the_topic_behind_a_coordinator_is_made_for_whoever_asks_first(key_type, topic):
    lone = Lone(**FEW)
    for _ in range(2):
        lone.call_when_ready(K.FIND_COORDINATOR, 1, key="k", key_type=key_type)
        (made,) = lone.assembly.broker.cluster.topics.values()
        assert (made.name, made.partition_count, made.internal) == (topic, 1, True)


@pytest.mark.parametrize("version", [3, 4])
def test_without_a_topic_behind_it_there_is_no_coordinator(version):
    lone = Lone(**FEW)
    metadata = lone.assembly.broker.cluster.metadata_log.partition
    lone.turns.event(lambda: metadata.take_offline("no space"))
    reply = lone.call(K.FIND_COORDINATOR, version, key="k", key_type=0, coordinator_keys=["k"])
    (row,) = reply.coordinators if version in BATCH else (reply,)
    assert place(row) == (E.COORDINATOR_NOT_AVAILABLE, -1, "", -1)
