"""Rights to groups, and to the topics whose offsets they store."""

from ottla.protocol.acls import CLUSTER_NAME
from ottla.protocol.acls import AclOperation as Op
from ottla.protocol.acls import ResourceType as Type
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.authorization.cell import ABSENT_GROUP, GROUP, TOPIC, Cell, IdOf, Right

READ_GROUP = Right(Op.READ, Type.GROUP, GROUP)
DESCRIBE_GROUP = Right(Op.DESCRIBE, Type.GROUP, GROUP)
DELETE_GROUP = Right(Op.DELETE, Type.GROUP, GROUP)
READ_TOPIC = Right(Op.READ, Type.TOPIC, TOPIC)
DESCRIBE_TOPIC = Right(Op.DESCRIBE, Type.TOPIC, TOPIC)
DESCRIBE_CLUSTER = Right(Op.DESCRIBE, Type.CLUSTER, CLUSTER_NAME)
CONSUMER_GROUP = "group-of-consumers"
NOBODY = {"group_id": GROUP, "generation_id": 1, "member_id": "nobody"}
"""A client that the authorizer allows is no member, so nothing changes."""


def _error(reply):
    return E(reply.error_code)


def _row_error(reply):
    """Return the error of the only partition."""
    (topic,) = reply.topics
    (row,) = topic.partitions
    return E(row.error_code)


def _of_members():
    refused = E.UNKNOWN_MEMBER_ID, E.GROUP_AUTHORIZATION_FAILED
    timeouts = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
    joining = NOBODY | timeouts | {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}
    joining.pop("generation_id")
    named = {"protocol_type": "consumer", "protocol_name": "range"}
    for version in (0, 5, 9):
        yield Cell(K.JOIN_GROUP, version, joining, READ_GROUP, _error, *refused)
    for version in (0, 3, 5):
        fields = NOBODY | {"assignments": []} | (named if version >= 5 else {})
        yield Cell(K.SYNC_GROUP, version, fields, READ_GROUP, _error, *refused)
    for version in (0, 3, 4):
        yield Cell(K.HEARTBEAT, version, NOBODY, READ_GROUP, _error, *refused)
    yield Cell(K.LEAVE_GROUP, 0, {"group_id": GROUP, "member_id": "nobody"}, READ_GROUP, _error, *refused)
    left = {"group_id": GROUP, "members": [{"member_id": "nobody", "group_instance_id": None}]}
    answers = (E.NONE, [E.UNKNOWN_MEMBER_ID]), (E.GROUP_AUTHORIZATION_FAILED, [])
    for version in (3, 5):
        yield Cell(K.LEAVE_GROUP, version, left, READ_GROUP, _who_left, *answers)


def _of_consumer_members():
    """Yield cells of groups of the consumer protocol. The group of the other cells is not one."""
    beat = {
        "group_id": GROUP,
        "member_id": "nobody",
        "member_epoch": 1,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": [TOPIC],
        "server_assignor": None,
        "topic_partitions": [],
    }
    no_group, no_topic = E.GROUP_AUTHORIZATION_FAILED, E.TOPIC_AUTHORIZATION_FAILED
    for version, added in ((0, {}), (1, {"subscribed_topic_regex": None})):
        for right, other, denied in ((READ_GROUP, DESCRIBE_TOPIC, no_group), (DESCRIBE_TOPIC, READ_GROUP, no_topic)):
            answers = E.GROUP_ID_NOT_FOUND, denied
            yield Cell(K.CONSUMER_GROUP_HEARTBEAT, version, beat | added, right, _error, *answers, grants=(other,))
    joining = beat | {"group_id": CONSUMER_GROUP, "member_epoch": 0, "subscribed_topic_regex": None}
    describe_group = Right(Op.DESCRIBE, Type.GROUP, CONSUMER_GROUP)
    for right, other, denied in (
        (describe_group, DESCRIBE_TOPIC, no_group),
        (DESCRIBE_TOPIC, describe_group, no_topic),
    ):
        yield Cell(
            K.CONSUMER_GROUP_DESCRIBE,
            1,
            {"group_ids": [CONSUMER_GROUP], "include_authorized_operations": True},
            right,
            _read_members,
            (E.NONE, ["nobody"], True),
            (denied, [], False),
            grants=(other,),
            before=(K.CONSUMER_GROUP_HEARTBEAT, 1, joining),
        )


def _read_members(reply):
    (group,) = reply.groups
    members = [member.member_id for member in group.members]
    return E(group.error_code), members, bool(group.authorized_operations >> Op.DESCRIBE & 1)


def _who_left(reply):
    return E(reply.error_code), [E(row.error_code) for row in reply.members]


def _topic_in(version):
    return {"topic_id": IdOf(TOPIC)} if version >= 10 else {"name": TOPIC}


