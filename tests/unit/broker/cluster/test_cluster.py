"""Metadata of a broker: created topics, the state after a stop or a kill, and failures of the disk."""

import errno
import shutil
from random import Random

import pytest

from lab.in_memory.disk import MemoryDisk
from lab.metadata import add_partitions, alter_configs, create_topic, delete_topic, next_producer_id
from ottla.broker.log.meta_properties import LogDirectoryError
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.metadata_records import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ConfigRecord,
)
from ottla.protocol.requests.produced import check_produced_batch
from ottla.testkit.in_memory.ports import PortCalls


def test_a_topic_named_like_the_metadata_log_is_refused(parts):
    error, message = parts.cluster.name_problem("__cluster_metadata")
    assert error is ErrorCode.INVALID_REQUEST
    assert "__cluster_metadata" in message


def test_metadata_batches_are_not_bound_by_the_size_of_messages(parts):
    parts.stop()
    parts.start(max_message_bytes=500)
    assert create_topic(parts.cluster, "wide", 100).partition_count == 100
    parts.kill()
    parts.start(max_message_bytes=500)
    assert parts.cluster.topics["wide"].leader_epochs == [1] * 100
    assert create_topic(parts.cluster, "widest", 10_000).partition_count == 10_000


def test_directory_that_cannot_be_made_takes_the_log_directory_offline(parts):
    create_topic(parts.cluster, "full", 3)
    parts.disk.refused = ("full-1",)
    parts.settle()
    assert "No space left" in parts.logs.offline
    assert [parts.cluster.partition("full", index).offline for index in range(3)] == [parts.logs.offline] * 3
    with pytest.raises(OSError, match="KAFKA_STORAGE_ERROR"):
        create_topic(parts.cluster, "late", 1)


def test_directory_that_cannot_be_made_stops_the_start(parts):
    create_topic(parts.cluster, "full", 3)
    parts.kill()
    parts.disk.refused = ("full-1",)
    with pytest.raises(LogDirectoryError, match="No space left"):
        parts.start()


def test_deletion_whose_files_cannot_be_moved_is_a_deletion_all_the_same(parts):
    topic = create_topic(parts.cluster, "gone", 2)
    parts.settle()
    told = []
    parts.cluster.on_topic_deleted.append(told.append)
    parts.disk.rename_fails = True
    delete_topic(parts.cluster, topic)
    assert told == [topic]
    assert "Input/output error" in parts.logs.offline
    assert parts.cluster.partition("gone", 0) is None


def test_directories_that_a_killed_deletion_left_are_set_aside(parts, caplog):
    topic = create_topic(parts.cluster, "gone", 2)
    create_topic(parts.cluster, "kept", 1)
    parts.settle()
    parts.disk.rename_fails = True
    delete_topic(parts.cluster, topic)
    parts.kill()
    parts.disk.rename_fails = False
    parts.start()
    assert [name.partition(".")[0] for name in parts.directories()] == [
        "__cluster_metadata-0",
        "gone-0",
        "gone-1",
        "kept-0",
    ]
    strays = [name for name in parts.directories() if name.startswith("gone")]
    assert all(name.endswith("-stray") for name in strays)
    assert all(name in caplog.text for name in strays)


def test_a_directory_that_names_no_topic_is_set_aside(parts, caplog):
    """Otherwise the directory would become the directory of the next topic with that name."""
    create_topic(parts.cluster, "kept")
    parts.settle()
    parts.kill()
    for name in ("lost-0", "empty-0"):
        (parts.directory / name).mkdir()
    (parts.directory / "lost-0" / f"{0:020d}.log").write_bytes(b"what is left")
    (parts.directory / "kept-0" / "partition.metadata").unlink()
    (parts.directory / "notes-1").write_text("of nobody's concern")
    parts.start()
    names = parts.directories()
    assert [name.partition(".")[0] for name in names] == ["__cluster_metadata-0", "empty-0", "kept-0", "lost-0"]
    (stray,) = (name for name in names if name.endswith("-stray"))
    assert f"lost-0 names no topic; it is kept as {parts.directory / stray}" in caplog.text
    assert (parts.directory / "notes-1").exists()


def test_metadata_whose_beginning_no_snapshot_holds_is_refused(parts):
    create_topic(parts.cluster, "kept", 1)
    parts.stop()
    (parts.directory / "log-start-offset-checkpoint").write_text("0\n1\n__cluster_metadata 0 2\n")
    with pytest.raises(LogDirectoryError, match="begins at offset 2"):
        parts.start()


def test_metadata_with_a_flipped_bit_is_refused_in_words(parts):
    create_topic(parts.cluster, "kept", 1)
    create_topic(parts.cluster, "last", 1)
    parts.stop()
    path = parts.directory / "__cluster_metadata-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[content.index(b"kept")] ^= 1
    path.write_bytes(content)
    with pytest.raises(LogDirectoryError, match=r"__cluster_metadata-0 .* wrong CRC"):
        parts.start()


