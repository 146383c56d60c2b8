"""Thousands of partitions: the files that a start reads, and the work that it leaves for later."""

import errno
import os

import pytest

from lab.metadata import create_internal_topic, create_topic, delete_topic
from ottla.broker.ports import disk
from ottla.broker.ports.descriptors import Shortage
from ottla.broker.ports.disk import RealDisk
from ottla.broker.turns import SHARE_US
from ottla.protocol.batch import build_batch
from ottla.protocol.requests.produced import check_produced_batch
from ottla.protocol.snapshot import ProducerEntry, encode_snapshot


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


def list_paths(parts, topic):
    return [path for path in parts.disk.touched if f"/{topic}-" in path]


def produce(partition):
    batch = memoryview(build_batch([(b"key", b"value")], timestamp_ms=1_700_000_000_000))
    assert not partition.append_from_client(check_produced_batch(batch), batch).error


def fill_topic(parts):
    create_topic(parts.cluster, "t", 5)
    for index in range(5):
        produce(parts.cluster.partition("t", index))


def test_after_a_clean_stop_partitions_are_opened_on_first_use(parts):
    fill_topic(parts)
    parts.stop()
    parts.disk = WatchedDisk()
    parts.start()
    assert list_paths(parts, "t") == []
    assert parts.cluster.partition("t", 3).log_end_offset == 1
    assert {path.rpartition("/data/")[2].partition("/")[0] for path in list_paths(parts, "t")} == {"t-3"}


def test_after_a_crash_every_partition_is_recovered_at_the_start(parts):
    fill_topic(parts)
    parts.kill()
    parts.start()
    assert [partition.log_end_offset for partition in parts.cluster.partitions()] == [1] * 5


def test_unused_partitions_are_opened_one_by_one_after_the_start(parts):
    fill_topic(parts)
    parts.stop()
    parts.start()
    timers = []
    parts.disk.charge = lambda cost_us: parts.turns.charge(SHARE_US)  # each call uses the whole turn budget
    parts.clock.call_later = lambda delay_ms, callback: timers.append(callback)
    parts.cluster.open_rest()
    opened = []
    while timers:
        parts.turns.event(timers.pop())
        parts.settle()
        opened.append(len(list(parts.cluster.partitions())))
    assert opened == [1, 2, 3, 4, 5, 5]
    assert [partition.log_end_offset for partition in parts.cluster.partitions()] == [1] * 5


def test_a_partition_without_a_free_descriptor_is_opened_at_the_next_use(parts, monkeypatch):
    fill_topic(parts)
    parts.stop()
    parts.start()

    def refuse(disk, path):
        raise Shortage(errno.EMFILE, "Too many open files", path)

    with monkeypatch.context() as patch:
        patch.setattr(RealDisk, "list", refuse)
        assert "Too many open files" in parts.cluster.partition("t", 3).offline
        assert parts.logs.offline is None
    assert parts.cluster.partition("t", 3).log_end_offset == 1
    produce(parts.cluster.partition("t", 3))


def test_an_unopenable_coordinator_log_takes_the_directory_offline(parts, monkeypatch):
    name = create_internal_topic(parts.cluster, "__transaction_state").name
    assert parts.cluster.partition(name, 0).offline is None
    parts.stop()
    parts.start()

    def refuse(disk, path):
        raise Shortage(errno.EMFILE, "Too many open files", path)

    with monkeypatch.context() as patch:
        patch.setattr(RealDisk, "list", refuse)
        assert parts.cluster.partition(name, 0).offline is not None
    assert "Too many open files" in parts.logs.offline


def test_an_unopened_topic_is_deleted_with_its_directories(parts):
    fill_topic(parts)
    parts.stop()
    parts.start()
    delete_topic(parts.cluster, parts.cluster.topics["t"])
    names = [path.name for path in parts.directory.iterdir() if path.name.startswith("t-")]
    assert len(names) == 5
    assert all(name.endswith("-delete") for name in names)


def test_checkpoints_keep_the_offsets_of_unopened_partitions(parts):
    fill_topic(parts)
    parts.stop()
    parts.start()
    parts.logs.checkpoint()
    parts.kill()
    lines = (parts.directory / "recovery-point-offset-checkpoint").read_text().splitlines()
    assert {f"t {index} 1" for index in range(5)} <= set(lines)


