"""ApiVersions: the versions that clients choose from; for newer clients see `tests/wire/broker/test_bad_frames.py`."""

import pytest

from ottla.broker.api.table import TABLE
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.memory_broker import MemoryBroker

CLIENT = {"client_software_name": "kafka-python", "client_software_version": "3.0.12"}
LEVELS = {"metadata.version": 30, "transaction.version": 2, "group.version": 1}


@pytest.fixture(scope="module")
def broker():
    return MemoryBroker()


@pytest.mark.parametrize("version", range(6))
def test_served_versions_are_listed_and_produce_is_from_version_0(broker, version):
    reply = broker.call(K.API_VERSIONS, version, **CLIENT)
    listed = {row.api_key: (row.min_version, row.max_version) for row in reply.api_keys}
    served = {key: (api.min_version, api.max_version) for key, api in TABLE.items()}
    assert reply.error_code == E.NONE and listed == served | {K.PRODUCE: (0, 13)}


@pytest.mark.parametrize(("version", "supported"), [(3, {"metadata.version": (7, 30)}), (4, None)])
def test_features_whose_lowest_level_is_0_are_listed_from_version_4_on(broker, version, supported):
    reply = broker.call(K.API_VERSIONS, version, **CLIENT)
    listed = {row.name: (row.min_version, row.max_version) for row in reply.supported_features}
    assert listed == (
        supported or {"metadata.version": (7, 30), "transaction.version": (0, 2), "group.version": (0, 1)}
    )
    levels = {row.name: (row.min_version_level, row.max_version_level) for row in reply.finalized_features}
    assert levels == {name: (level, level) for name, level in LEVELS.items()}


def test_a_changed_feature_level_raises_the_features_epoch():
    broker = MemoryBroker()
    before = broker.call(K.API_VERSIONS, 3, **CLIENT)
    update = {"feature": "transaction.version", "max_version_level": 0, "upgrade_type": 2}
    assert broker.call(K.UPDATE_FEATURES, 1, feature_updates=[update]).error_code == E.NONE
    after = broker.call(K.API_VERSIONS, 3, **CLIENT)
    assert [row.name for row in after.finalized_features] == ["metadata.version", "group.version"]
    assert after.finalized_features_epoch > before.finalized_features_epoch >= 0


@pytest.mark.parametrize("said", ["", "-a", "a-", ".a", "a.", "a b", "a_b", "ä", "a\n"])
@pytest.mark.parametrize("field", CLIENT)
@pytest.mark.parametrize("version", [3, 4, 5])
def test_an_invalid_client_software_name_or_version_is_refused(broker, version, field, said):
    reply = broker.call(K.API_VERSIONS, version, **CLIENT | {field: said})
    assert (reply.error_code, reply.api_keys, reply.supported_features) == (E.INVALID_REQUEST, [], [])


@pytest.mark.parametrize("said", ["a", "7", "a-b.c", "A--z"])
def test_a_valid_client_software_name_or_version_is_accepted(broker, said):
    for field in CLIENT:
        assert broker.call(K.API_VERSIONS, 3, **CLIENT | {field: said}).error_code == E.NONE


def cluster_of(broker):
    return broker.assembly.broker.logs.properties.cluster_id


@pytest.mark.parametrize(
    ("is_this", "node_id", "error"),
    [
        (None, -1, E.NONE),
        (True, 1, E.NONE),
        (True, 2, E.REBOOTSTRAP_REQUIRED),
        (False, 1, E.REBOOTSTRAP_REQUIRED),
        (None, 1, E.INVALID_REQUEST),
        (True, -1, E.INVALID_REQUEST),
    ],
)
def test_a_client_that_means_another_cluster_or_node_has_to_bootstrap_again(broker, is_this, node_id, error):
    cluster_id = None if is_this is None else cluster_of(broker) if is_this else "another"
    reply = broker.call(K.API_VERSIONS, 5, **CLIENT, cluster_id=cluster_id, node_id=node_id)
    assert reply.error_code == error and bool(reply.api_keys) is (error is E.NONE)
    unnamed = broker.call(K.API_VERSIONS, 4, **CLIENT, cluster_id=cluster_id, node_id=node_id)
    assert unnamed.error_code == E.NONE, "version 4 does not send them"


def test_each_broker_of_a_process_is_a_node_of_its_own():
    cluster = MemoryBroker(brokers=3)
    for number in (1, 2, 3):
        asked = {**CLIENT, "cluster_id": cluster_of(cluster), "node_id": 2}
        reply = cluster.ask_broker(number).call(K.API_VERSIONS, 5, **asked)
        assert reply.error_code == (E.NONE if number == 2 else E.REBOOTSTRAP_REQUIRED)
