"""Answers reveal nothing to a client without the right, and rights are checked before the values of a request."""

import uuid

import pytest

from ottla.broker.security.acl import AclAuthorizer
from ottla.protocol.acls import CLUSTER_NAME, PatternType, PermissionType
from ottla.protocol.acls import AclOperation as Op
from ottla.protocol.acls import ResourceType as Type
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.internal_topics.metadata_records import BROKER_RESOURCE
from ottla.protocol.internal_topics.security_records import AccessControlEntryRecord
from tests.api.callers import FEW, LEDGER, commit
from tests.memory_broker import MemoryBroker

GROUP = "accounts"


class Guarded:
    """A broker, and a client with these rights: (operation, type of resource, name)."""

    def __init__(self, *rights):
        self.broker = MemoryBroker(**FEW)
        self.broker.create_topic(LEDGER, 2)
        self.broker.create_topic("orders")
        self.broker.call_when_ready(K.FIND_COORDINATOR, 1, key=GROUP, key_type=0)
        commit(self.broker, (LEDGER, 0, 5), ("orders", 0, 6), group_id=GROUP)
        self._authorizer = AclAuthorizer((), False)
        for number, (operation, resource_type, name) in enumerate(rights):
            where = resource_type, name, PatternType.LITERAL, "User:ANONYMOUS", "*"
            entry = AccessControlEntryRecord(number.to_bytes(16), *where, operation, PermissionType.ALLOW)
            self._authorizer.add(entry)
        self.broker.assembly.broker.authorizer = self._authorizer

    def call(self, api_key, version, **fields):
        return self.broker.call(api_key, version, **fields)

    def id_of(self, topic):
        return uuid.UUID(bytes=self.broker.assembly.broker.cluster.topics[topic].topic_id)


def delete(guarded, *topics):
    rows = [{"name": None, "topic_id": topic} for topic in topics]
    return [
        (E(row.error_code), row.name, row.topic_id)
        for row in guarded.call(K.DELETE_TOPICS, 6, topics=rows, timeout_ms=1_000).responses
    ]


def test_a_topic_name_is_returned_for_an_id_only_with_describe():
    unknown = uuid.uuid4()
    guarded = Guarded((Op.DESCRIBE, Type.TOPIC, LEDGER))
    seen, hidden = guarded.id_of(LEDGER), guarded.id_of("orders")
    assert delete(guarded, seen, hidden, unknown) == [
        (E.TOPIC_AUTHORIZATION_FAILED, LEDGER, seen),
        (E.TOPIC_AUTHORIZATION_FAILED, None, hidden),
        (E.UNKNOWN_TOPIC_ID, None, unknown),
    ]
    assert {LEDGER, "orders"} <= guarded.broker.assembly.broker.cluster.topics.keys()


def test_the_right_to_delete_a_topic_suffices_to_delete_it_by_id():
    guarded = Guarded((Op.DELETE, Type.TOPIC, LEDGER))
    asked = guarded.id_of(LEDGER)
    assert delete(guarded, asked) == [(E.NONE, LEDGER, asked)]
    assert LEDGER not in guarded.broker.assembly.broker.cluster.topics


@pytest.mark.parametrize("name", [LEDGER, "absent"])
def test_requests_without_describe_do_not_reveal_if_a_topic_exists(name):
    guarded = Guarded((Op.READ, Type.GROUP, GROUP), (Op.DELETE, Type.GROUP, GROUP))
    rows = [{"partition_index": 9, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}]
    fields = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": "", "retention_time_ms": -1}
    committed = guarded.call(K.OFFSET_COMMIT, 8, **fields, topics=[{"name": name, "partitions": rows}])
    asked = [{"name": name, "partitions": [{"partition_index": 9}]}]
    forgotten = guarded.call(K.OFFSET_DELETE, 0, group_id=GROUP, topics=asked)
    gone = guarded.call(K.DELETE_TOPICS, 1, topic_names=[name], timeout_ms=1_000)
    grown = {"topics": [{"name": name, "count": 1, "assignments": None}], "timeout_ms": 1_000, "validate_only": True}
    more = guarded.call(K.CREATE_PARTITIONS, 3, **grown)
    told = [
        *(row.error_code for row in committed.topics[0].partitions + forgotten.topics[0].partitions),
        *(row.error_code for row in gone.responses + more.results),
    ]
    assert told == [E.TOPIC_AUTHORIZATION_FAILED] * 4


