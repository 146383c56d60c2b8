"""Rebalances of a classic group, step by step."""

from copy import deepcopy

import pytest

from ottla.broker.group.classic_group import LEAST_PUT_OFF_MS, ClassicGroup
from ottla.broker.group.members import NEVER_MS, NEW_MEMBER_TIMEOUT_MS, Member, Moment, Roster, Timeouts
from ottla.broker.group.replies import Outcome
from ottla.broker.group.states import ALLOWED_PREVIOUS, ClassicGroupState, check_transition
from ottla.protocol.errors import ErrorCode

RANGE = (("range", b"sub"),)
CHANGED = (("range", b"new"),)
TIMES = Timeouts(60_000, 10_000)
WALL_MS = 1_700_000_000_000


def at(ms):
    return Moment(ms, WALL_MS + int(ms))


def log_step(made, outcome, error=ErrorCode.NONE, ms=0.0):
    """Return the outcome of an event after its step is logged. The record must equal the state of the group then."""
    step = outcome.step
    followed = made.apply_step(step, error, at(ms))
    if not error:
        assert step.record == made.value()._replace(state_timestamp_ms=step.record.state_timestamp_ms)
    return Outcome(outcome.joined, outcome.synced).add(followed)


def member(name, instance=None, protocols=RANGE, session_ms=10_000, rebalance_ms=60_000):
    return Member(name, instance, "client", "/host", Timeouts(rebalance_ms, session_ms), protocols)


def group(initial_delay_ms=0):
    return ClassicGroup("g", initial_delay_ms, WALL_MS)


def form_group(*members):
    """Return a group after the first rebalance of these members: CompletingRebalance, generation 1."""
    made = group()
    for each in members:
        assert not made.add(each, "consumer", at(0.0)).joined
    # The second and later members prolong the first rebalance once, by its delay of 0 ms.
    outcome = made.tick(at(0.0))
    if made.state is ClassicGroupState.PREPARING_REBALANCE:
        outcome = made.tick(at(0.0))
    assert set(outcome.joined) == {each.member_id for each in members}
    return made


def stable(*names, **more):
    """Return a stable group of these members, led by the first."""
    made = form_group(*(each if isinstance(each, Member) else member(each, **more) for each in names))
    for each in reversed([*made.members.values()]):
        outcome = made.sync(each, [(name, name.encode()) for name in made.members])
    log_step(made, outcome)
    assert made.state is ClassicGroupState.STABLE
    return made


def test_initial_delay_collects_members_that_start_together():
    made = group(initial_delay_ms=3000)
    assert not made.add(member("a"), "consumer", at(0.0)).joined
    assert not made.add(member("b"), "consumer", at(1000.0)).joined
    assert not made.tick(at(3000.0)).joined, "a member came during the first delay, so it is prolonged once"
    outcome = made.tick(at(6000.0))
    assert set(outcome.joined) == {"a", "b"}
    assert outcome.joined["b"].members == ()


def test_initial_delay_ends_at_the_rebalance_timeout():
    made = group(initial_delay_ms=3000)
    made.add(member("m0", rebalance_ms=5000), "consumer", at(0.0))
    made.add(member("m1", rebalance_ms=5000), "consumer", at(2000.0))
    assert not made.tick(at(3000.0)).joined
    made.add(member("m2", rebalance_ms=5000), "consumer", at(4000.0))
    assert set(made.tick(at(5000.0)).joined) == {"m0", "m1", "m2"}


def test_initial_rebalance_keeps_its_delay_when_its_only_member_leaves():
    made = group(initial_delay_ms=3000)
    made.add(member("a"), "consumer", at(0.0))
    errors, outcome = made.leave([("a", None)], at(1.0))
    assert errors == [ErrorCode.NONE]
    assert outcome.joined["a"].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert made.state is ClassicGroupState.PREPARING_REBALANCE
    log_step(made, made.tick(at(3000.0)))
    assert made.state is ClassicGroupState.EMPTY


def test_leader_sync_is_logged_before_all_members_get_assignments():
    made = form_group(member("a"), member("b"))
    assert not made.sync(made.members["b"], []).synced
    outcome = made.sync(made.members["a"], [("a", b"A"), ("b", b"B")])
    assert outcome.step and not outcome.synced
    outcome = log_step(made, outcome)
    assert {name: reply.assignment for name, reply in outcome.synced.items()} == {"a": b"A", "b": b"B"}
    assert made.next_deadline_ms() == 10_000.0, "both have synced, so only sessions are left"


def test_member_whom_the_leader_forgot_gets_an_empty_assignment():
    made = form_group(member("a"), member("b"))
    made.sync(made.members["b"], [])
    outcome = log_step(made, made.sync(made.members["a"], [("a", b"A")]))
    assert outcome.synced["b"] == (ErrorCode.NONE, "consumer", "range", b"")


