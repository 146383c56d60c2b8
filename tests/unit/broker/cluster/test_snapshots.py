"""Snapshots of the metadata: their contents, when they are taken, and the effect of a torn one."""

import errno
import itertools
import json
import os
from dataclasses import replace

import pytest
from click.testing import CliRunner

from ottla.broker.cluster.image import MetadataImage
from ottla.broker.cluster.kraft import read_metadata
from ottla.broker.cluster.snapshots import MetadataSnapshots, SnapshotSettings
from ottla.broker.log.meta_properties import LogDirectoryError
from ottla.broker.log.retention import Retention
from ottla.broker.log.side_files import SideFiles
from ottla.broker.ports.disk import RealFile
from ottla.broker.turns import SHARE_US
from ottla.cli.main import main
from ottla.protocol.internal_topics.kraft_records import parse_snapshot_name
from ottla.protocol.internal_topics.metadata_records import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    BeginTransactionRecord,
    ConfigRecord,
)
from ottla.protocol.internal_topics.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.testkit.metadata import (
    add_partitions,
    alter_configs,
    change_security,
    create_topic,
    delete_topic,
    reserve_producer_ids,
)


@pytest.fixture(autouse=True)
def in_the_next_turn(monkeypatch):
    """End each sync of a snapshot in the next turn."""
    monkeypatch.setattr(
        SideFiles, "start_sync", lambda logs, names, on_end: logs._clock.next_turn(lambda: on_end(None))
    )


def fill(broker):
    cluster = broker.cluster
    create_topic(cluster, "wide", 450, {"size": "100"})
    create_topic(cluster, "a.b")
    delete_topic(cluster, create_topic(cluster, "gone", 2))
    add_partitions(cluster, create_topic(cluster, "grown"), 3)
    configs = [(BROKER_RESOURCE, "", "log.retention.ms"), (GROUP_RESOURCE, "g", "a"), (TOPIC_RESOURCE, "a.b", "size")]
    alter_configs(cluster, [ConfigRecord(kind, name, key, "5") for kind, name, key in configs])
    reserve_producer_ids(cluster)
    change_security(cluster, [*map(acl, range(450)), user("alice"), quota("alice", 1.0), quota(None, 2.0)])
    broker.settle()


def acl(number):
    return AccessControlEntryRecord(number.to_bytes(16, "big"), 2, f"topic-{number}", 3, "User:alice", "*", 3, 3)


def user(name, mechanism=1):
    return UserScramCredentialRecord(name, mechanism, b"salt", b"stored", b"server", 4096)


def quota(name, value, key="producer_byte_rate", remove=False):
    return ClientQuotaRecord((("user", name), ("client-id", "app")), key, value, remove)


def snapshots(broker, **settings):
    return MetadataSnapshots(
        broker.cluster.metadata_log,
        broker.logs,
        broker.clock,
        broker.turns,
        SnapshotSettings(**settings),
        Retention(
            lambda: (), broker.disk, broker.clock, broker.turns, broker.logs.deleter, broker.logs.fail_unless_short
        ).delete_old_segments,
    )


def take_snapshot(broker):
    broker.turns.event(snapshots(broker).take)
    broker.settle()
    return files(broker)[-1]


def files(broker):
    return sorted((broker.directory / "__cluster_metadata-0").glob("*.checkpoint"))


def image_of(path):
    image = MetadataImage()
    read_metadata({path.name: path.read_bytes()}, image)
    return image


def test_a_snapshot_says_what_the_log_says(broker):
    fill(broker)
    path = take_snapshot(broker)
    assert image_of(path) == broker.cluster.image
    assert parse_snapshot_name(path.name).end_offset == broker.cluster.metadata_offset


def test_a_snapshot_is_that_of_its_first_step_whatever_changes_meanwhile(broker):
    fill(broker)
    before = image_of(take_snapshot(broker))
    files(broker)[0].unlink()
    broker.disk.charge = lambda cost_us: broker.turns.charge(SHARE_US)
    broker.turns.event(snapshots(broker).take)
    add_partitions(broker.cluster, broker.cluster.topics["grown"], 9)
    alter_configs(broker.cluster, [ConfigRecord(TOPIC_RESOURCE, "wide", "size", "7")])
    delete_topic(broker.cluster, broker.cluster.topics["a.b"])
    create_topic(broker.cluster, "new")
    gone = [RemoveAccessControlEntryRecord(acl(1).id), RemoveUserScramCredentialRecord("alice", 1)]
    change_security(broker.cluster, [*gone, acl(900), user("bob"), quota("alice", 3.0), quota(None, 0, remove=True)])
    broker.settle()
    (path,) = files(broker)
    assert image_of(path) == before != broker.cluster.image


def test_a_start_reads_the_snapshot_and_the_log_behind_it_alone(broker):
    fill(broker)
    path = take_snapshot(broker)
    create_topic(broker.cluster, "behind")
    broker.settle()
    live = broker.cluster.image
    log = next((broker.directory / "__cluster_metadata-0").glob("*.log"))
    broker.stop()
    content = bytearray(log.read_bytes())
    content[61] ^= 1  # the first batch, which the snapshot covers
    log.write_bytes(content)
    broker.start()
    assert broker.cluster.image == live
    assert path.exists()


