"""TxnOffsetCommit in the group coordinator: the tables OFFSET and PENDING."""

from types import SimpleNamespace

import pytest

from lab.metadata import create_internal_topic
from ottla.broker.group.commits import CommitRow
from ottla.broker.group.consumer.decisions import Heartbeat
from ottla.broker.group.members import Caller
from ottla.broker.group.states import ClassicGroupState
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.internal_topics.offsets_records import read_offsets_key
from ottla.protocol.records import iter_records
from ottla.protocol.requests import codec
from ottla.protocol.values import ProducerIdAndEpoch, TransactionMarker
from tests.fetching import fetch
from tests.tables.rows import EPOCH, LOADING, MAPPING, row, rows
from tests.unit.broker.txn.test_txn_v2_writes import Client

TXN_OFFSET_COMMIT = 28
PRODUCER = ProducerIdAndEpoch(7, 3)
NOBODY = Caller("g")
PLACE = ("ledger", 0)
UNSTABLE = (E.UNSTABLE_OFFSET_COMMIT, -1, -1, "")
NOTHING = (E.NONE, -1, -1, "")


def commit(groups, caller=NOBODY, offset=5, producer=PRODUCER, metadata="m", partition=0):
    return groups.commits.commit(caller, [CommitRow("ledger", partition, offset, 3, metadata)], producer)


def fetch_offset(groups, stable=False, place=PLACE):
    error, ((_, ((_, found),)),) = fetch(groups.commits, "g", [(place[0], [place[1]])], stable)
    assert error is E.NONE
    return found


def is_pending(groups, offset=5):
    """Return whether the offset is pending."""
    return fetch_offset(groups).offset != offset and fetch_offset(groups, stable=True) == UNSTABLE


def end_and_fetch(groups, commit=True):
    marker = TransactionMarker(*PRODUCER, 0, commit, 0)
    assert groups.groups.complete_transaction(groups.log_of(), marker) is E.NONE
    return fetch_offset(groups, stable=True)


# ---- the request, on real logs


@pytest.fixture
def client(parts):
    create_internal_topic(parts.cluster, "__consumer_offsets")
    parts.clock.settle()
    return Client(parts)


def request(client, version, *topics, group="g", producer_id=None, epoch=None):
    """Commit offsets of topics as (name, partitions); return {(topic, partition): error}."""
    body = SimpleNamespace(
        transactional_id="t",
        group_id=group,
        producer_id=client.producer[0] if producer_id is None else producer_id,
        producer_epoch=client.producer[1] if epoch is None else epoch,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=[
            SimpleNamespace(
                name=name,
                partitions=[
                    SimpleNamespace(
                        partition_index=index, committed_offset=5, committed_leader_epoch=-1, committed_metadata=""
                    )
                    for index in indexes
                ],
            )
            for name, indexes in topics
        ],
    )
    (reply,) = client.parts.begin(TXN_OFFSET_COMMIT, version, body)
    _, message = codec.decode_response(TXN_OFFSET_COMMIT, version, reply.buffers[0][4:])
    return {
        (topic.name, each.partition_index): E(each.error_code) for topic in message.topics for each in topic.partitions
    }


def add_group(client, version):
    """Add the group's partition, as V1 clients do before they commit."""
    if version < 5:
        place = ("__consumer_offsets", client.parts.groups.offsets.partition_for("g"))
        assert client.parts.ask(client.parts.coordinator.add_partitions("t", *client.producer, [place])) is E.NONE


