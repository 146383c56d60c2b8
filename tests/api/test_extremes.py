"""Every string and every number of the group and transaction APIs at the ends of its range.

Every request is answered, or the connection is closed with a reason, and the group that it named works for others.
"""

import logging
import struct
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random
from uuid import UUID

import pytest

from lab.crash import life as lives
from lab.crash.log_directory import DIRECTORY
from lab.in_memory.disk import MemoryDisk
from lab.metadata import create_topic
from ottla.broker.api import offset_commit
from ottla.broker.api.table import TABLE
from ottla.broker.config import Config
from ottla.broker.dispatch import Dispatcher
from ottla.broker.security.session import Session
from ottla.broker.turns import SHARE_US
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests import codec
from ottla.testkit.in_memory.ports import PortCalls
from ottla.testkit.in_memory.schedule import Schedule

CONFIG = Config(log_dirs=DIRECTORY, transaction_state_log_num_partitions=1, offsets_topic_num_partitions=1)
LONGER_THAN_ANY_PATIENCE_MS = 310_000.0
DAY_MS = 86_400_000.0
LENGTHS = (0, 32_731, 32_767, 32_768, 100_000)
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
OF_PRODUCER = {"transactional_id": "txn", "producer_id": 0, "producer_epoch": 0}
OF_MEMBER = {"group_id": "g", "generation_id": 1, "member_id": "m"}
PLACE = {"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": "said"}]}

BODIES = {
    K.JOIN_GROUP: {
        "group_id": "g",
        "member_id": "",
        "group_instance_id": "i",
        "session_timeout_ms": 6_000,
        "rebalance_timeout_ms": 1_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"x"}],
    },
    K.SYNC_GROUP: {**OF_MEMBER, "protocol_type": "consumer", "protocol_name": "range"}
    | {"assignments": [{"member_id": "m", "assignment": b"a"}]},
    K.HEARTBEAT: OF_MEMBER,
    K.CONSUMER_GROUP_HEARTBEAT: {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "instance_id": "i",
        "rack_id": "r",
        "rebalance_timeout_ms": 5_000,
        "subscribed_topic_names": ["t"],
        "subscribed_topic_regex": "t.*",
        "server_assignor": "uniform",
        "topic_partitions": [],
    },
    K.CONSUMER_GROUP_DESCRIBE: {"group_ids": ["g"], "include_authorized_operations": True},
    K.LEAVE_GROUP: {"group_id": "g", "member_id": "m", "members": [{"member_id": "m", "group_instance_id": "i"}]},
    K.OFFSET_COMMIT: {"group_id": "g", "generation_id_or_member_epoch": -1, "retention_time_ms": 5, "topics": [PLACE]},
    K.OFFSET_FETCH: {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}
    | {"groups": [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}]},
    K.FIND_COORDINATOR: {"key": "g", "key_type": 0, "coordinator_keys": ["g"]},
    K.DESCRIBE_GROUPS: {"groups": ["g"]},
    K.LIST_GROUPS: {"states_filter": ["Empty"]},
    K.DELETE_GROUPS: {"groups_names": ["g"]},
    K.OFFSET_DELETE: {"group_id": "g", "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]},
    K.INIT_PRODUCER_ID: {"transactional_id": "txn", "transaction_timeout_ms": 60_000}
    | {"producer_id": -1, "producer_epoch": -1},
    K.ADD_PARTITIONS_TO_TXN: {
        "v3_and_below_transactional_id": "txn",
        "v3_and_below_producer_id": 0,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": "t", "partitions": [0]}],
        "transactions": [{**OF_PRODUCER, "verify_only": False, "topics": [{"name": "t", "partitions": [0]}]}],
    },
    K.ADD_OFFSETS_TO_TXN: {**OF_PRODUCER, "group_id": "g"},
    K.TXN_OFFSET_COMMIT: {**OF_PRODUCER, "group_id": "g", "generation_id": -1, "member_id": "", "topics": [PLACE]},
    K.END_TXN: {**OF_PRODUCER, "committed": True},
    K.WRITE_TXN_MARKERS: {
        "markers": [
            {"producer_id": 0, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0}
            | {"topics": [{"name": "t", "partition_indexes": [0]}]}
        ]
    },
    K.DESCRIBE_TRANSACTIONS: {"transactional_ids": ["txn"]},
}
VERSIONS = [(key, version) for key in BODIES for version in {TABLE[key].min_version, TABLE[key].max_version}]


