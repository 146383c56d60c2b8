"""The script language: raw requests to one of three brokers, and changes of their leaders, step by step.

A script is a name and a list of steps. A step is a dict of JSON values: a request (`at`, `api`, `version`, `fields`) or
a change (`do`). Names of topics, groups and transactional ids that begin with "~" belong to the script. "$P0" is the
first producer id that the script has met, "$M0" the first member id, "$T0" the first topic id, "$S0" the first fetch
session. Records are a count, or
a dict with the fields of `build_batch`.

Each script begins with all brokers running, and broker 1 as the coordinator of every group and transactional id.
"""

import hashlib
import json
from typing import NamedTuple

from ottla.broker.api.table import TABLE
from ottla.protocol.api_keys import ApiKey
from ottla.testkit.releases import latest_versions

BROKERS = LEADER, FOLLOWER, STRANGER = 1, 2, 3
LEDGER, GROUP, TXN = "~ledger", "~group", "~txn"
OFFSETS, STATES = "__consumer_offsets", "__transaction_state"


class Script(NamedTuple):
    name: str
    steps: list

    @property
    def digest(self):
        """Return a digest of the steps, which shows whether a recording belongs to the current script."""
        return hashlib.sha256(json.dumps(self.steps, sort_keys=True).encode()).hexdigest()[:16]


def ask(at, api, version, **fields):
    """Send a request to a broker. The answer is its reply."""
    return {"at": at, "api": api.name, "version": version, "fields": fields}


def move(topic, to):
    """Make another replica the leader of a topic's partition 0."""
    return {"do": "move", "topic": topic, "to": to}


def stop(node_id):
    return {"do": "stop", "id": node_id}


def start(node_id):
    return {"do": "start", "id": node_id}


def versions_of(api):
    """Return the versions that Ottla serves and Kafka 4.3.1 has."""
    served = TABLE[api]
    return range(served.min_version, min(served.max_version, latest_versions("4.3")[api]) + 1)


def create(*places, topic=LEDGER, at=1, version=5, **configs):
    """Create a topic whose partitions have these replicas, each as a list of ids."""
    assigned = [{"partition_index": index, "broker_ids": [*ids]} for index, ids in enumerate(places)]
    return create_topic(topic, -1, -1, assigned, at=at, version=version, **configs)


def create_topic(topic, partitions, factor, assigned=(), *, at=1, version=5, validate_only=False, **configs):
    configs = [{"name": key.replace("_", "."), "value": str(value)} for key, value in configs.items()]
    row = {"name": topic, "num_partitions": partitions, "replication_factor": factor, "assignments": [*assigned]}
    topics = [row | {"configs": configs}]
    return ask(at, ApiKey.CREATE_TOPICS, version, topics=topics, timeout_ms=10_000, validate_only=validate_only)


def describe(at, *topics, version=9):
    """Ask for the brokers, and for leaders, epochs, replicas and in-sync sets of topics."""
    rows = [{"name": topic} for topic in topics or (LEDGER,)]
    return ask(at, ApiKey.METADATA, version, topics=rows, allow_auto_topic_creation=False)


def produce(at, version=9, acks=-1, topic=LEDGER, partition=0, txn=None, **records):
    rows = [{"index": partition, "records": {"count": 1} | records}]
    row = {"name": topic, "partition_data": rows}
    if version >= 13:
        row = {"topic_id": "$T0", "partition_data": rows}
    return ask(at, ApiKey.PRODUCE, version, transactional_id=txn, acks=acks, timeout_ms=5_000, topic_data=[row])


def fetch(at, version=11, epoch=-1, offset=0, topic=LEDGER, isolation=0, last_epoch=-1):
    row = fetch_row(0, offset, current_leader_epoch=epoch, last_fetched_epoch=last_epoch)
    return fetch_rows(at, version, ("$T0" if version >= 13 else topic, row), isolation=isolation)


