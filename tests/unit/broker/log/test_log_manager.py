"""The log directory as a whole."""

import errno
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.broker.config import Config, Origin
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.meta_properties import LogDirectoryError
from ottla.broker.turns import SHARE_US, Wait
from ottla.protocol.errors import ErrorCode
from tests.unit.broker.dropped import expect_no_garbage


def lines(logs, name):
    return (logs.directory / name).read_text().splitlines()


def test_a_new_directory_gets_an_identity_and_keeps_it(logs):
    first = (logs.manager.properties.cluster_id, logs.manager.properties.directory_id)
    assert len(first[0]) == len(first[1]) == 22
    properties = dict(line.split("=", 1) for line in lines(logs, "meta.properties"))
    assert properties == {"version": "1", "cluster.id": first[0], "node.id": "1", "directory.id": first[1]}
    logs.stop()
    logs.start()
    assert (logs.manager.properties.cluster_id, logs.manager.properties.directory_id) == first


def test_kafka_s_properties_are_read(logs):
    logs.stop()
    text = "#\n#Sat Nov 21 09:36:21 UTC 2026\nnode.id=1\ndirectory.id=uzFn8UP_S666QHMeiuIcVw\nversion=1\ncluster.id=C\n"
    (logs.directory / "meta.properties").write_text(text)
    logs.start(cluster_id="C")
    assert logs.manager.properties.cluster_id == "C"
    assert logs.manager.properties.directory_id == "uzFn8UP_S666QHMeiuIcVw"


def test_an_unset_node_id_is_read_from_the_directory(logs):
    logs.stop()
    text = (logs.directory / "meta.properties").read_text()
    (logs.directory / "meta.properties").write_text(text.replace("node.id=1", "node.id=7"))
    logs.start()
    assert logs.manager.properties.node_id == 7


def test_directory_of_zookeeper_s_time_names_its_broker(logs):
    logs.stop()
    (logs.directory / "meta.properties").write_text("version=0\nbroker.id=3\ncluster.id=C\n")
    logs.start()
    assert (logs.manager.properties.node_id, logs.manager.properties.directory_id) == (3, "")


@pytest.mark.parametrize(
    "text",
    ["node.id : 1\ncluster.id\tC\nversion 1\n", "! by hand\r\n node.id=1\r\ncluster.id=\\\r\n  C\r\nversion=1\r\n"],
)
def test_properties_may_be_spelled_as_java_allows(logs, text):
    logs.stop()
    (logs.directory / "meta.properties").write_text(text)
    logs.start(cluster_id="C")
    assert logs.manager.properties.cluster_id == "C"


def test_directory_of_a_cluster_with_an_empty_id_is_opened(logs):
    logs.stop()
    (logs.directory / "meta.properties").write_text("version=1\ncluster.id=\nnode.id=1\n")
    logs.start()
    assert logs.manager.properties.cluster_id == ""


def test_directory_without_a_cluster_id_is_refused(logs):
    logs.stop()
    properties = logs.directory / "meta.properties"
    whole = properties.read_text()
    properties.write_text("".join(line for line in whole.splitlines(True) if not line.startswith("cluster.id")))
    with pytest.raises(LogDirectoryError, match=r"meta\.properties has no line cluster\.id: add cluster\.id="):
        logs.start()
    properties.write_text(whole)
    logs.start()


@pytest.mark.parametrize(
    "settings", [{"node_id": 2, "origins": {"node.id": Origin("file")}}, {"cluster_id": "another"}]
)
def test_the_directory_of_another_broker_is_refused(logs, settings):
    logs.stop()
    with pytest.raises(LogDirectoryError, match="belongs to"):
        logs.start(**settings)
    # The refusal left it unlocked.
    logs.start()


def test_a_second_broker_is_refused_with_the_pid_of_the_first(logs):
    import os

    manager = logs.manager
    with pytest.raises(LogDirectoryError, match=f"locked by process {os.getpid()}"):
        logs.start()
    logs.manager = manager
    logs.stop()
    logs.start()


def test_a_clean_stop_is_marked_and_the_mark_lasts_one_start(logs, produce):
    assert not logs.manager.clean_start
    produce(logs.partition())
    logs.stop()
    assert (logs.directory / ".kafka_cleanshutdown").exists()
    logs.start()
    assert logs.manager.clean_start
    assert not (logs.directory / ".kafka_cleanshutdown").exists()
    logs.kill()
    logs.start()
    assert not logs.manager.clean_start


