"""DescribeConfigs: effective values, their sources, and the fields that later versions add."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.memory_broker import MemoryBroker

VERSIONS = range(1, 5)
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
OF_TOPIC, OF_BROKER, OF_CLUSTER, DEFAULT = 1, 2, 3, 5


@pytest.fixture(scope="module")
def broker():
    """Return a broker whose topic, broker and cluster have one config each."""
    broker = MemoryBroker()
    broker.create_topic("ledger", retention_ms="7000")
    broker.create_topic("plain")
    for name, value in (("", "2000000"), ("1", "3000000")):
        configs = [{"name": "log.segment.bytes", "config_operation": 0, "value": value}]
        resource = {"resource_type": BROKER, "resource_name": name, "configs": configs}
        broker.call(K.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    return broker


def resource(kind, name, *keys):
    return {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}


def describe(broker, version, *resources, **more):
    return broker.call(K.DESCRIBE_CONFIGS, version, resources=[*resources], **more).results


def read_configs(broker, version, kind, name, *keys, **more):
    """Return {config: row}."""
    (row,) = describe(broker, version, resource(kind, name, *keys), **more)
    assert (row.error_code, row.error_message, row.resource_type, row.resource_name) == (E.NONE, "", kind, name)
    return {config.name: config for config in row.configs}


@pytest.mark.parametrize(
    ("kind", "name", "key", "value", "source"),
    [
        (TOPIC, "ledger", "retention.ms", "7000", OF_TOPIC),
        (TOPIC, "ledger", "segment.bytes", "3000000", OF_BROKER),
        (TOPIC, "ledger", "cleanup.policy", "delete", DEFAULT),
        (BROKER, "1", "log.segment.bytes", "3000000", OF_BROKER),
        (BROKER, "", "log.segment.bytes", "2000000", OF_CLUSTER),
        (GROUP, "g", "consumer.session.timeout.ms", "45000", DEFAULT),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_value_has_its_source(broker, version, kind, name, key, value, source):
    row = read_configs(broker, version, kind, name)[key]
    assert (row.value, row.config_source, row.read_only, row.is_sensitive) == (value, source, False, False)


@pytest.mark.parametrize("version", VERSIONS)
def test_synonyms_are_returned_on_request_with_the_effective_one_first(broker, version):
    for asked_for in (False, True):
        row = read_configs(broker, version, TOPIC, "ledger", "segment.bytes", include_synonyms=asked_for)[
            "segment.bytes"
        ]
        told = [(each.name, each.value, each.source) for each in row.synonyms]
        levels = [("3000000", OF_BROKER), ("2000000", OF_CLUSTER), ("1073741824", DEFAULT)]
        assert told == ([("log.segment.bytes", *level) for level in levels] if asked_for else [])


@pytest.mark.parametrize("asked_for", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_types_and_requested_documentation_are_returned_from_version_3_on(broker, version, asked_for):
    row = read_configs(broker, version, TOPIC, "ledger", include_documentation=asked_for)["retention.ms"]
    assert row.config_type == (5 if version >= 3 else 0), "5 is a long"
    assert bool(row.documentation) == (version >= 3 and asked_for)


@pytest.mark.parametrize("version", VERSIONS)
def test_requested_keys_are_returned_and_unknown_ones_left_out(broker, version):
    found = read_configs(broker, version, TOPIC, "ledger", "retention.ms", "no.such.key", "segment.ms")
    assert found.keys() == {"retention.ms", "segment.ms"}
    everything = {"resource_type": TOPIC, "resource_name": "ledger", "configuration_keys": []}
    (row,) = describe(broker, version, everything)
    assert len(row.configs) == len(read_configs(broker, version, TOPIC, "ledger")) > 20


BAD = [
    (TOPIC, "nowhere", E.UNKNOWN_TOPIC_OR_PARTITION),
    (TOPIC, "a/b", E.INVALID_TOPIC_EXCEPTION),
    (TOPIC, "", E.INVALID_TOPIC_EXCEPTION),
    (BROKER, "2", E.INVALID_REQUEST),
    (BROKER, "one", E.INVALID_REQUEST),
    (GROUP, "", E.INVALID_REQUEST),
    (BROKER_LOGGER, "1", E.INVALID_REQUEST),
    (CLIENT_METRICS, "m", E.INVALID_REQUEST),
    (0, "x", E.INVALID_REQUEST),
]


@pytest.mark.parametrize(("kind", "name", "error"), BAD)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_resource_that_is_not_there_has_a_reason_and_the_others_their_configs(broker, version, kind, name, error):
    bad, good = describe(broker, version, resource(kind, name), resource(TOPIC, "ledger"))
    assert (bad.error_code, bad.resource_type, bad.resource_name, bad.configs) == (error, kind, name, [])
    assert bad.error_message and good.error_code == E.NONE and good.configs


def test_a_resource_named_twice_is_described_once_with_its_last_keys(broker):
    once, other = describe(
        broker,
        4,
        resource(TOPIC, "ledger", "segment.ms"),
        resource(BROKER, "1"),
        resource(TOPIC, "ledger", "retention.ms"),
    )
    assert [config.name for config in once.configs] == ["retention.ms"] and other.resource_type == BROKER


KAFKAS_ORDER = [
    "compression.type",
    "leader.replication.throttled.replicas",
    "min.insync.replicas",
    "segment.jitter.ms",
    "cleanup.policy",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "compression.lz4.level",
    "segment.bytes",
    "retention.ms",
    "compression.gzip.level",
    "flush.messages",
    "compression.zstd.level",
    "max.compaction.lag.ms",
    "file.delete.delay.ms",
    "max.message.bytes",
    "min.compaction.lag.ms",
    "message.timestamp.type",
    "preallocate",
    "index.interval.bytes",
    "min.cleanable.dirty.ratio",
    "unclean.leader.election.enable",
    "retention.bytes",
    "delete.retention.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "segment.ms",
    "segment.index.bytes",
]
"""The order of Kafka 4.3.1, without the configs of tiered storage."""


@pytest.mark.parametrize("version", VERSIONS)
def test_topic_configs_are_in_kafkas_order(broker, version):
    assert [*read_configs(broker, version, TOPIC, "ledger")] == KAFKAS_ORDER


@pytest.mark.parametrize("version", VERSIONS)
def test_configs_without_a_source_have_no_synonyms(broker, version):
    found = read_configs(broker, version, TOPIC, "plain", include_synonyms=True)
    without = {name for name, row in found.items() if not [*row.synonyms]}
    of_no_replication = {f"{role}.replication.throttled.replicas" for role in ("leader", "follower")}
    assert without == {"retention.ms", "segment.ms", "segment.jitter.ms", "flush.ms", *of_no_replication}
    assert {found[name].config_source for name in without} == {DEFAULT}
    (of_preallocate,) = found["preallocate"].synonyms
    assert (of_preallocate.name, of_preallocate.value) == ("log.preallocate", "false")
