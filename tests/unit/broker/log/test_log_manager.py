"""The log directory as a whole."""

import errno
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.broker.log.log_config import LogConfig, LogManagerConfig
from ottla.broker.log.meta_properties import LogDirectoryError
from ottla.broker.turns import SHARE_US, Wait
from ottla.protocol.errors import ErrorCode
from tests.unit.broker.dropped import expect_no_garbage


def lines(broker, name):
    return (broker.directory / name).read_text().splitlines()


def test_a_new_directory_gets_an_identity_and_keeps_it(broker):
    first = (broker.manager.properties.cluster_id, broker.manager.properties.directory_id)
    assert len(first[0]) == len(first[1]) == 22
    properties = dict(line.split("=", 1) for line in lines(broker, "meta.properties"))
    assert properties == {"version": "1", "cluster.id": first[0], "node.id": "1", "directory.id": first[1]}
    broker.stop()
    broker.start()
    assert (broker.manager.properties.cluster_id, broker.manager.properties.directory_id) == first


def test_kafka_s_properties_are_read(broker):
    broker.stop()
    text = "#\n#Sat Nov 21 09:36:21 UTC 2026\nnode.id=1\ndirectory.id=uzFn8UP_S666QHMeiuIcVw\nversion=1\ncluster.id=C\n"
    (broker.directory / "meta.properties").write_text(text)
    broker.start(cluster_id="C")
    assert broker.manager.properties.cluster_id == "C"
    assert broker.manager.properties.directory_id == "uzFn8UP_S666QHMeiuIcVw"


def test_node_that_nobody_named_is_that_of_the_directory(broker):
    broker.stop()
    text = (broker.directory / "meta.properties").read_text()
    (broker.directory / "meta.properties").write_text(text.replace("node.id=1", "node.id=7"))
    broker.start()
    assert broker.manager.properties.node_id == 7


def test_directory_of_zookeeper_s_time_names_its_broker(broker):
    broker.stop()
    (broker.directory / "meta.properties").write_text("version=0\nbroker.id=3\ncluster.id=C\n")
    broker.start()
    assert (broker.manager.properties.node_id, broker.manager.properties.directory_id) == (3, "")


@pytest.mark.parametrize(
    "text",
    ["node.id : 1\ncluster.id\tC\nversion 1\n", "! by hand\r\n node.id=1\r\ncluster.id=\\\r\n  C\r\nversion=1\r\n"],
)
def test_properties_may_be_spelled_as_java_allows(broker, text):
    broker.stop()
    (broker.directory / "meta.properties").write_text(text)
    broker.start(cluster_id="C")
    assert broker.manager.properties.cluster_id == "C"


def test_directory_of_a_cluster_with_an_empty_id_is_opened(broker):
    broker.stop()
    (broker.directory / "meta.properties").write_text("version=1\ncluster.id=\nnode.id=1\n")
    broker.start()
    assert broker.manager.properties.cluster_id == ""


def test_directory_without_a_cluster_id_is_refused(broker):
    broker.stop()
    properties = broker.directory / "meta.properties"
    whole = properties.read_text()
    properties.write_text("".join(line for line in whole.splitlines(True) if not line.startswith("cluster.id")))
    with pytest.raises(LogDirectoryError, match=r"meta\.properties has no line cluster\.id: add cluster\.id="):
        broker.start()
    properties.write_text(whole)
    broker.start()


@pytest.mark.parametrize("settings", [{"node_id": 2, "node_id_given": True}, {"cluster_id": "another"}])
def test_the_directory_of_another_broker_is_refused(broker, settings):
    broker.stop()
    with pytest.raises(LogDirectoryError, match="belongs to"):
        broker.start(**settings)
    # The refusal left it unlocked.
    broker.start()


def test_a_second_broker_is_refused_and_told_who_is_there(broker):
    import os

    manager = broker.manager
    with pytest.raises(LogDirectoryError, match=f"locked by process {os.getpid()}"):
        broker.start()
    broker.manager = manager
    broker.stop()
    broker.start()


def test_a_clean_stop_is_marked_and_the_mark_lasts_one_start(broker, produce):
    assert not broker.manager.clean_start
    produce(broker.partition())
    broker.stop()
    assert (broker.directory / ".kafka_cleanshutdown").exists()
    broker.start()
    assert broker.manager.clean_start
    assert not (broker.directory / ".kafka_cleanshutdown").exists()
    broker.kill()
    broker.start()
    assert not broker.manager.clean_start


