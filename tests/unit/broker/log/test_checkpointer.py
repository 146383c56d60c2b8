"""Checkpoints of a directory with many partitions: written in slices, only where something changed."""

import errno
from functools import partial
from types import SimpleNamespace

import pytest

from ottla.broker.costs import ROW_US
from ottla.broker.log import checkpointer
from ottla.broker.log.checkpointer import Checkpointer
from ottla.broker.ports.disk import RealDisk
from ottla.broker.turns import SHARE_US, Turns
from ottla.protocol.checkpoints import OffsetCheckpointFile, decode_offsets, encode_offsets


class SlowClock:
    """A clock whose later turns wait until the test runs them."""

    def __init__(self):
        self.turns = []

    def next_turn(self, callback):
        self.turns.append(callback)

    def from_thread(self, callback):
        self.turns.append(callback)

    def pass_turn(self):
        self.enter(self.turns.pop(0))

    def pass_turns(self):
        while self.turns:
            self.pass_turn()


class HeldDisk(RealDisk):
    """A disk whose background syncs end when the test ends them."""

    def __init__(self):
        super().__init__()
        self.jobs = []

    def start_sync(self, paths, on_end=None):
        assert all(self.exists(path) for path in paths)
        job = SimpleNamespace(done=False, error=None, paths=paths)

        def end(error=None):
            job.done, job.error = True, error
            on_end()

        job.end = end
        self.jobs.append(job)
        return job


def partition(offset, looked_at):
    log = SimpleNamespace(
        recovery_point=offset,
        log_start_offset=0,
        segments=SimpleNamespace(first_offset=0),
        unsynced=[],
        release_idle_segments=lambda: len(looked_at.append(offset) or ()),
    )
    return SimpleNamespace(offline=None, high_watermark=offset + 1, log=log)


@pytest.fixture
def looked_at():
    return []


@pytest.fixture
def many(tmp_path, looked_at):
    partitions = {("t", index): partition(index, looked_at) for index in range(1000)}
    clock = SlowClock()
    failures = []
    disk = HeldDisk()
    turns = Turns(clock.next_turn, failures.append)
    clock.enter = turns.event
    made = Checkpointer(disk, clock, turns, str(tmp_path), partitions, failures.append)
    yield SimpleNamespace(
        checkpointer=made, clock=clock, partitions=partitions, path=tmp_path, disk=disk, failures=failures
    )
    assert failures == []


def recovery_points(many):
    return decode_offsets((many.path / "recovery-point-offset-checkpoint").read_bytes())


def test_a_round_over_many_partitions_takes_many_turns(many, looked_at, monkeypatch):
    monkeypatch.setattr(checkpointer, "ROW_US", SHARE_US / 200)
    many.checkpointer.run()
    turns = 1
    assert 0 < len(looked_at) < 1000
    assert not (many.path / "recovery-point-offset-checkpoint").exists()
    while many.clock.turns:
        seen = len(looked_at)
        many.clock.pass_turn()
        assert len(looked_at) - seen <= SHARE_US / ROW_US
        turns += 1
    assert turns >= 4
    assert sorted(looked_at) == list(range(1000))
    many.disk.jobs.pop().end()
    many.clock.pass_turns()
    assert recovery_points(many) == {("t", index): index for index in range(1000)}


def test_checkpoints_are_renamed_after_their_sync_and_written_one_by_one(many):
    many.checkpointer.run()
    many.clock.pass_turns()
    (job,) = many.disk.jobs
    assert {path.name for path in many.path.iterdir()} == {
        "log-start-offset-checkpoint.tmp",
        "recovery-point-offset-checkpoint.tmp",
        "replication-offset-checkpoint",
    }
    # Changes during a write are for the next round: one write at a time.
    many.partitions["t", 5].log.recovery_point = 500
    many.checkpointer.run()
    many.clock.pass_turns()
    assert many.disk.jobs == [job]
    job.end()
    many.clock.pass_turns()
    assert recovery_points(many)["t", 5] == 5
    many.checkpointer.run()
    many.clock.pass_turns()
    many.disk.jobs[1].end()
    many.clock.pass_turns()
    assert recovery_points(many)["t", 5] == 500
    many.checkpointer.run()
    many.clock.pass_turns()
    assert len(many.disk.jobs) == 2


def give_files(many):
    """Give every partition files to sync. Return the files that are handed over, by index."""
    handed_over = []

    def take(index):
        many.partitions["t", index].log.unsynced = []
        handed_over.append(index)
        return 5_000 + index

    for (_, index), each in many.partitions.items():
        each.log.directory, each.log.unsynced = str(many.path), [str(many.path)]
        each.log.begin_unsynced_list = partial(take, index)
    return handed_over


def find_jobs(many):
    return [job for job in many.disk.jobs if job.paths[0] == str(many.path)]


def test_sealed_segments_are_synced_in_parts(many):
    handed_over = give_files(many)
    many.checkpointer.run()
    many.clock.pass_turns()
    assert len(handed_over) == checkpointer.SYNCED_AT_ONCE
    (first,) = find_jobs(many)
    first.end()
    many.clock.pass_turns()
    assert sorted(handed_over) == list(range(1000))
    assert many.partitions["t", 0].log.recovery_point == 5_000
    assert many.partitions["t", 999].log.recovery_point == 999  # its sync continues
    _, second = find_jobs(many)
    second.end()
    many.checkpointer.run()
    assert many.partitions["t", 999].log.recovery_point == 5_999