def test_a_damaged_snapshot_is_told_and_the_log_is_read_instead(broker, caplog):
    fill(broker)
    older = take_snapshot(broker)
    create_topic(broker.cluster, "late")
    broker.settle()
    newer = take_snapshot(broker)
    live = broker.cluster.image
    broker.stop()
    newer.write_bytes(newer.read_bytes()[:-1])
    broker.start()
    assert broker.cluster.image == live
    assert f"{newer.name} is damaged" in caplog.text
    broker.stop()
    older.write_bytes(b"")
    broker.start()
    assert broker.cluster.image == live


def test_a_damaged_snapshot_that_the_log_does_not_reach_stops_the_start(broker):
    fill(broker)
    path = take_snapshot(broker)
    end_offset = parse_snapshot_name(path.name).end_offset
    broker.stop()
    path.write_bytes(path.read_bytes()[:-1])
    (broker.directory / "log-start-offset-checkpoint").write_text(f"0\n1\n__cluster_metadata 0 {end_offset}\n")
    with pytest.raises(LogDirectoryError, match=f"{path.name} is damaged"):
        broker.start()


def test_a_snapshot_is_due_after_so_many_bytes_or_so_long(broker):
    looking = snapshots(broker, bytes_between=1000, interval_ms=60_000)
    create_topic(broker.cluster, "little")
    broker.settle()

    def look():
        broker.turns.event(looking.take_if_due)
        broker.settle()
        return len(files(broker))

    assert look() == 0
    broker.clock.ms += 60_000
    assert look() == 1
    broker.clock.ms += 60_000
    assert look() == 1  # nothing has changed
    create_topic(broker.cluster, "much", 50)
    assert look() == 2


def test_old_snapshots_go_by_size_and_age_and_the_newest_stays(broker):
    for name in ("a", "b", "c"):
        create_topic(broker.cluster, name)
        broker.settle()
        take_snapshot(broker)
    assert len(files(broker)) == 3
    create_topic(broker.cluster, "d")
    broker.settle()
    broker.turns.event(snapshots(broker, retention_bytes=1).take)
    broker.settle()
    assert len(files(broker)) == 1


def test_a_log_in_which_a_transaction_is_open_gets_none(broker):
    create_topic(broker.cluster, "a")
    broker.cluster.metadata_log._loader.replay(BeginTransactionRecord("open"))
    broker.turns.event(snapshots(broker).take)
    broker.settle()
    assert files(broker) == []


def roll_often(broker):
    partition = broker.cluster.metadata_log.partition
    partition.log.config = replace(partition.log.config, segment_bytes=400, index_interval_bytes=200)
    return partition


def grow(broker, *names):
    for name in names:
        create_topic(broker.cluster, name)
        broker.settle()


def names(broker, suffix):
    return sorted(path.name for path in (broker.directory / "__cluster_metadata-0").glob(f"*{suffix}"))


def test_segments_that_the_snapshots_hold_go_and_the_rest_is_what_a_start_needs(broker):
    partition = roll_often(broker)
    grow(broker, *"abcdef")
    first = take_snapshot(broker)
    before = names(broker, ".log")
    grow(broker, *"ghi")
    broker.turns.event(snapshots(broker, retention_bytes=1).take)
    broker.settle()
    (path,) = files(broker)
    end_offset = parse_snapshot_name(path.name).end_offset
    assert partition.log_start_offset == end_offset == partition.log_end_offset
    (kept,) = names(broker, ".log")
    assert int(kept.removesuffix(".log")) <= end_offset
    assert {f"{name}.deleted" for name in before} <= {*names(broker, ".deleted")}
    assert f"{first.name}.deleted" in names(broker, ".deleted")
    grow(broker, "j")
    live = broker.cluster.image
    for end in (broker.stop, broker.kill):
        end()
        broker.start()
        assert {topic.name for topic in broker.cluster.image.topics.values()} == set("abcdefghij")
        assert broker.cluster.image.topics.keys() == live.topics.keys()
        assert names(broker, ".deleted") == []


def test_the_log_stays_behind_the_oldest_snapshot_that_stays(broker):
    partition = roll_often(broker)
    ends = []
    for name in "abc":
        grow(broker, name, name * 2, name * 3)
        ends.append(parse_snapshot_name(take_snapshot(broker).name).end_offset)
    sizes = [path.stat().st_size for path in files(broker)]
    bound = partition.log.size_bytes + sum(sizes) - 1
    broker.turns.event(lambda: broker.turns.start(snapshots(broker, retention_bytes=bound)._clean(), print, raise_it))
    broker.settle()
    assert [parse_snapshot_name(path.name).end_offset for path in files(broker)] == ends[1:]
    assert partition.log_start_offset == ends[1]
    assert partition.log.segments.first_offset <= ends[1]


