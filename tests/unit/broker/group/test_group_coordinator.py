"""Members and the coordinator: waiting requests, replies, logged records, and the state after a restart."""

from itertools import pairwise

import pytest

from ottla.broker.costs import ROW_US
from ottla.broker.group import coordinator, metadata_manager
from ottla.broker.group.classic_group import MOST_RESERVED
from ottla.broker.group.states import ClassicGroupState
from ottla.broker.turns import SHARE_US
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.offsets_records import decode_group_value, read_offsets_key
from ottla.protocol.records import iter_records

RANGE = (("range", b"sub"),)


def read_values(rig, group_id="g"):
    """Return the values of the group's records, None for tombstones."""
    return [
        None if record.value is None else decode_group_value(record.value)
        for header, batch in rig.log_of(group_id).batches
        for record in iter_records(batch, header)
        if read_offsets_key(record.key) == (group_id,)
    ]


EMPTY = ("", 0, None, None, ())


def summarize(value):
    return value.protocol_type, value.generation, value.protocol, value.leader, value.members


def test_first_join_logs_an_empty_group_that_outlives_the_reserved_id(rig):
    rig.join(known_id=True)
    assert [summarize(value) for value in read_values(rig)] == [EMPTY]
    rig.clock.advance(10_000)
    assert rig.clock.armed == 1, "the cleaning alone"
    rig.restart()
    assert rig.group().state is ClassicGroupState.EMPTY and len(read_values(rig)) == 1


@pytest.mark.parametrize("bad", [{"protocols": ()}, {"protocol_type": ""}])
def test_refused_join_makes_the_group_all_the_same(rig, bad):
    (reply,) = rig.join(**bad)
    assert reply.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert set(rig.known) == {"g"} and [summarize(value) for value in read_values(rig)] == [EMPTY]


def test_new_group_that_the_log_refuses_does_not_exist(rig):
    rig.log_of().refuse = ErrorCode.KAFKA_STORAGE_ERROR
    (reply,) = rig.join(known_id=True)
    assert reply.error is ErrorCode.NOT_COORDINATOR and not rig.known
    rig.log_of().refuse = ErrorCode.NONE
    (reply,) = rig.join(known_id=True)
    assert reply.error is ErrorCode.MEMBER_ID_REQUIRED


def test_last_member_to_rejoin_a_shrunk_group_is_out(make_rig):
    rig = make_rig()
    first, second = rig.stable(2)
    rig.config.group_max_size = 1
    waiting = rig.join(first.member_id)
    (reply,) = rig.join(second.member_id)
    assert reply.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    rig.clock.advance(60_000)
    assert waiting[0].generation == 2 and set(rig.group().members) == {first.member_id}


def test_reserved_id_is_for_dynamic_members(rig):
    (asked,) = rig.join(known_id=True)
    (reply,) = rig.join(asked.member_id, "i")
    assert reply.error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_whole_life_is_logged_when_stable_and_when_empty(rig):
    first, second = rig.stable(2)
    rig.leave((first.member_id, None))
    rig.leave((second.member_id, None))
    begun, stable, empty = read_values(rig)
    assert summarize(begun) == EMPTY
    assert (stable.generation, stable.leader, stable.protocol) == (1, first.member_id, "range")
    assert {m.member_id: m.assignment for m in stable.members} == {
        first.member_id: first.member_id.encode(),
        second.member_id: second.member_id.encode(),
    }
    assert (empty.generation, empty.leader, empty.protocol, empty.members) == (2, None, None, ())