def test_a_clean_stop_writes_every_file_that_kafka_expects(broker, produce):
    produce(broker.partition(), 3)
    broker.partition("empty")
    broker.stop()
    assert {path.name for path in broker.path().iterdir()} == {
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000003.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    }
    assert {path.name for path in broker.path(topic="empty").iterdir()} == {
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    }
    assert broker.path("partition.metadata").read_text() == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert sorted(lines(broker, "recovery-point-offset-checkpoint")) == ["0", "2", "empty 0 0", "t 0 3"]
    assert sorted(lines(broker, "replication-offset-checkpoint")) == ["0", "2", "empty 0 0", "t 0 3"]
    assert lines(broker, "log-start-offset-checkpoint") == ["0", "0"]


def test_a_stop_writes_nothing_of_a_partition_that_was_empty_and_is(broker, monkeypatch):
    for index in range(3):
        broker.partition(index=index)
    broker.stop()
    written = []
    for name in ("write", "write_atomically"):
        monkeypatch.setattr(broker.disk.__class__, name, lambda disk, path, *_, sync=True: written.append(path))
    broker.start()
    for index in range(3):
        broker.partition(index=index)
    broker.path(f"{0:020d}.timeindex", index=1).unlink()
    broker.path(f"{0:020d}.index", index=2).write_bytes(bytes(8))
    broker.stop()
    assert [path for path in written if "/t-0/" in path] == []
    assert {path for path in written if path.endswith("index")} == {
        str(broker.path(f"{0:020d}.{suffix}", index=index)) for index in (1, 2) for suffix in ("index", "timeindex")
    }


def test_a_snapshot_is_written_only_after_progress(broker, produce):
    produce(broker.partition())
    for _ in range(3):
        broker.stop()
        broker.start()
        broker.partition()
    assert [path.name for path in broker.path().glob("*.snapshot")] == ["00000000000000000001.snapshot"]


def test_partitions_that_nobody_opens_keep_their_checkpoints(broker, produce):
    produce(broker.partition("idle"))
    produce(broker.partition())
    broker.stop()
    broker.start()
    produce(broker.partition())
    broker.stop()
    assert sorted(lines(broker, "recovery-point-offset-checkpoint")) == ["0", "2", "idle 0 1", "t 0 2"]


def test_the_recovery_point_moves_with_what_was_synced(broker, produce):
    partition = broker.partition(segment_bytes=300)
    for _ in range(7):
        produce(partition)
    broker.manager.checkpoint()  # starts the sync of the two sealed segments
    assert partition.log.recovery_point == 0
    assert "t 0 0" in lines(broker, "recovery-point-offset-checkpoint")
    broker.manager.checkpoint()
    assert partition.log.recovery_point == 6
    assert "t 0 6" in lines(broker, "recovery-point-offset-checkpoint")
    assert "t 0 7" in lines(broker, "replication-offset-checkpoint")


def test_a_failed_sync_is_not_tried_again(broker, produce):
    partition = broker.partition(segment_bytes=300)
    for _ in range(7):
        produce(partition)
    broker.disk.fail_sync = True
    broker.disk.held = []
    broker.manager.checkpoint()
    assert produce(partition).error is ErrorCode.NONE
    broker.disk.held.pop(0).end()
    broker.disk.held = None
    assert produce(partition).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert "Input/output error" in broker.manager.offline
    broker.disk.fail_sync = False
    broker.manager.checkpoint()
    assert partition.log.recovery_point == 0
    broker.stop()
    assert not (broker.directory / ".kafka_cleanshutdown").exists()


def test_a_stop_that_cannot_write_is_not_clean(broker, produce, monkeypatch):
    produce(broker.partition())

    def sync(paths):
        raise OSError(errno.EIO, "Input/output error")

    broker.disk.__class__.sync, before = lambda self, paths: sync(paths), broker.disk.__class__.__mro__[1].sync
    try:
        broker.stop()
    finally:
        del broker.disk.__class__.sync
    assert broker.disk.__class__.sync is before
    assert not (broker.directory / ".kafka_cleanshutdown").exists()
    broker.start()
    assert broker.partition().log_end_offset == 1