@pytest.mark.parametrize("seed", range(10))
def test_topics_and_producer_ids_survive_a_power_loss(parts, seed):
    """A producer id that is handed out twice collides with the sequences and open transactions of its first owner."""
    parts.kill()
    parts.disk = MemoryDisk(PortCalls(), Random(seed), lambda work: work())
    parts.start()
    create_topic(parts.cluster, "kept", 2)
    used = [next_producer_id(parts.cluster) for _ in range(3)]
    parts.kill()
    parts.disk.lose_power()
    parts.start()
    assert parts.cluster.topics["kept"].partition_count == 2
    assert next_producer_id(parts.cluster) > max(used)


def test_producer_ids_found_in_logs_are_not_reused_if_metadata_is_lost(parts):
    create_topic(parts.cluster, "ledger", 1)
    owner = {"producer_id": 2_500, "producer_epoch": 0, "base_sequence": 0}
    data = memoryview(build_batch([(b"k", b"v")], timestamp_ms=parts.clock.now_ms(), **owner))
    assert not parts.cluster.partition("ledger", 0).append_from_client(check_produced_batch(data), data).error
    parts.stop()
    shutil.rmtree(parts.directory / "__cluster_metadata-0")
    parts.start()
    assert parts.cluster.topics["ledger"].partition_count == 1
    assert next_producer_id(parts.cluster) == 3_000


def test_metadata_that_cannot_be_synced_takes_the_log_directory_offline(parts, monkeypatch):
    def refuse(disk, path):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(type(parts.disk), "sync_dir", refuse)
    with pytest.raises(OSError, match="Input/output error"):
        create_topic(parts.cluster, "lost", 1)
    assert "Input/output error" in parts.logs.offline
    assert "lost" not in parts.cluster.topics


def alter(parts, topic, **values):
    alter_configs(parts.cluster, [ConfigRecord(TOPIC_RESOURCE, topic, key, value) for key, value in values.items()])


def test_changed_configs_act_at_once_and_outlive_a_kill(parts):
    create_topic(parts.cluster, "t", 2, {"size": "100"})
    parts.settle()
    create_topic(parts.cluster, "other", 1)
    opened = parts.cluster.partition("t", 0)
    assert opened.log.config.max_message_bytes == 100
    alter(parts, "t", size="200", more="1")
    assert opened.log.config.max_message_bytes == 200
    assert parts.cluster.partition("other", 0).log.config.max_message_bytes == 1_048_588
    parts.kill()
    parts.start()
    assert parts.cluster.topics["t"].configs == {"size": "200", "more": "1"}
    assert parts.cluster.partition("t", 1).log.config.max_message_bytes == 200
    alter(parts, "t", size=None)
    assert parts.cluster.topics["t"].configs == {"more": "1"}
    assert parts.cluster.partition("t", 0).log.config.max_message_bytes == 1_048_588


def test_configs_of_brokers_and_groups_outlive_a_kill(parts):
    told = []
    parts.cluster.controller.on_broker_configs_changed = lambda: told.append(dict(parts.cluster.image.broker_configs))
    set_one = [ConfigRecord(BROKER_RESOURCE, "", "log.retention.ms", "5"), ConfigRecord(GROUP_RESOURCE, "g", "a", "1")]
    alter_configs(parts.cluster, set_one)
    assert told == [{"": {"log.retention.ms": "5"}}]
    alter_configs(parts.cluster, [ConfigRecord(GROUP_RESOURCE, "g", "b", "2")])
    assert len(told) == 1
    parts.kill()
    parts.start()
    image = parts.cluster.image
    assert (image.broker_configs, image.group_configs) == ({"": {"log.retention.ms": "5"}}, {"g": {"a": "1", "b": "2"}})
    alter_configs(parts.cluster, [ConfigRecord(kind, name, key, None) for kind, name, key, _ in set_one])
    assert (image.broker_configs, image.group_configs) == ({}, {"g": {"b": "2"}})


def test_configs_that_cannot_be_logged_are_not_in_force(parts):
    create_topic(parts.cluster, "full", 2, {"size": "100"})
    parts.disk.refused = ("full-1",)
    parts.settle()
    with pytest.raises(OSError, match="KAFKA_STORAGE_ERROR"):
        alter(parts, "full", size="200")
    assert parts.cluster.topics["full"].configs == {"size": "100"}
    assert parts.cluster.partition("full", 0).log.config.max_message_bytes == 100


def test_added_partitions_are_there_at_once_and_after_a_kill(parts):
    topic = create_topic(parts.cluster, "t", 1)
    parts.settle()
    add_partitions(parts.cluster, topic, 3)
    assert parts.cluster.partition("t", 2).log_end_offset == 0
    assert parts.cluster.partition("t", 3) is None
    parts.settle()
    assert parts.directories() == ["__cluster_metadata-0", "t-0", "t-1", "t-2"]
    parts.kill()
    parts.start()
    assert parts.cluster.topics["t"].leader_epochs == [1, 1, 1]
    assert parts.cluster.partition("t", 2).topic_id == topic.topic_id