def test_assignment_that_cannot_be_logged_fails_those_who_wait_and_starts_over():
    made = form_group(member("a"))
    outcome = log_step(made, made.sync(made.members["a"], [("a", b"A")]), ErrorCode.NOT_COORDINATOR)
    assert outcome.synced["a"].error is ErrorCode.NOT_COORDINATOR
    assert made.state is ClassicGroupState.PREPARING_REBALANCE
    assert made.members["a"].assignment == b""


def test_new_member_starts_a_rebalance_that_waits_for_the_old_ones():
    made = stable("a")
    assert not made.add(member("b"), "consumer", at(0.0)).joined
    assert made.state is ClassicGroupState.PREPARING_REBALANCE
    outcome = made.rejoin(made.members["a"], RANGE, TIMES, at(0.0))
    assert {reply.generation for reply in outcome.joined.values()} == {2}


def test_member_that_rejoins_unchanged_before_the_assignment_gets_the_generation_again():
    made = form_group(member("a"), member("b"))
    assert made.rejoin(made.members["a"], RANGE, TIMES, at(0.0)).joined["a"].members
    assert made.rejoin(made.members["b"], RANGE, TIMES, at(0.0)).joined["b"].generation == 1
    assert made.state is ClassicGroupState.COMPLETING_REBALANCE
    assert not made.rejoin(made.members["b"], CHANGED, TIMES, at(0.0)).joined
    assert made.state is ClassicGroupState.PREPARING_REBALANCE


def test_follower_that_rejoins_unchanged_gets_the_current_generation():
    made = stable("a", "b")
    outcome = made.rejoin(made.members["b"], RANGE, TIMES, at(0.0))
    assert outcome.joined["b"].generation == made.generation
    assert made.state is ClassicGroupState.STABLE


@pytest.mark.parametrize(("name", "protocols"), [("a", RANGE), ("b", CHANGED)])
def test_leader_or_changed_follower_that_rejoins_starts_a_rebalance(name, protocols):
    made = stable("a", "b")
    assert not made.rejoin(made.members[name], protocols, TIMES, at(0.0)).joined
    assert made.state is ClassicGroupState.PREPARING_REBALANCE


@pytest.mark.parametrize("name", ["a", "b"])
def test_leader_or_follower_that_does_not_rejoin_in_time_is_out(name):
    made = stable("a", "b", session_ms=600_000)
    made.rejoin(made.members[name], CHANGED, Timeouts(60_000, 600_000), at(0.0))
    outcome = made.tick(at(60_000.0))
    assert set(outcome.joined) == set(made.members) == {name}
    assert outcome.joined[name].leader == name


def test_static_members_alone_keep_a_rebalance_open_until_one_joins():
    made = stable(
        member("i-1", "i", session_ms=600_000), member("j-1", "j", session_ms=600_000), member("b", session_ms=600_000)
    )
    made.leave([("b", None)], at(0.0))
    assert made.generation == 1 and not made.tick(at(60_000.0)).joined
    assert (made.state, made.generation) == (ClassicGroupState.PREPARING_REBALANCE, 1)
    made.rejoin(made.members["j-1"], RANGE, Timeouts(60_000, 600_000), at(60_001.0))
    reply = made.tick(at(120_000.0)).joined["j-1"]
    assert (reply.leader, reply.generation) == ("j-1", 2)
    assert [name for name, _, _ in reply.members] == ["i-1", "j-1"], "the static member may still come"


def test_rebalance_without_a_timeout_does_not_spin_on_absent_static_members():
    made = stable(member("i-1", "i", rebalance_ms=0), member("b", rebalance_ms=0))
    made.leave([("b", None)], at(0.0))
    made.tick(at(0.0))
    assert made.next_deadline_ms() > 0.0


@pytest.mark.parametrize("leader_synced", [False, True])
def test_member_that_never_syncs_is_out_after_the_rebalance_timeout(leader_synced):
    made = form_group(member("a", session_ms=600_000), member("b", session_ms=600_000))
    outcome = made.sync(made.members["a" if leader_synced else "b"], [])
    if leader_synced:
        log_step(made, outcome)
    outcome = made.tick(at(60_000.0))
    assert set(made.members) == {"a"} if leader_synced else {"b"}
    assert made.state is ClassicGroupState.PREPARING_REBALANCE
    if not leader_synced:
        assert outcome.synced["b"].error is ErrorCode.REBALANCE_IN_PROGRESS


def test_member_without_heartbeats_is_removed_and_causes_a_rebalance():
    made = stable("a", "b")
    made.members["a"].touch(9_000.0)
    made.tick(at(10_000.0))
    assert set(made.members) == {"a"}
    assert made.state is ClassicGroupState.PREPARING_REBALANCE


