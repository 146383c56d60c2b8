"""What programs that administer a cluster ask, answered alike by Ottla and by Apache Kafka."""

import pytest
from rig import CREATE_TOPICS, METADATA

from ottla.protocol import codec
from ottla.protocol.errors import ErrorCode

DESCRIBE_CLUSTER = 60
NOT_ASKED = None
"""What the library reads -2147483648 as."""
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
def test_authorized_operations_are_all_of_them_where_nobody_is_refused(rig, ask, version):
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
