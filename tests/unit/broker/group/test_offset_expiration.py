"""Deletion of groups and offsets, on request and by expiration."""

from types import SimpleNamespace

import pytest

from ottla.broker.coordinator import loader
from ottla.broker.group import deleted_topics, offset_expiration
from ottla.broker.group import tombstones as tombstones_module
from ottla.broker.group.commits import CommitRow
from ottla.broker.group.members import Caller
from ottla.broker.group.offsets import GroupOffsets
from ottla.broker.group.states import ClassicGroupState
from ottla.broker.turns import SHARE_US
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.internal_topics.offsets_records import read_offsets_key
from ottla.protocol.records import iter_records
from ottla.protocol.values import ProducerIdAndEpoch
from tests.fetching import fetch

LOOK_MS = 600_000
RETENTION_MS = 100 * 60_000
ROW = CommitRow("t", 0, 42, -1, "")
PRODUCER = ProducerIdAndEpoch(7, 0)


def subscription(*topics):
    names = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
    return b"\0\1" + len(topics).to_bytes(4, "big") + names + b"\xff" * 4 + b"of later versions"


def commit(rig, *rows, caller=None, producer=None):
    rows = rows or (ROW,)
    assert rig.commits.commit(caller or Caller("g"), rows, producer) == [E.NONE] * len(rows)


def offsets(rig, group_id="g"):
    """Return {(topic, partition): offset} of the committed offsets."""
    _, topics = fetch(rig.commits, group_id, None, False)
    return {(topic, index): found.offset for topic, rows in topics for index, found in rows}


def tombstones(rig, group_id="g"):
    """Return the tombstones of the group, batch by batch."""
    found = []
    for header, batch in rig.log_of(group_id).batches:
        if not header.is_control:
            records = [*iter_records(batch, header)]
            keys = [read_offsets_key(record.key)[1:] for record in records if record.value is None]
            if keys:
                found.append(keys)
    return found


def member(rig, *topics, protocol_type="consumer", metadata=None):
    """Return the caller of a stable member whose session does not end."""
    protocols = (("range", subscription(*topics) if metadata is None else metadata),)
    (reply,) = rig.stable(protocols=protocols, protocol_type=protocol_type, session_ms=10**9)
    return Caller("g", reply.generation, reply.member_id)


@pytest.fixture
def rig(make_rig):
    return make_rig(group_max_session_timeout_ms=10**9)


# --- on request -------------------------------------------------------------------------------------------------------


def test_a_group_deletion_removes_committed_and_pending_offsets(rig):
    commit(rig, ROW, ROW._replace(partition=1))
    commit(rig, ROW._replace(partition=2), producer=PRODUCER)
    assert rig.delete_group("g") is E.NONE
    assert tombstones(rig) == [[("t", 0), ("t", 1), ("t", 2)], [()]] and not rig.known
    assert rig.mark(7) is E.NONE
    for _ in range(2):
        assert offsets(rig) == {} and rig.delete_group("g") is E.GROUP_ID_NOT_FOUND
        rig.restart()


def test_a_deleted_group_forgets_the_ids_that_it_handed_out(rig):
    (asked,) = rig.join(known_id=True)
    assert rig.delete_group("g") is E.NONE
    assert rig.clock.armed == 1, "the next look alone"
    (reply,) = rig.join(asked.member_id, known_id=True)
    assert reply.error is E.UNKNOWN_MEMBER_ID


def test_offsets_stay_if_the_log_refuses_their_tombstones(rig):
    commit(rig)
    rig.log_of().refuse = E.KAFKA_STORAGE_ERROR
    assert rig.delete_group("g") is E.NOT_COORDINATOR
    assert rig.delete_offsets("g", [("t", [0])]) == (E.NOT_COORDINATOR, [])
    rig.clock.advance(RETENTION_MS + LOOK_MS)
    assert offsets(rig) == {("t", 0): 42}
    rig.log_of().refuse = E.NONE
    rig.clock.advance(LOOK_MS)
    assert not rig.known


