"""Intended differences of three brokers of Ottla from three Apache Kafkas: script, reason, and what Ottla answers.

A change is the place of a value in the answer, and Ottla's value. All else is equal. An entry without a difference
fails its test.
"""

from typing import NamedTuple


class Kept(NamedTuple):
    reason: str
    changes: dict
    """{number of the step: {place: value}}."""


_NO_ELR = (
    "Ottla does not finalize `eligible.leader.replicas.version`: the last replica in sync stays in the set when its "
    "broker stops, as in a Kafka at level 0."
)
_ONE_LOG = "All replicas are one log: one that was stopped has what another leader has appended meanwhile."
_SHARE = "There are no share groups, so each key of their type is refused with a text."
_ACKS_1 = "Nothing is copied, so records of acks=1 do not wait for the in-sync set before consumers see them."
_WAITS = (
    "With too few replicas in sync, Kafka's group coordinator also lets requests that change nothing wait for the log, "
    "until they time out after five seconds, and a member that leaves is refused. Ottla answers them from its state."
)
_JOINED = "Kafka answers the first member of a new group before the record of the group is refused."
_ELIGIBLE = (
    f"{_NO_ELR} Kafka lets a replica lead that left a set with fewer than `min.insync.replicas`; only the "
    "last one may lead in Ottla."
)
_BOTH_IN_SYNC = {f"topics.0.partitions.{index}.isr_nodes": [2] for index in (0, 1)}
_NOBODY_LEADS = {
    f"topics.0.partitions.{index}.{name}": value
    for index, epoch in ((0, 2), (1, 1))
    for name, value in (("error_code", "LEADER_NOT_AVAILABLE"), ("leader_id", -1), ("leader_epoch", epoch))
}
_SECOND_LEADS = {f"topics.0.partitions.{index}.leader_id": 2 for index in (0, 1)}

_ANSWERED = {"error_code": "NONE"}
_SUBSCRIBED = {"partition_index": 0, "error_code": "GROUP_SUBSCRIBED_TO_TOPIC"}
_NOT_EMPTY = {"results.0.error_code": "NON_EMPTY_GROUP"}


def _change_fetch(end, records, last_stable=None):
    """Return the changes of a fetched partition."""
    values = {"high_watermark": end, "last_stable_offset": last_stable, "records": records}
    return {f"responses.0.partitions.0.{name}": value for name, value in values.items() if value is not None}


def _refuse_rows(**topics):
    """Return the changes of a Fetch that fails as a whole in Kafka. Values are an error and its partitions."""
    empty = {"high_watermark": -1, "last_stable_offset": -1, "log_start_offset": -1, "preferred_read_replica": -1}
    empty |= {"diverging_epoch": None, "current_leader": None, "snapshot_id": None}
    empty |= {"aborted_transactions": [], "records": []}
    rows = [
        {
            "topic_id": None if name == "zero" else name.replace("T", "$T"),
            "partitions": [{"partition_index": index, "error_code": error} | empty for index in indexes],
        }
        for name, (error, *indexes) in topics.items()
    ]
    return {"error_code": "NONE", "responses": rows}


_ZERO_ID = (
    "Kafka does not expect the zero id: where it compares a row of it with the next one, or looks for it in a session, "
    "an exception makes the whole answer an UNKNOWN_SERVER_ERROR. Ottla answers each row for itself."
)
_ZERO_TWICE = _refuse_rows(zero=("UNKNOWN_TOPIC_ID", 0, 1))
_ZERO_IN_SESSION = _refuse_rows(
    T0=("UNKNOWN_TOPIC_OR_PARTITION", 7), T1=("UNKNOWN_TOPIC_ID", 0), zero=("UNKNOWN_TOPIC_ID", 0)
)