@pytest.mark.parametrize("version", [0, 4, 5])
@row("OFFSET-4", "OFFSET-5 mapping", "OFFSET-5 fenced", "OFFSET-6")
def test_errors_of_partitions_and_of_the_request(row, client, version):
    add_group(client, version)
    topics = [("ledger", [0, 9, 1]), ("nowhere", [0])]
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    given, error = {
        "OFFSET-4": ({}, E.NONE),
        "OFFSET-5 mapping": ({"producer_id": 99}, MAPPING),
        "OFFSET-5 fenced": ({"epoch": 4}, EPOCH),
        "OFFSET-6": ({"group": ""}, E.INVALID_GROUP_ID),
    }[row]
    assert request(client, version, *topics, **given) == {
        ("ledger", 0): error,
        ("ledger", 9): unknown,
        ("ledger", 1): error,
        ("nowhere", 0): unknown,
    }
    offsets = client.parts.groups.offsets
    _, found = fetch(offsets, "g", [("ledger", [0, 1, 9]), ("nowhere", [0])], True)
    stable = [each.error is E.NONE for _, indexes in found for _, each in indexes]
    assert stable == [error is not E.NONE, error is not E.NONE, True, True]


@rows([(f"OFFSET-21 version {v}", v) for v in (0, 1)] + [(f"OFFSET-22 version {v}", v) for v in range(2, 6)])
def test_a_group_that_is_being_loaded(case, client):
    _, version = case
    add_group(client, version)
    groups = client.parts.groups
    index = groups.offsets.partition_for("g")
    groups._manager.loading.add(index)
    error = E.COORDINATOR_NOT_AVAILABLE if version < 2 else LOADING
    assert request(client, version, ("ledger", [0, 1])) == {("ledger", 0): error, ("ledger", 1): error}
    groups._manager.loading.clear()
    assert client.parts.offsets(("__consumer_offsets", index)) == (0, 0)


@row("OFFSET-19 epoch", "OFFSET-19 sequences")
def test_a_commit_is_checked_for_its_epoch_and_not_for_its_sequence(row, client):
    offsets = client.parts.groups.offsets
    place = ("__consumer_offsets", offsets.partition_for("g"))
    at = [CommitRow("ledger", 0, 5, -1, "")]
    for _ in range(3):  # each of them has base sequence 0
        assert offsets.commit(NOBODY, at, ProducerIdAndEpoch(7, 3)) == [E.NONE]
    end = client.parts.offsets(place)[1]
    assert end == 3
    assert offsets.commit(NOBODY, at, ProducerIdAndEpoch(7, 2 if "epoch" in row else 3)) == [
        EPOCH if "epoch" in row else E.NONE
    ]
    assert client.parts.offsets(place) == (0, end if "epoch" in row else end + 1)


# ---- the group


def with_group(groups, state, instances=()):
    """Bring group g into this state; return the id of one of its members (a former one in Empty)."""
    if state in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.PREPARING_REBALANCE):
        if state is ClassicGroupState.COMPLETING_REBALANCE:
            waiting = groups.join()
            groups.clock.advance()
            member = waiting[0].member_id
        else:
            (reply,) = groups.stable()
            groups.join()
            member = reply.member_id
    else:
        (reply,) = groups.stable(1, instances)
        member = reply.member_id
        if state is ClassicGroupState.EMPTY:
            groups.leave((member, None))
    assert groups.group().state is state
    return member


@row("OFFSET-7")
def test_no_such_group_and_no_generation(row, groups):
    assert commit(groups) == [E.NONE]
    assert (groups.group().state, groups.group().protocol_type) == (ClassicGroupState.EMPTY, None)
    assert is_pending(groups)


@row("OFFSET-8 generation 0", "OFFSET-8 generation 4")
def test_no_such_group_and_a_generation(row, groups):
    assert commit(groups, Caller("g", int(row[-1]), "who")) == [E.ILLEGAL_GENERATION]
    assert groups.known == {} and groups.log_of().batches == []


@row("OFFSET-10 nobody", "OFFSET-10 a stranger", "OFFSET-10 an instance")
def test_an_empty_group(row, groups):
    with_group(groups, ClassicGroupState.EMPTY)
    caller = {
        "nobody": NOBODY,
        "stranger": Caller("g", -1, "who"),
        "instance": Caller("g", -1, "who", "i"),
    }[row.split()[-1]]
    assert commit(groups, caller) == [E.NONE]
    assert is_pending(groups)


