"""IncrementalAlterConfigs: single configs of topics, brokers and groups; also the errors that AlterConfigs shares."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, ORDERS

VERSIONS = range(2)
SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def resource(kind, name, *changes):
    configs = [{"name": key, "config_operation": what, "value": value} for key, what, value in changes]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def alter(broker, version, *resources, validate_only=False):
    """Alter configs and return [(type, name, error)]; every error has a message."""
    rows = broker.call(
        K.INCREMENTAL_ALTER_CONFIGS, version, resources=[*resources], validate_only=validate_only
    ).responses
    assert all(bool(row.error_message) == bool(row.error_code) for row in rows)
    return [(row.resource_type, row.resource_name, E(row.error_code)) for row in rows]


def own(broker, kind=TOPIC, name=LEDGER):
    return dict(broker.assembly.broker.cluster.image.configs_of(kind, name) or {})


@pytest.mark.parametrize("version", VERSIONS)
def test_each_operation_changes_one_config_and_leaves_the_others(broker, version):
    for changes, found in (
        (
            [("retention.ms", SET, "7"), ("cleanup.policy", SET, "compact")],
            {"retention.ms": "7", "cleanup.policy": "compact"},
        ),
        ([("cleanup.policy", APPEND, "delete")], {"retention.ms": "7", "cleanup.policy": "compact,delete"}),
        ([("cleanup.policy", SUBTRACT, "compact")], {"retention.ms": "7", "cleanup.policy": "delete"}),
        ([("retention.ms", DELETE, None)], {"cleanup.policy": "delete"}),
        ([("cleanup.policy", DELETE, "whatever")], {}),
    ):
        assert alter(broker, version, resource(TOPIC, LEDGER, *changes)) == [(TOPIC, LEDGER, E.NONE)]
        assert own(broker) == found


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, LEDGER), (BROKER, "1"), (BROKER, ""), (GROUP, "g")])
@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_kind_of_resource_is_changed_or_only_validated(broker, version, kind, name, validate_only):
    key = {TOPIC: "retention.ms", BROKER: "log.retention.ms", GROUP: "consumer.session.timeout.ms"}[kind]
    asked = resource(kind, name, (key, SET, "50000"))
    assert alter(broker, version, asked, validate_only=validate_only) == [(kind, name, E.NONE)]
    assert own(broker, kind, name) == ({} if validate_only else {key: "50000"})


GOOD = ("segment.ms", SET, "9000")
BAD = [
    pytest.param(resource(TOPIC, LEDGER, GOOD, GOOD), E.INVALID_REQUEST, id="a config twice"),
    pytest.param(resource(TOPIC, LEDGER, GOOD, ("retention.ms", SET, None)), E.INVALID_REQUEST, id="no value"),
    pytest.param(
        resource(TOPIC, LEDGER, GOOD, ("cleanup.policy", APPEND, None)), E.INVALID_REQUEST, id="appended nothing"
    ),
    pytest.param(resource(TOPIC, LEDGER, GOOD, ("retention.ms", 4, "5")), E.INVALID_REQUEST, id="no such operation"),
    pytest.param(resource(TOPIC, LEDGER, GOOD, ("retention.ms", SET, "soon")), E.INVALID_CONFIG, id="a bad value"),
    pytest.param(resource(TOPIC, LEDGER, GOOD, ("no.such.config", SET, "5")), E.INVALID_CONFIG, id="no such config"),
    pytest.param(resource(TOPIC, LEDGER, GOOD, ("retention.ms", APPEND, "5")), E.INVALID_CONFIG, id="no list"),
    pytest.param(resource(TOPIC, "nowhere", GOOD), E.UNKNOWN_TOPIC_OR_PARTITION, id="no such topic"),
    pytest.param(resource(TOPIC, "a/b", GOOD), E.INVALID_TOPIC_EXCEPTION, id="no topic's name"),
    pytest.param(
        resource(TOPIC, "a/b", ("retention.ms", SET, "soon")), E.INVALID_TOPIC_EXCEPTION, id="neither name nor value"
    ),
    pytest.param(
        resource(TOPIC, "nowhere", ("retention.ms", SET, "soon")), E.INVALID_CONFIG, id="neither topic nor value"
    ),
    pytest.param(resource(TOPIC, "", GOOD), E.INVALID_REQUEST, id="no name"),
    pytest.param(resource(BROKER, "2", ("log.retention.ms", SET, "7000")), E.INVALID_REQUEST, id="another broker"),
    pytest.param(resource(BROKER, "-1", ("log.retention.ms", SET, "7000")), E.INVALID_REQUEST, id="a negative broker"),
    pytest.param(resource(BROKER, "one", ("log.retention.ms", SET, "7000")), E.INVALID_REQUEST, id="no number"),
    pytest.param(
        resource(BROKER, "1", ("log.retention.ms", SET, "soon")), E.INVALID_REQUEST, id="a broker's bad value"
    ),
    pytest.param(resource(BROKER, "1", ("node.id", SET, "7")), E.INVALID_REQUEST, id="fixed at the start"),
    pytest.param(resource(GROUP, "", ("consumer.session.timeout.ms", SET, "50000")), E.INVALID_REQUEST, id="no group"),
    pytest.param(
        resource(GROUP, "g", ("consumer.session.timeout.ms", SET, "5")), E.INVALID_CONFIG, id="too short a session"
    ),
    pytest.param(resource(BROKER_LOGGER, "1", ("root", SET, "INFO")), E.INVALID_REQUEST, id="a logger"),
    pytest.param(resource(CLIENT_METRICS, "m", ("interval.ms", SET, "5")), E.INVALID_REQUEST, id="client metrics"),
    pytest.param(resource(0, "x", GOOD), E.INVALID_REQUEST, id="no such type"),
]


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(("asked", "error"), BAD)
def test_of_a_resource_all_is_changed_or_nothing_and_the_others_are_changed(broker, asked, error, validate_only):
    good = resource(TOPIC, ORDERS, GOOD)
    told = alter(broker, 1, asked, good, validate_only=validate_only)
    assert told == [(asked["resource_type"], asked["resource_name"], error), (TOPIC, ORDERS, E.NONE)]
    assert own(broker) == {} and own(broker, TOPIC, ORDERS) == ({} if validate_only else {"segment.ms": "9000"})


def test_configs_of_the_login_at_other_brokers_change_for_one_broker_only(broker):
    key = "sasl.kerberos.min.time.before.relogin"
    for name, operation, error in (("1", SET, E.NONE), ("", SET, E.INVALID_REQUEST), ("", DELETE, E.NONE)):
        assert alter(broker, 1, resource(BROKER, name, (key, operation, "58000"))) == [(BROKER, name, error)]
    assert (own(broker, BROKER, "1"), own(broker, BROKER, "")) == ({key: "58000"}, {})


@pytest.mark.parametrize("version", VERSIONS)
def test_a_resource_that_is_named_twice_is_refused_each_time(broker, version):
    asked = resource(TOPIC, LEDGER, ("retention.ms", SET, "1")), resource(TOPIC, LEDGER, ("segment.ms", SET, "1"))
    told = alter(broker, version, asked[0], resource(GROUP, LEDGER), asked[1])
    assert told == [(TOPIC, LEDGER, E.INVALID_REQUEST), (GROUP, LEDGER, E.NONE), (TOPIC, LEDGER, E.INVALID_REQUEST)]
    assert own(broker) == {}


def test_a_change_that_cannot_be_logged_is_not_applied(broker):
    metadata = broker.assembly.broker.cluster.metadata_log.partition
    broker.turns.event(lambda: metadata.take_offline("no space"))
    told = alter(broker, 1, resource(TOPIC, LEDGER, GOOD), resource(TOPIC, ORDERS, GOOD))
    assert told == [(TOPIC, LEDGER, E.KAFKA_STORAGE_ERROR), (TOPIC, ORDERS, E.KAFKA_STORAGE_ERROR)]
    assert own(broker) == {}


@pytest.mark.parametrize("api_key", [K.INCREMENTAL_ALTER_CONFIGS, K.ALTER_CONFIGS])
def test_configs_are_changed_when_they_are_on_the_device(flushing, api_key):
    flushing.broker.create_topic(LEDGER)
    asked = resource(TOPIC, LEDGER, GOOD)
    if api_key is K.ALTER_CONFIGS:
        asked["configs"] = [{"name": "segment.ms", "value": "9000"}]
    (row,) = flushing.ask(api_key, 1, resources=[asked], validate_only=False).responses
    assert row.error_code == E.NONE and own(flushing.broker) == {"segment.ms": "9000"}