def message(key, version, body):
    """Return the library's message, without fields that the version does not have."""
    return made(codec.request_class(key), version, body)


def made(message_class, version, body):
    given = {}
    for name, value in body.items():
        field = message_class.fields.get(name)
        if field is None or not field.for_version_q(version):
            continue
        if field.is_array() and value and isinstance(value[0], dict):
            value = [made(field.data_class, version, each) for each in value]
        given[name] = value
    return message_class(version=version, **given)


def mutants(message_class, version, body):
    """Yield (description of the change, changed body)."""
    for name, value in body.items():
        field = message_class.fields.get(name)
        if field is None or not field.for_version_q(version) or value == []:
            continue
        if isinstance(value, list) and isinstance(value[0], dict):
            for what, changed in mutants(field.data_class, version, value[0]):
                yield f"{name}.{what}", {**body, name: [changed]}
        elif isinstance(value, list):
            for extreme in extremes(field.array_of, value[0]):
                yield name_extreme(name, extreme), {**body, name: [extreme]}
        else:
            for extreme in extremes(field, value):
                yield name_extreme(name, extreme), {**body, name: extreme}


def extremes(field, value):
    if isinstance(value, str):
        return [letter * (length // len(letter.encode())) for length in LENGTHS for letter in ("s", "\u20ac")]
    if isinstance(value, bytes):
        return [bytes(length) for length in (0, 32_768, 200_000, 900_000)]
    if isinstance(value, bool):
        return [not value]
    largest = 2 ** (BITS[field.type_str] - 1)
    return [-largest, -1, 0, largest - 1]


def name_extreme(name, extreme):
    return f"{name} of {len(extreme)}" if isinstance(extreme, (str, bytes)) else f"{name} = {extreme}"


class Played:
    """A whole broker on a virtual clock; requests arrive as from a connection."""

    def __init__(self):
        disk = MemoryDisk(PortCalls(), Random(0), lambda end: self.life.clock.next_turn(end))
        schedule = Schedule()
        self.life = lives.Life(disk, schedule, flushing=False)
        create_topic(self.life.assembly.broker.cluster, "t", 1)
        self.dispatcher: Dispatcher = self.life.assembly.dispatchers[0]
        self.ask(K.FIND_COORDINATOR, 0, {"key": "g"})
        self.ask(K.INIT_PRODUCER_ID, 0, BODIES[K.INIT_PRODUCER_ID])

    def ask(self, key, version, body, client_id="client"):
        """Send a request and return the response, or the reason why the connection is closed."""
        told = self.post(key, version, body, client_id)
        schedule = self.life.schedule
        until_ms = schedule.now_ms + LONGER_THAN_ANY_PATIENCE_MS
        while not told and schedule.now_ms < until_ms:
            schedule.run_next()
        assert len(told) == 1, f"{key.name} v{version} was never answered"
        return told[0]

    def post(self, key, version, body, client_id="client"):
        """Send a request; return a list that receives the response, or the reason why the connection is closed."""
        told = []
        encoded = codec.encode_request(message(key, version, body), version, 1, client_id)
        frame = memoryview(bytearray(encoded))[4:]

        def heard(buffers, room):
            data = b"".join(bytes(buffer) for buffer in buffers)
            told.append(codec.decode_response(key, version, data[4:])[1])

        self.life.run_in_turn(partial(self.dispatcher.start, frame, Session(peer="127.0.0.1:1"), heard, told.append))
        return told

    def check(self):
        """Check that after all sessions have expired a new member can join the group, sync, commit and leave."""
        self.life.advance(LONGER_THAN_ANY_PATIENCE_MS)
        member = {**BODIES[K.JOIN_GROUP], "group_instance_id": None}
        joined = self.ask(K.JOIN_GROUP, 3, member)
        who = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
        given = [{"member_id": joined.member_id, "assignment": b"given"}]
        synced = self.ask(K.SYNC_GROUP, 2, {**who, "assignments": given})
        who["generation_id_or_member_epoch"] = joined.generation_id
        committed = self.ask(K.OFFSET_COMMIT, 5, {**who, "topics": [PLACE]})
        left = self.ask(K.LEAVE_GROUP, 1, who)
        errors = joined.error_code, synced.error_code, committed.topics[0].partitions[0].error_code, left.error_code
        assert (errors, synced.assignment) == ((0, 0, 0, 0), b"given")


@pytest.fixture
def player(monkeypatch, caplog):
    monkeypatch.setattr(lives, "_CONFIG", CONFIG)
    caplog.set_level(logging.WARNING, "ottla")
    return Played()


@pytest.mark.parametrize(("key", "version"), VERSIONS, ids=lambda each: each.name if isinstance(each, K) else each)
def test_extreme_values_raise_no_exception_and_harm_no_other_client(player, caplog, key, version):
    for what, body in mutants(codec.request_class(key), version, BODIES[key]):
        with suppress(struct.error):  # before compact lengths there is no such request
            player.ask(key, version, body)
        player.check()
        broken = [record for record in caplog.records if record.exc_info]
        assert not broken and not player.life.bugs, f"{what}: {broken[0].getMessage()}"


@pytest.mark.parametrize("partition", [-(2**31), -1, 1, 2**31 - 1])
@pytest.mark.parametrize("topic", ["known", "unknown"])
def test_member_that_owns_partitions_that_do_not_exist_gets_its_own(player, topic, partition):
    joined = player.ask(K.CONSUMER_GROUP_HEARTBEAT, 1, BODIES[K.CONSUMER_GROUP_HEARTBEAT])
    (assigned,) = joined.assignment.topic_partitions
    owned = {"topic_id": assigned.topic_id if topic == "known" else UUID(int=7), "partitions": [partition] * 3}
    given = {"member_epoch": joined.member_epoch, "topic_partitions": [owned]}
    reply = player.ask(K.CONSUMER_GROUP_HEARTBEAT, 1, {**BODIES[K.CONSUMER_GROUP_HEARTBEAT], **given})
    assert (reply.error_code, reply.assignment) == (0, joined.assignment)
    player.check()
    assert not player.life.bugs


def beat_of(epoch, **fields):
    """Return the body of a heartbeat, which says nothing new if it has a positive epoch."""
    says = {} if epoch == 0 else {"rebalance_timeout_ms": -1, "subscribed_topic_names": None, "topic_partitions": None}
    named = {"instance_id": None, "rack_id": None, "server_assignor": None, "member_epoch": epoch}
    return {**BODIES[K.CONSUMER_GROUP_HEARTBEAT], **says, **named, **fields}


REJOIN = "The member must abandon all its partitions and rejoin."
KNOWN_EPOCH = "member epoch ({}) than the one known by the group coordinator (3). " + REJOIN
# The group g has the member m and the static member s with the instance id i, in epoch 3. The texts are Kafka's.
BAD_HEARTBEATS = {
    "epoch of the future": (
        beat_of(4),
        E.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a greater {KNOWN_EPOCH.format(4)}",
    ),
    "last epoch": (
        beat_of(2**31 - 1),
        E.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a greater {KNOWN_EPOCH.format(2**31 - 1)}",
    ),
    "epoch of the past": (
        beat_of(1),
        E.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a smaller {KNOWN_EPOCH.format(1)}",
    ),
    "epoch below all": (beat_of(-3), E.INVALID_REQUEST, "MemberEpoch is invalid."),
    "id of no member": (beat_of(3, member_id="zz"), E.UNKNOWN_MEMBER_ID, "Member zz is not a member of group g."),
    "no member leaves": (beat_of(-1, member_id="zz"), E.UNKNOWN_MEMBER_ID, "Member zz is not a member of group g."),
    "unknown instance": (
        beat_of(3, member_id="zz", instance_id="j"),
        E.UNKNOWN_MEMBER_ID,
        "Instance id j is unknown.",
    ),
    "static id of another": (
        beat_of(3, member_id="zz", instance_id="i"),
        E.FENCED_INSTANCE_ID,
        "Static member zz with instance id i was fenced by member s.",
    ),
    "static id taken twice": (
        beat_of(0, member_id="zz", instance_id="i"),
        E.UNRELEASED_INSTANCE_ID,
        "Static member zz with instance id i cannot join the group because the instance id is owned by s member.",
    ),
    "static member joins twice": (
        beat_of(0, member_id="s", instance_id="i"),
        E.UNRELEASED_INSTANCE_ID,
        "Static member s with instance id i cannot join the group because the instance id is owned by s member.",
    ),
    "unknown assignor": (
        beat_of(3, server_assignor="sticky"),
        E.UNSUPPORTED_ASSIGNOR,
        "ServerAssignor sticky is not supported. Supported assignors: uniform, range.",
    ),
    "group of another type": (
        beat_of(3, group_id="classic"),
        E.GROUP_ID_NOT_FOUND,
        "Group classic is not a consumer group.",
    ),
    "no group": (beat_of(3, group_id="none"), E.GROUP_ID_NOT_FOUND, "Consumer group none not found."),
    "more members than a group may have": (
        beat_of(0, member_id="zz"),
        E.GROUP_MAX_SIZE_REACHED,
        "The consumer group has reached its maximum capacity of 2 members.",
    ),
}


@pytest.mark.parametrize(("body", "error", "text"), BAD_HEARTBEATS.values(), ids=BAD_HEARTBEATS)
@pytest.mark.parametrize("version", [0, 1])
def test_bad_heartbeat_is_refused_and_harms_no_member(player, caplog, version, body, error, text):
    most = 2 if error is E.GROUP_MAX_SIZE_REACHED else 3
    config = replace(CONFIG, group_consumer_max_size=most, group_consumer_assignment_interval_ms=0)
    player.life.assembly.broker.groups.consumer_groups.configure(config)
    key = K.CONSUMER_GROUP_HEARTBEAT
    player.ask(K.OFFSET_COMMIT, 2, {**BODIES[K.OFFSET_COMMIT], "group_id": "classic"})
    player.ask(key, 1, beat_of(0))
    joined = player.ask(key, 1, beat_of(0, member_id="s", instance_id="i"))
    assert joined.member_epoch == player.ask(key, 1, beat_of(2)).member_epoch == 3
    reply = player.ask(key, version, body)
    assert (E(reply.error_code), reply.error_message) == (error, text)
    assert (reply.member_id, reply.member_epoch, reply.assignment) == (None, 0, None)
    for beat in (beat_of(3), beat_of(3, member_id="s", instance_id="i")):
        answer = player.ask(key, 1, beat)
        assert (answer.error_code, answer.member_epoch) == (0, 3)
    player.check()
    assert not player.life.bugs and not [record for record in caplog.records if record.exc_info]


def test_a_member_that_never_acknowledges_a_revocation_is_removed(player):
    player.life.assembly.broker.groups.consumer_groups.configure(
        replace(CONFIG, group_consumer_assignment_interval_ms=0)
    )
    key, timeout_ms = K.CONSUMER_GROUP_HEARTBEAT, BODIES[K.CONSUMER_GROUP_HEARTBEAT]["rebalance_timeout_ms"]
    owned = player.ask(key, 1, beat_of(0)).assignment.topic_partitions
    player.ask(key, 1, beat_of(0, member_id="a"))
    told = [{"topic_id": topic.topic_id, "partitions": topic.partitions} for topic in owned]
    waits = beat_of(2, topic_partitions=told)
    player.ask(key, 1, beat_of(2, subscribed_topic_names=[], topic_partitions=told))
    assert player.ask(key, 1, waits).member_epoch == 2
    player.life.advance(timeout_ms / 2)
    assert player.ask(key, 1, waits).member_epoch == 2
    player.life.advance(timeout_ms)
    assert player.ask(key, 1, waits).error_code == E.UNKNOWN_MEMBER_ID
    freed = player.ask(key, 1, beat_of(player.ask(key, 1, beat_of(3, member_id="a")).member_epoch, member_id="a"))
    assert freed.error_code == 0
    player.check()
    assert not player.life.bugs


@pytest.mark.parametrize("length", [32_730, 32_731, 32_767])
@pytest.mark.parametrize("version", [3, 9])
def test_long_client_ids_raise_no_exception_and_harm_no_other_client(player, caplog, version, length):
    body = {**BODIES[K.JOIN_GROUP], "group_instance_id": None}
    reply = player.ask(K.JOIN_GROUP, version, body, "c" * length)
    assert reply.error_code == ((79 if version == 9 else 0) if length == 32_730 else -1)
    player.check()
    assert not player.life.bugs and not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("retention_ms", [2**63 - 1, -(2**63), -1, 0])
def test_any_retention_is_taken_and_the_longest_is_for_ever(player, retention_ms):
    body = {**BODIES[K.OFFSET_COMMIT], "retention_time_ms": retention_ms}
    assert player.ask(K.OFFSET_COMMIT, 2, body).topics[0].partitions[0].error_code == 0
    if retention_ms > 0:
        # The clock jumps by ten years, then a day passes: periodic tasks must not run a hundred million times.
        player.life.schedule.now_ms += 10 * 365 * DAY_MS
    player.life.advance(DAY_MS if retention_ms > 0 else 1_000)
    fetched = player.ask(K.OFFSET_FETCH, 2, BODIES[K.OFFSET_FETCH])
    assert fetched.topics[0].partitions[0].committed_offset == 1


def test_strings_that_kafka_does_not_read_close_the_connection(player):
    reply = player.ask(K.HEARTBEAT, 4, {**OF_MEMBER, "group_id": "g" * 32_768})
    assert reply == "Heartbeat v4: HeartbeatRequest v4: group_id is too long for a string at position 3"
    assert player.ask(K.HEARTBEAT, 4, {**OF_MEMBER, "group_id": "g" * 32_767}).error_code == 25


@pytest.mark.plain
def test_a_large_commit_checks_membership_before_each_portion(player, monkeypatch):
    monkeypatch.setattr(offset_commit, "ROWS_AT_ONCE", 2)
    monkeypatch.setattr(offset_commit, "BATCH_US", SHARE_US)
    joined = player.ask(K.JOIN_GROUP, 3, {**BODIES[K.JOIN_GROUP], "group_instance_id": None})
    who = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
    player.ask(K.SYNC_GROUP, 2, {**who, "assignments": []})
    rows = [{"partition_index": index, "committed_offset": 5} for index in (0, 7, 0, 0, 8, 0)]
    who["generation_id_or_member_epoch"] = joined.generation_id
    told = player.post(K.OFFSET_COMMIT, 5, {**who, "topics": [{"name": "t", "partitions": rows}]})
    assert told == []
    player.ask(K.LEAVE_GROUP, 1, who)
    player.life.advance(1.0)
    (reply,) = told
    codes = [(row.partition_index, row.error_code) for row in reply.topics[0].partitions]
    assert codes == [(0, 0), (7, 3), (0, 25), (0, 25), (8, 3), (0, 25)]