def test_member_that_waits_needs_no_heartbeats():
    made = form_group(member("a"), member("b"))
    made.sync(made.members["b"], [])
    made.members["a"].touch(9_000.0)
    made.tick(at(10_000.0))
    assert set(made.members) == {"a", "b"}
    outcome = log_step(made, made.sync(made.members["a"], []), ms=12_000.0)
    assert set(outcome.synced) == {"a", "b"}
    assert made.next_deadline_ms() == 22_000.0, "the session starts again with the assignment"


def test_new_member_that_hung_up_is_out_after_five_minutes_of_rebalance():
    made = stable("a", session_ms=1_800_000, rebalance_ms=1_800_000)
    made.add(member("b"), "consumer", at(0.0))
    outcome = made.tick(at(float(NEW_MEMBER_TIMEOUT_MS)))
    assert outcome.joined["b"].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert set(made.members) == {"a"}


def test_last_member_that_leaves_empties_the_group_and_logs_it():
    made = stable("a")
    _, outcome = made.leave([("a", None)], at(0.0))
    assert made.state is ClassicGroupState.PREPARING_REBALANCE and not made.members
    log_step(made, outcome)
    assert made.state is ClassicGroupState.EMPTY and made.next_deadline_ms() == NEVER_MS
    value = made.value()
    assert (value.members, value.protocol, value.leader, value.generation) == ((), None, None, 2)
    assert value.protocol_type == "consumer"


def test_several_members_leave_in_one_rebalance():
    made = stable(member("a"), member("i-1", "i"), member("c"))
    errors, outcome = made.leave([("a", None), ("", "i"), ("", "x"), ("", None), ("a", None), ("c", "i")], at(0.0))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert errors == [ErrorCode.NONE, ErrorCode.NONE, unknown, unknown, unknown, unknown]
    assert set(made.members) == {"c"} and made.roster.leader == "c"
    assert not outcome.step and made.generation == 1


def test_member_that_leaves_while_it_waits_is_answered():
    made = form_group(member("a"), member("b"))
    made.sync(made.members["b"], [])
    _, outcome = made.leave([("b", None)], at(0.0))
    assert outcome.synced["b"].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_reserved_member_id_holds_the_rebalance_until_its_session_ends():
    made = stable("a")
    made.reserve("b", 10_000, 0.0)
    made.rejoin(made.members["a"], CHANGED, TIMES, at(0.0))
    assert made.state is ClassicGroupState.PREPARING_REBALANCE
    assert set(made.tick(at(10_000.0)).joined) == {"a"}


def test_reserved_member_id_can_leave():
    made = stable("a")
    made.reserve("b", 10_000, 0.0)
    errors, _ = made.leave([("b", None)], at(0.0))
    assert errors == [ErrorCode.NONE] and not made.roster.pending


def restart_static(made, old="i-1", new="i-2", protocols=RANGE, error=ErrorCode.NONE):
    outcome = made.replace_static(made.members[old], new, protocols, TIMES, True, at(0.0))
    return log_step(made, outcome, error) if outcome.step else outcome


def test_static_member_that_restarts_keeps_its_assignment_without_a_rebalance():
    made = stable(member("i-1", "i"))
    reply = restart_static(made).joined["i-2"]
    assert (reply.error, reply.skip_assignment, reply.leader) == (ErrorCode.NONE, True, "i-2")
    assert [name for name, _, _ in reply.members] == ["i-2"]
    assert made.state is ClassicGroupState.STABLE and made.members["i-2"].assignment == b"i-1"
    assert made.roster.error("i-1", "i") is ErrorCode.FENCED_INSTANCE_ID
    assert made.roster.error("i-1", None) is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_follower_that_restarts_has_no_assignment_to_skip():
    reply = restart_static(stable(member("a"), member("i-1", "i"))).joined["i-2"]
    assert (reply.leader, reply.members, reply.skip_assignment) == ("a", (), False)


def test_static_member_that_cannot_be_logged_must_try_again():
    made = stable(member("i-1", "i"))
    outcome = restart_static(made, error=ErrorCode.NOT_COORDINATOR)
    assert outcome.joined == {"i-2": (ErrorCode.NOT_COORDINATOR, "", -1, None, None, "", (), False)}


def test_decisions_that_must_be_logged_change_nothing_before():
    made = form_group(member("a"), member("i-1", "i"))
    before = seen(made)
    assert made.sync(made.members["a"], [("a", b"A")]).step
    assert seen(made) == before
    made = stable(member("a"), member("i-1", "i"))
    before = seen(made)
    assert made.replace_static(made.members["i-1"], "i-2", CHANGED, TIMES, True, at(0.0)).step
    assert seen(made) == before


