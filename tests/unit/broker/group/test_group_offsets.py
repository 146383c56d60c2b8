"""Committed and pending offsets of a group (KIP-447)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.group import shard as shard_module
from ottla.broker.group.log import CoordinatorRecord
from ottla.broker.group.offsets import OffsetAndMetadata
from ottla.broker.group.shard import GroupStore
from ottla.protocol.internal_topics.offsets_records import OffsetKey, OffsetValue

KEY = ("ledger", 0)


class Log:
    """Groups of one offsets partition, built record by record."""

    def __init__(self):
        self.store, self.end = GroupStore(), 0

    def say(self, producer_id, key, value, committed=False):
        self.store.apply(CoordinatorRecord(producer_id, self.end, key, value, committed), 0)
        self.end += 1

    def commit(self, offset, producer_id=-1, key=KEY, group="g"):
        self.say(producer_id, OffsetKey(group, *key), OffsetValue(offset, -1, "", 0))

    def remove(self, key=KEY, group="g"):
        self.say(-1, OffsetKey(group, *key), None)

    def mark(self, producer_id, commit):
        self.say(producer_id, None, None, commit)

    def offsets(self, group="g"):
        return self.store.groups[group].offsets

    def read_offset(self, key=KEY, group="g"):
        found = self.offsets(group).get(key)
        return None if found is None else found.value.offset


def test_pending_offset_counts_only_after_the_commit_marker():
    log = Log()
    log.commit(10, 7)
    assert log.read_offset() is None and log.offsets().is_unstable(KEY)
    log.mark(7, commit=True)
    assert log.read_offset() == 10 and not log.offsets().is_unstable(KEY)


def test_abort_marker_drops_the_pending_offset():
    log = Log()
    log.commit(5)
    log.commit(10, 7)
    log.mark(7, commit=False)
    assert log.read_offset() == 5 and not log.offsets().is_unstable(KEY)


def test_plain_commit_that_came_later_in_the_log_wins_over_the_marker():
    log = Log()
    log.commit(10, 7)
    log.commit(20)
    log.mark(7, commit=True)
    assert log.read_offset() == 20


def test_key_stays_unstable_until_every_covering_transaction_ends():
    log = Log()
    log.commit(10, 7)
    log.commit(11, 8)
    log.mark(7, commit=False)
    assert log.offsets().is_unstable(KEY)
    log.mark(8, commit=True)
    assert log.read_offset() == 11 and not log.offsets().is_unstable(KEY)


def test_tombstone_removes_committed_and_pending_offsets():
    log = Log()
    log.commit(5)
    log.commit(10, 7)
    log.remove()
    assert log.offsets().to_value() == ({}, {}) and log.offsets().is_empty
    log.mark(7, commit=True)
    assert log.read_offset() is None


def test_all_groups_see_the_offsets_of_a_large_transaction_from_its_marker_on(monkeypatch):
    monkeypatch.setattr(shard_module, "SETTLED_AT_ONCE", 2)
    log, groups = Log(), [f"g{number}" for number in range(5)]
    for number, group in enumerate(groups):
        log.commit(number, 7, group=group)
    log.mark(7, commit=True)
    while True:
        assert [log.read_offset(group=group) for group in groups] == [0, 1, 2, 3, 4]
        assert not any(log.offsets(group).is_unstable(KEY) for group in groups)
        if not log.store.settle():
            break


def test_a_marker_commits_the_offsets_of_a_small_transaction_at_once():
    log = Log()
    log.commit(1, 7)
    log.mark(7, commit=True)
    assert log.store.is_settled and not log.offsets().in_transactions


class Model:
    """Groups and offsets where each marker settles all of its transaction at once."""

    def __init__(self):
        self.groups = {}

    def commit(self, at, offset, producer_id, key, group):
        committed, pending = self.groups.setdefault(group, ({}, {}))
        into = committed if producer_id < 0 else pending.setdefault(producer_id, {})
        into[key] = OffsetAndMetadata(OffsetValue(offset, -1, "", 0), at)

    def mark(self, producer_id, commit):
        for committed, pending in self.groups.values():
            for key, said in pending.pop(producer_id, {}).items():
                if commit and (key not in committed or said.record_offset > committed[key].record_offset):
                    committed[key] = said

    def remove(self, key, group):
        committed, pending = self.groups.get(group, ({}, {}))
        committed.pop(key, None)
        for producer_id in [*pending]:
            pending[producer_id].pop(key, None)
            if not pending[producer_id]:
                del pending[producer_id]


KEYS, GROUPS, PRODUCERS = [("t", 0), ("t", 1), ("u", 0)], ["g", "h"], [7, 8, 9]
keys, groups, producers = st.sampled_from(KEYS), st.sampled_from(GROUPS), st.sampled_from(PRODUCERS)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.one_of(st.just(-1), producers, producers), keys, groups),
        st.tuples(st.just("mark"), producers, st.booleans()),
        st.tuples(st.just("remove"), keys, groups),
        st.tuples(st.just("settle")),
    ),
    min_size=5,
    max_size=40,
)


def agree(log, model):
    for group, entry in log.store.groups.items():
        committed, pending = model.groups[group]
        offsets = entry.offsets
        assert offsets.to_value() == (committed, pending)
        assert offsets.is_empty == (not committed and not pending)
        for key in KEYS:
            open_ones = [of_producer[key] for of_producer in pending.values() if key in of_producer]
            assert offsets.get(key) == committed.get(key)
            assert offsets.is_unstable(key) == bool(open_ones)
            assert (key in offsets) == (key in committed or bool(open_ones))
            assert key in {*offsets.places()} or key not in offsets
        assert len({*offsets.places()}) <= offsets.at_most


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(steps=steps, at_once=st.integers(0, 2))
def test_offsets_committed_in_slices_read_as_if_committed_at_once(steps, at_once):
    log, model, known = Log(), Model(), shard_module.SETTLED_AT_ONCE
    shard_module.SETTLED_AT_ONCE = at_once
    try:
        for name, *details in steps:
            if name == "commit":
                model.commit(log.end, log.end, *details)
                log.commit(log.end, *details)
            elif name == "settle":
                shard_module.SETTLED_AT_ONCE = 1
                log.store.settle()
                shard_module.SETTLED_AT_ONCE = at_once
            else:
                getattr(model, name)(*details)
                getattr(log, name)(*details)
            agree(log, model)
    finally:
        shard_module.SETTLED_AT_ONCE = known
    while log.store.settle():
        agree(log, model)
    for entry in log.store.groups.values():  # nothing of an ended transaction is kept
        assert all(each.committed is None for of_key in entry.offsets.in_transactions.values() for each in of_key)