def test_a_clean_stop_writes_every_file_that_kafka_expects(logs, produce):
    produce(logs.partition(), 3)
    logs.partition("empty")
    logs.stop()
    assert {path.name for path in logs.path().iterdir()} == {
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000003.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    }
    assert {path.name for path in logs.path(topic="empty").iterdir()} == {
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    }
    assert logs.path("partition.metadata").read_text() == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert sorted(lines(logs, "recovery-point-offset-checkpoint")) == ["0", "2", "empty 0 0", "t 0 3"]
    assert sorted(lines(logs, "replication-offset-checkpoint")) == ["0", "2", "empty 0 0", "t 0 3"]
    assert lines(logs, "log-start-offset-checkpoint") == ["0", "0"]


def test_a_stop_writes_nothing_of_a_partition_that_was_empty_and_is(logs, monkeypatch):
    for index in range(3):
        logs.partition(index=index)
    logs.stop()
    written = []
    for name in ("write", "write_atomically"):
        monkeypatch.setattr(logs.disk.__class__, name, lambda disk, path, *_, sync=True: written.append(path))
    logs.start()
    for index in range(3):
        logs.partition(index=index)
    logs.path(f"{0:020d}.timeindex", index=1).unlink()
    logs.path(f"{0:020d}.index", index=2).write_bytes(bytes(8))
    logs.stop()
    assert [path for path in written if "/t-0/" in path] == []
    assert {path for path in written if path.endswith("index")} == {
        str(logs.path(f"{0:020d}.{suffix}", index=index)) for index in (1, 2) for suffix in ("index", "timeindex")
    }


def test_a_snapshot_is_written_only_after_progress(logs, produce):
    produce(logs.partition())
    for _ in range(3):
        logs.stop()
        logs.start()
        logs.partition()
    assert [path.name for path in logs.path().glob("*.snapshot")] == ["00000000000000000001.snapshot"]


def test_unopened_partitions_keep_their_checkpoints(logs, produce):
    produce(logs.partition("idle"))
    produce(logs.partition())
    logs.stop()
    logs.start()
    produce(logs.partition())
    logs.stop()
    assert sorted(lines(logs, "recovery-point-offset-checkpoint")) == ["0", "2", "idle 0 1", "t 0 2"]


def test_the_recovery_point_moves_with_what_was_synced(logs, produce):
    partition = logs.partition(segment_bytes=300)
    for _ in range(7):
        produce(partition)
    logs.manager.checkpoint()  # starts the sync of the two sealed segments
    assert partition.log.recovery_point == 0
    assert "t 0 0" in lines(logs, "recovery-point-offset-checkpoint")
    logs.manager.checkpoint()
    assert partition.log.recovery_point == 6
    assert "t 0 6" in lines(logs, "recovery-point-offset-checkpoint")
    assert "t 0 7" in lines(logs, "replication-offset-checkpoint")


def test_a_failed_sync_is_not_tried_again(logs, produce):
    partition = logs.partition(segment_bytes=300)
    for _ in range(7):
        produce(partition)
    logs.disk.fail_sync = True
    logs.disk.held = []
    logs.manager.checkpoint()
    assert produce(partition).error is ErrorCode.NONE
    logs.disk.held.pop(0).end()
    logs.disk.held = None
    assert produce(partition).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert "Input/output error" in logs.manager.offline
    logs.disk.fail_sync = False
    logs.manager.checkpoint()
    assert partition.log.recovery_point == 0
    logs.stop()
    assert not (logs.directory / ".kafka_cleanshutdown").exists()


def test_a_stop_that_cannot_write_is_not_clean(logs, produce, monkeypatch):
    produce(logs.partition())

    def sync(paths):
        raise OSError(errno.EIO, "Input/output error")

    logs.disk.__class__.sync, before = lambda self, paths: sync(paths), logs.disk.__class__.__mro__[1].sync
    try:
        logs.stop()
    finally:
        del logs.disk.__class__.sync
    assert logs.disk.__class__.sync is before
    assert not (logs.directory / ".kafka_cleanshutdown").exists()
    logs.start()
    assert logs.partition().log_end_offset == 1


