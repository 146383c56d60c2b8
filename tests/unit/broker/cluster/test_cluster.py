"""Metadata of a broker: created topics, the state after a stop or a kill, and failures of the disk."""

import errno
import shutil
from random import Random

import pytest

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
from ottla.testkit.in_memory.disk import MemoryDisk
from ottla.testkit.in_memory.ports import PortCalls
from ottla.testkit.metadata import add_partitions, alter_configs, create_topic, delete_topic, next_producer_id


def test_nobody_may_create_a_topic_that_is_the_metadata_log(broker):
    error, message = broker.cluster.name_problem("__cluster_metadata")
    assert error is ErrorCode.INVALID_REQUEST
    assert "__cluster_metadata" in message


def test_metadata_batches_are_not_bound_by_the_size_of_messages(broker):
    broker.stop()
    broker.start(max_message_bytes=500)
    assert create_topic(broker.cluster, "wide", 100).partition_count == 100
    broker.kill()
    broker.start(max_message_bytes=500)
    assert broker.cluster.topics["wide"].leader_epochs == [1] * 100
    assert create_topic(broker.cluster, "widest", 10_000).partition_count == 10_000


def test_directory_that_cannot_be_made_takes_the_log_directory_offline(broker):
    create_topic(broker.cluster, "full", 3)
    broker.disk.refused = ("full-1",)
    broker.settle()
    assert "No space left" in broker.logs.offline
    assert [broker.cluster.partition("full", index).offline for index in range(3)] == [broker.logs.offline] * 3
    with pytest.raises(OSError, match="KAFKA_STORAGE_ERROR"):
        create_topic(broker.cluster, "late", 1)


def test_directory_that_cannot_be_made_stops_the_start(broker):
    create_topic(broker.cluster, "full", 3)
    broker.kill()
    broker.disk.refused = ("full-1",)
    with pytest.raises(LogDirectoryError, match="No space left"):
        broker.start()


def test_deletion_whose_files_cannot_be_moved_is_a_deletion_all_the_same(broker):
    topic = create_topic(broker.cluster, "gone", 2)
    broker.settle()
    told = []
    broker.cluster.on_topic_deleted.append(told.append)
    broker.disk.rename_fails = True
    delete_topic(broker.cluster, topic)
    assert told == [topic]
    assert "Input/output error" in broker.logs.offline
    assert broker.cluster.partition("gone", 0) is None


def test_directories_that_a_killed_deletion_left_are_set_aside(broker, caplog):
    topic = create_topic(broker.cluster, "gone", 2)
    create_topic(broker.cluster, "kept", 1)
    broker.settle()
    broker.disk.rename_fails = True
    delete_topic(broker.cluster, topic)
    broker.kill()
    broker.disk.rename_fails = False
    broker.start()
    assert [name.partition(".")[0] for name in broker.directories()] == [
        "__cluster_metadata-0",
        "gone-0",
        "gone-1",
        "kept-0",
    ]
    strays = [name for name in broker.directories() if name.startswith("gone")]
    assert all(name.endswith("-stray") for name in strays)
    assert all(name in caplog.text for name in strays)


def test_a_directory_that_names_no_topic_is_set_aside(broker, caplog):
    """Otherwise the directory would become the directory of the next topic with that name."""
    create_topic(broker.cluster, "kept")
    broker.settle()
    broker.kill()
    for name in ("lost-0", "empty-0"):
        (broker.directory / name).mkdir()
    (broker.directory / "lost-0" / f"{0:020d}.log").write_bytes(b"what is left")
    (broker.directory / "kept-0" / "partition.metadata").unlink()
    (broker.directory / "notes-1").write_text("of nobody's concern")
    broker.start()
    names = broker.directories()
    assert [name.partition(".")[0] for name in names] == ["__cluster_metadata-0", "empty-0", "kept-0", "lost-0"]
    (stray,) = (name for name in names if name.endswith("-stray"))
    assert f"lost-0 names no topic; it is kept as {broker.directory / stray}" in caplog.text
    assert (broker.directory / "notes-1").exists()


def test_metadata_whose_beginning_no_snapshot_holds_is_refused(broker):
    create_topic(broker.cluster, "kept", 1)
    broker.stop()
    (broker.directory / "log-start-offset-checkpoint").write_text("0\n1\n__cluster_metadata 0 2\n")
    with pytest.raises(LogDirectoryError, match="begins at offset 2"):
        broker.start()


def test_metadata_with_a_flipped_bit_is_refused_in_words(broker):
    create_topic(broker.cluster, "kept", 1)
    create_topic(broker.cluster, "last", 1)
    broker.stop()
    path = broker.directory / "__cluster_metadata-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[content.index(b"kept")] ^= 1
    path.write_bytes(content)
    with pytest.raises(LogDirectoryError, match=r"__cluster_metadata-0 .* wrong CRC"):
        broker.start()


