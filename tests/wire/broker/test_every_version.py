"""The broker answers every advertised version, and a client can read the answer."""

import subprocess
import sys
import time
import uuid

import pytest

from ottla.broker.api.table import TABLE
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.requests import codec
from ottla.wire.connection import BlockingConnection
from tests.timeout import EVENT_TIMEOUT_S

TOPIC = "every-version"
CASES = [
    pytest.param(key, version, id=f"{api.title}-v{version}")
    for key, api in TABLE.items()
    for version in range(api.min_version, api.max_version + 1)
]


def ask_data(key, request, version, topic, group, row):
    match ApiKey(key):
        case ApiKey.PRODUCE:
            data = request.TopicProduceData
            partition = data.PartitionProduceData(index=0, records=bytes(build_batch([(b"k", b"v")], timestamp_ms=1)))
            topics = [data(name=topic, partition_data=[partition])]
            return request(transactional_id=None, acks=1, timeout_ms=1000, topic_data=topics)
        case ApiKey.FETCH:
            partition = request.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
            topics = [request.FetchTopic(topic=topic, partitions=[partition])]
            return request(
                replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=topics, forgotten_topics_data=[]
            )
        case ApiKey.LIST_OFFSETS:
            partition = request.ListOffsetsTopic.ListOffsetsPartition(timestamp=-1, **row)
            return request(replica_id=-1, topics=[request.ListOffsetsTopic(name=topic, partitions=[partition])])
        case ApiKey.METADATA:
            return request(topics=[request.MetadataRequestTopic(name=topic)])
        case ApiKey.FIND_COORDINATOR:
            return request(key=group, key_type=1, coordinator_keys=[group])
        case ApiKey.API_VERSIONS:
            return request(client_software_name="ottla", client_software_version="1")
    return None


def ask_offsets(key, request, version, topic, group, row):
    match ApiKey(key):
        case ApiKey.OFFSET_COMMIT:
            of_topic = request.OffsetCommitRequestTopic
            partition = of_topic.OffsetCommitRequestPartition(committed_offset=1, committed_metadata="", **row)
            topics = [of_topic(name=topic, partitions=[partition])]
            return request(group_id=group, member_id="", topics=topics)
        case ApiKey.OFFSET_FETCH:
            if version >= 8:
                of_group = request.OffsetFetchRequestGroup
                topics = [of_group.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
                return request(groups=[of_group(group_id=group, topics=topics)])
            return request(group_id=group, topics=[request.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])])
        case ApiKey.TXN_OFFSET_COMMIT:
            of_topic = request.TxnOffsetCommitRequestTopic
            partition = of_topic.TxnOffsetCommitRequestPartition(committed_offset=1, committed_metadata=None, **row)
            return request(
                transactional_id=group,
                group_id=group,
                producer_id=1,
                producer_epoch=0,
                topics=[of_topic(name=topic, partitions=[partition])],
            )
    return None


def ask_group(key, request, version, topic, group, row):
    match ApiKey(key):
        case ApiKey.CONSUMER_GROUP_HEARTBEAT:
            return request(
                group_id=group,
                member_id="m",
                member_epoch=0,
                rebalance_timeout_ms=10_000,
                subscribed_topic_names=[topic],
                topic_partitions=[],
            )
        case ApiKey.JOIN_GROUP:
            protocols = [request.JoinGroupRequestProtocol(name="range", metadata=b"")]
            return request(
                group_id=group,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id="",
                protocol_type="consumer",
                protocols=protocols,
            )
        case ApiKey.HEARTBEAT | ApiKey.SYNC_GROUP:
            more = {"assignments": []} if key == ApiKey.SYNC_GROUP else {}
            return request(group_id=group, generation_id=1, member_id="m", **more)
        case ApiKey.LEAVE_GROUP:
            return request(group_id=group, member_id="m", members=[request.MemberIdentity(member_id="m")])
        case ApiKey.DESCRIBE_GROUPS:
            return request(groups=[group])
        case ApiKey.CONSUMER_GROUP_DESCRIBE:
            return request(group_ids=[group])
        case ApiKey.LIST_GROUPS:
            return request(states_filter=[], types_filter=[])
        case ApiKey.DELETE_GROUPS:
            return request(groups_names=[group])
        case ApiKey.OFFSET_DELETE:
            of_topic = request.OffsetDeleteRequestTopic
            partition = of_topic.OffsetDeleteRequestPartition(**row)
            return request(group_id=group, topics=[of_topic(name=topic, partitions=[partition])])
    return None


