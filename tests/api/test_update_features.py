"""UpdateFeatures: all requested levels change, or none. The tests of the cluster have the levels that are valid."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import coordinating
from tests.memory_broker import MemoryBroker

TV, MV, GV = "transaction.version", "metadata.version", "group.version"
UP, SAFE, UNSAFE = 1, 2, 3


@pytest.fixture
def broker():
    return MemoryBroker()


def update(broker, version, *rows, validate_only=False):
    """Update (feature, level, upgrade type) each; return (error, has a message, [(feature, error, message)])."""
    updates = [{"feature": name, "max_version_level": level, "upgrade_type": kind} for name, level, kind in rows]
    reply = broker.call(K.UPDATE_FEATURES, version, feature_updates=updates, validate_only=validate_only)
    results = [(row.feature, row.error_code, row.error_message) for row in reply.results or ()]
    return E(reply.error_code), bool(reply.error_message), results


def levels(broker):
    return dict(broker.assembly.broker.cluster.image.features)


@pytest.mark.parametrize(
    ("version", "level", "kind"), [(0, 2, UP), (1, 1, SAFE), (1, 0, UNSAFE), (2, 1, SAFE), (2, 2, UP), (2, 0, SAFE)]
)
def test_a_level_changes_and_is_returned_up_to_version_1(broker, version, level, kind):
    told = [(TV, 0, "NONE")] if version <= 1 else []
    assert update(broker, version, (TV, level, kind)) == (E.NONE, False, told)
    assert levels(broker) == {MV: 30, GV: 1} | ({TV: level} if level else {})


def test_version_0_can_only_upgrade(broker):
    assert update(broker, 0, (TV, 1, SAFE)) == (E.INVALID_UPDATE_VERSION, True, [])
    assert levels(broker)[TV] == 2


@pytest.mark.parametrize(
    "rows",
    [
        [(TV, 1, UP)],
        [(TV, 1, SAFE), ("nope", 1, UP)],
        [("nope", 1, UP), (TV, 1, SAFE)],
        [(TV, 3, UP)],
        [(MV, 29, UNSAFE)],
        [(TV, 1, 0)],
    ],
    ids=["down by an upgrade", "one is none", "the first is none", "too high", "metadata", "no type"],
)
@pytest.mark.parametrize("version", [1, 2])
def test_an_invalid_update_keeps_all_features_unchanged(broker, version, rows):
    broker.mark()
    assert update(broker, version, *rows) == (E.INVALID_UPDATE_VERSION, True, [])
    assert levels(broker) == {MV: 30, TV: 2, GV: 1} and not broker.has_changed()


@pytest.mark.parametrize("version", [1, 2])
def test_validation_changes_nothing_and_version_0_has_none(broker, version):
    broker.mark()
    assert update(broker, version, (TV, 1, SAFE), validate_only=True)[0] is E.NONE
    assert update(broker, version, (TV, 1, UP), validate_only=True)[0] is E.INVALID_UPDATE_VERSION
    assert levels(broker)[TV] == 2 and not broker.has_changed()
    update(broker, 1, (TV, 0, SAFE))
    assert update(broker, 0, (TV, 1, UP), validate_only=True)[0] is E.NONE
    assert levels(broker)[TV] == 1


def test_of_two_updates_of_one_feature_the_last_counts(broker):
    assert update(broker, 1, (TV, 0, UP), (TV, 1, SAFE)) == (E.NONE, False, [(TV, 0, "NONE")] * 2)
    assert levels(broker)[TV] == 1


def test_a_level_that_cannot_be_logged_is_not_applied(broker):
    metadata = broker.assembly.broker.cluster.metadata_log.partition
    broker.turns.event(lambda: metadata.take_offline("no space"))
    assert update(broker, 1, (TV, 1, SAFE)) == (E.KAFKA_STORAGE_ERROR, True, [])
    assert levels(broker)[TV] == 2


def test_a_level_is_in_force_when_it_is_on_the_device(flushing):
    row = {"feature": TV, "max_version_level": 1, "upgrade_type": SAFE}
    assert flushing.ask(K.UPDATE_FEATURES, 1, feature_updates=[row]).error_code == E.NONE
    assert levels(flushing.broker)[TV] == 1


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_broker_begins_with_the_level_of_its_option(level):
    broker = coordinating(transaction_version=level) if level else MemoryBroker(transaction_version=0)
    assert levels(broker) == {MV: 30, GV: 1} | ({TV: level} if level else {})