def fetch_row(partition=0, offset=0, **fields):
    """Return a partition of a Fetch."""
    row = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 100_000}
    return row | {"current_leader_epoch": -1, "last_fetched_epoch": -1, "log_start_offset": -1} | fields


def fetch_rows(at, version, *topics, session=(0, -1), forgotten=(), isolation=0, max_bytes=1_000_000):
    """Fetch topics, each the name (from version 13 on the id) and its partitions; forget (name or id, numbers)."""
    name = "topic_id" if version >= 13 else "topic"
    rows = [{name: topic, "partitions": [*partitions]} for topic, *partitions in topics]
    forget = [{name: topic, "partitions": [*partitions]} for topic, *partitions in forgotten]
    limits = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": max_bytes}
    return ask(
        at,
        ApiKey.FETCH,
        version,
        **limits,
        session_id=session[0],
        session_epoch=session[1],
        isolation_level=isolation,
        forgotten_topics_data=forget,
        rack_id="",
        topics=rows,
    )


def delete(topic=LEDGER, at=1, version=5):
    """Delete a topic."""
    return ask(at, ApiKey.DELETE_TOPICS, version, topic_names=[topic], timeout_ms=10_000)


def list_offsets(at, version=6, epoch=-1, timestamp=-1, isolation=0):
    row = {"partition_index": 0, "current_leader_epoch": epoch, "timestamp": timestamp}
    topics = [{"name": LEDGER, "partitions": [row]}]
    more = {"timeout_ms": 5_000} if version >= 10 else {}
    return ask(at, ApiKey.LIST_OFFSETS, version, replica_id=-1, isolation_level=isolation, topics=topics, **more)


def epoch_end(at, version=4, epoch=-1, asked=0):
    row = {"partition": 0, "current_leader_epoch": epoch, "leader_epoch": asked}
    topics = [{"topic": LEDGER, "partitions": [row]}]
    return ask(at, ApiKey.OFFSET_FOR_LEADER_EPOCH, version, replica_id=-2, topics=topics)


def delete_records(at, version=2, offset=0):
    topics = [{"name": LEDGER, "partitions": [{"partition_index": 0, "offset": offset}]}]
    return ask(at, ApiKey.DELETE_RECORDS, version, topics=topics, timeout_ms=5_000)


def describe_producers(at):
    return ask(at, ApiKey.DESCRIBE_PRODUCERS, 0, topics=[{"name": LEDGER, "partition_indexes": [0]}])


def write_markers(at, version=1, coordinator_epoch=0, epoch=0, topic=LEDGER):
    row = {"producer_id": 77_000, "producer_epoch": epoch, "transaction_result": True}
    row |= {"coordinator_epoch": coordinator_epoch, "topics": [{"name": topic, "partition_indexes": [0]}]}
    return ask(at, ApiKey.WRITE_TXN_MARKERS, version, markers=[row])


def find(at, version, key_type=0, *keys):
    """Ask for the coordinator of a group (0), a transactional id (1) or a share group (2)."""
    keys = keys or (GROUP,)
    asked = {"coordinator_keys": [*keys]} if version >= 4 else {"key": keys[0]}
    return ask(at, ApiKey.FIND_COORDINATOR, version, key_type=key_type, **asked)


def init(at, version=4, txn=TXN, producer=-1, epoch=-1):
    asked = {"transactional_id": txn, "transaction_timeout_ms": 60_000}
    return ask(at, ApiKey.INIT_PRODUCER_ID, version, **asked, producer_id=producer, producer_epoch=epoch)


OWNER = {"transactional_id": TXN, "producer_id": "$P0"}


def add(at, version=3, epoch=0, topic=LEDGER):
    topics = [{"name": topic, "partitions": [0]}]
    if version >= 4:
        rows = [OWNER | {"producer_epoch": epoch, "verify_only": False, "topics": topics}]
        return ask(at, ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=rows)
    owner = {f"v3_and_below_{name}": value for name, value in (OWNER | {"producer_epoch": epoch}).items()}
    return ask(at, ApiKey.ADD_PARTITIONS_TO_TXN, version, **owner, v3_and_below_topics=topics)