@pytest.mark.parametrize("settings", [{"flush_messages": 1}, {"segment_bytes": 300}])
def test_a_stop_is_not_clean_when_a_sync_in_progress_fails(logs, produce, monkeypatch, settings):
    """The kernel reports a failure only once, so the sync of the stop itself succeeds."""
    partition = logs.partition(**settings)
    logs.disk.held = []
    for _ in range(7):
        produce(partition)
    logs.manager.checkpoint()
    held = list(logs.disk.held)
    assert held

    def sync(disk, paths):
        for job in held:
            job.done, job.error = True, OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(type(logs.disk), "sync", sync, raising=False)
    logs.stop()
    assert "Input/output error" in logs.manager.offline
    assert not (logs.directory / ".kafka_cleanshutdown").exists()


def test_a_torn_high_watermark_checkpoint_is_logged_and_rewritten(logs, produce, caplog):
    produce(logs.partition())
    logs.manager.checkpoint()
    logs.kill()
    (logs.directory / "replication-offset-checkpoint").write_text("0\n10\nt 0 1\n")
    logs.start()
    assert "replication-offset-checkpoint: checkpoint announces 10" in caplog.text
    produce(logs.partition())
    logs.manager.checkpoint()
    assert "t 0 2" in lines(logs, "replication-offset-checkpoint")


def test_a_broken_checkpoint_is_named(logs):
    logs.stop()
    (logs.directory / "recovery-point-offset-checkpoint").write_text("0\n2\nt 0 1\n")
    with pytest.raises(LogDirectoryError, match="recovery-point-offset-checkpoint: checkpoint announces 2"):
        logs.start()


def test_partition_directories_are_listed(logs):
    for topic, index in (("a", 0), ("a-b.c", 12), ("__x", 1)):
        logs.partition(topic, index)
    (logs.directory / "a-0.00112233445566778899aabbccddeeff-delete").mkdir()
    (logs.directory / "not a partition").mkdir()
    assert logs.manager.partition_dirs() == ["__x-1", "a-0", "a-b.c-12"]
    assert logs.manager.topic_id_on_disk("a", 0) == bytes(range(16))
    assert logs.manager.topic_id_on_disk("a", 9) is None


def test_a_deleted_partition_is_renamed_at_once_and_removed_later(logs, produce):
    partition = logs.partition()
    produce(partition)
    parked = Wait(logs.turns)
    partition.add_waiting_fetch(parked)
    logs.manager.delete_later(logs.manager.rename_for_deletion("t", 0))
    assert logs.manager.get("t", 0) is None
    # A handler that still holds it gets the error that it is gone, not that the storage failed.
    assert parked.done
    assert produce(partition).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert partition.read(0, 100).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (renamed,) = logs.directory.glob("t-0.*-delete")
    assert len(renamed.name) == len("t-0.") + 32 + len("-delete")
    assert produce(logs.partition()).base_offset == 0
    logs.clock.advance(60_000)
    assert not renamed.exists()
    assert logs.path().exists()


def test_deleted_directories_that_a_stop_left_go_at_the_next_start(logs):
    logs.partition("t" * 249)
    logs.manager.delete_later(logs.manager.rename_for_deletion("t" * 249, 0))
    (renamed,) = logs.directory.glob("*-delete")
    assert len(renamed.name) == 255
    logs.stop()
    logs.start()
    assert not renamed.exists()


def test_a_deleted_partition_keeps_its_files_if_its_rename_is_not_synced(logs, produce):
    produce(logs.partition())
    logs.manager.delete_later(logs.manager.rename_for_deletion("t", 0))
    (renamed,) = logs.directory.glob("*-delete")
    there = sorted(renamed.iterdir())
    logs.disk.fail_sync = True
    logs.clock.advance(60_000)
    assert sorted(renamed.iterdir()) == there
    assert "Input/output error" in logs.manager.offline


def test_the_directory_of_an_older_topic_of_that_name_is_set_aside(logs, produce, caplog):
    produce(logs.partition())
    logs.stop()
    metadata = logs.path("partition.metadata")
    metadata.write_text("version: 0\ntopic_id: znw-95yeQrOTitjbXwS8Ag")
    logs.start()
    assert produce(logs.partition()).base_offset == 0
    (stray,) = logs.directory.glob("t-0.*-stray")
    assert (stray / f"{0:020d}.log").stat().st_size > 0
    assert stray.name in caplog.text
    logs.stop()
    logs.start()
    assert logs.partition().log_end_offset == 1
    assert logs.manager.partition_dirs() == ["t-0"]