KEPT = {
    **{f"Fetch {version} by id": Kept(_ZERO_ID, {10: _ZERO_TWICE}) for version in range(13, 19)},
    **{f"session {version}: unknown topics": Kept(_ZERO_ID, {8: _ZERO_IN_SESSION}) for version in (13, 15, 18)},
    "FindCoordinator: unusual keys and types": Kept(
        _SHARE, {step: {"coordinators.0.error_message": "text"} for step in (12, 15, 18)}
    ),
    "the only replica stops": Kept(_NO_ELR, {step: {"topics.0.partitions.0.isr_nodes": [2]} for step in range(6, 32)}),
    "the last replica in sync stops": Kept(
        f"{_NO_ELR} {_ONE_LOG}",
        {step: {"topics.0.partitions.0.isr_nodes": [2]} for step in (5, 8)}
        | {10: _change_fetch(2, [[0, 0, 1, False], [1, 1, 1, False]], 2)},
    ),
    "ElectLeaders: unclean": Kept(_NO_ELR, {4: {"topics.0.partitions.0.isr_nodes": [2]}}),
    "both replicas stop, 1 must be in sync": Kept(_NO_ELR, dict.fromkeys((4, 6, 7), _BOTH_IN_SYNC)),
    "both replicas stop, 2 must be in sync": Kept(
        _ELIGIBLE,
        {4: _BOTH_IN_SYNC}
        | dict.fromkeys((6, 7), _BOTH_IN_SYNC | _NOBODY_LEADS)
        | dict.fromkeys((9, 10, 11), _SECOND_LEADS),
    ),
    "acks of all need two in sync": Kept(
        _ACKS_1,
        {
            35: {"topics.0.partitions.0.offset": 22},
            36: _change_fetch(22, [[offset, 0, 1, False] for offset in range(22)], 22),
        },
    ),
    "too few in sync for groups": Kept(
        f"{_WAITS} {_JOINED}",
        {
            **dict.fromkeys((*range(20, 25), 42), _ANSWERED),
            28: _ANSWERED | {"topics": [{"name": "~ledger", "partitions": [_SUBSCRIBED]}]},
            **dict.fromkeys((29, 30, 31), _NOT_EMPTY),
            39: {
                "error_code": "COORDINATOR_NOT_AVAILABLE",
                "generation_id": -1,
                "protocol_name": "",
                "leader": "",
                "member_id": "",
                "members": [],
            },
        },
    ),
    "a classic group waits for too few in sync": Kept(_WAITS, {6: {"error_code": "REBALANCE_IN_PROGRESS"}}),
    "a transaction with too few in sync": Kept(_ACKS_1, {10: _change_fetch(2, [[0, 0, 1, False], [1, 0, 1, False]])}),
}

_OPERATIONS = 3_576
"""All operations of a topic, as bits."""
_LEDGER = {
    "error_code": "NONE",
    "name": "~ledger",
    "topic_id": "$T0",
    "is_internal": False,
    "partitions": [
        {
            "error_code": "NONE",
            "partition_index": index,
            "leader_id": 1,
            "leader_epoch": 0,
            "replica_nodes": [1],
            "isr_nodes": [1],
            "offline_replicas": [],
            "eligible_leader_replicas": [],
            "last_known_elr": [],
        }
        for index in range(3)
    ],
    "topic_authorized_operations": _OPERATIONS,
}
KEPT_OF_ONE = {
    "DescribeTopicPartitions": Kept(
        "An empty name is an exception in Kafka, which fails all topics of the request.",
        {
            143: {
                "topics.0.error_code": "INVALID_TOPIC_EXCEPTION",
                "topics.0.topic_authorized_operations": _OPERATIONS,
                "topics.1": _LEDGER,
            }
        },
    )
}


def apply_changes(answer, changes):
    """Return an answer of Kafka with Ottla's values. Raises AssertionError for a change that changes nothing."""
    for place, value in changes.items():
        *path, last = [int(part) if part.isdigit() else part for part in place.split(".")]
        row = answer
        for part in path:
            row = row[part]
        assert row[last] != value, f"Kafka answers as Ottla does: {place}"
        row[last] = value
    return answer