# name, who says so (of the member's id), the answer
MEMBERS = [
    ("OFFSET-11 a stranger", lambda m: Caller("g", 1, "who"), E.UNKNOWN_MEMBER_ID),
    ("OFFSET-11 no member id", lambda m: Caller("g", 1, ""), E.UNKNOWN_MEMBER_ID),
    ("OFFSET-11 no generation", lambda m: Caller("g", -1, "who"), E.UNKNOWN_MEMBER_ID),
    ("OFFSET-11 an unknown instance", lambda m: Caller("g", 1, m, "j"), E.UNKNOWN_MEMBER_ID),
    ("OFFSET-12 of another member", lambda m: Caller("g", 1, "who", "i"), E.FENCED_INSTANCE_ID),
    ("OFFSET-12 of no member", lambda m: Caller("g", -1, "", "i"), E.FENCED_INSTANCE_ID),
    ("OFFSET-13 lower", lambda m: Caller("g", 0, m), E.ILLEGAL_GENERATION),
    ("OFFSET-13 higher", lambda m: Caller("g", 2, m), E.ILLEGAL_GENERATION),
    ("OFFSET-13 none", lambda m: Caller("g", -1, m), E.ILLEGAL_GENERATION),
    ("OFFSET-14", lambda m: Caller("g", 1, m), E.NONE),
    ("OFFSET-14 with its instance", lambda m: Caller("g", 1, m, "i"), E.NONE),
]


@rows(MEMBERS)
def test_a_member_of_a_stable_group(case, groups):
    _, who, error = case
    member = with_group(groups, ClassicGroupState.STABLE, ["i"])
    logged = len(groups.log_of().batches)
    assert commit(groups, who(member)) == [error]
    assert is_pending(groups) is (error is E.NONE)
    assert len(groups.log_of().batches) == logged + (error is E.NONE)


@row("OFFSET-11 Empty, with a generation")
def test_a_former_member_may_not_commit_to_an_empty_group(row, groups):
    member = with_group(groups, ClassicGroupState.EMPTY)
    assert commit(groups, Caller("g", 2, member)) == [E.UNKNOWN_MEMBER_ID]
    assert fetch_offset(groups, stable=True) == NOTHING


@rows([(f"OFFSET-15 {s.value}", s) for s in ClassicGroupState if s is not ClassicGroupState.DEAD])
def test_commits_without_a_member_are_accepted_in_any_state(case, groups):
    with_group(groups, case[1])
    assert commit(groups) == [E.NONE]
    assert is_pending(groups)


@row("OFFSET-14 between join and assignment", "OFFSET-14 while others join")
def test_a_member_may_commit_during_a_rebalance(row, groups):
    state = ClassicGroupState.COMPLETING_REBALANCE if "assignment" in row else ClassicGroupState.PREPARING_REBALANCE
    member = with_group(groups, state)
    assert commit(groups, Caller("g", 1, member)) == [E.NONE]
    assert is_pending(groups)


@pytest.fixture
def consumers(client):
    """Return the offsets of a coordinator whose group g has the member m of the consumer protocol, in epoch 3.

    The member owns partition 0 of `ledger` since epoch 2.
    """
    groups = client.parts.groups

    def beat(member_id, epoch, topics):
        asked = Heartbeat("g", member_id, epoch, None, None, 60_000, topics, None, None, {}, "client", "/127.0.0.1")
        return client.parts.ask(groups.consumer_groups.heartbeat(asked)).member_epoch

    assert beat("m", 0, ("ledger",)) == 2
    beat("of another topic", 0, ("nowhere",))
    client.parts.clock.advance(5_000)
    assert beat("m", 2, ("ledger",)) == 3
    return groups.offsets