def seen(made):
    """Return the whole state of a group."""
    roster = {name: getattr(made.roster, name) for name in Roster.__slots__}
    return deepcopy({**vars(made), "roster": roster, "subscriptions": made.subscribed})


def test_group_retries_to_log_that_it_is_empty():
    made = stable("a")
    _, outcome = made.leave([("a", None)], at(0.0))
    assert outcome.step and made.due_ms == LEAST_PUT_OFF_MS
    log_step(made, made.tick(at(LEAST_PUT_OFF_MS)))
    assert made.state is ClassicGroupState.EMPTY and made.generation == 2


def test_static_member_that_restarts_with_another_protocol_rebalances():
    made = stable(member("i-1", "i", protocols=(("range", b""), ("sticky", b""))))
    outcome = restart_static(made, protocols=(("sticky", b""), ("range", b"")))
    assert outcome.joined["i-2"].protocol == "sticky"
    assert made.generation == 2


def test_static_member_that_restarts_before_the_assignment_fences_and_rebalances():
    made = form_group(member("a"), member("i-1", "i"))
    made.sync(made.members["i-1"], [])
    outcome = restart_static(made)
    assert outcome.synced["i-1"].error is ErrorCode.FENCED_INSTANCE_ID
    assert made.state is ClassicGroupState.PREPARING_REBALANCE


def test_static_member_that_restarts_while_it_joins_fences_its_old_self():
    made = stable(member("a"), member("i-1", "i"))
    made.rejoin(made.members["i-1"], CHANGED, TIMES, at(0.0))
    outcome = restart_static(made)
    assert outcome.joined["i-1"][:2] == (ErrorCode.FENCED_INSTANCE_ID, "i-1")
    assert made.members["i-2"].awaiting_join


@pytest.mark.parametrize(
    ("protocol_type", "protocols", "accepted"),
    [("any", RANGE, True), ("", RANGE, False), ("any", (), False)],
)
def test_empty_group_accepts_any_protocol_but_none(protocol_type, protocols, accepted):
    made = stable("a")
    log_step(made, made.leave([("a", None)], at(0.0))[1])
    assert made.accepts(protocol_type, protocols) is accepted


def test_member_that_drops_a_protocol_drops_it_for_the_group():
    made = stable("a", "b", protocols=(("range", b""), ("sticky", b"")))
    assert made.accepts("consumer", (("sticky", b""),))
    made.rejoin(made.members["a"], RANGE, TIMES, at(0.0))
    assert not made.accepts("consumer", (("sticky", b""),))


def test_full_group_accepts_no_new_member_outside_a_rebalance():
    made = stable("a", "b")
    assert made.can_add("a", 2) and not made.can_add("c", 2) and made.can_add("c", 3)
    made.rejoin(made.members["a"], CHANGED, TIMES, at(0.0))
    assert made.can_add("c", 2), "in a rebalance the last ones to join are out"
    made.add(member("c"), "consumer", at(0.0))
    assert not made.can_add("b", 2) and made.can_add("a", 2) and made.can_add("c", 2)


def test_most_votes_choose_the_protocol():
    both, swapped = (("range", b""), ("sticky", b"")), (("sticky", b""), ("range", b""))
    roster = Roster()
    for name, protocols in [("a", both), ("b", swapped), ("c", swapped)]:
        roster.add(member(name, protocols=protocols))
    assert roster.choose_protocol() == "sticky"


def test_restored_group_equals_the_one_that_was_saved():
    saved = stable(member("a"), member("i-1", "i"))
    loaded = group()
    loaded.restore(saved.value())
    assert loaded.value() == saved.value()
    assert loaded.state is ClassicGroupState.STABLE
    assert loaded.next_deadline_ms() == NEVER_MS
    loaded.start_sessions(500.0)
    assert loaded.next_deadline_ms() == 10_500.0
    assert loaded.roster.error("i-1", "i") is ErrorCode.NONE


def test_restored_empty_group_equals_the_one_that_was_saved():
    saved = stable("a")
    log_step(saved, saved.leave([("a", None)], at(0.0))[1])
    loaded = group()
    loaded.restore(saved.value())
    assert loaded.value() == saved.value() and loaded.state is ClassicGroupState.EMPTY
    assert loaded.next_deadline_ms() == NEVER_MS


@pytest.mark.parametrize("target", list(ClassicGroupState))
@pytest.mark.parametrize("current", list(ClassicGroupState))
def test_transitions_outside_the_table_are_bugs(current, target):
    if current in ALLOWED_PREVIOUS[target]:
        assert check_transition("g", current, target) is target
    else:
        with pytest.raises(RuntimeError, match="illegal transition"):
            check_transition("g", current, target)