def _commits(version):
    rows = [{"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}]
    fields = {
        "group_id": GROUP,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "retention_time_ms": -1,
        "topics": [{**_topic_in(version), "partitions": rows}],
    }
    for right, other, denied in (
        (READ_GROUP, READ_TOPIC, E.GROUP_AUTHORIZATION_FAILED),
        (READ_TOPIC, READ_GROUP, E.TOPIC_AUTHORIZATION_FAILED),
    ):
        yield Cell(K.OFFSET_COMMIT, version, fields, right, _row_error, E.NONE, denied, grants=(other,))


def _deletes_offsets():
    fields = {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 1}]}]}
    for right, other, denied in (
        (DELETE_GROUP, READ_TOPIC, (E.GROUP_AUTHORIZATION_FAILED, [])),
        (READ_TOPIC, DELETE_GROUP, (E.NONE, [E.TOPIC_AUTHORIZATION_FAILED])),
    ):
        allowed = E.NONE, [E.NONE]
        yield Cell(K.OFFSET_DELETE, 0, fields, right, _read_deletion, allowed, denied, grants=(other,))


def _read_deletion(reply):
    return E(reply.error_code), [E(row.error_code) for topic in reply.topics for row in topic.partitions]


def _read_offsets(reply):
    """Return the error of the group, and (error, whether there is an offset) of each partition."""
    group = reply.groups[0] if getattr(reply, "groups", None) else reply
    rows = [(E(row.error_code), row.committed_offset >= 0) for topic in group.topics for row in topic.partitions]
    return E(getattr(group, "error_code", None) or 0), rows


def _fetches(version, *, everything=False):
    asked = None if everything else [{**_topic_in(version), "partition_indexes": [0]}]
    fields = {"group_id": GROUP, "topics": asked}
    if version >= 8:
        named = {"member_id": None, "member_epoch": -1} if version >= 9 else {}
        fields = {"groups": [fields | named]}
    if version >= 7:
        fields["require_stable"] = False
    about = "of all topics" if everything else ""
    allowed = E.NONE, [(E.NONE, True)]
    no_group = (E.NONE, [(E.GROUP_AUTHORIZATION_FAILED, False)]) if version < 2 else (E.GROUP_AUTHORIZATION_FAILED, [])
    no_topic = E.NONE, [] if everything else [(E.TOPIC_AUTHORIZATION_FAILED, False)]
    for right, other, denied in (
        (DESCRIBE_GROUP, DESCRIBE_TOPIC, no_group),
        (DESCRIBE_TOPIC, DESCRIBE_GROUP, no_topic),
    ):
        yield Cell(K.OFFSET_FETCH, version, fields, right, _read_offsets, allowed, denied, grants=(other,), about=about)


def _read_group(reply):
    (group,) = reply.groups
    operations = getattr(group, "authorized_operations", None) or set()
    return E(group.error_code), group.group_state, Op.DESCRIBE in operations


def _describes(version):
    fields = {"groups": [GROUP]} | ({"include_authorized_operations": True} if version >= 3 else {})
    answers = (E.NONE, "Empty", version >= 3), (E.GROUP_AUTHORIZATION_FAILED, "", False)
    return Cell(K.DESCRIBE_GROUPS, version, fields, DESCRIBE_GROUP, _read_group, *answers)


def _is_listed(reply):
    return E(reply.error_code), GROUP in {group.group_id for group in reply.groups}


def _lists(version):
    fields = {"states_filter": [], "types_filter": []} if version >= 5 else {}
    for right, other in ((DESCRIBE_GROUP, DESCRIBE_CLUSTER), (DESCRIBE_CLUSTER, DESCRIBE_GROUP)):
        answers = (E.NONE, True), (E.NONE, False)
        yield Cell(K.LIST_GROUPS, version, fields, right, _is_listed, *answers, instead=(other,))


def _deletes(version):
    def read_error(reply):
        (row,) = reply.results
        return E(row.error_code)

    right = Right(Op.DELETE, Type.GROUP, ABSENT_GROUP)
    answers = E.GROUP_ID_NOT_FOUND, E.GROUP_AUTHORIZATION_FAILED
    return Cell(K.DELETE_GROUPS, version, {"groups_names": [ABSENT_GROUP]}, right, read_error, *answers)


CELLS = (
    *_of_members(),
    *_of_consumer_members(),
    *(cell for version in (2, 6, 9, 10) for cell in _commits(version)),
    *(cell for version in (1, 2, 7, 9, 10) for cell in _fetches(version)),
    *(cell for version in (2, 8, 10) for cell in _fetches(version, everything=True)),
    *_deletes_offsets(),
    *map(_describes, (0, 3, 6)),
    *(cell for version in (0, 5) for cell in _lists(version)),
    *map(_deletes, (0, 2)),
)