def test_deletions_are_refused_while_groups_are_loading(rig):
    commit(rig)
    rig.restart(settle=False)
    rig.groups._manager.loading.update(range(4))
    assert rig.delete_group("g") is E.COORDINATOR_LOAD_IN_PROGRESS
    assert rig.delete_offsets("g", [("t", [0])]) == (E.COORDINATOR_LOAD_IN_PROGRESS, [])


def test_offsets_of_a_group_without_members_are_deleted_even_if_pending(rig):
    commit(rig, ROW, ROW._replace(partition=1))
    commit(rig, ROW._replace(partition=2), producer=PRODUCER)
    told = rig.delete_offsets("g", [("t", [0, 2, 0, 9]), ("u", [0])])
    assert told == (E.NONE, [[E.NONE] * 4, [E.NONE]])
    assert tombstones(rig) == [[("t", 0), ("t", 2)]]
    rig.mark(7)
    assert offsets(rig) == {("t", 1): 42} and "g" in rig.known


@pytest.mark.parametrize(
    ("metadata", "subscribed"),
    [(subscription("t", "v"), {"t", "v"}), (subscription(), set()), (b"sub", {"t", "u"}), (b"", {"t", "u"})],
)
def test_offsets_of_what_members_may_read_stay(rig, metadata, subscribed):
    caller = member(rig, metadata=metadata)
    commit(rig, ROW, ROW._replace(topic="u"), caller=caller)
    for _ in range(2):
        error, told = rig.delete_offsets("g", [("t", [0, 1]), ("u", [0])])
        rows = [[E.GROUP_SUBSCRIBED_TO_TOPIC if topic in subscribed else E.NONE] for topic in ("t", "u")]
        assert (error, told) == (E.NONE, [rows[0] * 2, rows[1]])
        rig.restart()
    assert offsets(rig).keys() == {(topic, 0) for topic in ("t", "u") if topic in subscribed}


def test_tombstones_of_a_long_group_name_are_split_into_batches(rig):
    name = "g" * 30_000
    commit(rig, *(ROW._replace(partition=index) for index in range(20)), caller=Caller(name))
    assert rig.delete_group(name) is E.NONE
    assert [len(keys) for keys in tombstones(rig, name)] == [4, 4, 4, 4, 4, 1]
    assert not rig.known


# --- with time --------------------------------------------------------------------------------------------------------


def test_offsets_of_a_simple_group_expire_by_their_commit_time(rig):
    commit(rig)
    rig.clock.advance(LOOK_MS)
    commit(rig, ROW._replace(partition=1))
    rig.clock.advance(RETENTION_MS - LOOK_MS - 1)
    assert offsets(rig) == {("t", 0): 42, ("t", 1): 42}
    rig.clock.advance(1)
    assert offsets(rig) == {("t", 1): 42}
    rig.clock.advance(LOOK_MS)
    assert tombstones(rig) == [[("t", 0)], [("t", 1)], [()]]
    rig.restart()
    assert not rig.known


def test_an_age_is_the_same_after_a_restart(rig):
    commit(rig)
    rig.clock.advance(RETENTION_MS - LOOK_MS)
    rig.restart()
    rig.clock.advance(LOOK_MS)
    assert offsets(rig) == {}


def test_an_offset_with_a_time_of_its_own_expires_then(rig):
    now_ms = rig.clock.now_ms()
    late = ROW._replace(partition=1, expire_ms=now_ms + 2 * RETENTION_MS)
    commit(rig, ROW._replace(expire_ms=now_ms + 1), late)
    rig.clock.advance(LOOK_MS)
    assert offsets(rig) == {("t", 1): 42}
    rig.clock.advance(2 * RETENTION_MS - LOOK_MS - 1)
    assert offsets(rig) == {("t", 1): 42}
    rig.clock.advance(LOOK_MS)
    assert not rig.known


