"""Rights to topics."""

from ottla.protocol.acls import CLUSTER_NAME
from ottla.protocol.acls import AclOperation as Op
from ottla.protocol.acls import ResourceType as Type
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import batch
from tests.authorization.cell import TOPIC, TXN, UNDERSCORED_TOPIC, Cell, IdOf, Right

DESCRIBE = Right(Op.DESCRIBE, Type.TOPIC, TOPIC)
READ = Right(Op.READ, Type.TOPIC, TOPIC)
WRITE = Right(Op.WRITE, Type.TOPIC, TOPIC)
WRITE_TXN = Right(Op.WRITE, Type.TRANSACTIONAL_ID, TXN)
CLUSTER_ACTION = Right(Op.CLUSTER_ACTION, Type.CLUSTER, CLUSTER_NAME)


def only_error(reply):
    """Return the error of the only partition."""
    (topic,) = reply.topics
    (row,) = topic.partitions
    return E(row.error_code)


def _of_epoch(version, right, other):
    row = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    fields = {"topics": [{"topic": TOPIC, "partitions": [row]}]} | ({"replica_id": -2} if version >= 3 else {})
    denied = E.TOPIC_AUTHORIZATION_FAILED
    return Cell(K.OFFSET_FOR_LEADER_EPOCH, version, fields, right, only_error, E.NONE, denied, instead=(other,))


def _delete_records(version):
    rows = [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 0}]}]
    right = Right(Op.DELETE, Type.TOPIC, TOPIC)
    answers = E.NONE, E.TOPIC_AUTHORIZATION_FAILED
    return Cell(K.DELETE_RECORDS, version, {"topics": rows, "timeout_ms": 1_000}, right, only_error, *answers)


def _row_error(reply):
    return E(reply.responses[0].partition_responses[0].error_code)


def _produce_fields(version, records, transactional_id=None):
    topic = {"topic_id": IdOf(TOPIC)} if version >= 13 else {"name": TOPIC}
    rows = [topic | {"partition_data": [{"index": 1, "records": records}]}]
    return {"transactional_id": transactional_id, "acks": -1, "timeout_ms": 1_000, "topic_data": rows}


def _produce(version):
    """Yield cells of Produce. A transactional batch is verified after the authorizer has allowed it."""
    plain, of_txn = batch(), batch(producer_id=77, producer_epoch=0, base_sequence=0, transactional=True)
    denied = E.TOPIC_AUTHORIZATION_FAILED
    yield Cell(K.PRODUCE, version, _produce_fields(version, plain), WRITE, _row_error, E.NONE, denied)
    fields = _produce_fields(version, of_txn, TXN)
    passed = E.INVALID_PRODUCER_ID_MAPPING
    about = "in a transaction"
    yield Cell(K.PRODUCE, version, fields, WRITE, _row_error, passed, denied, grants=(WRITE_TXN,), about=about)
    denied = E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    yield Cell(K.PRODUCE, version, fields, WRITE_TXN, _row_error, passed, denied, grants=(WRITE,), about=about)


