"""Requests of programs that administer a cluster: Ottla and Apache Kafka give the same answers."""

import pytest
from rig import CREATE_TOPICS, METADATA, wait_until

from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec

DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS, DESCRIBE_CLUSTER = 32, 33, 44, 60
BROKER, GROUP = 4, 32
NOT_ASKED = None
"""The library's reading of -2147483648."""
OF_TOPIC = {3, 4, 5, 6, 7, 8, 10, 11}
OF_CLUSTER = {5, 7, 8, 9, 10, 11, 12}

on_both = pytest.mark.parametrize(
    "rig",
    ["ottla", pytest.param("apache", marks=(pytest.mark.maven, pytest.mark.conformance))],
    indirect=True,
)


@pytest.fixture
def ask(rig):
    connection = rig.client()
    yield lambda api_key, version, **fields: connection.send(codec.request_class(api_key)(**fields), version)
    connection.close()


@on_both
@pytest.mark.parametrize("version", range(2, 8))
def test_topic_is_created_with_the_brokers_defaults_in_every_version(rig, ask, version):
    topic = codec.request_class(CREATE_TOPICS).CreatableTopic
    name = f"by-default-{version}"
    row = topic(name=name, num_partitions=-1, replication_factor=-1, assignments=[], configs=[])
    reply = ask(CREATE_TOPICS, version, topics=[row], timeout_ms=10_000, validate_only=False)
    assert [(each.name, each.error_code) for each in reply.topics] == [(name, ErrorCode.NONE)]
    if version >= 5:
        assert (reply.topics[0].num_partitions, reply.topics[0].replication_factor) == (1, 1)


def metadata(ask, version, names, **include):
    topic = codec.request_class(METADATA).MetadataRequestTopic
    rows = [topic(name=name) for name in names]
    return ask(METADATA, version, topics=rows, allow_auto_topic_creation=False, **include)


@on_both
@pytest.mark.parametrize("version", range(8, 13))
def test_authorized_operations_are_complete_without_an_authorizer(rig, ask, version):
    def operations(of_topics, of_cluster):
        include = {"include_topic_authorized_operations": of_topics}
        if version <= 10:
            include["include_cluster_authorized_operations"] = of_cluster
        reply = metadata(ask, version, [rig.topic, "absent"], **include)
        rows = {row.name: row.authorized_operations for row in reply.topics}
        return rows[rig.topic], rows["absent"], reply.authorized_operations if version <= 10 else NOT_ASKED

    of_cluster = OF_CLUSTER if version <= 10 else NOT_ASKED
    assert operations(True, True) == (OF_TOPIC, OF_TOPIC, of_cluster)
    assert operations(False, True) == (NOT_ASKED, NOT_ASKED, of_cluster)
    assert operations(False, False) == (NOT_ASKED, NOT_ASKED, NOT_ASKED)


@on_both
@pytest.mark.parametrize("version", [0, 1])
def test_authorized_operations_of_the_cluster(rig, ask, version):
    endpoint = {"endpoint_type": 1} if version else {}
    for asked, operations in ((True, OF_CLUSTER), (False, NOT_ASKED)):
        reply = ask(DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=asked, **endpoint)
        assert (reply.error_code, reply.authorized_operations) == (ErrorCode.NONE, operations)


SET, DELETE, APPEND = 0, 1, 2


def alter(ask, kind, name, *changes, validate_only=False):
    """Send IncrementalAlterConfigs for one resource and return its error."""
    resource = codec.request_class(INCREMENTAL_ALTER_CONFIGS).AlterConfigsResource
    configs = [resource.AlterableConfig(name=key, config_operation=what, value=value) for key, what, value in changes]
    row = resource(resource_type=kind, resource_name=name, configs=configs)
    reply = ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=[row], validate_only=validate_only)
    return ErrorCode(reply.responses[0].error_code)


def describe(ask, kind, name, *keys):
    """Return {config: (value, source, read only, [(value, source) of the synonyms])}."""
    resource = codec.request_class(DESCRIBE_CONFIGS).DescribeConfigsResource
    row = resource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    reply = ask(DESCRIBE_CONFIGS, 4, resources=[row], include_synonyms=True, include_documentation=False)
    return {
        config.name: (
            config.value,
            config.config_source,
            config.read_only,
            [(s.value, s.source) for s in config.synonyms],
        )
        for config in reply.results[0].configs
    }