def test_an_open_partition_is_the_same_object(logs):
    assert logs.partition() is logs.partition()
    assert logs.manager.get("t", 0) is logs.partition()
    assert [partition.name for partition in logs.manager] == ["t-0"]


def test_a_sealed_segment_keeps_the_descriptor_that_wrote_it_until_it_is_synced(logs, produce):
    partition = logs.partition(segment_bytes=300)
    logs.disk.held = []
    for _ in range(10):
        produce(partition)
    logs.manager.checkpoint()  # a sync of the first segments is under way and takes long
    for _ in range(10):
        produce(partition)
    written = list(partition.log.segments)[-2]
    for _ in range(3):
        logs.manager.checkpoint()
        assert written.log_path in partition.log.unsynced
        assert is_open(written)
    logs.disk.held.pop(0).end()
    for _ in range(2):
        logs.manager.checkpoint()
    assert not is_open(written)


def test_a_directory_that_cannot_be_read_is_let_go_of(logs, monkeypatch):
    logs.stop()

    def fails(path):
        raise OSError(errno.EIO, "Input/output error")

    for call in ("read", "remove", "sync_dir", "list"):
        with monkeypatch.context() as patch:
            patch.setattr(type(logs.disk), call, lambda disk, path: fails(path))
            with pytest.raises(OSError, match="Input/output"):
                logs.start()
    logs.start()


def test_idle_segments_give_back_their_descriptors(logs, produce):
    partition = logs.partition(segment_bytes=300)
    for _ in range(31):
        produce(partition)
    for offset in range(31):
        partition.read(offset, 1)
    opened = open_files(logs)
    assert opened > 10
    for _ in range(2):
        logs.manager.checkpoint()
    assert open_files(logs) == 1
    assert partition.read(3, 1).error is ErrorCode.NONE


def open_links():
    links = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            links.append(str(link.readlink()))
    return links


def open_files(logs):
    return sum(1 for link in open_links() if link.startswith(str(logs.path())))


def is_open(segment):
    return segment.log_path in open_links()


def test_defaults_are_kafka_s():
    assert LogConfig().producer_id_expiration_ms == 86_400_000
    assert Config().log_segment_delete_delay_ms == 60_000


def test_a_checkpoint_that_has_not_changed_is_not_written_again(logs, produce, monkeypatch):
    written = []
    write = logs.disk.__class__.write_atomically

    def watch_write(disk, path, data, sync=True):
        written.append((path.rpartition("/")[2], sync))
        write(disk, path, data, sync)

    monkeypatch.setattr(logs.disk.__class__, "write_atomically", watch_write)
    partition = logs.partition()
    logs.manager.checkpoint()
    written.clear()
    logs.manager.checkpoint()
    assert written == []
    produce(partition)
    written.clear()
    logs.manager.checkpoint()
    # Recovery does not read it, so it is not synced.
    assert written == [("replication-offset-checkpoint", False)]


def test_deleted_files_go_over_many_turns_while_they_take_long(logs, produce):
    partition = logs.partition(segment_bytes=300)
    for _ in range(7):
        produce(partition)
    logs.partition("u")
    for topic in ("t", "u"):
        logs.manager.delete_later(logs.manager.rename_for_deletion(topic, 0))
    turns = []
    logs.turns.next_turn = turns.append
    logs.disk.charge = lambda cost_us: logs.turns.charge(SHARE_US)  # each call uses the whole turn budget

    def left():
        return sum(len(list(renamed.iterdir())) for renamed in logs.directory.glob("*-delete"))

    before = left()
    logs.clock.advance(60_000)
    assert left() == before - 1 and len(turns) == 1
    while turns:
        logs.turns.event(turns.pop())
    assert not list(logs.directory.glob("*-delete"))


@pytest.mark.slow
def test_a_deleted_partition_ends_without_a_collection(logs, produce):
    with expect_no_garbage():
        assert not produce(logs.partition()).error
        logs.manager.delete_later(logs.manager.rename_for_deletion("t", 0))