def raise_it(error):
    raise error


def test_old_snapshots_are_looked_for_each_minute_by_the_time_of_their_last_record(broker):
    grow(broker, "a")
    old = take_snapshot(broker)
    broker.clock.ms += 1_000
    grow(broker, "b")
    new = take_snapshot(broker)
    looking = snapshots(broker, retention_ms=60_500, interval_ms=0)

    def left(ms):
        broker.clock.ms += ms
        broker.turns.event(looking.take_if_due)
        broker.settle()
        return files(broker)

    os.utime(old, (1, 1))
    assert left(59_400) == [old, new]
    assert left(200) == [old, new]  # the minute is not over
    assert left(400) == [new]
    assert left(10 * 60_000) == [new]


def test_what_a_damaged_snapshot_would_replace_stays(broker, caplog):
    roll_often(broker)
    grow(broker, "a", "b")
    older = take_snapshot(broker)
    grow(broker, "c", "d")
    damaged = take_snapshot(broker)
    grow(broker, "e")
    broker.stop()
    damaged.write_bytes(damaged.read_bytes()[:-1])
    broker.start()
    looking = snapshots(broker, retention_bytes=1)
    broker.clock.ms += 60_000
    broker.turns.event(looking.take_if_due)
    broker.settle()
    assert files(broker) == [older, damaged]
    assert broker.cluster.metadata_log.partition.log_start_offset == 0
    grow(broker, "f")
    broker.turns.event(looking.take)
    broker.settle()
    assert len(files(broker)) == 1 and files(broker)[0] not in (older, damaged)


def test_segments_below_the_snapshot_may_be_gone_in_any_order(broker):
    roll_often(broker)
    grow(broker, *"abcdefgh")
    path = take_snapshot(broker)
    grow(broker, "i")
    broker.kill()
    segments = sorted((broker.directory / "__cluster_metadata-0").glob("*.log"))
    for segment in segments[1:3]:
        segment.unlink()
    (broker.directory / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    broker.start()
    assert set(broker.cluster.image.topics) == set("abcdefghi")
    broker.kill()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(LogDirectoryError, match=r"offset \d+ is expected"):
        broker.start()


def test_what_the_snapshot_holds_is_not_missed_by_who_inspects_before_the_next_start(broker):
    roll_often(broker)
    grow(broker, *"abcdefgh")
    path = take_snapshot(broker)
    broker.kill()
    segments = sorted(path.parent.glob("*.log"))
    for segment in segments[1:3]:
        segment.unlink()
    (broker.directory / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    inspected = CliRunner().invoke(main, ["inspect", "--format", "json", str(broker.directory)])
    assert json.loads(inspected.stdout).get("problems", []) == []
    path.rename(path.with_suffix(".part"))
    inspected = CliRunner().invoke(main, ["inspect", "--format", "json", str(broker.directory)])
    assert "are missing before" in inspected.stdout


@pytest.mark.parametrize("failing", range(6))
def test_a_rename_that_fails_while_the_log_is_trimmed_costs_nothing(broker, monkeypatch, failing):
    roll_often(broker)
    grow(broker, *"abcd")
    take_snapshot(broker)
    grow(broker, *"efgh")
    rename, count = type(broker.disk).rename, itertools.count()

    def refuse(disk, old, new):
        if next(count) == failing:
            raise OSError(errno.EIO, "Input/output error")
        rename(disk, old, new)

    monkeypatch.setattr(type(broker.disk), "rename", refuse)
    broker.turns.event(snapshots(broker, retention_bytes=1).take)
    broker.settle()
    monkeypatch.undo()
    assert next(count) > failing
    assert "Input/output error" in broker.logs.offline
    broker.kill()
    broker.start()
    assert set(broker.cluster.image.topics) == set("abcdefgh")


def test_a_stop_in_the_middle_leaves_a_part_that_nobody_reads(broker):
    fill(broker)
    taking = snapshots(broker)
    broker.turns.charge(SHARE_US)
    broker.turns.event(taking.take)
    taking.stop()
    broker.settle()
    assert files(broker) == []
    assert len(list((broker.directory / "__cluster_metadata-0").glob("*.part"))) == 1
    broker.stop()
    broker.start()
    take_snapshot(broker)
    assert not list((broker.directory / "__cluster_metadata-0").glob("*.part"))


def test_a_snapshot_that_cannot_be_written_takes_the_directory_offline(broker, monkeypatch):
    fill(broker)

    def full(file, buffers):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RealFile, "append", full)
    broker.turns.event(snapshots(broker).take)
    broker.settle()
    assert "No space left" in broker.logs.offline
    assert files(broker) == []


def test_a_directory_that_is_offline_gets_no_snapshot(broker):
    fill(broker)
    broker.logs.fail(OSError(errno.EIO, "Input/output error"))
    known = names(broker, "")
    broker.turns.event(snapshots(broker).take)
    broker.settle()
    assert names(broker, "") == known