def test_offsets_expire_by_the_time_since_the_group_became_empty(rig):
    caller = member(rig, "t")
    commit(rig, caller=caller)
    rig.clock.advance(2 * RETENTION_MS)
    rig.leave((caller.member_id, None))
    rig.clock.advance(RETENTION_MS - LOOK_MS)
    rig.restart()
    assert offsets(rig) == {("t", 0): 42}
    rig.clock.advance(LOOK_MS)
    assert not rig.known


def test_an_open_transaction_keeps_its_offset_and_the_group(rig):
    commit(rig, ROW, ROW._replace(partition=1))
    commit(rig, producer=PRODUCER)
    rig.clock.advance(2 * RETENTION_MS)
    assert offsets(rig) == {("t", 0): 42} and tombstones(rig) == [[("t", 1)]]
    rig.mark(7, commit=False)
    rig.clock.advance(LOOK_MS)
    assert not rig.known


def test_an_open_transaction_keeps_a_group_without_other_offsets(rig):
    commit(rig, producer=PRODUCER)
    rig.clock.advance(2 * RETENTION_MS)
    assert set(rig.known) == {"g"} and tombstones(rig) == []


@pytest.mark.parametrize(
    ("metadata", "protocol_type", "kept"),
    [
        (subscription("t"), "consumer", {("t", 0)}),
        (b"sub", "consumer", {("t", 0), ("u", 0)}),
        (subscription("t"), "connect", {("t", 0), ("u", 0)}),
    ],
)
def test_of_members_only_what_consumers_do_not_read_expires(rig, metadata, protocol_type, kept):
    caller = member(rig, metadata=metadata, protocol_type=protocol_type)
    commit(rig, ROW, ROW._replace(topic="u"), caller=caller)
    rig.clock.advance(2 * RETENTION_MS)
    assert offsets(rig).keys() == kept


def test_in_a_rebalance_nothing_expires(rig):
    caller = member(rig, "t")
    commit(rig, ROW._replace(topic="u", expire_ms=1), caller=caller)
    rig.join(protocols=(("range", subscription("t")),), rebalance_ms=10**8, session_ms=10**9)
    assert rig.group().state is ClassicGroupState.PREPARING_REBALANCE
    rig.clock.advance(LOOK_MS)
    assert offsets(rig) == {("u", 0): 42}


def test_a_join_during_a_scan_stops_the_expiration_of_a_group(rig, monkeypatch):
    """Long work is split into slices. The state found before a slice is checked again after it."""
    slow(monkeypatch)
    commit(rig, ROW, ROW._replace(partition=1))
    rig.clock.ms += RETENTION_MS
    ended = rig.begin(rig.groups._cleaning.scan())
    rig.join(protocols=(("range", subscription("t")),))
    rig.clock.settle()
    assert ended == [None] and offsets(rig) == {("t", 1): 42}


def slow(monkeypatch):
    """Make every key take a whole turn budget."""
    monkeypatch.setattr(tombstones_module, "KEYS_AT_ONCE", 1)
    for module in (tombstones_module, offset_expiration):
        monkeypatch.setattr(module, "BATCH_US", SHARE_US)
    for module in (tombstones_module, offset_expiration, deleted_topics):
        monkeypatch.setattr(module, "ROW_US", SHARE_US)


def test_a_group_that_is_deleted_and_made_again_in_between_is_another(rig, monkeypatch):
    slow(monkeypatch)
    commit(rig, ROW, ROW._replace(partition=1))
    rig.clock.ms += RETENTION_MS
    ended = rig.begin(rig.groups._cleaning.scan())
    value, rig.known["g"].offsets = rig.group().value(), GroupOffsets()
    for each in (None, value):
        rig.groups._manager.log_group(rig.log_of().index, "g", each)
    again = rig.known["g"]
    rig.clock.settle()
    assert ended == [None] and rig.known["g"] is again


