"""Thousands of partitions: the files that a start reads, and the work that it leaves for later."""

import errno
import os

import pytest

from ottla.broker.ports import disk
from ottla.broker.ports.descriptors import Shortage
from ottla.broker.ports.disk import RealDisk
from ottla.broker.turns import SHARE_US
from ottla.protocol.batch import build_batch
from ottla.protocol.requests.produced import check_produced_batch
from ottla.protocol.snapshot import ProducerEntry, encode_snapshot
from ottla.testkit.metadata import create_internal_topic, create_topic, delete_topic


class WatchedDisk(RealDisk):
    """A disk that records each path that is opened, read or checked."""

    __slots__ = ("touched",)

    def __init__(self):
        super().__init__()
        self.touched = []


def _watch(name):
    def call(self, path, *arguments, **options):
        self.touched.append(path)
        return getattr(RealDisk, name)(self, path, *arguments, **options)

    return call


for _name in ("open", "list", "read", "size_bytes", "modified_ms", "exists", "make_dir"):
    setattr(WatchedDisk, _name, _watch(_name))


def list_paths(broker, topic):
    return [path for path in broker.disk.touched if f"/{topic}-" in path]


def produce(partition):
    batch = memoryview(build_batch([(b"key", b"value")], timestamp_ms=1_700_000_000_000))
    assert not partition.append_from_client(check_produced_batch(batch), batch).error


def fill_topic(broker):
    create_topic(broker.cluster, "t", 5)
    for index in range(5):
        produce(broker.cluster.partition("t", index))


def test_after_a_clean_stop_partitions_are_opened_when_they_are_asked_for(broker):
    fill_topic(broker)
    broker.stop()
    broker.disk = WatchedDisk()
    broker.start()
    assert list_paths(broker, "t") == []
    assert broker.cluster.partition("t", 3).log_end_offset == 1
    assert {path.rpartition("/data/")[2].partition("/")[0] for path in list_paths(broker, "t")} == {"t-3"}


def test_after_a_crash_every_partition_is_recovered_before_anybody_asks(broker):
    fill_topic(broker)
    broker.kill()
    broker.start()
    assert [partition.log_end_offset for partition in broker.cluster.partitions()] == [1] * 5


def test_what_nobody_asks_for_is_opened_later(broker):
    fill_topic(broker)
    broker.stop()
    broker.start()
    timers = []
    broker.disk.charge = lambda cost_us: broker.turns.charge(SHARE_US)  # each call uses the whole turn budget
    broker.clock.call_later = lambda delay_ms, callback: timers.append(callback)
    broker.cluster.open_rest()
    opened = []
    while timers:
        broker.turns.event(timers.pop())
        broker.settle()
        opened.append(len(list(broker.cluster.partitions())))
    assert opened == [1, 2, 3, 4, 5, 5]
    assert [partition.log_end_offset for partition in broker.cluster.partitions()] == [1] * 5


def test_a_partition_that_finds_no_descriptor_is_opened_by_who_asks_next(broker, monkeypatch):
    fill_topic(broker)
    broker.stop()
    broker.start()

    def refuse(disk, path):
        raise Shortage(errno.EMFILE, "Too many open files", path)

    with monkeypatch.context() as patch:
        patch.setattr(RealDisk, "list", refuse)
        assert "Too many open files" in broker.cluster.partition("t", 3).offline
        assert broker.logs.offline is None
    assert broker.cluster.partition("t", 3).log_end_offset == 1
    produce(broker.cluster.partition("t", 3))


def test_a_coordinator_s_partition_that_finds_no_descriptor_is_not_taken_for_empty(broker, monkeypatch):
    name = create_internal_topic(broker.cluster, "__transaction_state").name
    assert broker.cluster.partition(name, 0).offline is None
    broker.stop()
    broker.start()

    def refuse(disk, path):
        raise Shortage(errno.EMFILE, "Too many open files", path)

    with monkeypatch.context() as patch:
        patch.setattr(RealDisk, "list", refuse)
        assert broker.cluster.partition(name, 0).offline is not None
    assert "Too many open files" in broker.logs.offline


def test_a_topic_that_nobody_has_opened_is_deleted_with_its_directories(broker):
    fill_topic(broker)
    broker.stop()
    broker.start()
    delete_topic(broker.cluster, broker.cluster.topics["t"])
    names = [path.name for path in broker.directory.iterdir() if path.name.startswith("t-")]
    assert len(names) == 5
    assert all(name.endswith("-delete") for name in names)