@pytest.mark.parametrize("seed", range(10))
def test_topics_and_producer_ids_survive_a_power_loss(broker, seed):
    """A producer id that is handed out twice collides with the sequences and open transactions of its first owner."""
    broker.kill()
    broker.disk = MemoryDisk(PortCalls(), Random(seed), lambda work: work())
    broker.start()
    create_topic(broker.cluster, "kept", 2)
    used = [next_producer_id(broker.cluster) for _ in range(3)]
    broker.kill()
    broker.disk.lose_power()
    broker.start()
    assert broker.cluster.topics["kept"].partition_count == 2
    assert next_producer_id(broker.cluster) > max(used)


def test_producer_ids_that_the_logs_know_are_not_handed_out_when_the_metadata_is_gone(broker):
    create_topic(broker.cluster, "ledger", 1)
    owner = {"producer_id": 2_500, "producer_epoch": 0, "base_sequence": 0}
    data = memoryview(build_batch([(b"k", b"v")], timestamp_ms=broker.clock.now_ms(), **owner))
    assert not broker.cluster.partition("ledger", 0).append_from_client(check_produced_batch(data), data).error
    broker.stop()
    shutil.rmtree(broker.directory / "__cluster_metadata-0")
    broker.start()
    assert broker.cluster.topics["ledger"].partition_count == 1
    assert next_producer_id(broker.cluster) == 3_000


def test_metadata_that_cannot_be_synced_takes_the_log_directory_offline(broker, monkeypatch):
    def refuse(disk, path):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(type(broker.disk), "sync_dir", refuse)
    with pytest.raises(OSError, match="Input/output error"):
        create_topic(broker.cluster, "lost", 1)
    assert "Input/output error" in broker.logs.offline
    assert "lost" not in broker.cluster.topics


def alter(broker, topic, **values):
    alter_configs(broker.cluster, [ConfigRecord(TOPIC_RESOURCE, topic, key, value) for key, value in values.items()])


def test_changed_configs_act_at_once_and_outlive_a_kill(broker):
    create_topic(broker.cluster, "t", 2, {"size": "100"})
    broker.settle()
    create_topic(broker.cluster, "other", 1)
    opened = broker.cluster.partition("t", 0)
    assert opened.log.config.max_message_bytes == 100
    alter(broker, "t", size="200", more="1")
    assert opened.log.config.max_message_bytes == 200
    assert broker.cluster.partition("other", 0).log.config.max_message_bytes == 1_048_588
    broker.kill()
    broker.start()
    assert broker.cluster.topics["t"].configs == {"size": "200", "more": "1"}
    assert broker.cluster.partition("t", 1).log.config.max_message_bytes == 200
    alter(broker, "t", size=None)
    assert broker.cluster.topics["t"].configs == {"more": "1"}
    assert broker.cluster.partition("t", 0).log.config.max_message_bytes == 1_048_588


def test_configs_of_brokers_and_groups_outlive_a_kill(broker):
    told = []
    broker.cluster.on_broker_configs_changed = lambda: told.append(dict(broker.cluster.image.broker_configs))
    set_one = [ConfigRecord(BROKER_RESOURCE, "", "log.retention.ms", "5"), ConfigRecord(GROUP_RESOURCE, "g", "a", "1")]
    alter_configs(broker.cluster, set_one)
    assert told == [{"": {"log.retention.ms": "5"}}]
    alter_configs(broker.cluster, [ConfigRecord(GROUP_RESOURCE, "g", "b", "2")])
    assert len(told) == 1
    broker.kill()
    broker.start()
    image = broker.cluster.image
    assert (image.broker_configs, image.group_configs) == ({"": {"log.retention.ms": "5"}}, {"g": {"a": "1", "b": "2"}})
    alter_configs(broker.cluster, [ConfigRecord(kind, name, key, None) for kind, name, key, _ in set_one])
    assert (image.broker_configs, image.group_configs) == ({}, {"g": {"b": "2"}})


def test_configs_that_cannot_be_logged_are_not_in_force(broker):
    create_topic(broker.cluster, "full", 2, {"size": "100"})
    broker.disk.refused = ("full-1",)
    broker.settle()
    with pytest.raises(OSError, match="KAFKA_STORAGE_ERROR"):
        alter(broker, "full", size="200")
    assert broker.cluster.topics["full"].configs == {"size": "100"}
    assert broker.cluster.partition("full", 0).log.config.max_message_bytes == 100


def test_added_partitions_are_there_at_once_and_after_a_kill(broker):
    topic = create_topic(broker.cluster, "t", 1)
    broker.settle()
    add_partitions(broker.cluster, topic, 3)
    assert broker.cluster.partition("t", 2).log_end_offset == 0
    assert broker.cluster.partition("t", 3) is None
    broker.settle()
    assert broker.directories() == ["__cluster_metadata-0", "t-0", "t-1", "t-2"]
    broker.kill()
    broker.start()
    assert broker.cluster.topics["t"].leader_epochs == [1, 1, 1]
    assert broker.cluster.partition("t", 2).topic_id == topic.topic_id
