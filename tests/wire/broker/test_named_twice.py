"""What a request names twice is answered as docs/decisions/named-twice.md says."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "conformance"))

from targets import Ottla

from ottla.client.connection import BlockingConnection
from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode

NONE, INVALID = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
TOPIC, GROUP = "named-twice", "group-twice"


@pytest.fixture(scope="module")
def send(tmp_path_factory):
    """Sends `send(api_key, version, **fields)`; the answer. There is a topic and a group with offsets in it."""
    broker = Ottla(tmp_path_factory.mktemp("named-twice"), {}).start()
    host, _, port = broker.bootstrap.rpartition(":")
    with BlockingConnection(host, int(port)) as connection:

        def answered(api_key, version, **fields):
            return connection.send(codec.request_class(api_key)(**fields), version=version)

        topic = struct(ApiKey.CREATE_TOPICS, "CreatableTopic", name=TOPIC, num_partitions=2, replication_factor=1)
        answered(ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=1000)
        answered(ApiKey.FIND_COORDINATOR, 2, key=GROUP, key_type=0)
        rows = [
            struct(ApiKey.OFFSET_COMMIT, "OffsetCommitRequestTopic.OffsetCommitRequestPartition", **row)
            for row in (
                {"partition_index": 0, "committed_offset": 4, "committed_metadata": "m"},
                {"partition_index": 1, "committed_offset": 5, "committed_metadata": "m"},
                {"partition_index": 0, "committed_offset": 6, "committed_metadata": "n"},
            )
        ]
        asked = struct(ApiKey.OFFSET_COMMIT, "OffsetCommitRequestTopic", name=TOPIC, partitions=rows)
        committed = answered(ApiKey.OFFSET_COMMIT, 8, group_id=GROUP, member_id="", topics=[asked])
        assert [row.partition_index for row in committed.topics[0].partitions] == [0, 1, 0]
        yield answered
    broker.stop()


def struct(key, path, **fields):
    kind = codec.request_class(key)
    for name in path.split("."):
        kind = getattr(kind, name)
    return kind(**fields)


def offsets_of(topics):
    return [
        (topic.name, [(row.partition_index, row.committed_offset, row.metadata) for row in topic.partitions])
        for topic in topics
    ]


def test_offset_fetch_answers_a_group_once_with_all_that_its_mentions_ask_for(send):
    def asked(group, *topics):
        kind = "OffsetFetchRequestGroup.OffsetFetchRequestTopics"
        named = [struct(ApiKey.OFFSET_FETCH, kind, name=name, partition_indexes=list(p)) for name, p in topics]
        return struct(ApiKey.OFFSET_FETCH, "OffsetFetchRequestGroup", group_id=group, topics=named)

    everything = struct(ApiKey.OFFSET_FETCH, "OffsetFetchRequestGroup", group_id=GROUP, topics=None)
    first, second = (0, 6, "n"), (1, 5, "m")
    nobody = asked("nobody", (TOPIC, [1]))

    answer = send(ApiKey.OFFSET_FETCH, 8, groups=[asked(GROUP, (TOPIC, [1, 1])), nobody, asked(GROUP, (TOPIC, [0, 1]))])
    assert [(group.group_id, offsets_of(group.topics)) for group in answer.groups] == [
        (GROUP, [(TOPIC, [second, first])]),
        ("nobody", [(TOPIC, [(1, -1, "")])]),
    ]
    answer = send(ApiKey.OFFSET_FETCH, 8, groups=[everything, asked(GROUP, (TOPIC, [1])), everything])
    assert [(group.group_id, offsets_of(group.topics)) for group in answer.groups] == [
        (GROUP, [(TOPIC, [first, second])])
    ]


@pytest.mark.parametrize("version", [1, 6, 7])
def test_offset_fetch_of_one_group_answers_a_partition_once(send, version):
    kind = "OffsetFetchRequestTopic"
    topics = [struct(ApiKey.OFFSET_FETCH, kind, name=TOPIC, partition_indexes=[0, 1, 0]) for _ in range(3)]
    topics.append(struct(ApiKey.OFFSET_FETCH, kind, name="empty", partition_indexes=[]))
    answer = send(ApiKey.OFFSET_FETCH, version, group_id=GROUP, topics=topics)
    assert offsets_of(answer.topics) == [(TOPIC, [(0, 6, "n"), (1, 5, "m")]), ("empty", [])]


@pytest.mark.parametrize("version", [0, 5])
def test_describe_groups_answers_a_group_once(send, version):
    answer = send(ApiKey.DESCRIBE_GROUPS, version, groups=[GROUP, "nobody", GROUP])
    assert [(group.group_id, group.group_state) for group in answer.groups] == [(GROUP, "Empty"), ("nobody", "Dead")]


def test_find_coordinator_answers_a_key_once(send):
    answer = send(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["a", "b", "a"])
    assert [row.key for row in answer.coordinators] == ["a", "b"]


def test_describe_transactions_answers_an_id_once(send):
    answer = send(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["a", "b", "a"])
    assert [row.transactional_id for row in answer.transaction_states] == ["a", "b"]


def test_delete_groups_answers_a_group_once(send):
    answer = send(ApiKey.DELETE_GROUPS, 2, groups_names=["no-such-group", "x", "no-such-group"])
    assert [row.group_id for row in answer.results] == ["no-such-group", "x"]


def test_describe_configs_answers_a_resource_once(send):
    resource = struct(ApiKey.DESCRIBE_CONFIGS, "DescribeConfigsResource", resource_type=2, resource_name=TOPIC)
    answer = send(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource, resource])
    assert [row.resource_name for row in answer.results] == [TOPIC]


def test_list_offsets_refuses_a_partition_that_is_named_twice(send):
    kind = "ListOffsetsTopic.ListOffsetsPartition"
    rows = [struct(ApiKey.LIST_OFFSETS, kind, partition_index=index, timestamp=-1) for index in (0, 1, 0)]
    topic = struct(ApiKey.LIST_OFFSETS, "ListOffsetsTopic", name=TOPIC, partitions=rows)
    answer = send(ApiKey.LIST_OFFSETS, 6, replica_id=-1, topics=[topic])
    assert [(row.partition_index, row.error_code) for row in answer.topics[0].partitions] == [(0, INVALID), (1, NONE)]


def test_offset_for_leader_epoch_answers_each_mention(send):
    kind = "OffsetForLeaderTopic.OffsetForLeaderPartition"
    rows = [struct(ApiKey.OFFSET_FOR_LEADER_EPOCH, kind, partition=index, leader_epoch=0) for index in (0, 1, 0)]
    topic = struct(ApiKey.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderTopic", topic=TOPIC, partitions=rows)
    answer = send(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, topics=[topic])
    assert [row.partition for row in answer.topics[0].partitions] == [0, 1, 0]


def test_describe_log_dirs_answers_a_partition_once(send):
    topic = struct(ApiKey.DESCRIBE_LOG_DIRS, "DescribableLogDirTopic", topic=TOPIC, partitions=[1, 0, 1])
    answer = send(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=[topic, topic])
    (found,) = answer.results[0].topics
    assert [row.partition_index for row in found.partitions] == [1, 0]