# who commits to a group of the consumer protocol, the answer
CONSUMERS = [
    ("OFFSET-14 of the consumer protocol", Caller("g", 3, "m"), E.NONE),
    ("OFFSET-16", NOBODY, E.NONE),
    ("OFFSET-17 before it owned the partition", Caller("g", 1, "m"), E.ILLEGAL_GENERATION),
    ("OFFSET-17 of the future", Caller("g", 4, "m"), E.ILLEGAL_GENERATION),
    ("OFFSET-27", Caller("g", 2, "m"), E.NONE),
    ("OFFSET-28", Caller("g", -2), E.UNKNOWN_MEMBER_ID),
]


@rows(CONSUMERS)
def test_commit_in_a_transaction_to_a_group_of_the_consumer_protocol(case, client, consumers):
    _, caller, error = case
    at = CommitRow("ledger", 0, 5, 3, "m", topic_id=client.parts.cluster.topics["ledger"].topic_id)
    assert consumers.commit(caller, [at], PRODUCER) == [error]
    _, found = consumers.of_group("g")
    assert found.is_unstable(("ledger", 0)) is (error is E.NONE)


@row("OFFSET-18")
def test_metadata_that_is_too_long(row, groups):
    limit = groups.config.offset_metadata_max_bytes
    rows_of = [CommitRow("ledger", n, 5, -1, "x" * (limit + n)) for n in (0, 1)]
    assert groups.commits.commit(NOBODY, rows_of, PRODUCER) == [E.NONE, E.OFFSET_METADATA_TOO_LARGE]
    assert fetch_offset(groups, stable=True) == UNSTABLE
    assert fetch_offset(groups, stable=True, place=("ledger", 1)) == NOTHING


@row("OFFSET-19")
def test_the_batch_of_a_commit(row, groups):
    assert commit(groups) == [E.NONE]
    ((header, _),) = groups.log_of().batches
    assert (header.is_transactional, header.is_control) == (True, False)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (*PRODUCER, 0)


@row("OFFSET-20 nothing committed", "OFFSET-20 something committed")
def test_pending_offsets_are_not_fetched(row, groups):
    before = NOTHING
    if "something" in row:
        assert commit(groups, producer=None, offset=4) == [E.NONE]
        before = (E.NONE, 4, 3, "m")
    assert commit(groups, offset=9) == [E.NONE]
    assert (fetch_offset(groups), fetch_offset(groups, stable=True)) == (before, UNSTABLE)
    assert fetch_offset(groups, stable=True, place=("ledger", 1)) == NOTHING


LOG_SAYS = [
    *[(f"OFFSET-23 {e.name}", e, E.NOT_COORDINATOR) for e in (E.NOT_LEADER_OR_FOLLOWER, E.KAFKA_STORAGE_ERROR)],
    *[
        (f"OFFSET-24 {e.name}", e, E.COORDINATOR_NOT_AVAILABLE)
        for e in (E.UNKNOWN_TOPIC_OR_PARTITION, E.NOT_ENOUGH_REPLICAS, E.REQUEST_TIMED_OUT)
    ],
    *[(f"OFFSET-26 {e.name}", e, E.UNKNOWN_SERVER_ERROR) for e in (E.MESSAGE_TOO_LARGE, E.RECORD_LIST_TOO_LARGE)],
]


@rows(LOG_SAYS)
def test_append_errors_are_mapped_to_coordinator_errors(case, groups):
    _, said, told = case
    groups.log_of().refuse = said
    assert commit(groups) == [told]
    assert groups.known == {}
    groups.log_of().refuse = E.NONE
    assert fetch_offset(groups, stable=True) == NOTHING


# ---- what becomes of pending offsets


@row("PENDING-1")
def test_commit_makes_them_count(row, groups):
    commit(groups, producer=None, offset=4)
    commit(groups, offset=9)
    commit(groups, offset=1, partition=1)
    assert end_and_fetch(groups) == (E.NONE, 9, 3, "m")
    assert fetch_offset(groups, stable=True, place=("ledger", 1)).offset == 1
    assert groups.log_of().batches[-1][0].is_control