def test_a_recovery_point_that_rose_during_the_sync_does_not_go_back(many):
    give_files(many)
    many.checkpointer.run()
    many.clock.pass_turns()
    many.partitions["t", 0].log.recovery_point = 6_000  # retention has taken what lay below
    (first,) = find_jobs(many)
    first.end()
    many.clock.pass_turns()
    assert [many.partitions["t", index].log.recovery_point for index in range(2)] == [6_000, 5_001]


@pytest.mark.parametrize("how", ["failed", "stopped"])
def test_a_failure_or_a_stop_ends_the_syncs_of_a_round(many, how):
    handed_over = give_files(many)
    many.checkpointer.run()
    many.clock.pass_turns()
    if how == "stopped":
        many.checkpointer.stop()
    (job,) = find_jobs(many)
    job.end(OSError(errno.EIO, "no") if how == "failed" else None)
    many.clock.pass_turns()
    assert len(handed_over) == checkpointer.SYNCED_AT_ONCE
    assert [error.errno for error in many.failures] == [errno.EIO] * (how == "failed")
    many.failures.clear()


def test_a_checkpoint_that_cannot_be_synced_never_gets_its_name(many):
    many.checkpointer.run()
    many.clock.pass_turns()
    error = OSError(errno.EIO, "Input/output error")
    many.disk.jobs.pop().end(error)
    many.clock.pass_turns()
    assert many.failures.pop() is error
    assert not (many.path / "recovery-point-offset-checkpoint").exists()


def test_a_checkpoint_that_is_written_at_once_is_not_replaced_by_the_one_that_was_under_way(many):
    many.checkpointer.run()
    many.clock.pass_turns()
    (job,) = many.disk.jobs
    del many.partitions["t", 5]
    many.checkpointer.forget_on_disk(("t", 5))
    assert ("t", 5) not in recovery_points(many)
    job.end()
    many.clock.pass_turns()
    assert ("t", 5) not in recovery_points(many)
    assert not list(many.path.glob("*.tmp"))


def test_forget_on_disk_removes_a_partition_that_a_write_put_back(many):
    many.checkpointer.run()
    many.clock.pass_turns()
    del many.partitions["t", 5]
    many.checkpointer.forget(("t", 5))
    many.disk.jobs[0].end()
    many.clock.pass_turns()
    assert recovery_points(many)["t", 5] == 5
    many.checkpointer.forget_on_disk(("t", 5))
    assert ("t", 5) not in recovery_points(many)


@pytest.mark.parametrize("names_are_synced", [False, True])
def test_forget_on_disk_syncs_the_removal_unless_it_is_synced(many, monkeypatch, names_are_synced):
    many.checkpointer.run()
    many.clock.pass_turns()
    many.disk.jobs[0].end()
    many.clock.pass_turns()
    del many.partitions["t", 5]
    many.checkpointer.forget(("t", 5))
    many.checkpointer.run()
    many.clock.pass_turns()
    many.disk.jobs[1].end()
    many.clock.pass_turns()
    assert ("t", 5) not in recovery_points(many)
    if names_are_synced:
        assert many.disk.jobs[2].paths == [str(many.path)]
        many.disk.jobs[2].end()
        many.clock.pass_turns()
    synced = []
    monkeypatch.setattr(HeldDisk, "sync_dir", lambda disk, path: synced.append(path))
    many.checkpointer.forget_on_disk(("t", 5))
    assert synced == ([] if names_are_synced else [str(many.path)])
    many.checkpointer.forget_on_disk(("t", 5))
    assert len(synced) <= 1


def test_a_stop_lets_go_of_the_checkpoint_that_is_under_way(many):
    many.checkpointer.run()
    many.clock.pass_turns()
    many.checkpointer.stop()
    many.disk.jobs[0].end()
    many.clock.pass_turns()
    assert not (many.path / "recovery-point-offset-checkpoint").exists()


def test_a_round_begins_only_when_the_last_one_has_ended(many, looked_at, monkeypatch):
    monkeypatch.setattr(checkpointer, "ROW_US", SHARE_US / 200)
    many.checkpointer.run()
    seen = len(looked_at)
    many.checkpointer.run()
    assert len(looked_at) == seen
    assert len(many.clock.turns) == 1


def test_a_partition_deleted_during_a_round_is_not_in_the_checkpoint(many, monkeypatch):
    monkeypatch.setattr(checkpointer, "ROW_US", SHARE_US / 200)
    many.checkpointer.run()
    gone = many.partitions.pop(("t", 999))
    gone.offline = "the partition was deleted"
    many.checkpointer.forget(("t", 999))
    many.clock.pass_turns()
    many.disk.jobs.pop().end()
    many.clock.pass_turns()
    written = recovery_points(many)
    assert ("t", 999) not in written
    assert len(written) == 999


def test_a_round_that_is_stopped_writes_nothing(many, monkeypatch):
    monkeypatch.setattr(checkpointer, "ROW_US", SHARE_US / 200)
    many.checkpointer.run()
    many.checkpointer.stop()
    many.clock.pass_turns()
    assert list(many.path.iterdir()) == []


def test_a_table_has_the_content_of_what_it_holds():
    table = OffsetCheckpointFile({("a", 0): 1, ("b-c", 3): 7})
    table["a", 0] = 5
    table["d", 1] = 2
    assert table.forget(("b-c", 3)) == 7
    assert table.forget(("b-c", 3)) == 0
    assert table.content() == b"0\n2\na 0 5\nd 1 2\n" == encode_offsets({("a", 0): 5, ("d", 1): 2})
    assert len(table) == 2