def _fetch(version):
    row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000, "log_start_offset": -1}
    limits = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1_000, "isolation_level": 0}
    if version >= 7:
        limits |= {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": []}
    if version >= 9:
        row["current_leader_epoch"] = -1
    if version >= 11:
        limits["rack_id"] = ""
    if version >= 12:
        row["last_fetched_epoch"] = -1
    topic = {"topic_id": IdOf(TOPIC)} if version >= 13 else {"topic": TOPIC}
    fields = limits | {"replica_id": -1, "topics": [topic | {"partitions": [row]}]}
    denied = E.TOPIC_AUTHORIZATION_FAILED
    yield Cell(K.FETCH, version, fields, READ, _read_fetch, E.NONE, denied)
    # The answer to a false replica differs; no right to the topic replaces the right of a broker.
    state = {"replica_id": 2, "replica_epoch": -1}
    fields = fields | ({"replica_state": state} if version >= 15 else {"replica_id": 2})
    about = "as a replica"
    passes = (READ,)
    yield Cell(K.FETCH, version, fields, CLUSTER_ACTION, _fetch_passes, True, False, grants=passes, about=about)


def _read_fetch(reply):
    return E(reply.responses[0].partitions[0].error_code)


def _fetch_passes(reply):
    return _read_fetch(reply) is not E.TOPIC_AUTHORIZATION_FAILED


def _list_offsets(version):
    row = {"partition_index": 0, "timestamp": -1} | ({"current_leader_epoch": -1} if version >= 4 else {})
    fields = {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": [row]}]}
    if version >= 2:
        fields["isolation_level"] = 0
    if version >= 10:
        fields["timeout_ms"] = 1_000
    return Cell(K.LIST_OFFSETS, version, fields, DESCRIBE, only_error, E.NONE, E.TOPIC_AUTHORIZATION_FAILED)


def _metadata_request(version, topics, **more):
    fields = {"topics": topics}
    if version >= 4:
        fields["allow_auto_topic_creation"] = True
    if version >= 8:
        fields |= dict.fromkeys(("include_topic_authorized_operations", "include_cluster_authorized_operations"), True)
        if version > 10:
            del fields["include_cluster_authorized_operations"]
    return fields | more


def _metadata_of_topic(version):
    return _metadata_request(version, [{"name": TOPIC} | ({"topic_id": None} if version >= 10 else {})])


def _only_topic(reply):
    """Return the topic's error, name, and whether the response has its id and its partitions."""
    (row,) = reply.topics
    has_id = bool(row.topic_id and row.topic_id.int)
    return E(row.error_code), row.name, has_id, bool(row.partitions)


def _metadata():
    for version in (1, 9, 13):
        has_id = version >= 10
        answers = (E.NONE, TOPIC, has_id, True), (E.TOPIC_AUTHORIZATION_FAILED, TOPIC, False, False)
        yield Cell(K.METADATA, version, _metadata_of_topic(version), DESCRIBE, _only_topic, *answers)
    fields = _metadata_request(12, [{"name": None, "topic_id": IdOf(TOPIC)}])
    answers = (E.NONE, TOPIC, True, True), (E.TOPIC_AUTHORIZATION_FAILED, None, True, False)
    yield Cell(K.METADATA, 12, fields, DESCRIBE, _only_topic, *answers, about="by id")
    for version in (0, 1, 13):
        fields = _metadata_request(version, None if version else [])
        yield Cell(K.METADATA, version, fields, DESCRIBE, _is_listed, True, False, about="of all")


def _is_listed(reply):
    return TOPIC in {row.name for row in reply.topics}


def _creating():
    """Yield cells that ask for a topic that the request could create; it is never created."""
    in_cluster = Right(Op.CREATE, Type.CLUSTER, CLUSTER_NAME)
    of_topic = Right(Op.CREATE, Type.TOPIC, UNDERSCORED_TOPIC)
    see = Right(Op.DESCRIBE, Type.TOPIC, UNDERSCORED_TOPIC)
    for version in (1, 4):
        fields = _metadata_request(version, [{"name": UNDERSCORED_TOPIC}])
        for right, other in ((of_topic, in_cluster), (in_cluster, of_topic)):
            others = {"grants": (see,), "instead": (other,), "about": "that is not there"}
            yield Cell(K.METADATA, version, fields, right, _creation_passes, True, False, **others)


def _creation_passes(reply):
    (row,) = reply.topics
    return E(row.error_code) is not E.TOPIC_AUTHORIZATION_FAILED


def _operations(version):
    of_topic, of_cluster = Right(Op.ALTER_CONFIGS, Type.TOPIC, TOPIC), Right(Op.ALTER, Type.CLUSTER, CLUSTER_NAME)
    about = "among operations"
    fields = _metadata_of_topic(version)
    yield Cell(K.METADATA, version, fields, of_topic, _may_configure, True, False, grants=(DESCRIBE,), about=about)
    if version <= 10:
        see = Right(Op.DESCRIBE, Type.CLUSTER, CLUSTER_NAME)
        more = {"grants": (DESCRIBE, see), "about": about}
        yield Cell(K.METADATA, version, fields, of_cluster, _may_alter, True, False, **more)


def _may_configure(reply):
    (row,) = reply.topics
    return Op.ALTER_CONFIGS in (row.authorized_operations or ())


def _may_alter(reply):
    return Op.ALTER in (reply.authorized_operations or ())


CELLS = (
    *(cell for version in (3, 9, 13) for cell in _produce(version)),
    *(cell for version in (4, 12, 18) for cell in _fetch(version)),
    *map(_list_offsets, (1, 4, 11)),
    *_metadata(),
    *_creating(),
    *(cell for version in (8, 12) for cell in _operations(version)),
    *(
        _of_epoch(version, *rights)
        for version in (2, 4)
        for rights in ((DESCRIBE, CLUSTER_ACTION), (CLUSTER_ACTION, DESCRIBE))
    ),
    *map(_delete_records, (0, 2)),
    Cell(
        K.DESCRIBE_PRODUCERS,
        0,
        {"topics": [{"name": TOPIC, "partition_indexes": [0]}]},
        READ,
        only_error,
        E.NONE,
        E.TOPIC_AUTHORIZATION_FAILED,
    ),
)
