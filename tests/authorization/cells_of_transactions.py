"""Rights to transactional ids, and to the topics and groups of transactions."""

from ottla.protocol.acls import CLUSTER_NAME, WILDCARD
from ottla.protocol.acls import AclOperation as Op
from ottla.protocol.acls import ResourceType as Type
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.authorization.cell import GROUP, OPEN_TXN, TOPIC, TXN, Cell, IdOf, Right

WRITE_TXN = Right(Op.WRITE, Type.TRANSACTIONAL_ID, TXN)
TWO_PHASE_COMMIT_TXN = Right(Op.TWO_PHASE_COMMIT, Type.TRANSACTIONAL_ID, TXN)
DESCRIBE_TXN = Right(Op.DESCRIBE, Type.TRANSACTIONAL_ID, TXN)
READ_GROUP = Right(Op.READ, Type.GROUP, GROUP)
READ_TOPIC = Right(Op.READ, Type.TOPIC, TOPIC)
WRITE_TOPIC = Right(Op.WRITE, Type.TOPIC, TOPIC)
WRITE_ANY = Right(Op.WRITE, Type.TOPIC, WILDCARD)
IDEMPOTENT = Right(Op.IDEMPOTENT_WRITE, Type.CLUSTER, CLUSTER_NAME)
CLUSTER_ACTION = Right(Op.CLUSTER_ACTION, Type.CLUSTER, CLUSTER_NAME)
NOBODY = {"producer_id": 77, "producer_epoch": 0}
"""A client that the authorizer allows gets INVALID_PRODUCER_ID_MAPPING, so nothing changes."""


def error(reply):
    return E(reply.error_code)


def _read_producer(reply):
    return E(reply.error_code), reply.producer_id >= 0


def _init(version, **expected):
    return [
        Cell(
            K.INIT_PRODUCER_ID,
            version,
            {"transactional_id": TXN, "transaction_timeout_ms": 60_000} | expected,
            WRITE_TXN,
            _read_producer,
            (E.NONE, True),
            (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, False),
        ),
        *(
            Cell(
                K.INIT_PRODUCER_ID,
                version,
                {"transactional_id": None, "transaction_timeout_ms": 60_000} | expected,
                right,
                _read_producer,
                (E.NONE, True),
                (E.CLUSTER_AUTHORIZATION_FAILED, False),
                instead=(other,),
                about="without an id",
                by_type=right is WRITE_TOPIC,
            )
            for right, other in ((WRITE_TOPIC, IDEMPOTENT), (IDEMPOTENT, WRITE_ANY))
        ),
    ]


def _two_phase_commit():
    asked = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1, "enable2_pc": True}
    for right, other in ((WRITE_TXN, TWO_PHASE_COMMIT_TXN), (TWO_PHASE_COMMIT_TXN, WRITE_TXN)):
        yield Cell(
            K.INIT_PRODUCER_ID,
            6,
            {"transactional_id": TXN, "keep_prepared_txn": False} | asked,
            right,
            _read_producer,
            (E.NONE, True),
            (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, False),
            grants=(other,),
        )


def _end_txn(version):
    return Cell(
        K.END_TXN,
        version,
        {"transactional_id": TXN, "committed": True} | NOBODY,
        WRITE_TXN,
        error,
        E.INVALID_PRODUCER_ID_MAPPING,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )


def _add_offsets(version):
    fields = {"transactional_id": TXN, "group_id": GROUP} | NOBODY
    for right, others, denied in (
        (WRITE_TXN, (READ_GROUP,), E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (READ_GROUP, (WRITE_TXN,), E.GROUP_AUTHORIZATION_FAILED),
    ):
        answers = E.INVALID_PRODUCER_ID_MAPPING, denied
        yield Cell(K.ADD_OFFSETS_TO_TXN, version, fields, right, error, *answers, grants=others)


def _coordinator(reply):
    (row,) = getattr(reply, "coordinators", None) or [reply]
    return E(row.error_code), row.node_id >= 0


def _find_coordinator(version):
    for key_type, right, denied in (
        (0, Right(Op.DESCRIBE, Type.GROUP, GROUP), E.GROUP_AUTHORIZATION_FAILED),
        (1, DESCRIBE_TXN, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ):
        if version == 0 and key_type:
            continue
        fields = {"coordinator_keys": [right.name]} if version >= 4 else {"key": right.name}
        if version >= 1:
            fields["key_type"] = key_type
        answers = (E.NONE, True), (denied, False)
        yield Cell(K.FIND_COORDINATOR, version, fields, right, _coordinator, *answers)


def _read_state(reply):
    (row,) = reply.transaction_states
    return E(row.error_code), row.transaction_state, TOPIC in {topic.topic for topic in row.topics}


def _is_listed(reply):
    return OPEN_TXN in {row.transactional_id for row in reply.transaction_states}


def _row_error(reply):
    (topic,) = reply.results_by_topic_v3_and_below
    (row,) = topic.results_by_partition
    return E(row.partition_error_code)


def _add_partitions(version):
    names = {"v3_and_below_transactional_id": TXN, "v3_and_below_producer_id": 77, "v3_and_below_producer_epoch": 0}
    fields = names | {"v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}]}
    for right, others, denied in (
        (WRITE_TXN, (WRITE_TOPIC,), E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (WRITE_TOPIC, (WRITE_TXN,), E.TOPIC_AUTHORIZATION_FAILED),
    ):
        answers = E.INVALID_PRODUCER_ID_MAPPING, denied
        yield Cell(K.ADD_PARTITIONS_TO_TXN, version, fields, right, _row_error, *answers, grants=others)


def _add_partitions_of_brokers(version):
    topics = [{"name": TOPIC, "partitions": [0]}]
    fields = {"transactions": [{"transactional_id": TXN, "verify_only": True, "topics": topics} | NOBODY]}
    answers = (E.NONE, [TXN]), (E.CLUSTER_AUTHORIZATION_FAILED, [])
    return Cell(K.ADD_PARTITIONS_TO_TXN, version, fields, CLUSTER_ACTION, _read_additions, *answers)


def _read_additions(reply):
    return E(reply.error_code), [row.transactional_id for row in reply.results_by_transaction]


def _only_error(reply):
    (topic,) = reply.topics
    (row,) = topic.partitions
    return E(row.error_code)


def _txn_offset_commit(version):
    row = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    if version >= 2:
        row["committed_leader_epoch"] = -1
    named = {"topic_id": IdOf(TOPIC)} if version >= 6 else {"name": TOPIC}
    fields = {"transactional_id": TXN, "group_id": GROUP, "topics": [named | {"partitions": [row]}]} | NOBODY
    if version >= 3:
        fields |= {"generation_id": -1, "member_id": "", "group_instance_id": None}
    needed = {
        WRITE_TXN: E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        READ_GROUP: E.GROUP_AUTHORIZATION_FAILED,
        READ_TOPIC: E.TOPIC_AUTHORIZATION_FAILED,
    }
    for right, denied in needed.items():
        others = tuple(other for other in needed if other is not right)
        answers = E.INVALID_PRODUCER_ID_MAPPING, denied
        yield Cell(K.TXN_OFFSET_COMMIT, version, fields, right, _only_error, *answers, grants=others)


def _markers(version):
    marker = {"producer_id": 77, "producer_epoch": 0, "transaction_result": False, "coordinator_epoch": 0}
    marker["topics"] = [{"name": TOPIC, "partition_indexes": [1]}]
    if version >= 2:
        marker["transaction_version"] = 1
    alter = Right(Op.ALTER, Type.CLUSTER, CLUSTER_NAME)
    for right, other in ((alter, CLUSTER_ACTION), (CLUSTER_ACTION, alter)):
        answers = E.NONE, E.CLUSTER_AUTHORIZATION_FAILED
        fields = {"markers": [marker]}
        yield Cell(K.WRITE_TXN_MARKERS, version, fields, right, _read_marker, *answers, instead=(other,))


def _read_marker(reply):
    (marker,) = reply.markers
    (topic,) = marker.topics
    (row,) = topic.partitions
    return E(row.error_code)


def _finds_shares(reply):
    (row,) = reply.coordinators
    return E(row.error_code) is not E.CLUSTER_AUTHORIZATION_FAILED


DESCRIBE_OPEN = Right(Op.DESCRIBE, Type.TRANSACTIONAL_ID, OPEN_TXN)
SEE_TOPIC = Right(Op.DESCRIBE, Type.TOPIC, TOPIC)
OPEN = (E.NONE, "Ongoing", True)
SHARE_KEY = "group:AAAAAAAAAAAAAAAAAAAAAQ:0"
CELLS = (
    *(cell for version in (0, 3) for cell in _add_partitions(version)),
    *map(_add_partitions_of_brokers, (4, 5)),
    *(cell for version in (0, 3, 5, 6) for cell in _txn_offset_commit(version)),
    *(cell for version in (1, 2) for cell in _markers(version)),
    Cell(
        K.FIND_COORDINATOR,
        6,
        {"coordinator_keys": [SHARE_KEY], "key_type": 2},
        CLUSTER_ACTION,
        _finds_shares,
        True,
        False,
    ),
    *_init(0),
    *_init(4, producer_id=-1, producer_epoch=-1),
    *_two_phase_commit(),
    *map(_end_txn, (0, 3, 5)),
    *_add_offsets(0),
    *_add_offsets(4),
    *(cell for version in (0, 3, 4, 6) for cell in _find_coordinator(version)),
    Cell(
        K.DESCRIBE_TRANSACTIONS,
        0,
        {"transactional_ids": [OPEN_TXN]},
        DESCRIBE_OPEN,
        _read_state,
        OPEN,
        (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "", False),
        grants=(SEE_TOPIC,),
    ),
    Cell(
        K.DESCRIBE_TRANSACTIONS,
        0,
        {"transactional_ids": [OPEN_TXN]},
        SEE_TOPIC,
        _read_state,
        OPEN,
        (E.NONE, "Ongoing", False),
        grants=(DESCRIBE_OPEN,),
    ),
    *(
        Cell(
            K.LIST_TRANSACTIONS,
            version,
            {"state_filters": [], "producer_id_filters": []} | ({"duration_filter": -1} if version else {}),
            DESCRIBE_OPEN,
            _is_listed,
            True,
            False,
        )
        for version in (0, 1)
    ),
)