@pytest.mark.parametrize("settings", [{"flush_messages": 1}, {"segment_bytes": 300}])
def test_a_stop_hears_of_a_sync_that_fails_while_it_waits_for_it(broker, produce, monkeypatch, settings):
    """The kernel reports a failure only once, so the sync of the stop itself succeeds."""
    partition = broker.partition(**settings)
    broker.disk.held = []
    for _ in range(7):
        produce(partition)
    broker.manager.checkpoint()
    held = list(broker.disk.held)
    assert held

    def sync(disk, paths):
        for job in held:
            job.done, job.error = True, OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(type(broker.disk), "sync", sync, raising=False)
    broker.stop()
    assert "Input/output error" in broker.manager.offline
    assert not (broker.directory / ".kafka_cleanshutdown").exists()


def test_high_watermarks_that_a_power_loss_tore_are_written_anew(broker, produce, caplog):
    produce(broker.partition())
    broker.manager.checkpoint()
    broker.kill()
    (broker.directory / "replication-offset-checkpoint").write_text("0\n10\nt 0 1\n")
    broker.start()
    assert "replication-offset-checkpoint: checkpoint announces 10" in caplog.text
    produce(broker.partition())
    broker.manager.checkpoint()
    assert "t 0 2" in lines(broker, "replication-offset-checkpoint")


def test_a_broken_checkpoint_is_named(broker):
    broker.stop()
    (broker.directory / "recovery-point-offset-checkpoint").write_text("0\n2\nt 0 1\n")
    with pytest.raises(LogDirectoryError, match="recovery-point-offset-checkpoint: checkpoint announces 2"):
        broker.start()


def test_partition_directories_are_listed(broker):
    for topic, index in (("a", 0), ("a-b.c", 12), ("__x", 1)):
        broker.partition(topic, index)
    (broker.directory / "a-0.00112233445566778899aabbccddeeff-delete").mkdir()
    (broker.directory / "not a partition").mkdir()
    assert broker.manager.partition_dirs() == ["__x-1", "a-0", "a-b.c-12"]
    assert broker.manager.topic_id_on_disk("a", 0) == bytes(range(16))
    assert broker.manager.topic_id_on_disk("a", 9) is None


def test_a_deleted_partition_is_out_of_the_way_at_once_and_gone_later(broker, produce):
    partition = broker.partition()
    produce(partition)
    parked = Wait(broker.turns)
    partition.add_waiting_fetch(parked)
    broker.manager.delete_later(broker.manager.rename_for_deletion("t", 0))
    assert broker.manager.get("t", 0) is None
    # A handler that still holds it gets the error that it is gone, not that the storage failed.
    assert parked.done
    assert produce(partition).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert partition.read(0, 100).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (renamed,) = broker.directory.glob("t-0.*-delete")
    assert len(renamed.name) == len("t-0.") + 32 + len("-delete")
    assert produce(broker.partition()).base_offset == 0
    broker.clock.advance(60_000)
    assert not renamed.exists()
    assert broker.path().exists()


def test_deleted_directories_that_a_stop_left_go_at_the_next_start(broker):
    broker.partition("t" * 249)
    broker.manager.delete_later(broker.manager.rename_for_deletion("t" * 249, 0))
    (renamed,) = broker.directory.glob("*-delete")
    assert len(renamed.name) == 255
    broker.stop()
    broker.start()
    assert not renamed.exists()


def test_nothing_of_a_deleted_partition_goes_when_its_new_name_cannot_be_synced(broker, produce):
    produce(broker.partition())
    broker.manager.delete_later(broker.manager.rename_for_deletion("t", 0))
    (renamed,) = broker.directory.glob("*-delete")
    there = sorted(renamed.iterdir())
    broker.disk.fail_sync = True
    broker.clock.advance(60_000)
    assert sorted(renamed.iterdir()) == there
    assert "Input/output error" in broker.manager.offline


def test_the_directory_of_an_older_topic_of_that_name_is_set_aside(broker, produce, caplog):
    produce(broker.partition())
    broker.stop()
    metadata = broker.path("partition.metadata")
    metadata.write_text("version: 0\ntopic_id: znw-95yeQrOTitjbXwS8Ag")
    broker.start()
    assert produce(broker.partition()).base_offset == 0
    (stray,) = broker.directory.glob("t-0.*-stray")
    assert (stray / f"{0:020d}.log").stat().st_size > 0
    assert stray.name in caplog.text
    broker.stop()
    broker.start()
    assert broker.partition().log_end_offset == 1
    assert broker.manager.partition_dirs() == ["t-0"]