def test_checkpoints_keep_what_they_say_of_partitions_that_nobody_opened(broker):
    fill_topic(broker)
    broker.stop()
    broker.start()
    broker.logs.checkpoint()
    broker.kill()
    lines = (broker.directory / "recovery-point-offset-checkpoint").read_text().splitlines()
    assert {f"t {index} 1" for index in range(5)} <= set(lines)


def test_a_partition_with_many_producers_lets_others_in_while_it_is_opened(broker):
    fill_topic(broker)
    broker.stop()
    now_ms = broker.clock.now_ms()
    entries = [ProducerEntry(number, 0, 0, 0, 0, now_ms, -1, -1) for number in range(10_000)]
    directory = f"{broker.directory}/t-3"
    broker.disk.write(f"{directory}/{1:020d}.snapshot", encode_snapshot(entries))
    broker.start()
    assert broker.cluster.is_unopened("t", 3)
    turns, opened = broker.turns, []
    turns.event(lambda: turns.start(broker.cluster.get_or_open("t", 3), opened.append, opened.append))
    assert opened == []  # it waits for its next turn
    broker.settle()
    (partition,) = opened
    assert len(partition.log.producer_state) == 10_000
    assert partition is broker.cluster.partition("t", 3)
    assert not broker.cluster.is_unopened("t", 3)


def sizes(broker, count=5):
    """Return the sizes in bytes that the cluster reports for the partitions of `t`."""
    told = []

    async def ask():
        for index in range(count):
            told.append(await broker.cluster.size_bytes("t", index))

    broker.turns.event(lambda: broker.turns.start(ask(), lambda _: None, told.append))
    broker.settle()
    return told


def test_sizes_are_told_without_opening_anything(broker):
    fill_topic(broker)
    produce(broker.cluster.partition("t", 2))
    opened = [partition.log.size_bytes for partition in broker.cluster.partitions()]
    assert sizes(broker) == opened and opened[2] == 2 * opened[0] > 0
    broker.stop()
    broker.start()
    assert sizes(broker) == opened
    assert [*broker.cluster.partitions()] == []


def test_only_segments_count_for_the_size_of_a_partition(broker):
    fill_topic(broker)
    expected = sizes(broker)
    broker.stop()
    for name in ("00000000000000000009.log.deleted", "00000000000000000001.snapshot", "00000000000000000000.txnindex"):
        broker.disk.write(f"{broker.directory}/t-3/{name}", bytes(1_000))
    broker.start()
    assert sizes(broker) == expected


def test_a_partition_whose_directory_is_still_to_be_made_is_empty(broker):
    create_topic(broker.cluster, "t", 2)
    assert broker.cluster.is_unopened("t", 1)
    asked = []
    broker.turns.start(broker.cluster.size_bytes("t", 1), asked.append, asked.append)
    assert asked == [0]
    assert sizes(broker, 3) == [0, 0, None]


def test_sizes_that_cannot_be_read_are_left_out_and_take_the_directory_offline(broker, monkeypatch):
    fill_topic(broker)
    broker.stop()
    broker.start()

    def broken(disk, path):
        raise OSError(errno.EIO, "Input/output error", path)

    monkeypatch.setattr(RealDisk, "size_bytes", broken)
    assert sizes(broker) == [None] * 5
    assert "Input/output error" in broker.logs.offline


def test_a_partition_that_is_deleted_while_it_is_looked_at_has_no_size(broker, monkeypatch):
    fill_topic(broker)
    broker.stop()
    broker.start()

    def gone(disk, path):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)

    monkeypatch.setattr(RealDisk, "size_bytes", gone)
    assert sizes(broker) == [None] * 5
    assert broker.logs.offline is None


@pytest.mark.parametrize(("took_us", "opened"), [(0.0, 3), (SHARE_US, 0)])
def test_who_opens_partitions_rests_when_a_look_at_their_directories_takes_long(broker, monkeypatch, took_us, opened):
    """The duration of a system call is not known in advance, so the clock measures what is charged. Other handlers
    also run between reading the directories and opening the partitions."""
    fill_topic(broker)
    broker.stop()
    broker.start()
    now_ns, list_directory = [0], os.listdir

    def slow(path):
        now_ns[0] += int(took_us * 1_000)
        return list_directory(path)

    async def ask_for_three():
        for index in range(3):
            await broker.cluster.get_or_open("t", index)
            await broker.turns.yield_if_due()

    monkeypatch.setattr(disk, "_list", slow)
    broker.disk.now_ns = lambda: now_ns[0]
    broker.disk.charge = broker.turns.charge
    broker.turns.event(lambda: broker.turns.start(ask_for_three(), lambda _: None, broker.bugs.append))
    assert len(list(broker.cluster.partitions())) == opened
    broker.settle()
    assert len(list(broker.cluster.partitions())) == 3
