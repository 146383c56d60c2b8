"""Files that a power loss may leave next to a log or damage, and the syncs that recovery depends on."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from lab.in_memory.disk import MemoryDisk
from lab.in_memory.power import PowerLoss
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.retention import Retention
from ottla.protocol.errors import ErrorCode
from ottla.testkit.in_memory.ports import Killed, PortCalls
from ottla.testkit.scanner import scan_partition

LOG = f"{0:020d}.log"
PAGE_BYTES = 4096
ROLLING = {"segment_bytes": 200}


@pytest.fixture
def calls(logs, monkeypatch):
    """Collect (call, name) of everything that is synced, and of everything that is written without a sync."""
    seen = []

    def watch(name, of=lambda *arguments: [arguments[0]]):
        known = getattr(type(logs.disk), name)

        def watch_call(disk, *arguments, **options):
            seen.extend((name, path.rpartition("/")[2]) for path in of(*arguments))
            return known(disk, *arguments, **options)

        monkeypatch.setattr(type(logs.disk), name, watch_call)

    watch("sync_dir")
    watch("write")
    watch("sync", of=lambda paths: paths)
    watch("start_sync", of=lambda paths, *_: paths)
    return seen


@pytest.fixture
def in_memory(logs):
    """Start the broker on an empty disk that may lose its power. Background syncs do not end by themselves."""

    def start(seed):
        logs.kill()
        logs.directory = Path("/data")
        logs.disk = MemoryDisk(PortCalls(), Random(seed), lambda end: None)
        logs.disk.make_dirs("/data")
        logs.disk.sync_dir("/")
        logs.start()
        return logs

    return start


def epochs_of(logs, **settings):
    partition = logs.partition(leader_epoch=9, **settings)
    return [partition.log.epochs.epoch_for_offset(offset) for offset in range(partition.log_end_offset)]


@pytest.fixture
def two_epochs(logs, produce):
    """Write four batches in two epochs, and kill the broker. The second epoch begins in the middle of a segment."""
    for epoch, count in ((2, 3), (4, 2)):
        for _ in range(count):
            produce(logs.partition(leader_epoch=epoch, **ROLLING))
        logs.stop()
        logs.start()
    logs.kill()
    (logs.directory / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    return [2, 2, 2, 4, 4]


def test_recovery_keeps_an_epoch_that_began_in_front_of_what_it_reads(logs, two_epochs):
    logs.start()
    assert epochs_of(logs, **ROLLING) == two_epochs


@pytest.mark.parametrize("left", [b"", b"0\n2\n2 0\n4", b"0\n2\n2 0\n4 3"])
def test_a_torn_epoch_checkpoint_is_rebuilt_from_the_batches(logs, two_epochs, left):
    logs.path("leader-epoch-checkpoint").write_bytes(left)
    logs.start()
    assert epochs_of(logs, **ROLLING) == two_epochs


def test_an_epoch_is_on_the_device_before_the_recovery_point_passes_it(logs, produce, calls):
    partition = logs.partition(leader_epoch=3, **ROLLING)
    for _ in range(3):
        produce(partition)
    logs.manager.checkpoint()
    synced = [name for what, name in calls if what == "start_sync"]
    assert {"leader-epoch-checkpoint", LOG, "t-0"} <= set(synced)
    logs.stop()
    synced = [name for what, name in calls if what == "sync"]
    assert {"t-0", LOG.replace("0.log", "2.log")} <= set(synced)


def test_recovery_puts_names_on_the_device(logs, produce, calls):
    """Sync the names of the files that recovery found, before they are used, and of the files that it removed."""
    produce(logs.partition())
    logs.kill()
    logs.path(f"{7:020d}.snapshot").write_bytes(b"")
    calls.clear()
    logs.start()
    assert logs.partition().log_end_offset == 1
    assert [name for what, name in calls if what == "sync_dir"] == ["t-0", "data"]


def test_a_new_log_is_flushed_with_the_id_of_its_topic(logs, produce, calls):
    """Without the id, a directory left by a deletion would be used for the next topic of this name."""
    produce(logs.partition(flush_messages=1))
    assert ("start_sync", "partition.metadata") in calls


def test_indexes_that_are_on_the_device_are_not_written_again(logs, produce, calls):
    for _ in range(2):
        produce(logs.partition(**ROLLING))
    logs.stop()
    logs.start()
    partition = logs.partition(**ROLLING)
    calls.clear()
    produce(partition)
    assert len(partition.log.segments) == 2
    assert not [name for what, name in calls if what == "write" and name.endswith("index")]


def test_indexes_that_are_made_again_are_synced(logs, produce, calls):
    for _ in range(4):
        produce(logs.partition(**ROLLING))
    logs.stop()
    logs.path(LOG.replace(".log", ".timeindex")).unlink()
    logs.start()
    calls.clear()
    assert logs.partition(**ROLLING).read(0, 1000).error is ErrorCode.NONE
    written = [name for what, name in calls if what == "sync_dir"]
    assert written == ["t-0", "t-0"]
    assert logs.path(LOG.replace(".log", ".timeindex")).stat().st_size == 12


@pytest.mark.parametrize("lost_bytes", range(1, 62))
def test_the_few_bytes_of_a_batch_in_a_page_that_came_too_early(logs, produce, lost_bytes, caplog):
    """The page was written before the batch was added, the next page after that. Valid batches follow it."""
    partition = logs.partition()
    produce(partition)
    room = PAGE_BYTES - lost_bytes - 2 * partition.log.size_bytes
    produce(partition, value=b"v" * (room + 3))
    for _ in range(3):
        produce(partition, value=b"v" * 100)
    logs.kill()
    log = logs.path(LOG)
    second, third = scan_partition(logs.path()).batches[1:3]
    assert PAGE_BYTES - third.position == lost_bytes
    data = bytearray(log.read_bytes())
    data[third.position : PAGE_BYTES] = bytes(lost_bytes)
    whole = bytes(data) == log.read_bytes()
    log.write_bytes(data)
    logs.start()
    assert logs.partition().offline is None
    assert logs.partition().log_end_offset == (5 if whole else 2)
    assert ("pages of zeros" in caplog.text) is not whole
    assert log.stat().st_size == (len(data) if whole else second.position + second.size_bytes)


def test_a_batch_size_beyond_the_end_of_the_log_takes_it_offline(logs, produce):
    """No batch would ever be found after it, and readers would wait for ever."""
    for _ in range(3):
        produce(logs.partition())
    logs.stop()
    logs.start()
    partition = logs.partition()
    log = logs.path(LOG)
    data = bytearray(log.read_bytes())
    data[scan_partition(logs.path()).batches[1].position + 8] ^= 8
    log.write_bytes(data)
    assert partition.read(2, 1000).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert "after the end of the file" in partition.offline


@pytest.mark.parametrize("kind", PowerLoss)
@pytest.mark.parametrize("seed", range(100))
def test_a_log_is_readable_when_its_deleted_segments_reappear(in_memory, produce, seed, kind):
    """Some of the deletions are lost and others are not; so are those of the next start, which is killed somewhere."""
    settings = {"segment_bytes": 100, "flush_messages": 1}
    logs = in_memory(seed)
    partition = logs.partition(**settings)
    for _ in range(6):
        produce(partition)
        logs.disk.end_syncs()
    partition.log.config = replace(partition.log.config, retention_bytes=0)
    manager = logs.manager
    looks = Retention(lambda: manager, logs.disk, logs.clock, logs.turns, manager.deleter, manager.fail)
    logs.turns.start(looks.delete_old_segments(partition), lambda result: None, logs.bugs.append)
    assert partition.log_start_offset > 3
    if seed % 4 == 1:
        logs.clock.advance(60_000)
    if seed % 4 == 3:
        for _ in range(2):  # the names, then the files
            logs.clock.advance(60_000)
            logs.disk.end_syncs()
    for calls in (seed, None, None):
        logs.kill()
        logs.disk.lose_power(kind)
        if calls is not None:
            logs.disk.ports.kill_at = logs.disk.ports.count + calls
            with suppress(Killed):
                logs.start()
                logs.partition(**settings)
            logs.disk.ports.kill_at = -1
            continue
        logs.start()
        again = logs.partition(**settings)
        assert (again.offline, again.log_end_offset) == (None, 6)
        found = [segment.base_offset for segment in again.log.segments]
        assert found == [*range(found[0], found[-1] + 1)]


@pytest.mark.parametrize("kind", PowerLoss)
@pytest.mark.parametrize("seed", range(60))
def test_a_deleted_log_that_reappears_is_not_used_by_a_new_topic(in_memory, produce, seed, kind):
    """Otherwise the next topic of this name would use it as its own log."""
    logs = in_memory(seed)
    partition = logs.partition(flush_messages=1)
    produce(partition)
    logs.disk.end_syncs()
    assert partition.high_watermark == 1
    logs.manager.delete_later(logs.manager.rename_for_deletion("t", 0))
    logs.clock.advance(60_000)
    if seed % 2:
        logs.disk.end_syncs()
        assert not [name for name in logs.disk.list("/data") if name.startswith("t-0")]
    logs.kill()
    logs.disk.lose_power(kind)
    logs.start()
    assert logs.manager.open_partition("t", 0, bytes(16), 0, LogConfig()).log_end_offset == 0


@pytest.mark.parametrize("kind", PowerLoss)
@pytest.mark.parametrize("seed", range(60))
def test_no_segment_is_lost_in_front_of_another(in_memory, produce, seed, kind):
    """The sync of a file does not always sync its name."""
    logs = in_memory(seed)
    settings = {"flush_messages": 1, **ROLLING}
    produce(logs.partition(**settings))
    logs.disk.end_syncs()
    for _ in range(6):
        produce(logs.partition(**settings))
    assert len(logs.partition().log.segments) > 3
    logs.kill()
    logs.disk.lose_power(kind)
    logs.start()
    partition = logs.partition(**settings)
    assert partition.offline is None
    assert partition.log_end_offset > 0