def test_a_partition_with_many_producers_lets_others_in_while_it_is_opened(parts):
    fill_topic(parts)
    parts.stop()
    now_ms = parts.clock.now_ms()
    entries = [ProducerEntry(number, 0, 0, 0, 0, now_ms, -1, -1) for number in range(10_000)]
    directory = f"{parts.directory}/t-3"
    parts.disk.write(f"{directory}/{1:020d}.snapshot", encode_snapshot(entries))
    parts.start()
    assert parts.cluster.is_unopened("t", 3)
    turns, opened = parts.turns, []
    turns.event(lambda: turns.start(parts.cluster.get_or_open("t", 3), opened.append, opened.append))
    assert opened == []  # it waits for its next turn
    parts.settle()
    (partition,) = opened
    assert len(partition.log.producer_state) == 10_000
    assert partition is parts.cluster.partition("t", 3)
    assert not parts.cluster.is_unopened("t", 3)


def sizes(parts, count=5):
    """Return the sizes in bytes that the cluster reports for the partitions of `t`."""
    told = []

    async def ask():
        for index in range(count):
            told.append(await parts.cluster.size_bytes("t", index))

    parts.turns.event(lambda: parts.turns.start(ask(), lambda _: None, told.append))
    parts.settle()
    return told


def test_sizes_are_reported_without_opening_partitions(parts):
    fill_topic(parts)
    produce(parts.cluster.partition("t", 2))
    opened = [partition.log.size_bytes for partition in parts.cluster.partitions()]
    assert sizes(parts) == opened and opened[2] == 2 * opened[0] > 0
    parts.stop()
    parts.start()
    assert sizes(parts) == opened
    assert [*parts.cluster.partitions()] == []


def test_only_segments_count_for_the_size_of_a_partition(parts):
    fill_topic(parts)
    expected = sizes(parts)
    parts.stop()
    for name in ("00000000000000000009.log.deleted", "00000000000000000001.snapshot", "00000000000000000000.txnindex"):
        parts.disk.write(f"{parts.directory}/t-3/{name}", bytes(1_000))
    parts.start()
    assert sizes(parts) == expected


def test_a_partition_whose_directory_is_still_to_be_made_is_empty(parts):
    create_topic(parts.cluster, "t", 2)
    assert parts.cluster.is_unopened("t", 1)
    asked = []
    parts.turns.start(parts.cluster.size_bytes("t", 1), asked.append, asked.append)
    assert asked == [0]
    assert sizes(parts, 3) == [0, 0, None]


def test_sizes_that_cannot_be_read_are_left_out_and_take_the_directory_offline(parts, monkeypatch):
    fill_topic(parts)
    parts.stop()
    parts.start()

    def broken(disk, path):
        raise OSError(errno.EIO, "Input/output error", path)

    monkeypatch.setattr(RealDisk, "size_bytes", broken)
    assert sizes(parts) == [None] * 5
    assert "Input/output error" in parts.logs.offline


def test_a_partition_deleted_while_it_is_measured_has_no_size(parts, monkeypatch):
    fill_topic(parts)
    parts.stop()
    parts.start()

    def gone(disk, path):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)

    monkeypatch.setattr(RealDisk, "size_bytes", gone)
    assert sizes(parts) == [None] * 5
    assert parts.logs.offline is None


@pytest.mark.parametrize(("took_us", "opened"), [(0.0, 3), (SHARE_US, 0)])
def test_opening_partitions_yields_if_listing_directories_is_slow(parts, monkeypatch, took_us, opened):
    """The duration of a system call is not known in advance, so the clock measures what is charged. Other handlers
    also run between reading the directories and opening the partitions."""
    fill_topic(parts)
    parts.stop()
    parts.start()
    now_ns, list_directory = [0], os.listdir

    def slow(path):
        now_ns[0] += int(took_us * 1_000)
        return list_directory(path)

    async def ask_for_three():
        for index in range(3):
            await parts.cluster.get_or_open("t", index)
            await parts.turns.yield_if_due()

    monkeypatch.setattr(disk, "_list", slow)
    parts.disk.now_ns = lambda: now_ns[0]
    parts.disk.charge = parts.turns.charge
    parts.turns.event(lambda: parts.turns.start(ask_for_three(), lambda _: None, parts.bugs.append))
    assert len(list(parts.cluster.partitions())) == opened
    parts.settle()
    assert len(list(parts.cluster.partitions())) == 3