def test_topics_that_may_not_be_described_are_left_out_of_all_and_refused_by_name():
    guarded = Guarded((Op.DESCRIBE, Type.GROUP, GROUP), (Op.DESCRIBE, Type.TOPIC, LEDGER))

    def fetch_offsets(topics):
        groups = [{"group_id": GROUP, "topics": topics}, {"group_id": "other", "topics": topics}]
        reply = guarded.call(K.OFFSET_FETCH, 8, groups=groups, require_stable=False)
        return [
            (
                E(group.error_code),
                {
                    topic.name: [(E(row.error_code), row.committed_offset) for row in topic.partitions]
                    for topic in group.topics
                },
            )
            for group in reply.groups
        ]

    refused = E.GROUP_AUTHORIZATION_FAILED, {}
    assert fetch_offsets(None) == [(E.NONE, {LEDGER: [(E.NONE, 5)]}), refused]
    asked = [{"name": name, "partition_indexes": [0]} for name in (LEDGER, "orders")]
    rows = {LEDGER: [(E.NONE, 5)], "orders": [(E.TOPIC_AUTHORIZATION_FAILED, -1)]}
    assert fetch_offsets(asked) == [(E.NONE, rows), refused]


def test_authorized_operations_are_the_granted_and_implied_ones():
    rights = ((Op.DELETE, Type.GROUP, GROUP), (Op.ALTER_CONFIGS, Type.CLUSTER, CLUSTER_NAME))
    guarded = Guarded(*rights, (Op.ALTER, Type.CLUSTER, CLUSTER_NAME))
    (group,) = guarded.call(K.DESCRIBE_GROUPS, 5, groups=[GROUP], include_authorized_operations=True).groups
    assert group.authorized_operations == {Op.DELETE, Op.DESCRIBE}
    cluster = guarded.call(K.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=True)
    assert cluster.authorized_operations == {Op.ALTER, Op.DESCRIBE, Op.ALTER_CONFIGS, Op.DESCRIBE_CONFIGS}


def test_topics_that_may_not_be_created_do_not_count():
    guarded = Guarded((Op.CREATE, Type.TOPIC, "small"))
    rows = [
        {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": [], "configs": []}
        for name, count in (("small", 1), ("huge", 10_000))
    ]
    reply = guarded.call(K.CREATE_TOPICS, 5, topics=rows, timeout_ms=1_000, validate_only=True)
    told = {row.name: E(row.error_code) for row in reply.topics}
    assert told == {"small": E.NONE, "huge": E.TOPIC_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("may", [True, False])
def test_keystore_paths_in_configs_are_checked_only_with_alter_configs(may, tmp_path):
    guarded = Guarded(*[(Op.ALTER_CONFIGS, Type.CLUSTER, CLUSTER_NAME)] * may)
    parts = guarded.broker.assembly.broker
    looked = []
    parts.tls_problem = lambda config: looked.append(config) or "it is not there"
    name = "listener.name.plaintext.ssl.keystore.location"
    change = {"name": name, "config_operation": 0, "value": str(tmp_path / "secret.pem")}
    asked = {"resource_type": BROKER_RESOURCE, "resource_name": "1", "configs": [change]}
    (row,) = guarded.call(K.INCREMENTAL_ALTER_CONFIGS, 1, resources=[asked], validate_only=True).responses
    assert row.error_code == (E.INVALID_REQUEST if may else E.CLUSTER_AUTHORIZATION_FAILED)
    assert bool(looked) == may
