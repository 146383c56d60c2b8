"""Parallel recovery of logs after a kill has the same results as recovery one by one."""

import errno
import os
import shutil
from random import Random
from types import SimpleNamespace

import pytest

from ottla.broker.log import parallel_recovery
from ottla.broker.log.log_config import LogConfig
from ottla.broker.ports import disk as disk_module
from ottla.broker.ports.side_by_side import share_out
from ottla.protocol.steps import to_the_end

TOPIC_ID = bytes(range(16))
SETTINGS = {"segment_bytes": 3_000, "index_interval_bytes": 200}
PARTITIONS = 5


@pytest.fixture(autouse=True)
def short_logs_are_long(monkeypatch):
    monkeypatch.setattr(parallel_recovery, "LEAST_BYTES", 1)
    monkeypatch.setattr(parallel_recovery, "WORTH_BYTES", 1)
    monkeypatch.setattr(disk_module, "processors", lambda: 2)
    monkeypatch.setattr("ottla.broker.ports.side_by_side.processors", lambda: 2)


@pytest.fixture
def killed_broker(logs, transactor):
    """Return a killed broker with several segments in each partition, open transactions, and one torn log."""
    random = Random(3)
    for index in range(PARTITIONS):
        partition = logs.partition(index=index, leader_epoch=2, **SETTINGS)
        senders = [transactor(partition, number) for number in range(4)]
        for _ in range(60):
            sender = random.choice(senders)
            if random.random() < 0.3:
                sender.end(random.random() < 0.5)
            else:
                sender.send(random.randint(1, 3))
    logs.kill()
    torn = max(logs.path(index=1).glob("*.log"))
    with torn.open("r+b") as file:
        file.truncate(torn.stat().st_size - 20)
    return logs


def found(logs, side_by_side):
    logs.start()
    if side_by_side:
        wanted = [("t", index, TOPIC_ID, LogConfig(**SETTINGS)) for index in range(PARTITIONS)]
        to_the_end(logs.manager.recover_in_processes(wanted))
    ahead_of_time = set(logs.manager._recovered)
    states = {}
    for index in range(PARTITIONS):
        partition = logs.partition(index=index, leader_epoch=2, **SETTINGS)
        states[index] = {
            "offline": partition.offline,
            "ends": (partition.log_start_offset, partition.last_stable_offset, partition.log_end_offset),
            "recovery point": partition.log.recovery_point,
            "producers": {each.producer_id: each.to_value() for each in partition.producers()},
            "segments": [(each.base_offset, each.size_bytes, each.aborted) for each in partition.log.segments],
            "end of epoch": partition.end_offset_for_epoch(2),
        }
    assert not logs.manager._recovered
    return SimpleNamespace(states=states, ahead=ahead_of_time, files=files(logs))


def files(logs):
    return {
        path.relative_to(logs.directory): path.read_bytes()
        for path in logs.directory.rglob("*")
        if path.is_file() and path.name not in (".lock", "leader-epoch-checkpoint")
    }


def both_ways(logs, directory):
    copy = directory / "copy"
    shutil.copytree(logs.directory, copy)
    one_by_one = found(logs, side_by_side=False)
    logs.kill()
    shutil.rmtree(logs.directory)
    copy.rename(logs.directory)
    return one_by_one, found(logs, side_by_side=True)


def test_logs_are_found_as_they_are_one_by_one(killed_broker, produce, tmp_path):
    one_by_one, side_by_side = both_ways(killed_broker, tmp_path)
    assert len(side_by_side.ahead) == PARTITIONS
    assert side_by_side.states == one_by_one.states
    assert side_by_side.files == one_by_one.files
    for index in range(PARTITIONS):
        partition = killed_broker.partition(index=index, leader_epoch=2, **SETTINGS)
        assert produce(partition).base_offset == side_by_side.states[index]["ends"][2]
    killed_broker.stop()
    killed_broker.start()
    assert killed_broker.manager.clean_start


def test_a_damaged_log_is_offline_as_if_recovered_one_by_one(killed_broker, tmp_path):
    log = min(killed_broker.path(index=2).glob("*.log"))
    data = bytearray(log.read_bytes())
    data[80] ^= 1
    log.write_bytes(data)
    one_by_one, side_by_side = both_ways(killed_broker, tmp_path)
    assert "is damaged" in side_by_side.states[2]["offline"]
    assert side_by_side.states == one_by_one.states
    assert side_by_side.files == one_by_one.files


def test_io_that_fails_in_a_process_takes_the_directory_offline(killed_broker, monkeypatch):
    """The error counts as if it happened in this process: a second sync would not fail again."""
    recover = parallel_recovery._recover

    def fails(disk, job):
        if job.directory.endswith("t-3"):
            raise OSError(errno.EIO, "Input/output error")
        return recover(disk, job)

    monkeypatch.setattr(parallel_recovery, "_recover", fails)
    killed_broker.start()
    wanted = [("t", index, TOPIC_ID, LogConfig(**SETTINGS)) for index in range(PARTITIONS)]
    to_the_end(killed_broker.manager.recover_in_processes(wanted))
    assert "Input/output error" in killed_broker.manager.offline
    assert killed_broker.partition(index=3, leader_epoch=2, **SETTINGS).offline is not None


def test_logs_left_by_a_dead_process_are_recovered_when_opened(killed_broker, tmp_path, monkeypatch):
    recover = parallel_recovery._recover

    def dies(disk, job):
        if job.directory.endswith("t-3"):
            os._exit(9)
        return recover(disk, job)

    monkeypatch.setattr(parallel_recovery, "_recover", dies)
    one_by_one, side_by_side = both_ways(killed_broker, tmp_path)
    assert 0 < len(side_by_side.ahead) < PARTITIONS
    assert side_by_side.states == one_by_one.states
    assert side_by_side.files == one_by_one.files


def test_open_partitions_and_those_of_another_topic_id_are_not_recovered(killed_broker):
    killed_broker.start()
    killed_broker.partition(index=0, leader_epoch=2, **SETTINGS)
    wanted = [("t", index, bytes(16) if index == 1 else TOPIC_ID, LogConfig(**SETTINGS)) for index in range(4)]
    to_the_end(killed_broker.manager.recover_in_processes(wanted))
    assert set(killed_broker.manager._recovered) == {str(killed_broker.path(index=index)) for index in (2, 3)}


def test_shares_are_of_about_the_same_size():
    sizes = [5, 1, 1, 3, 2]
    shares = share_out(sizes, 2)
    assert sorted(place for share in shares for place in share) == [0, 1, 2, 3, 4]
    assert [sum(sizes[place] for place in share) for share in shares] == [6, 6]
    assert share_out([1], 3) == [[0], [], []]
