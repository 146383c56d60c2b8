"""Checkpoints of a directory with many partitions: written in slices, by what has changed."""

from types import SimpleNamespace

import pytest

from ottla.broker.log import checkpointer
from ottla.broker.log.checkpointer import Checkpointer
from ottla.broker.log.checkpoints import decode_offsets, encode_offsets
from ottla.broker.log.offset_table import OffsetTable
from ottla.broker.ports.disk import RealDisk


class SlowClock:
    """A millisecond passes with each look; later turns wait until the test runs them."""

    def __init__(self):
        self.ms = 0.0
        self.turns = []

    def monotonic_ms(self):
        self.ms += 1.0
        return self.ms

    def next_turn(self, callback):
        self.turns.append(callback)


def partition(offset, looked_at):
    made = SimpleNamespace(
        offline=None,
        recovery_point=offset,
        high_watermark=offset + 1,
        log_start_offset=0,
        first_offset=0,
        unsynced=[],
    )
    made.rest = lambda: looked_at.append(offset)
    return made


@pytest.fixture
def looked_at():
    return []


@pytest.fixture
def many(tmp_path, looked_at):
    partitions = {("t", index): partition(index, looked_at) for index in range(1000)}
    clock = SlowClock()
    failures = []
    made = Checkpointer(RealDisk(), clock, str(tmp_path), partitions, failures.append)
    yield SimpleNamespace(checkpointer=made, clock=clock, partitions=partitions, path=tmp_path)
    assert failures == []


def test_a_round_over_many_partitions_takes_many_turns(many, looked_at):
    many.checkpointer.run()
    turns = 1
    assert 0 < len(looked_at) < 1000
    assert not (many.path / "recovery-point-offset-checkpoint").exists()
    while many.clock.turns:
        seen = len(looked_at)
        many.clock.turns.pop()()
        assert len(looked_at) - seen <= 3 * checkpointer.WALK_STEP
        turns += 1
    assert turns >= 4
    assert sorted(looked_at) == list(range(1000))
    written = decode_offsets((many.path / "recovery-point-offset-checkpoint").read_bytes())
    assert written == {("t", index): index for index in range(1000)}


def test_a_round_begins_only_when_the_last_one_has_ended(many, looked_at):
    many.checkpointer.run()
    seen = len(looked_at)
    many.checkpointer.run()
    assert len(looked_at) == seen
    assert len(many.clock.turns) == 1


def test_a_partition_that_goes_offline_during_a_round_is_left_as_it_was_noted(many):
    many.checkpointer.run()
    gone = many.partitions.pop(("t", 999))
    gone.offline = "the partition was deleted"
    many.checkpointer.forget(("t", 999))
    while many.clock.turns:
        many.clock.turns.pop()()
    written = decode_offsets((many.path / "recovery-point-offset-checkpoint").read_bytes())
    assert ("t", 999) not in written
    assert len(written) == 999


def test_a_round_that_is_stopped_writes_nothing(many):
    many.checkpointer.run()
    many.checkpointer.stop()
    while many.clock.turns:
        many.clock.turns.pop()()
    assert list(many.path.iterdir()) == []


def test_a_table_has_the_content_of_what_it_holds():
    table = OffsetTable()
    table.load({("a", 0): 1, ("b-c", 3): 7})
    table["a", 0] = 5
    table["d", 1] = 2
    assert table.forget(("b-c", 3)) == 7
    assert table.forget(("b-c", 3)) == 0
    assert table.content() == encode_offsets({("a", 0): 5, ("d", 1): 2})
    assert len(table) == 2