def test_a_group_that_is_being_deleted_is_nobodys(rig, monkeypatch):
    slow(monkeypatch)
    commit(rig, *(ROW._replace(partition=index) for index in range(5)))
    deleted = rig.begin(rig.groups.deletion.delete_group("g"))
    assert not deleted and len(offsets_of(rig)) == 4
    busy = E.COORDINATOR_NOT_AVAILABLE
    assert rig.join()[0].error is rig.leave(("m", None))[0] is rig.groups.describe("g")[1] is busy
    assert rig.commits.commit(Caller("g"), [ROW]) == [busy]
    assert rig.begin(rig.groups.deletion.delete_group("g")) == [busy]
    rig.clock.settle()
    assert deleted == [E.NONE] and not rig.known
    commit(rig)


def offsets_of(rig):
    return rig.known["g"].offsets.to_value()[0]


def test_a_group_that_the_log_keeps_from_being_deleted_to_its_end_stays(rig, monkeypatch):
    slow(monkeypatch)
    commit(rig, *(ROW._replace(partition=index) for index in range(5)))
    deleted = rig.begin(rig.groups.deletion.delete_group("g"))
    rig.log_of().refuse = E.KAFKA_STORAGE_ERROR
    rig.clock.settle()
    rig.log_of().refuse = E.NONE
    assert deleted == [E.NOT_COORDINATOR]
    commit(rig)
    assert len(offsets_of(rig)) == 5


def test_a_group_deletion_is_completed_after_its_client_disconnects(rig, monkeypatch):
    slow(monkeypatch)
    commit(rig, *(ROW._replace(partition=index) for index in range(5)))
    deleted = rig.begin(rig.groups.deletion.delete_group("g"))
    deleted.activity.discard()
    assert len(offsets_of(rig)) == 4
    rig.clock.settle()
    assert not deleted and not rig.known
    assert not rig.restart().known


def test_a_bug_in_a_deletion_is_reported_and_releases_the_group(rig, monkeypatch):
    slow(monkeypatch)
    commit(rig, *(ROW._replace(partition=index) for index in range(5)))
    deleted = rig.begin(rig.groups.deletion.delete_group("g"))
    with monkeypatch.context() as broken:
        broken.setattr(rig.log_of(), "append_own", None, raising=False)
        rig.clock.settle()
    (bug,) = rig.bugs
    assert isinstance(bug, TypeError) and not deleted
    rig.bugs.clear()
    commit(rig)


def test_a_group_with_a_deletion_cut_short_by_a_stop_is_not_described(rig, monkeypatch):
    slow(monkeypatch)
    commit(rig, *(ROW._replace(partition=index) for index in range(5)))
    deleted = rig.begin(rig.groups.deletion.delete_group("g"))
    rig.turns.event(rig.groups.stop)
    assert not deleted and len(offsets_of(rig)) == 4
    assert rig.groups.describe("g") == (None, E.COORDINATOR_NOT_AVAILABLE)
    assert rig.restart().delete_group("g") is E.NONE


def test_a_marker_during_a_group_deletion_restores_no_offset(rig, monkeypatch):
    slow(monkeypatch)
    commit(rig, ROW, ROW._replace(partition=1))
    commit(rig, ROW._replace(partition=2), ROW._replace(partition=0, offset=43), producer=PRODUCER)
    deleted = rig.begin(rig.groups.deletion.delete_group("g"))
    rig.mark(7)
    rig.clock.settle()
    assert deleted == [E.NONE] and not rig.known
    assert not rig.restart().known


@pytest.mark.parametrize("work", ["expire", "forget", "load", "delete"])
def test_a_stop_ends_all_background_work_on_groups(rig, monkeypatch, work):
    slow(monkeypatch)
    monkeypatch.setattr(loader, "BATCH_US", SHARE_US)
    for index in range(5):
        commit(rig, ROW._replace(partition=index))
    if work == "load":
        rig.restart(settle=False)
        assert rig.groups.list_groups()[0] is E.COORDINATOR_LOAD_IN_PROGRESS
    elif work == "forget":
        rig.turns.event(lambda: rig.cluster.on_topic_deleted[0](SimpleNamespace(name="t")))
    elif work == "delete":
        rig.begin(rig.groups.deletion.delete_group("g")).activity.discard()
    else:
        rig.clock.ms += RETENTION_MS
        rig.turns.event(rig.groups._cleaning.run)
    before = len(rig.log_of().batches), len(rig.known)
    rig.turns.event(rig.groups.stop)
    rig.clock.advance(10 * LOOK_MS)
    assert (len(rig.log_of().batches), len(rig.known)) == before


