"""Rebalances of a classic group, step by step."""

import pytest

from ottla.broker.group.machine import Group
from ottla.broker.group.members import Member, choose_protocol
from ottla.broker.group.states import ALLOWED_PREVIOUS, GroupState, check_transition
from ottla.protocol.errors import ErrorCode

RANGE = (("range", b"sub"),)


def member(name, instance=None, protocols=RANGE, session_ms=10_000, rebalance_ms=60_000):
    return Member(name, instance, "client", "/host", rebalance_ms, session_ms, "consumer", protocols)


def group(initial_delay_ms=0):
    return Group("g", initial_delay_ms, 0.0, 0.0)


def stable(*names):
    """A stable group of these members, the first one leading."""
    made = group()
    for name in names:
        made.add(member(name), 0.0)
        for other in list(made.members.values()):
            if not other.awaiting_join:
                made.rejoin(other, other.protocols, (60_000, 10_000), 0.0)
    leader = made.leader
    for name in [*[n for n in names if n != leader], leader]:
        made.sync(name, [(n, n.encode()) for n in names], 0.0)
    made.assigned(0.0)
    assert made.state is GroupState.STABLE
    return made


def test_first_member_leads_a_generation_of_its_own():
    made = group()
    outcome = made.add(member("a"), 0.0)
    reply = outcome.joined["a"]
    assert (reply.error, reply.generation, reply.leader, reply.protocol) == (0, 1, "a", "range")
    assert reply.members == (("a", None, b"sub"),)
    assert made.state is GroupState.COMPLETING_REBALANCE


def test_initial_delay_collects_members_that_start_together():
    made = group(initial_delay_ms=3000)
    assert not made.add(member("a"), 0.0).joined
    assert not made.add(member("b"), 1000.0).joined
    assert not made.tick(3000.0).joined, "a member came during the first delay, so it is prolonged once"
    outcome = made.tick(6000.0)
    assert set(outcome.joined) == {"a", "b"}
    assert outcome.joined["b"].members == ()


def test_initial_delay_ends_at_the_rebalance_timeout():
    made = group(initial_delay_ms=3000)
    made.add(member("m0", rebalance_ms=5000), 0.0)
    made.add(member("m1", rebalance_ms=5000), 2000.0)
    assert not made.tick(3000.0).joined
    made.add(member("m2", rebalance_ms=5000), 4000.0)
    assert set(made.tick(5000.0).joined) == {"m0", "m1", "m2"}


def test_leader_sync_waits_for_the_log_and_then_answers_everybody():
    made = group()
    made.add(member("a"), 0.0)
    made.add(member("b"), 0.0)
    made.rejoin(made.members["a"], RANGE, (60_000, 10_000), 0.0)
    assert not made.sync("b", [], 0.0).synced
    outcome = made.sync("a", [("a", b"A"), ("b", b"B")], 0.0)
    assert outcome.save and not outcome.synced
    assert {name: reply.assignment for name, reply in made.assigned(0.0).synced.items()} == {"a": b"A", "b": b"B"}


def test_assignment_that_cannot_be_logged_fails_the_waiting_members():
    made = group()
    made.add(member("a"), 0.0)
    made.sync("a", [("a", b"A")], 0.0)
    assert made.not_assigned(ErrorCode.NOT_COORDINATOR).synced["a"].error is ErrorCode.NOT_COORDINATOR
    assert made.state is GroupState.COMPLETING_REBALANCE


def test_new_member_starts_a_rebalance_that_waits_for_the_old_ones():
    made = stable("a")
    assert not made.add(member("b"), 0.0).joined
    assert made.state is GroupState.PREPARING_REBALANCE
    outcome = made.rejoin(made.members["a"], RANGE, (60_000, 10_000), 0.0)
    assert {reply.generation for reply in outcome.joined.values()} == {2}


def test_follower_that_rejoins_unchanged_gets_the_current_generation():
    made = stable("a", "b")
    follower = next(m for m in made.members.values() if m.member_id != made.leader)
    outcome = made.rejoin(follower, RANGE, (60_000, 10_000), 0.0)
    assert outcome.joined[follower.member_id].generation == made.generation
    assert made.state is GroupState.STABLE


def test_leader_that_rejoins_starts_a_rebalance():
    made = stable("a", "b")
    made.rejoin(made.members[made.leader], RANGE, (60_000, 10_000), 0.0)
    assert made.state is GroupState.PREPARING_REBALANCE