def ask_transaction(key, request, version, topic, group, row):
    match ApiKey(key):
        case ApiKey.INIT_PRODUCER_ID:
            return request(transactional_id=None, transaction_timeout_ms=1000)
        case ApiKey.ADD_PARTITIONS_TO_TXN:
            topics = [request.AddPartitionsToTxnTopic(name=topic, partitions=[0])]
            return request(
                v3_and_below_transactional_id=group,
                v3_and_below_producer_id=1,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=topics,
            )
        case ApiKey.ADD_OFFSETS_TO_TXN:
            return request(transactional_id=group, producer_id=1, producer_epoch=0, group_id=group)
        case ApiKey.END_TXN:
            return request(transactional_id=group, producer_id=1, producer_epoch=0, committed=True)
        case ApiKey.WRITE_TXN_MARKERS:
            return request(markers=[])
        case ApiKey.DESCRIBE_PRODUCERS:
            return request(topics=[request.TopicRequest(name=topic, partition_indexes=[0])])
        case ApiKey.DESCRIBE_TRANSACTIONS:
            return request(transactional_ids=[group])
        case ApiKey.LIST_TRANSACTIONS:
            return request(state_filters=[], producer_id_filters=[])
    return None


def ask_admin(key, request, version, topic, group, row):
    match ApiKey(key):
        case ApiKey.CREATE_TOPICS:
            created = request.CreatableTopic(
                name=f"created-{version}", num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
            return request(topics=[created])
        case ApiKey.DELETE_TOPICS:
            name = f"absent-{version}"
            return request(
                topics=[request.DeleteTopicState(name=name), request.DeleteTopicState(topic_id=uuid.uuid4())],
                topic_names=[name],
                timeout_ms=1000,
            )
        case ApiKey.DESCRIBE_CONFIGS:
            resource = request.DescribeConfigsResource
            return request(
                resources=[
                    resource(resource_type=2, resource_name=topic, configuration_keys=None),
                    resource(resource_type=4, resource_name="1", configuration_keys=None),
                ],
                include_synonyms=True,
                include_documentation=True,
            )
        case ApiKey.ALTER_CONFIGS | ApiKey.INCREMENTAL_ALTER_CONFIGS:
            resource = request.AlterConfigsResource
            operation = {"config_operation": 0} if key == ApiKey.INCREMENTAL_ALTER_CONFIGS else {}
            configs = [resource.AlterableConfig(name="flush.messages", value="5", **operation)]
            return request(
                resources=[resource(resource_type=2, resource_name=topic, configs=configs)], validate_only=False
            )
        case ApiKey.DESCRIBE_CLUSTER:
            return request()
        case ApiKey.DESCRIBE_CLIENT_QUOTAS:
            return request(
                components=[request.ComponentData(entity_type="user", match_type=2, match=None)], strict=True
            )
        case ApiKey.ALTER_CLIENT_QUOTAS:
            entry = request.EntryData
            entity = entry.EntityData(entity_type="user", entity_name="alice")
            quota = entry.OpData(key="producer_byte_rate", value=1e9, remove=False)
            return request(entries=[entry(entity=[entity], ops=[quota])], validate_only=False)
        case ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS:
            return request(users=[request.UserName(name="alice")])
        case ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
            made = request.ScramCredentialUpsertion(
                name="alice", mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
            )
            return request(deletions=[], upsertions=[made])
        case ApiKey.UPDATE_FEATURES:
            update = request.FeatureUpdateKey(version=version, feature="transaction.version", max_version_level=2)
            return request(feature_updates=[update])
    return None


def ask_partitions(key, request, version, topic, group, row):
    match ApiKey(key):
        case ApiKey.CREATE_PARTITIONS:
            added = request.CreatePartitionsTopic(name=topic, count=2 + version, assignments=None)
            return request(topics=[added], timeout_ms=1000, validate_only=False)
        case ApiKey.DELETE_RECORDS:
            of_topic = request.DeleteRecordsTopic
            partition = of_topic.DeleteRecordsPartition(offset=-1, **row)
            return request(topics=[of_topic(name=topic, partitions=[partition])], timeout_ms=1000)
        case ApiKey.DESCRIBE_LOG_DIRS:
            return request(topics=[request.DescribableLogDirTopic(topic=topic, partitions=[0])])
        case ApiKey.OFFSET_FOR_LEADER_EPOCH:
            of_topic = request.OffsetForLeaderTopic
            partition = of_topic.OffsetForLeaderPartition(partition=0, leader_epoch=0)
            return request(topics=[of_topic(topic=topic, partitions=[partition])])
    return None


def ask_replicas(key, request, version, topic, group, row):
    match ApiKey(key):
        case ApiKey.ELECT_LEADERS:
            named = request.TopicPartitions(topic=topic, partitions=[0])
            return request(election_type=0, topic_partitions=[named], timeout_ms=1000)
        case ApiKey.ALTER_PARTITION_REASSIGNMENTS:
            partition = request.ReassignableTopic.ReassignablePartition(replicas=[1], **row)
            topics = [request.ReassignableTopic(name=topic, partitions=[partition])]
            return request(timeout_ms=1000, topics=topics)
        case ApiKey.LIST_PARTITION_REASSIGNMENTS:
            return request(timeout_ms=1000, topics=None)
        case ApiKey.ALTER_REPLICA_LOG_DIRS:
            of_dir = request.AlterReplicaLogDir
            topics = [of_dir.AlterReplicaLogDirTopic(name=topic, partitions=[0])]
            return request(dirs=[of_dir(path="/none", topics=topics)])
        case ApiKey.DESCRIBE_QUORUM:
            partitions = [request.TopicData.PartitionData(**row)]
            return request(topics=[request.TopicData(topic_name="__cluster_metadata", partitions=partitions)])
        case ApiKey.DESCRIBE_TOPIC_PARTITIONS:
            cursor = request.Cursor(topic_name=topic, **row)
            return request(topics=[request.TopicRequest(name=topic)], response_partition_limit=1, cursor=cursor)
        case ApiKey.LIST_CONFIG_RESOURCES:
            return request(resource_types=[])
    return None


def ask_security(key, request, version, topic, group, row):
    match ApiKey(key):
        case ApiKey.SASL_HANDSHAKE:
            return request(mechanism="PLAIN")
        case ApiKey.SASL_AUTHENTICATE:
            return request(auth_bytes=b"token")
        case ApiKey.DESCRIBE_ACLS:
            return request(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
        case ApiKey.CREATE_ACLS:
            about = {"resource_type": 2, "resource_name": topic, "resource_pattern_type": 3}
            may = {"principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}
            return request(creations=[request.AclCreation(**about, **may)])
        case ApiKey.DELETE_ACLS:
            wanted = {"resource_type_filter": 2, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
            return request(filters=[request.DeleteAclsFilter(**wanted)])
    return None


def ask(key, version, topic):
    """Send a plain request of the API."""
    request = codec.request_class(key)
    for of_kind in (
        ask_data,
        ask_offsets,
        ask_group,
        ask_transaction,
        ask_admin,
        ask_partitions,
        ask_replicas,
        ask_security,
    ):
        asked = of_kind(key, request, version, topic, f"group-{key}-{version}", {"partition_index": 0})
        if asked is not None:
            return asked
    raise AssertionError(f"no request is written for {ApiKey(key).title}")


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """Yield (host, port, log file) of a broker with a topic."""
    directory = tmp_path_factory.mktemp("every-version")
    log_file, ready = directory / "log", directory / "ready"
    command = [sys.executable, "-m", "ottla.cli.main", "serve", "--listen", "127.0.0.1:0"]
    command += ["--data-dir", str(directory / "data"), "--ready-file", str(ready)]
    with log_file.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while not ready.exists() or not ready.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log_file.read_text()
            time.sleep(0.02)
        port = int(ready.read_text().rpartition(":")[2])
        with BlockingConnection("127.0.0.1", port) as connection:
            request = codec.request_class(ApiKey.METADATA)
            connection.send(request(topics=[request.MetadataRequestTopic(name=TOPIC)]), version=4)
        yield "127.0.0.1", port, log_file
    finally:
        process.terminate()
        process.wait(EVENT_TIMEOUT_S)


@pytest.mark.parametrize(("key", "version"), CASES)
def test_every_advertised_version_is_answered(broker, key, version):
    host, port, log_file = broker
    with BlockingConnection(host, port, timeout_s=EVENT_TIMEOUT_S) as connection:
        assert connection.send(ask(key, version, TOPIC), version=version) is not None
    assert "Traceback" not in log_file.read_text()