# --- what breaks ------------------------------------------------------------------------------------------------------


def test_a_partition_that_breaks_does_not_keep_the_others_from_expiring(rig, caplog):
    for name in ("g", "h"):
        commit(rig, caller=Caller(name))
    assert rig.log_of("g") is not rig.log_of("h")
    rig.log_of("g").append_own = None
    rig.clock.advance(RETENTION_MS)
    assert set(rig.known) == {"g"} and "failed; the next scan tries again" in caplog.text
    del rig.log_of("g").append_own
    rig.clock.advance(LOOK_MS)
    assert not rig.known


def test_a_failed_scan_is_followed_by_the_next_one(rig, monkeypatch, caplog):
    commit(rig)
    with monkeypatch.context() as broken:
        broken.setattr(rig.shard_of(), "groups", None)
        rig.clock.advance(RETENTION_MS)
    assert "the next scan starts at its usual time" in caplog.text
    rig.clock.advance(LOOK_MS)
    assert not rig.known


@pytest.mark.parametrize("error", [OSError("gone"), RuntimeError("a bug")])
def test_a_partition_that_cannot_be_loaded_does_not_keep_the_others_loading(rig, monkeypatch, error):
    for name in ("g", "h"):
        commit(rig, caller=Caller(name))

    def scan(from_offset):
        raise error

    rig.log_of("g").scan = scan
    rig.restart()
    assert rig.groups.list_groups()[0] is E.NONE
    assert fetch(rig.commits, "g", None, False)[0] is E.NOT_COORDINATOR
    assert offsets(rig, "h") == {("t", 0): 42}
    rig.clock.advance(2 * RETENTION_MS)
    assert not rig.known


# --- clocks that are set ----------------------------------------------------------------------------------------------


def suspend(rig, ms):
    """Suspend the machine: its wall clock advances, the monotonic clock does not."""
    rig.clock.wall_steps_ms += ms


def test_a_group_that_empties_after_a_suspend_keeps_its_offsets_as_long_as_any(rig):
    caller = member(rig, "t")
    suspend(rig, 30 * RETENTION_MS)
    commit(rig, caller=caller)
    rig.leave((caller.member_id, None))
    assert rig.group().state_timestamp_ms == rig.clock.now_ms()
    rig.clock.advance(RETENTION_MS - 1)
    assert offsets(rig) == {("t", 0): 42}
    rig.clock.advance(LOOK_MS)
    assert not rig.known


def test_a_clock_that_is_set_ahead_and_back_expires_nothing(rig):
    caller = member(rig, "t")
    commit(rig, caller=caller)
    suspend(rig, 10 * RETENTION_MS)
    suspend(rig, -10 * RETENTION_MS)
    rig.leave((caller.member_id, None))
    rig.clock.advance(RETENTION_MS - LOOK_MS)
    assert offsets(rig) == {("t", 0): 42}


def test_a_clock_that_is_set_back_does_not_end_sessions_or_offsets(rig):
    (reply,) = rig.stable(session_ms=20_000)
    suspend(rig, -10 * RETENTION_MS)
    rig.clock.advance(19_999)
    assert rig.heartbeat(reply) is E.NONE
    rig.leave((reply.member_id, None))
    assert rig.group().state_timestamp_ms == rig.clock.now_ms()
    commit(rig)
    rig.clock.advance(RETENTION_MS - 1)
    assert offsets(rig) == {("t", 0): 42}