def add_offsets(at, version=3, epoch=0):
    return ask(at, ApiKey.ADD_OFFSETS_TO_TXN, version, **OWNER, producer_epoch=epoch, group_id=GROUP)


def end(at, version=3, committed=True, epoch=0):
    return ask(at, ApiKey.END_TXN, version, **OWNER, producer_epoch=epoch, committed=committed)


def offset_rows(**more):
    return [
        {"name": LEDGER, "partitions": [{"partition_index": 0, "committed_offset": 7, "committed_metadata": ""} | more]}
    ]


def txn_offset_commit(at, version=2, epoch=0):
    owner = OWNER | {"producer_epoch": epoch}
    return ask(at, ApiKey.TXN_OFFSET_COMMIT, version, **owner, group_id=GROUP, topics=offset_rows())


def _topic_rows(version, rows):
    """Return rows that name their topic by its id from this version on."""
    return (
        [{name: value for name, value in row.items() if name != "name"} | {"topic_id": "$T0"} for row in rows]
        if version >= 10
        else rows
    )


def offset_commit(at, version=8, member="", generation=-1):
    who = {"group_id": GROUP, "generation_id_or_member_epoch": generation, "member_id": member}
    return ask(at, ApiKey.OFFSET_COMMIT, version, **who, topics=_topic_rows(version, offset_rows()))


def offset_fetch(at, version=7, stable=False):
    rows = _topic_rows(version, [{"name": LEDGER, "partition_indexes": [0]}])
    if version >= 8:
        groups = [{"group_id": GROUP, "topics": rows}]
        return ask(at, ApiKey.OFFSET_FETCH, version, groups=groups, require_stable=stable)
    return ask(at, ApiKey.OFFSET_FETCH, version, group_id=GROUP, topics=rows, require_stable=stable)


def offset_delete(at):
    topics = [{"name": LEDGER, "partitions": [{"partition_index": 0}]}]
    return ask(at, ApiKey.OFFSET_DELETE, 0, group_id=GROUP, topics=topics)


def join(at, version=5, member=""):
    protocols = [{"name": "range", "metadata": "sub"}]
    times = {"session_timeout_ms": 300_000, "rebalance_timeout_ms": 300_000}
    who = {"group_id": GROUP, "member_id": member, "protocol_type": "consumer"}
    return ask(at, ApiKey.JOIN_GROUP, version, **who, **times, protocols=protocols)


def _member(member, generation):
    return {"group_id": GROUP, "generation_id": generation, "member_id": member}


def sync(at, version=3, member="$M0", generation=1):
    names = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    rows = [{"member_id": member, "assignment": "share"}]
    return ask(at, ApiKey.SYNC_GROUP, version, **_member(member, generation), **names, assignments=rows)


def heartbeat(at, version=3, member="$M0", generation=1):
    return ask(at, ApiKey.HEARTBEAT, version, **_member(member, generation))


def leave(at, version=1, member="$M0"):
    if version >= 3:
        return ask(at, ApiKey.LEAVE_GROUP, version, group_id=GROUP, members=[{"member_id": member}])
    return ask(at, ApiKey.LEAVE_GROUP, version, group_id=GROUP, member_id=member)


def consumer_heartbeat(at, version=0, member="", epoch=0, subscribed=True):
    topics = {"subscribed_topic_names": [LEDGER], "topic_partitions": []} if subscribed else {}
    who = {"group_id": GROUP, "member_id": member, "member_epoch": epoch, "rebalance_timeout_ms": 30_000}
    return ask(at, ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **who, **topics)


def describe_groups(at, version=5):
    return ask(at, ApiKey.DESCRIBE_GROUPS, version, groups=[GROUP])


