"""Replay equality: the state that a restarted broker reads from its logs equals the state before the stop."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.group.commits import CommitRow
from ottla.broker.group.members import Caller
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import ProducerIdAndEpoch
from tests.fetching import fetch

NONE = ErrorCode.NONE
GROUPS, TOPICS, PRODUCERS = ["g", "h", "group-3"], ["t", "u"], [7, 8]


def commits_to(groups, topics):
    keys = st.lists(st.tuples(st.sampled_from(topics), st.integers(0, 1)), min_size=1, max_size=3)
    producers = st.one_of(st.none(), st.sampled_from(PRODUCERS))
    return st.tuples(st.just("commit"), st.sampled_from(groups), keys, producers)


def markers_of(groups):
    return st.tuples(st.just("mark"), st.sampled_from(groups), st.sampled_from(PRODUCERS), st.booleans())


deletions = st.tuples(st.just("delete topic"), st.sampled_from(TOPICS))
others = st.tuples(st.sampled_from(["come or go", "clean", "refuse", "restart"]))
steps = st.lists(st.one_of(commits_to(GROUPS, TOPICS), markers_of(GROUPS), deletions, others), min_size=5, max_size=40)


def play(rig, number, name, *details):
    if name == "commit":
        group_id, keys, producer_id = details
        rows = [CommitRow(topic, index, number, -1, f"{number}") for topic, index in keys]
        rig.commits.commit(Caller(group_id), rows, None if producer_id is None else ProducerIdAndEpoch(producer_id, 0))
    elif name == "mark":
        group_id, producer_id, commit = details
        rig.mark(producer_id, commit, group_id)
    elif name == "delete topic":
        rig.cluster.on_topic_deleted[0](SimpleNamespace(name=details[0]))
    elif name == "come or go":
        if rig.log_of().refuse:
            return  # Membership that could not be logged is only in memory, by design.
        members = [*rig.group().members] if "g" in rig.known else []
        if members:
            rig.leave(*((member_id, None) for member_id in members))
        else:
            rig.stable(2, session_ms=1_800_000)
    elif name == "clean":
        rig.clock.advance(600_000)
        for each in rig.known.values():
            each.group.start_sessions(rig.clock.monotonic_ms())
    elif name == "refuse":
        for each in rig.cluster.logs:
            each.refuse = NONE if each.refuse else ErrorCode.NOT_ENOUGH_REPLICAS
    else:
        rig.restart()


def durable(rig):
    """Return the state that must survive, by group. The creation time of a group without a record is not stored."""
    found = {}
    for group_id, entry in rig.known.items():
        value = entry.group.value()
        if not value.generation:
            value = value._replace(state_timestamp_ms=0)
        found[group_id] = (value, entry.group.state, entry.offsets.to_value())
    opened = [(index, *each) for index, shard in rig.groups._manager.shards.items() for each in shard._open.items()]
    return found, {(index, producer_id) for index, producer_id, transaction in opened if live(rig, transaction)}


def live(rig, transaction):
    """Return whether a group that exists waits for the end of the transaction."""
    entries = rig.known.values()
    return any(transaction in found for entry in entries for found in entry.offsets.in_transactions.values())


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(steps=steps)
def test_state_from_the_log_equals_the_state_in_memory(rig_class, steps):
    rig = rig_class()
    for number, step in enumerate(steps):
        play(rig, number, *step)
    before = durable(rig)
    rig.restart()
    assert durable(rig) == before
    assert rig.bugs == []


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(steps=st.lists(st.one_of(commits_to(GROUPS[:1], TOPICS[:1]), markers_of(GROUPS[:1])), min_size=10, max_size=40))
def test_committed_offset_is_the_last_one_that_counts(rig_class, steps):
    """Compare with a model that knows only the order of records."""
    rig, log, ended = rig_class(), {}, []
    for number, step in enumerate(steps):
        play(rig, number, *step)
        if step[0] == "commit":
            _, group_id, keys, producer_id = step
            for key in keys:
                log.setdefault((group_id, *key), []).append([number, producer_id, producer_id is None])
        else:
            _, group_id, producer_id, commit = step
            ended.append((rig.log_of(group_id).index, producer_id))
            for (of_group, *_), records in log.items():
                if rig.log_of(of_group).index == ended[-1][0]:
                    open_ones = [record for record in records if record[1] == producer_id]
                    # Only a producer's last pending offset of a key can count.
                    for record in open_ones[:-1]:
                        record[1] = None
                    for record in open_ones[-1:]:
                        record[1], record[2] = None, commit
    for (group_id, topic, index), records in log.items():
        counting = [number for number, _, counts in records if counts]
        _, ((_, ((_, row),)),) = fetch(rig.commits, group_id, [(topic, [index])], False)
        assert row.offset == (counting[-1] if counting else -1)
        _, ((_, ((_, row),)),) = fetch(rig.commits, group_id, [(topic, [index])], True)
        assert bool(row.error) == any(producer_id is not None for _, producer_id, _ in records)


def test_a_dropped_shard_removes_its_groups_and_is_reloaded_from_its_log(rig):
    assert rig.log_of("g") is not rig.log_of("h")
    for group_id in ("g", "h"):
        rig.commits.commit(Caller(group_id), [CommitRow("t", 0, 5, -1, "")])
        rig.commits.commit(Caller(group_id), [CommitRow("t", 1, 6, -1, "")], ProducerIdAndEpoch(7, 0))
    before, other = rig.known["g"].offsets.to_value(), rig.known["h"]
    del rig.groups._manager.shards[rig.log_of("g").index]
    assert set(rig.known) == {"h"}
    rig.turns.event(lambda: rig.groups.describe("g"))
    assert rig.known["g"].offsets.to_value() == before and rig.known["h"] is other
    rig.mark(7)
    assert (rig.known["g"].offsets.get(("t", 1)).value.offset, rig.known["h"].offsets.get(("t", 1))) == (6, None)