@row("PENDING-2 plain commit", "PENDING-2 another transaction")
def test_a_later_record_wins_over_the_marker(row, groups):
    commit(groups, offset=9)
    if "plain" in row:
        commit(groups, producer=None, offset=4)
    else:
        commit(groups, producer=ProducerIdAndEpoch(8, 0), offset=4)
        groups.mark(8)
        assert fetch_offset(groups).offset == 4
    assert end_and_fetch(groups).offset == 4


@row("PENDING-3 nothing committed", "PENDING-3 something committed")
def test_abort_drops_them(row, groups):
    if "something" in row:
        commit(groups, producer=None, offset=4)
    commit(groups, offset=9)
    assert end_and_fetch(groups, commit=False) == ((E.NONE, 4, 3, "m") if "something" in row else NOTHING)


@row("PENDING-4")
def test_a_tombstone_drops_committed_and_pending_offsets(row, groups):
    commit(groups, producer=None, offset=4)
    commit(groups, offset=9)
    commit(groups, producer=ProducerIdAndEpoch(8, 0), offset=11)
    commit(groups, offset=1, partition=1)
    (delete,) = groups.cluster.on_topic_deleted
    delete(SimpleNamespace(name="other"))
    assert fetch_offset(groups).offset == 4
    delete(SimpleNamespace(name="ledger"))
    for place in (PLACE, ("ledger", 1)):
        assert (fetch_offset(groups, place=place), fetch_offset(groups, True, place)) == (NOTHING, NOTHING)
    groups.mark(8)
    assert end_and_fetch(groups) == NOTHING
    groups.restart()
    assert fetch_offset(groups, stable=True) == NOTHING


@row("PENDING-5 open", "PENDING-5 committed", "PENDING-5 aborted", "PENDING-5 overtaken")
def test_committed_and_pending_offsets_survive_a_restart(row, groups):
    commit(groups, producer=None, offset=4)
    commit(groups, offset=9)
    if "overtaken" in row:
        commit(groups, producer=None, offset=6)
    if "open" not in row:
        end_and_fetch(groups, commit="aborted" not in row)
    expected = {"open": (4, True), "committed": (9, False), "aborted": (4, False), "overtaken": (6, False)}
    for _ in range(2):
        found = fetch_offset(groups).offset, fetch_offset(groups, stable=True) == UNSTABLE
        assert found == expected[row.split()[1]]
        groups.restart()
    if "open" in row:
        assert end_and_fetch(groups).offset == 9


@row("PENDING-5 unknown record type", "PENDING-5 unknown value version")
def test_loading_skips_unknown_record_types_and_versions(row, groups):
    commit(groups, producer=None, offset=4)
    key, value = groups_record(groups)
    if "type" in row:
        key = (99).to_bytes(2, "big") + key[2:]
    else:
        value = (99).to_bytes(2, "big") + value[2:]
    foreign = build_batch([(key, value)], timestamp_ms=groups.clock.now_ms())
    assert groups.log_of().append_own(bytearray(foreign)).error is E.NONE
    groups.restart()
    assert fetch_offset(groups, stable=True).offset == 4
    assert groups.known.keys() == {"g"}


def groups_record(groups):
    """Return key and value of the last record of the group's log."""
    header, batch = groups.log_of().batches[-1]
    (record,) = iter_records(batch, header)
    return bytes(record.key), bytes(record.value)


@row("PENDING-6 nothing committed", "PENDING-6 something committed")
def test_a_deleted_group_takes_pending_offsets_along(row, groups):
    if "something" in row:
        commit(groups, producer=None, offset=4, partition=1)
    commit(groups, offset=9)
    assert groups.delete_group("g") is E.NONE
    batches = [[*iter_records(batch, header)] for header, batch in groups.log_of().batches]
    keys = [read_offsets_key(record.key)[1:] for records in batches for record in records if record.value is None]
    assert keys == [("ledger", 1)] * ("something" in row) + [("ledger", 0), ()]
    assert end_and_fetch(groups) == NOTHING
    groups.restart()
    assert groups.known == {}