@on_both
def test_configs_of_brokers_change_while_they_run(rig, ask):
    def segment_bytes():
        return describe(ask, BROKER, "1", "log.segment.bytes").get("log.segment.bytes")

    default = ("1073741824", 5)
    assert segment_bytes() == (*default, False, [default])
    assert alter(ask, BROKER, "", ("log.segment.bytes", SET, "2000000")) == ErrorCode.NONE
    wait_until(lambda: segment_bytes() == ("2000000", 3, False, [("2000000", 3), default]))
    assert alter(ask, BROKER, "1", ("log.segment.bytes", SET, "3000000")) == ErrorCode.NONE
    levels = [("3000000", 2), ("2000000", 3), default]
    wait_until(lambda: segment_bytes() == ("3000000", 2, False, levels))
    assert describe(ask, BROKER, "")["log.segment.bytes"] == ("2000000", 3, False, [("2000000", 3)])
    assert describe(ask, 2, rig.topic, "segment.bytes")["segment.bytes"] == ("3000000", 2, False, levels)

    assert alter(ask, BROKER, "1", ("log.segment.bytes", SET, "4000000"), validate_only=True) == ErrorCode.NONE
    assert alter(ask, BROKER, "", ("log.segment.bytes", DELETE, None)) == ErrorCode.NONE
    row = codec.request_class(ALTER_CONFIGS).AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[])
    assert ask(ALTER_CONFIGS, 2, resources=[row], validate_only=False).responses[0].error_code == ErrorCode.NONE
    wait_until(lambda: segment_bytes() == (*default, False, [default]))


@on_both
@pytest.mark.parametrize(
    ("name", "change", "error"),
    [
        ("1", ("num.io.threads", SET, "9"), ErrorCode.NONE),
        ("", ("log.retention.ms", SET, "700000"), ErrorCode.NONE),
        ("1", ("log.retention.ms", SET, "soon"), ErrorCode.INVALID_REQUEST),
        ("1", ("log.segment.bytes", SET, "5"), ErrorCode.INVALID_REQUEST),
        ("1", ("node.id", SET, "7"), ErrorCode.INVALID_REQUEST),
        ("1", ("log.retention.hours", SET, "7"), ErrorCode.INVALID_REQUEST),
        ("1", ("ssl.keystore.location", SET, "/x"), ErrorCode.INVALID_REQUEST),
        ("1", ("some.plugin", SET, "x"), ErrorCode.NONE),
        ("1", ("message.max.bytes", APPEND, "7"), ErrorCode.INVALID_CONFIG),
        ("7", ("log.retention.ms", SET, "7000"), ErrorCode.INVALID_REQUEST),
        ("one", ("log.retention.ms", SET, "7000"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_change_of_a_broker_config_is_validated(rig, ask, name, change, error):
    assert alter(ask, BROKER, name, change, validate_only=True) == error


@on_both
def test_the_value_of_an_unknown_broker_config_is_not_described(rig, ask):
    assert alter(ask, BROKER, "1", ("my.plugin.password", SET, "secret")) == ErrorCode.NONE
    wait_until(lambda: "my.plugin.password" in describe(ask, BROKER, "1"))
    assert describe(ask, BROKER, "1")["my.plugin.password"] == (None, 2, True, [(None, 2)])
    assert alter(ask, BROKER, "1", ("my.plugin.password", DELETE, None)) == ErrorCode.NONE


@on_both
def test_configs_of_groups_are_kept(rig, ask):
    key, default = "consumer.session.timeout.ms", ("45000", 5)
    assert describe(ask, GROUP, "g-1", key)[key] == (*default, False, [default])
    assert alter(ask, GROUP, "g-1", (key, SET, "50000")) == ErrorCode.NONE
    wait_until(lambda: describe(ask, GROUP, "g-1", key)[key] == ("50000", 8, False, [("50000", 8), default]))
    assert alter(ask, GROUP, "g-1", (key, SET, "5")) == ErrorCode.INVALID_CONFIG
    assert alter(ask, GROUP, "g-1", ("retention.ms", SET, "5")) == ErrorCode.INVALID_CONFIG
    assert alter(ask, GROUP, "", (key, SET, "50000")) == ErrorCode.INVALID_REQUEST
    assert len(describe(ask, GROUP, "g-2")) == 17