def test_an_open_partition_is_the_same_object(broker):
    assert broker.partition() is broker.partition()
    assert broker.manager.get("t", 0) is broker.partition()
    assert [partition.name for partition in broker.manager] == ["t-0"]


def test_a_sealed_segment_keeps_the_descriptor_that_wrote_it_until_it_is_synced(broker, produce):
    partition = broker.partition(segment_bytes=300)
    broker.disk.held = []
    for _ in range(10):
        produce(partition)
    broker.manager.checkpoint()  # a sync of the first segments is under way and takes long
    for _ in range(10):
        produce(partition)
    written = list(partition.log.segments)[-2]
    for _ in range(3):
        broker.manager.checkpoint()
        assert written.log_path in partition.log.unsynced
        assert is_open(written)
    broker.disk.held.pop(0).end()
    for _ in range(2):
        broker.manager.checkpoint()
    assert not is_open(written)


def test_a_directory_that_cannot_be_read_is_let_go_of(broker, monkeypatch):
    broker.stop()

    def fails(path):
        raise OSError(errno.EIO, "Input/output error")

    for call in ("read", "remove", "sync_dir", "list"):
        with monkeypatch.context() as patch:
            patch.setattr(type(broker.disk), call, lambda disk, path: fails(path))
            with pytest.raises(OSError, match="Input/output"):
                broker.start()
    broker.start()


def test_idle_segments_give_back_their_descriptors(broker, produce):
    partition = broker.partition(segment_bytes=300)
    for _ in range(31):
        produce(partition)
    for offset in range(31):
        partition.read(offset, 1)
    opened = open_files(broker)
    assert opened > 10
    for _ in range(2):
        broker.manager.checkpoint()
    assert open_files(broker) == 1
    assert partition.read(3, 1).error is ErrorCode.NONE


def open_links():
    links = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            links.append(str(link.readlink()))
    return links


def open_files(broker):
    return sum(1 for link in open_links() if link.startswith(str(broker.path())))


def is_open(segment):
    return segment.log_path in open_links()


def test_defaults_are_kafka_s():
    assert LogConfig().producer_id_expiration_ms == 86_400_000
    assert LogManagerConfig("x").file_delete_delay_ms == 60_000


def test_a_checkpoint_that_has_not_changed_is_not_written_again(broker, produce, monkeypatch):
    written = []
    write = broker.disk.__class__.write_atomically

    def watch_write(disk, path, data, sync=True):
        written.append((path.rpartition("/")[2], sync))
        write(disk, path, data, sync)

    monkeypatch.setattr(broker.disk.__class__, "write_atomically", watch_write)
    partition = broker.partition()
    broker.manager.checkpoint()
    written.clear()
    broker.manager.checkpoint()
    assert written == []
    produce(partition)
    written.clear()
    broker.manager.checkpoint()
    # Recovery does not read it, so it is not synced.
    assert written == [("replication-offset-checkpoint", False)]


def test_deleted_files_go_over_many_turns_while_they_take_long(broker, produce):
    partition = broker.partition(segment_bytes=300)
    for _ in range(7):
        produce(partition)
    broker.partition("u")
    for topic in ("t", "u"):
        broker.manager.delete_later(broker.manager.rename_for_deletion(topic, 0))
    turns = []
    broker.turns._next_turn = turns.append
    broker.disk.charge = lambda cost_us: broker.turns.charge(SHARE_US)  # each call uses the whole turn budget

    def left():
        return sum(len(list(renamed.iterdir())) for renamed in broker.directory.glob("*-delete"))

    before = left()
    broker.clock.advance(60_000)
    assert left() == before - 1 and len(turns) == 1
    while turns:
        broker.turns.event(turns.pop())
    assert not list(broker.directory.glob("*-delete"))


def test_a_deleted_partition_ends_without_a_collection(broker, produce):
    with expect_no_garbage():
        assert not produce(broker.partition()).error
        broker.manager.delete_later(broker.manager.rename_for_deletion("t", 0))