def test_member_that_does_not_rejoin_in_time_is_out():
    made = stable("a", "b")
    made.members["b"].session_timeout_ms = made.members["a"].session_timeout_ms = 600_000
    made.rejoin(made.members["a"], (("range", b"new"),), (60_000, 600_000), 0.0)
    made.members["b"].touch(0.0)
    outcome = made.tick(60_000.0)
    assert set(outcome.joined) == {"a"}
    assert set(made.members) == {"a"}


def test_member_that_never_syncs_is_out_after_the_rebalance_timeout():
    made = group()
    made.add(member("a", session_ms=600_000), 0.0)
    made.add(member("b", session_ms=600_000), 0.0)
    made.rejoin(made.members["a"], RANGE, (60_000, 600_000), 0.0)
    made.sync("b", [], 0.0)
    outcome = made.tick(60_000.0)
    assert set(made.members) == {"b"}
    assert outcome.synced["b"].error is ErrorCode.REBALANCE_IN_PROGRESS


def test_silent_member_loses_its_session_and_the_rest_rebalance():
    made = stable("a", "b")
    made.members["a"].touch(9_000.0)
    made.tick(10_000.0)
    assert set(made.members) == {"a"}
    assert made.state is GroupState.PREPARING_REBALANCE


def test_last_member_that_leaves_empties_the_group_and_logs_it():
    made = stable("a")
    outcome = made.remove("a", 0.0)
    assert outcome.save and made.state is GroupState.EMPTY
    assert made.value().members == () and made.value().protocol_type == "consumer"


def test_reserved_member_id_holds_the_rebalance_until_its_session_ends():
    made = stable("a")
    made.reserve("b", 10_000, 0.0)
    made.rejoin(made.members["a"], (("range", b"new"),), (60_000, 600_000), 0.0)
    assert made.state is GroupState.PREPARING_REBALANCE
    assert set(made.tick(10_000.0).joined) == {"a"}


def test_static_member_that_restarts_keeps_its_assignment_without_a_rebalance():
    made = group()
    made.add(member("i-1", instance="i"), 0.0)
    made.sync("i-1", [("i-1", b"A")], 0.0)
    made.assigned(0.0)
    outcome = made.replace_static("i-1", member("i-2", instance="i"), True, 0.0)
    reply = outcome.joined["i-2"]
    assert (reply.error, reply.skip_assignment, reply.leader) == (ErrorCode.NONE, True, "i-2")
    assert made.state is GroupState.STABLE and made.members["i-2"].assignment == b"A"
    assert made.member_error("i-1", "i") is ErrorCode.FENCED_INSTANCE_ID


def test_static_leader_on_an_old_protocol_is_told_that_its_old_self_leads():
    made = group()
    made.add(member("i-1", instance="i"), 0.0)
    made.sync("i-1", [("i-1", b"A")], 0.0)
    made.assigned(0.0)
    reply = made.replace_static("i-1", member("i-2", instance="i"), False, 0.0).joined["i-2"]
    assert (reply.leader, reply.members, reply.skip_assignment) == ("i-1", (), False)


@pytest.mark.parametrize(
    ("protocol_type", "protocols", "accepted"),
    [
        ("consumer", RANGE, True),
        ("connect", RANGE, False),
        ("consumer", (("sticky", b""),), False),
        ("consumer", (), False),
        ("", RANGE, False),
    ],
)
def test_group_accepts_members_that_share_a_protocol(protocol_type, protocols, accepted):
    assert stable("a").accepts(protocol_type, protocols) is accepted


def test_most_votes_choose_the_protocol():
    both, swapped = (("range", b""), ("sticky", b"")), (("sticky", b""), ("range", b""))
    members = [member("a", protocols=both), member("b", protocols=swapped), member("c", protocols=swapped)]
    assert choose_protocol(members) == "sticky"


def test_restored_group_equals_the_one_that_was_saved():
    saved = stable("a", "b")
    loaded = group()
    loaded.restore(saved.value(), 0.0)
    assert loaded.value() == saved.value()
    assert loaded.state is GroupState.STABLE


@pytest.mark.parametrize("target", list(GroupState))
@pytest.mark.parametrize("current", list(GroupState))
def test_transitions_outside_the_table_are_bugs(current, target):
    if current in ALLOWED_PREVIOUS[target]:
        assert check_transition("g", current, target) is target
    else:
        with pytest.raises(RuntimeError, match="illegal transition"):
            check_transition("g", current, target)