def test_restart_of_a_static_member_is_logged(rig):
    (first,) = rig.stable(1, ["i"])
    (reply,) = rig.join(instance="i", client_id="elsewhere")
    assert reply.error is ErrorCode.NONE and reply.skip_assignment
    *_, replaced = read_values(rig)
    (member,) = replaced.members
    assert (replaced.generation, member.member_id, member.client_id) == (1, reply.member_id, "client")
    assert rig.heartbeat(first, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert rig.heartbeat(reply, "i") is ErrorCode.NONE


def test_restart_of_a_static_member_that_the_log_refuses_fails(rig):
    rig.stable(1, ["i"])
    rig.log_of().refuse = ErrorCode.KAFKA_STORAGE_ERROR
    (reply,) = rig.join(instance="i")
    assert (reply.error, reply.member_id) == (ErrorCode.NOT_COORDINATOR, "")


def test_assignment_that_the_log_refuses_fails_who_waits(rig):
    waiting = [rig.join(), rig.join()]
    rig.clock.advance()
    leader = next(r[0] for r in waiting if r[0].leader == r[0].member_id)
    follower = next(r[0] for r in waiting if r[0] is not leader)
    synced = rig.sync(follower)
    rig.log_of().refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    (reply,) = rig.sync(leader, [(leader.member_id, b"A")])
    assert reply.error is synced[0].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS


def test_members_of_a_restarted_broker_go_on_without_a_rebalance(rig):
    first, second = rig.stable(2, ["i"])
    instance = {reply.member_id: "i" if reply.member_id.startswith("i-") else None for reply in (first, second)}
    rig.clock.advance(9_000)
    rig.restart()
    for reply in (first, second):
        assert rig.heartbeat(reply, instance[reply.member_id]) is ErrorCode.NONE
        (synced,) = rig.sync(reply, instance=instance[reply.member_id])
        assert synced.assignment == reply.member_id.encode()
    assert rig.group().state is ClassicGroupState.STABLE and rig.group().generation == 1
    (again,) = rig.join(second.member_id, instance[second.member_id])
    assert again.generation == 1


def test_members_without_heartbeats_after_a_restart_are_removed(rig):
    rig.stable(2)
    rig.restart()
    rig.clock.advance(9_999)
    assert len(rig.group().members) == 2
    rig.clock.advance(1)
    assert rig.group().state is ClassicGroupState.EMPTY
    assert read_values(rig)[-1].members == ()


def test_loading_group_refuses_requests_but_accepts_heartbeats(rig, monkeypatch):
    (reply,) = rig.stable()
    monkeypatch.setattr("ottla.broker.coordinator.loader.BATCH_US", SHARE_US)
    rig.restart(settle=False)
    assert rig.groups.list_groups()[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert rig.heartbeat(reply) is ErrorCode.NONE
    assert rig.join()[0].error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert rig.sync(reply)[0].error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert rig.leave((reply.member_id, None)) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    assert rig.mark(7) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    rig.clock.settle()
    assert rig.groups.list_groups()[0] is ErrorCode.NONE
    assert rig.heartbeat(reply) is ErrorCode.NONE


def test_partition_that_cannot_be_loaded_to_its_end_serves_none_of_its_groups(rig, caplog):
    (reply,) = rig.stable()
    cut_key = b"\0\2\0\7g"
    rig.log_of().append_own(build_batch([(cut_key, b"", ())], timestamp_ms=0))
    rig.restart()
    assert rig.heartbeat(reply) is ErrorCode.NOT_COORDINATOR
    assert "stopped: " in caplog.text


def test_disconnected_member_stays_until_its_session_ends(rig):
    (first,) = rig.stable(rebalance_ms=30_000, session_ms=1_800_000)
    waiting = rig.join(rebalance_ms=30_000, session_ms=20_000)
    waiting.activity.discard()
    (joined,) = again = rig.join(first.member_id, rebalance_ms=30_000, session_ms=1_800_000)
    assert joined.generation == 2 and len(joined.members) == 2 and waiting == []
    rig.sync(again[0], [])
    rig.clock.advance(20_000)
    assert len(rig.group().members) == 1
    assert rig.heartbeat(again[0]) is ErrorCode.REBALANCE_IN_PROGRESS


def test_member_that_hung_up_while_it_synced_stays_too(rig):
    waiting = [rig.join(), rig.join()]
    rig.clock.advance()
    leader = next(r[0] for r in waiting if r[0].leader == r[0].member_id)
    follower = next(r[0] for r in waiting if r[0] is not leader)
    rig.sync(follower).activity.discard()
    rig.sync(leader, [(follower.member_id, b"F")])
    (again,) = rig.sync(follower)
    assert again.assignment == b"F"


def test_member_that_joins_twice_is_answered_twice(rig):
    (first,) = rig.stable(session_ms=600_000)
    rig.join()
    before = rig.join(first.member_id, protocols=(("range", b"1"),), known_id=True)
    assert before[0].generation == 2, "everybody has joined"
    rig.join(known_id=False)
    early = rig.join(first.member_id, protocols=(("range", b"2"),))
    late = rig.join(first.member_id, protocols=(("range", b"3"),))
    assert early[0].error is ErrorCode.REBALANCE_IN_PROGRESS and not late
    rig.clock.advance(60_000)
    assert late[0].generation == 3
    assert {row[0]: row[2] for row in late[0].members}[first.member_id] == b"3"


def test_discarded_earlier_request_does_not_take_the_later_one_along(rig):
    rig.stable(session_ms=600_000)
    waiting = rig.join(session_ms=600_000)
    member_id = next(iter(rig.known["g"].joins))
    later = rig.join(member_id)
    waiting.activity.discard()
    rig.clock.advance(60_000)
    assert later[0].generation == 2


def test_timers_do_not_pile_up(rig):
    for _ in range(20):
        (reply,) = rig.stable()
        rig.leave((reply.member_id, None))
    assert rig.clock.armed <= 2
    rig.groups.stop()
    assert rig.clock.armed == 0


def test_group_without_members_and_offsets_is_removed_in_the_end(rig):
    (reply,) = rig.stable()
    rig.leave((reply.member_id, None))
    rig.clock.advance(600_000)
    assert not rig.known
    assert read_values(rig)[-1] is None
    rig.restart()
    assert not rig.known
    rig.stable()
    rig.clock.advance(1.0)
    assert rig.group().generation == 1


def test_group_with_members_is_not_removed(rig):
    (reply,) = rig.stable(session_ms=1_800_000)
    rig.clock.advance(600_000)
    assert rig.heartbeat(reply) is ErrorCode.NONE


def test_group_can_rebalance_after_its_record_could_not_be_built(rig, monkeypatch, caplog):
    waiting = [rig.join(), rig.join()]
    rig.clock.advance()
    leader = next(r[0] for r in waiting if r[0].leader == r[0].member_id)
    follower = next(r[0] for r in waiting if r[0] is not leader)
    synced = rig.sync(follower)
    with monkeypatch.context() as broken:
        broken.setattr(metadata_manager, "group_batch", None)
        (reply,) = rig.sync(leader, [(leader.member_id, b"A")])
    assert reply.error is synced[0].error is ErrorCode.UNKNOWN_SERVER_ERROR and "could not be logged" in caplog.text
    again = [rig.join(each.member_id) for each in (leader, follower)]
    given = [(leader.member_id, b"A"), (follower.member_id, b"B")]
    synced = [rig.sync(each, given) for (each,) in reversed(again)]
    assert [each[0].error for each in synced] == [ErrorCode.NONE] * 2


def test_oversized_group_rebalances_after_a_restart(rig):
    first, second = rig.stable(2)
    rig.config.group_max_size = 1
    rig.restart()
    assert rig.heartbeat(first) is rig.heartbeat(second) is ErrorCode.REBALANCE_IN_PROGRESS
    waiting = rig.join(second.member_id)
    (late,) = rig.join(first.member_id)
    assert late.error is ErrorCode.GROUP_MAX_SIZE_REACHED and not waiting
    rig.clock.advance(60_000)
    assert waiting[0].generation == 2


def make_protocols(count):
    return tuple((f"p{number}", b"") for number in range(count))


@pytest.mark.parametrize(
    ("protocols", "error"),
    [
        (make_protocols(20), ErrorCode.NONE),
        (make_protocols(21), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (make_protocols(20) * 300, ErrorCode.NONE),
        ((("range", bytes(500)), ("sticky", bytes(500))), ErrorCode.NONE),
        ((("range", bytes(500)), ("sticky", bytes(501))), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ((("range", bytes(1_000)), ("range", bytes(1_000))), ErrorCode.NONE),
    ],
)
def test_member_with_too_many_or_too_large_protocols_is_refused(rig, protocols, error, caplog):
    waiting = rig.join(protocols=protocols)
    rig.clock.advance()
    assert waiting[0].error is error
    assert ("group.member.max.protocols" in caplog.text) is bool(error)
    assert set(rig.known) == (set() if error else {"g"})


def test_protocol_that_is_named_twice_counts_once_and_first(rig):
    waiting = rig.join(protocols=(("range", b"1"), ("range", b"2")))
    rig.clock.advance()
    assert [row[2] for row in waiting[0].members] == [b"1"]


def test_protocols_are_counted_in_shares(rig):
    before_us = rig.turns.charged_us
    waiting = rig.join(protocols=(("range", b"1"),) * 16_384)
    rig.clock.advance()
    assert waiting[0].error is ErrorCode.NONE
    assert rig.turns.charged_us - before_us >= 16_384 * ROW_US
    assert rig.meter.most_us < 2 * SHARE_US


def test_protocols_are_counted_only_up_to_the_limit(rig):
    before_us = rig.turns.charged_us
    waiting = rig.join(protocols=make_protocols(16_384))
    assert waiting[0].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.turns.charged_us - before_us <= 21 * ROW_US


def test_unused_reserved_member_ids_are_dropped_oldest_first(rig):
    asked = [rig.join(known_id=True)[0].member_id for _ in range(MOST_RESERVED + 1)]
    assert len(rig.group().roster.pending) == MOST_RESERVED
    assert rig.join(asked[0], known_id=True)[0].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert not rig.join(asked[1], known_id=True)


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize(("length", "fits"), [(32_730, True), (32_731, False)])
def test_member_id_that_no_field_can_hold_is_never_handed_out(rig, static, length, fits):
    name = "n" * length
    waiting = rig.join(instance=name) if static else rig.join(client_id=name, known_id=True)
    rig.clock.advance()
    if fits:
        assert len(waiting[0].member_id) == 32_767
    else:
        assert waiting == [(ErrorCode.UNKNOWN_SERVER_ERROR, "", -1, None, None, "", (), False)]
        assert not rig.group().members


def test_heartbeats_received_during_a_stall_keep_the_session(rig):
    alive, _silent = rig.stable(2)
    heard = []
    rig.clock.stall(20_000, lambda: heard.append(rig.heartbeat(alive)))
    assert heard == [ErrorCode.NONE]
    assert set(rig.group().members) == {alive.member_id}
    rig.clock.advance(10_000)
    assert not rig.group().members


def test_joins_that_lay_in_the_sockets_during_a_stall_are_in_time(rig):
    first, second = rig.stable(2, session_ms=600_000)
    waiting = [rig.join(first.member_id, protocols=(("range", b"new"),), session_ms=600_000)]
    rig.clock.stall(90_000, lambda: waiting.append(rig.join(second.member_id, session_ms=600_000)))
    assert [each[0].generation for each in waiting] == [2, 2]


def test_timer_of_a_group_that_ends_while_the_sockets_are_read_does_nothing(rig):
    (reply,) = rig.stable()
    rig.clock.stall(20_000, rig.groups.stop)
    assert set(rig.group().members) == {reply.member_id}


def test_join_and_sync_replies_of_a_group_are_sent_in_turn_budgets(rig, monkeypatch):
    monkeypatch.setattr(coordinator, "REPLY_US", SHARE_US / 4)
    members = rig.stable(20, session_ms=600_000)
    again = [rig.join(each.member_id, protocols=(("range", b"new"),), session_ms=600_000) for each in members]
    assert most_in_a_turn(rig, again) <= 5  # a slice may begin when the turn budget is almost spent
    leader, *others = (each[0] for each in again)
    assert leader.members
    synced = [rig.sync(each) for each in others]
    synced.append(rig.sync(leader, [(leader.member_id, b"A")]))
    assert most_in_a_turn(rig, synced) <= 5
    assert {each[0].error for each in synced} == {ErrorCode.NONE}


def most_in_a_turn(rig, waiting):
    counts = [0, sum(map(len, waiting))]
    while rig.clock.one_turn():
        counts.append(sum(map(len, waiting)))
    assert counts[-1] == len(waiting)
    return max(later - earlier for earlier, later in pairwise(counts))


@pytest.mark.parametrize("most", [1, 10])
def test_loaded_group_accepts_joins_before_its_sessions_start(rig, monkeypatch, most):
    ids = [f"g{number}" for number in range(20) if rig.log_of(f"g{number}") is rig.log_of("g1")]
    members = {group_id: rig.stable(2, group_id=group_id) for group_id in ids}
    monkeypatch.setattr("ottla.broker.group.metadata_manager.ROW_US", SHARE_US)
    rig.config.group_max_size = most
    rig.restart(settle=False)
    while rig.log_of("g1").index in rig.groups._manager.loading:
        assert rig.clock.one_turn()
    asked = {group_id: rig.join(first.member_id, group_id=group_id) for group_id, (first, _) in members.items()}
    assert {rig.group(group_id).state for group_id in ids} == {ClassicGroupState.PREPARING_REBALANCE}
    rig.clock.settle()
    assert rig.groups.list_groups()[0] is ErrorCode.NONE
    assert all(len(rig.group(group_id).members) == 2 for group_id in ids)
    rig.clock.advance(60_000)
    assert [reply.error for replies in asked.values() for reply in replies] == [ErrorCode.NONE] * len(ids)
