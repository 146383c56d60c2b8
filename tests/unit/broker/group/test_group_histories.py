"""Random requests in random order: no bug occurs, none waits for ever, and the remaining groups can still rebalance."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.group.states import ClassicGroupState
from ottla.protocol.errors import ErrorCode

PROTOCOLS = [(("range", b"1"),), (("range", b"2"),), (("sticky", b""), ("range", b"")), (("sticky", b""),)]

who = st.integers(0, 5)
instances = st.sampled_from([None, None, "i", "j"])
joins = st.tuples(st.just("join"), who, instances, st.sampled_from(PROTOCOLS), st.booleans(), st.booleans())
syncs = st.tuples(st.just("sync"), who, instances, st.integers(-1, 0))
beats = st.tuples(st.just("heartbeat"), who, instances, st.integers(-1, 0))
leaves = st.tuples(st.just("leave"), st.lists(st.tuples(who, instances), max_size=3))
hang_ups = st.tuples(st.just("hang up"), st.integers(0, 50))
waits = st.tuples(st.just("advance"), st.sampled_from([0, 1, 9_000, 10_000, 60_000, 300_000]))
others = st.tuples(st.sampled_from(["refuse", "restart"]))
steps = st.lists(
    st.one_of(joins, joins, joins, syncs, syncs, beats, leaves, hang_ups, waits, others), min_size=5, max_size=40
)


class Play:
    """A random history. Requests name a member by its number among all ids ever handed out, 0 for none."""

    def __init__(self, rig):
        self.rig, self.ids, self.waiting = rig, [""], []

    def member(self, number):
        known = [*self.rig.group().members] if "g" in self.rig.known else []
        return [*self.ids[-3:], *known][number % (len(self.ids[-3:]) + len(known))]

    def reply(self, number, generation_off):
        generation = self.rig.group().generation if "g" in self.rig.known else 1
        return JoinedAs(self.member(number), generation + generation_off)

    def step(self, name, *details):
        rig = self.rig
        if name == "join":
            number, instance, protocols, known_id, skip = details
            member_id = self.member(number)
            results = rig.join(member_id, instance, protocols=protocols, known_id=known_id, skip=skip)
            self.waiting.append(results)
        elif name == "sync":
            number, instance, off = details
            reply = self.reply(number, off)
            given_to = [(member_id, b"x") for member_id in self.ids]
            self.waiting.append(rig.sync(reply, given_to, instance))
        elif name == "heartbeat":
            number, instance, off = details
            rig.heartbeat(self.reply(number, off), instance)
        elif name == "leave":
            rig.leave(*((self.member(number), instance) for number, instance in details[0]))
        elif name == "hang up":
            pending = [results for results in self.waiting if not results and results.activity is not None]
            if pending:
                gone = pending[details[0] % len(pending)]
                gone.activity.discard()
                self.waiting = [results for results in self.waiting if results is not gone]
        elif name == "advance":
            rig.clock.advance(details[0])
        elif name == "refuse":
            log = rig.log_of()
            log.refuse = ErrorCode.NONE if log.refuse else ErrorCode.NOT_ENOUGH_REPLICAS
        else:
            self.waiting = [results for results in self.waiting if results]
            rig.restart()
        self.ids += [r[0].member_id for r in self.waiting if r and getattr(r[0], "member_id", "")][-2:]


class JoinedAs:
    def __init__(self, member_id, generation):
        self.member_id, self.generation = member_id, generation


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(steps=steps)
def test_random_requests_are_all_answered_and_groups_still_rebalance(rig_class, steps):
    rig = rig_class(group_max_size=4)
    play = Play(rig)
    for step in steps:
        play.step(*step)
        assert rig.bugs == []
        check_roster(rig)
    rig.log_of().refuse = ErrorCode.NONE
    rig.clock.advance(1_000_000)
    assert rig.bugs == []
    assert all(len(results) == 1 for results in play.waiting), "every request is answered, once"
    for entry in rig.known.values():
        assert entry.group.state is ClassicGroupState.EMPTY, "without heartbeats everybody is out in the end"
        assert not entry.joins and not entry.syncs and not entry.group.roster.pending
    rig.stable(2)
    assert rig.group().state is ClassicGroupState.STABLE and len(rig.group().members) == 2


def check_roster(rig):
    """Check that the indexes of the roster agree with its members."""
    for entry in rig.known.values():
        roster, members = entry.group.roster, entry.group.members
        assert all(member.member_id == member_id for member_id, member in members.items())
        assert roster.static == {m.group_instance_id: m.member_id for m in members.values() if m.group_instance_id}
        assert roster.leader in members if members else roster.leader is None
        assert not roster.pending.keys() & members.keys()
        counted = {name: count for name, count in roster._supporters.items() if count}
        expected = {}
        for member in members.values():
            for name in {name for name, _ in member.protocols}:
                expected[name] = expected.get(name, 0) + 1
        assert counted == expected
        waiting = {member_id for member_id, member in members.items() if member.awaiting_join}
        assert entry.joins.keys() <= waiting
        assert entry.syncs.keys() <= {member_id for member_id, member in members.items() if member.awaiting_sync}
        if entry.group.state is ClassicGroupState.STABLE:
            assert not waiting and entry.group.protocol is not None
