"""Rights to create, change and describe topics, configs and the cluster."""

from ottla.protocol.acls import CLUSTER_NAME
from ottla.protocol.acls import AclOperation as Op
from ottla.protocol.acls import ResourceType as Type
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.internal_topics.metadata_records import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from tests.authorization.cell import ABSENT_TOPIC, GROUP, TOPIC, Cell, Right

DOOMED = "doomed"
"""A topic that is created before each request, because the request may delete it."""


def on_topic(operation, name=TOPIC):
    return Right(operation, Type.TOPIC, name)


def on_cluster(operation):
    return Right(operation, Type.CLUSTER, CLUSTER_NAME)


def _new(name, *, validate_only):
    row = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    return {"topics": [row], "timeout_ms": 10_000, "validate_only": validate_only}


def _error(reply):
    return E(reply.error_code)


def _only(rows):
    """Return the error of the only row, and its message."""

    def read(reply):
        (row,) = getattr(reply, rows)
        return E(row.error_code), getattr(row, "error_message", None)

    return read


_created = _only("topics")


def _creates(version):
    fields = _new(ABSENT_TOPIC, validate_only=True)
    to_topic, to_cluster = on_topic(Op.CREATE, ABSENT_TOPIC), on_cluster(Op.CREATE)
    answers = (E.NONE, None), (E.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    for right, other in ((to_topic, to_cluster), (to_cluster, to_topic)):
        yield Cell(K.CREATE_TOPICS, version, fields, right, _created, *answers, instead=(other,))
    if version >= 5:
        right = on_topic(Op.DESCRIBE_CONFIGS, ABSENT_TOPIC)
        answers = (E.NONE, 1, True), (E.TOPIC_AUTHORIZATION_FAILED, -1, False)
        yield Cell(K.CREATE_TOPICS, version, fields, right, _read_creation, *answers, grants=(to_cluster,))


def _read_creation(reply):
    """Return (error instead of the configs, partitions, whether there are configs)."""
    (row,) = reply.topics
    return E(row.topic_config_error_code or 0), row.num_partitions, bool(row.configs)


def _topics_to_delete(version, name):
    if version < 6:
        return {"topic_names": [name], "timeout_ms": 10_000}
    return {"topics": [{"name": name, "topic_id": None}], "timeout_ms": 10_000}


def _read_row(reply):
    (row,) = reply.responses
    return E(row.error_code), row.name


def _deletes(version):
    denied = E.TOPIC_AUTHORIZATION_FAILED
    fields = _topics_to_delete(version, DOOMED)
    yield Cell(
        K.DELETE_TOPICS,
        version,
        fields,
        on_topic(Op.DELETE, DOOMED),
        _read_row,
        (E.NONE, DOOMED),
        (denied, DOOMED),
        instead=(on_cluster(Op.DELETE),),
        before=(K.CREATE_TOPICS, 5, _new(DOOMED, validate_only=False)),
    )
    absent = _topics_to_delete(version, ABSENT_TOPIC)
    answers = (E.UNKNOWN_TOPIC_OR_PARTITION, ABSENT_TOPIC), (denied, ABSENT_TOPIC)
    to_topic, to_cluster = on_topic(Op.DESCRIBE, ABSENT_TOPIC), on_cluster(Op.DELETE)
    for right, other in ((to_topic, to_cluster), (to_cluster, to_topic)):
        yield Cell(K.DELETE_TOPICS, version, absent, right, _read_row, *answers, instead=(other,), about="not there")


def _adds_partitions(version):
    fields = {
        "topics": [{"name": TOPIC, "count": 3, "assignments": None}],
        "timeout_ms": 10_000,
        "validate_only": True,
    }
    answers = (E.NONE, None), (E.TOPIC_AUTHORIZATION_FAILED, None)
    return Cell(K.CREATE_PARTITIONS, version, fields, on_topic(Op.ALTER), _only("results"), *answers)


RESOURCES = (
    (TOPIC_RESOURCE, Type.TOPIC, TOPIC, "retention.ms", E.TOPIC_AUTHORIZATION_FAILED, "Topic"),
    (GROUP_RESOURCE, Type.GROUP, GROUP, "consumer.session.timeout.ms", E.GROUP_AUTHORIZATION_FAILED, "Group"),
    (BROKER_RESOURCE, Type.CLUSTER, "", "log.retention.ms", E.CLUSTER_AUTHORIZATION_FAILED, "Cluster"),
)
"""Resources with configs: type in a request and in an entry, name, one of its configs, error without the right."""


def _read_configs(reply):
    (row,) = reply.results
    return E(row.error_code), row.error_message


def _configs():
    for kind, resource_type, name, config, denied, what in RESOURCES:
        resource = CLUSTER_NAME if resource_type is Type.CLUSTER else name
        refused = denied, f"{what} authorization failed."
        about = f"of {what.lower()}"
        for version in (1, 4):
            asked = {"resource_type": kind, "resource_name": name, "configuration_keys": [config]}
            fields = {"resources": [asked], "include_synonyms": False}
            fields |= {"include_documentation": False} if version >= 3 else {}
            right = Right(Op.DESCRIBE_CONFIGS, resource_type, resource)
            yield Cell(K.DESCRIBE_CONFIGS, version, fields, right, _read_configs, (E.NONE, ""), refused, about=about)
        right = Right(Op.ALTER_CONFIGS, resource_type, resource)
        changed = {"name": config, "value": "50000"}
        for key, versions, change in (
            (K.ALTER_CONFIGS, (0, 2), changed),
            (K.INCREMENTAL_ALTER_CONFIGS, (0, 1), changed | {"config_operation": 0}),
        ):
            asked = {"resource_type": kind, "resource_name": name, "configs": [change]}
            fields = {"resources": [asked], "validate_only": True}
            for version in versions:
                yield Cell(key, version, fields, right, _only("responses"), (E.NONE, None), refused, about=about)


def _log_dirs(version):
    def read(reply):
        return E(getattr(reply, "error_code", None) or 0), len(reply.results)

    refused = E.CLUSTER_AUTHORIZATION_FAILED if version >= 3 else E.NONE
    return Cell(K.DESCRIBE_LOG_DIRS, version, {"topics": []}, on_cluster(Op.DESCRIBE), read, (E.NONE, 1), (refused, 0))


def _describes_cluster(version):
    def read_cluster(reply):
        return E(reply.error_code), len(reply.brokers), Op.DESCRIBE in (reply.authorized_operations or ())

    fields = {"include_cluster_authorized_operations": True} | ({"endpoint_type": 1} if version else {})
    fields |= {"include_fenced_brokers": False} if version >= 2 else {}
    answers = (E.NONE, 1, True), (E.NONE, 1, False)
    return Cell(K.DESCRIBE_CLUSTER, version, fields, on_cluster(Op.DESCRIBE), read_cluster, *answers)


def _tells_operations(version):
    """Return the cell of a Metadata request for the operations that the client may do on the cluster."""

    def may_describe(reply):
        return Op.DESCRIBE in (reply.authorized_operations or ())

    fields = {"topics": [], "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    fields["include_cluster_authorized_operations"] = True
    return Cell(K.METADATA, version, fields, on_cluster(Op.DESCRIBE), may_describe, True, False)


def _updates_features(version):
    fields = {"timeout_ms": 10_000, "feature_updates": []} | ({"validate_only": True} if version else {})
    answers = E.NONE, E.CLUSTER_AUTHORIZATION_FAILED
    return Cell(K.UPDATE_FEATURES, version, fields, on_cluster(Op.ALTER), _error, *answers)


def _scram_users():
    """Yield cells about users that do not exist, so that nothing changes."""
    denied = E.CLUSTER_AUTHORIZATION_FAILED
    described = K.DESCRIBE_USER_SCRAM_CREDENTIALS
    yield Cell(described, 0, {"users": None}, on_cluster(Op.DESCRIBE), _error, E.NONE, denied, about="all")
    one = {"users": [{"name": "absent"}]}
    yield Cell(described, 0, one, on_cluster(Op.DESCRIBE), _first_error, E.RESOURCE_NOT_FOUND, denied)
    gone = {"deletions": [{"name": "absent", "mechanism": 1}], "upsertions": []}
    altered = K.ALTER_USER_SCRAM_CREDENTIALS
    yield Cell(altered, 0, gone, on_cluster(Op.ALTER), _first_error, E.RESOURCE_NOT_FOUND, denied)


def _client_quotas(version):
    """Yield cells of quotas. The request removes a quota that does not exist, so that nothing changes."""
    denied = E.CLUSTER_AUTHORIZATION_FAILED
    asked = {"components": [{"entity_type": "user", "match_type": 1, "match": None}], "strict": True}
    yield Cell(K.DESCRIBE_CLIENT_QUOTAS, version, asked, on_cluster(Op.DESCRIBE_CONFIGS), _error, E.NONE, denied)
    entity = [{"entity_type": "user", "entity_name": "absent"}]
    ops = [{"key": "producer_byte_rate", "value": 0.0, "remove": True}]
    gone = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
    needed = on_cluster(Op.ALTER_CONFIGS)
    yield Cell(
        K.ALTER_CLIENT_QUOTAS, version, gone, needed, lambda reply: E(reply.entries[0].error_code), E.NONE, denied
    )


def _replicas():
    """Yield cells about a topic that does not exist, so that nothing changes."""
    denied, absent = E.CLUSTER_AUTHORIZATION_FAILED, E.UNKNOWN_TOPIC_OR_PARTITION
    alter, describe = on_cluster(Op.ALTER), on_cluster(Op.DESCRIBE)
    for version in (0, 1, 2):
        fields = {"topic_partitions": [{"topic": ABSENT_TOPIC, "partitions": [0]}], "timeout_ms": 10_000}
        fields |= {"election_type": 0} if version else {}
        read = _of_partition("replica_election_results", "partition_result")
        answers = ((E.NONE, absent), (denied if version else E.NONE, denied))
        yield Cell(K.ELECT_LEADERS, version, fields, alter, read, *answers)
    for version in (0, 1):
        topics = [{"name": ABSENT_TOPIC, "partitions": [{"partition_index": 0, "replicas": [1]}]}]
        fields = {"timeout_ms": 10_000, "topics": topics}
        fields |= {"allow_replication_factor_change": True} if version else {}
        read = _of_partition("responses", "partitions")
        yield Cell(K.ALTER_PARTITION_REASSIGNMENTS, version, fields, alter, read, (E.NONE, absent), (denied, denied))
    for topics, shown in ((None, 0), ([{"name": TOPIC, "partition_indexes": [0]}], 1)):
        fields = {"timeout_ms": 10_000, "topics": topics}
        about = "named" if topics else "all"
        answers = (E.NONE, 0), (denied, shown)
        yield Cell(K.LIST_PARTITION_REASSIGNMENTS, 0, fields, describe, _error_and_topics, *answers, about=about)
    for version in (1, 2):
        dirs = [{"path": "/no/such/directory", "topics": [{"name": ABSENT_TOPIC, "partitions": [0]}]}]
        read = _of_partition("results", "partitions")
        answers = (E.NONE, E.LOG_DIR_NOT_FOUND), (E.NONE, denied)
        yield Cell(K.ALTER_REPLICA_LOG_DIRS, version, {"dirs": dirs}, alter, read, *answers)
    for version in (0, 1, 2):
        topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        yield Cell(
            K.DESCRIBE_QUORUM, version, {"topics": topics}, describe, _error_and_topics, (E.NONE, 1), (denied, 0)
        )


def _of_partition(outer, inner):
    """Return the error of the reply and that of its only partition."""

    def read(reply):
        ((row,),) = [getattr(topic, inner) for topic in getattr(reply, outer)]
        return E(getattr(reply, "error_code", None) or 0), E(row.error_code)

    return read


def _error_and_topics(reply):
    return E(reply.error_code), len(reply.topics)


def _lists_configs(version):
    fields = {"resource_types": [BROKER_RESOURCE]} if version else {}
    answers = (E.NONE, 1 if version else 0), (E.CLUSTER_AUTHORIZATION_FAILED, 0)
    right = on_cluster(Op.DESCRIBE_CONFIGS)
    return Cell(
        *(K.LIST_CONFIG_RESOURCES, version, fields, right),
        *(lambda reply: (E(reply.error_code), len(reply.config_resources)), *answers),
    )


def _describes_partitions():
    def read(reply):
        return [E(topic.error_code) for topic in reply.topics if topic.name == TOPIC]

    for topics, refused in (([{"name": TOPIC}], [E.TOPIC_AUTHORIZATION_FAILED]), ([], [])):
        fields = {"topics": topics, "response_partition_limit": 2_000, "cursor": None}
        right, about = on_topic(Op.DESCRIBE), "named" if topics else "all"
        yield Cell(K.DESCRIBE_TOPIC_PARTITIONS, 0, fields, right, read, [E.NONE], refused, about=about)


def _first_error(reply):
    (row,) = reply.results
    return E(row.error_code)


CELLS = (
    *(cell for version in (2, 5, 7) for cell in _creates(version)),
    *(cell for version in (1, 4, 6) for cell in _deletes(version)),
    *map(_adds_partitions, (0, 3)),
    *_configs(),
    *map(_log_dirs, (1, 3, 5)),
    *map(_describes_cluster, (0, 1, 2)),
    *_replicas(),
    *map(_lists_configs, (0, 1)),
    *_describes_partitions(),
    *map(_tells_operations, (8, 10)),
    *map(_updates_features, (0, 2)),
    *_scram_users(),
    *(cell for version in (0, 1) for cell in _client_quotas(version)),
)