def describe_consumer_groups(at, version=1):
    return ask(at, ApiKey.CONSUMER_GROUP_DESCRIBE, version, group_ids=[GROUP])


def delete_groups(at, version=2):
    return ask(at, ApiKey.DELETE_GROUPS, version, groups_names=[GROUP])


def list_groups(at, version=4):
    filters = {"states_filter": []} if version >= 4 else {}
    if version >= 5:
        filters["types_filter"] = []
    return ask(at, ApiKey.LIST_GROUPS, version, **filters)


def describe_transactions(at):
    return ask(at, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[TXN])


def list_transactions(at, version=1):
    return ask(at, ApiKey.LIST_TRANSACTIONS, version, state_filters=[], producer_id_filters=[])


def set_config(topic, at=1, **configs):
    """Replace the configs of a topic."""
    rows = [{"name": key.replace("_", "."), "value": str(value)} for key, value in configs.items()]
    resources = [{"resource_type": 2, "resource_name": topic, "configs": rows}]
    return ask(at, ApiKey.ALTER_CONFIGS, 1, resources=resources, validate_only=False)


def elect(at, *places, version=2, kind=0):
    """Elect leaders of (topic, partition, ...): the first replica (0) or any one that runs (1). Without places of all
    partitions."""
    rows = [{"topic": topic, "partitions": [*indexes]} for topic, *indexes in places] or None
    fields = {"election_type": kind} if version else {}
    return ask(at, ApiKey.ELECT_LEADERS, version, topic_partitions=rows, timeout_ms=10_000, **fields)


def reassign(at, *places, version=1, may_change_factor=True):
    """Give each (topic, partition, replicas) these replicas; None cancels a change."""
    by_topic = {}
    for topic, index, replicas in places:
        by_topic.setdefault(topic, []).append({"partition_index": index, "replicas": replicas})
    topics = [{"name": topic, "partitions": rows} for topic, rows in by_topic.items()]
    fields = {"allow_replication_factor_change": may_change_factor} if version else {}
    return ask(at, ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, topics=topics, timeout_ms=10_000, **fields)


def list_reassignments(at, *places):
    """List the changes of replicas in progress of (topic, partition, ...), without places all."""
    rows = [{"name": topic, "partition_indexes": [*indexes]} for topic, *indexes in places] or None
    return ask(at, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, topics=rows, timeout_ms=10_000)


def describe_partitions(at, *topics, limit=2_000, cursor=None):
    """Describe a page of these topics, without any of all. `cursor` is (topic, partition)."""
    names = [{"name": topic} for topic in topics]
    cursor = cursor and {"topic_name": cursor[0], "partition_index": cursor[1]}
    return ask(at, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=names, response_partition_limit=limit, cursor=cursor)


def list_configs(at, *kinds, version=1):
    """List the resources of these types that have configs."""
    fields = {"resource_types": [*kinds]} if version else {}
    return ask(at, ApiKey.LIST_CONFIG_RESOURCES, version, **fields)


def describe_quorum(at, *places, version=2):
    """Describe the quorum of (topic, partition, ...)."""
    topics = [
        {"topic_name": topic, "partitions": [{"partition_index": index} for index in indexes]}
        for topic, *indexes in places
    ]
    return ask(at, ApiKey.DESCRIBE_QUORUM, version, topics=topics)


def describe_log_dirs(at, *places, version=5):
    """Describe the log directory with (topic, partition, ...). Its path is "$L0" from then on."""
    topics = [{"topic": topic, "partitions": [*indexes]} for topic, *indexes in places]
    return ask(at, ApiKey.DESCRIBE_LOG_DIRS, version, topics=topics)


def move_to_dir(at, path, *places, version=2):
    """Move replicas of (topic, partition, ...) to another log directory."""
    topics = [{"name": topic, "partitions": [*indexes]} for topic, *indexes in places]
    return ask(at, ApiKey.ALTER_REPLICA_LOG_DIRS, version, dirs=[{"path": path, "topics": topics}])
