"""Snapshots of the metadata: their contents, when they are taken, and the effect of a torn one."""

import errno
import itertools
import json
import os
from dataclasses import replace

import pytest
from click.testing import CliRunner

from lab.metadata import (
    add_partitions,
    alter_configs,
    change_security,
    create_topic,
    delete_topic,
    reserve_producer_ids,
)
from ottla.broker.cluster.image import MetadataImage
from ottla.broker.cluster.kraft import read_metadata
from ottla.broker.cluster.snapshots import MetadataSnapshots
from ottla.broker.config import Config
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


@pytest.fixture(autouse=True)
def in_the_next_turn(monkeypatch):
    """End each sync of a snapshot in the next turn."""
    monkeypatch.setattr(
        SideFiles, "start_sync", lambda logs, names, on_end: logs._clock.next_turn(lambda: on_end(None))
    )


def fill(parts):
    cluster = parts.cluster
    create_topic(cluster, "wide", 450, {"size": "100"})
    create_topic(cluster, "a.b")
    delete_topic(cluster, create_topic(cluster, "gone", 2))
    add_partitions(cluster, create_topic(cluster, "grown"), 3)
    configs = [(BROKER_RESOURCE, "", "log.retention.ms"), (GROUP_RESOURCE, "g", "a"), (TOPIC_RESOURCE, "a.b", "size")]
    alter_configs(cluster, [ConfigRecord(kind, name, key, "5") for kind, name, key in configs])
    reserve_producer_ids(cluster)
    change_security(cluster, [*map(acl, range(450)), user("alice"), quota("alice", 1.0), quota(None, 2.0)])
    parts.settle()


def acl(number):
    return AccessControlEntryRecord(number.to_bytes(16, "big"), 2, f"topic-{number}", 3, "User:alice", "*", 3, 3)


def user(name, mechanism=1):
    return UserScramCredentialRecord(name, mechanism, b"salt", b"stored", b"server", 4096)


def quota(name, value, key="producer_byte_rate", remove=False):
    return ClientQuotaRecord((("user", name), ("client-id", "app")), key, value, remove)


def snapshots(parts, **options):
    return MetadataSnapshots(
        parts.cluster.metadata_log,
        parts.logs,
        parts.clock,
        parts.turns,
        Config(**options),
        Retention(
            lambda: (), parts.disk, parts.clock, parts.turns, parts.logs.deleter, parts.logs.fail_unless_short
        ).delete_old_segments,
    )


def take_snapshot(parts):
    parts.turns.event(snapshots(parts).take)
    parts.settle()
    return files(parts)[-1]


def files(parts):
    return sorted((parts.directory / "__cluster_metadata-0").glob("*.checkpoint"))


def image_of(path):
    image = MetadataImage()
    read_metadata({path.name: path.read_bytes()}, image)
    return image


def test_a_snapshot_contains_the_same_metadata_as_the_log(parts):
    fill(parts)
    path = take_snapshot(parts)
    assert image_of(path) == parts.cluster.image
    assert parse_snapshot_name(path.name).end_offset == parts.cluster.metadata_log.end_offset


def test_changes_during_a_snapshot_are_not_part_of_it(parts):
    fill(parts)
    before = image_of(take_snapshot(parts))
    files(parts)[0].unlink()
    parts.disk.charge = lambda cost_us: parts.turns.charge(SHARE_US)
    parts.turns.event(snapshots(parts).take)
    add_partitions(parts.cluster, parts.cluster.topics["grown"], 9)
    alter_configs(parts.cluster, [ConfigRecord(TOPIC_RESOURCE, "wide", "size", "7")])
    delete_topic(parts.cluster, parts.cluster.topics["a.b"])
    create_topic(parts.cluster, "new")
    gone = [RemoveAccessControlEntryRecord(acl(1).id), RemoveUserScramCredentialRecord("alice", 1)]
    change_security(parts.cluster, [*gone, acl(900), user("bob"), quota("alice", 3.0), quota(None, 0, remove=True)])
    parts.settle()
    (path,) = files(parts)
    assert image_of(path) == before != parts.cluster.image


@pytest.mark.slow
def test_a_start_reads_only_the_snapshot_and_the_log_after_it(parts):
    fill(parts)
    path = take_snapshot(parts)
    create_topic(parts.cluster, "behind")
    parts.settle()
    live = parts.cluster.image
    log = next((parts.directory / "__cluster_metadata-0").glob("*.log"))
    parts.stop()
    content = bytearray(log.read_bytes())
    content[61] ^= 1  # the first batch, which the snapshot covers
    log.write_bytes(content)
    parts.start()
    assert parts.cluster.image == live
    assert path.exists()


@pytest.mark.slow
def test_a_damaged_snapshot_is_logged_and_the_log_is_read_instead(parts, caplog):
    fill(parts)
    older = take_snapshot(parts)
    create_topic(parts.cluster, "late")
    parts.settle()
    newer = take_snapshot(parts)
    live = parts.cluster.image
    parts.stop()
    newer.write_bytes(newer.read_bytes()[:-1])
    parts.start()
    assert parts.cluster.image == live
    assert f"{newer.name} is damaged" in caplog.text
    parts.stop()
    older.write_bytes(b"")
    parts.start()
    assert parts.cluster.image == live


def test_a_damaged_snapshot_that_the_log_does_not_reach_stops_the_start(parts):
    fill(parts)
    path = take_snapshot(parts)
    end_offset = parse_snapshot_name(path.name).end_offset
    parts.stop()
    path.write_bytes(path.read_bytes()[:-1])
    (parts.directory / "log-start-offset-checkpoint").write_text(f"0\n1\n__cluster_metadata 0 {end_offset}\n")
    with pytest.raises(LogDirectoryError, match=f"{path.name} is damaged"):
        parts.start()


def test_a_snapshot_is_due_after_so_many_bytes_or_so_long(parts):
    looking = snapshots(
        parts, metadata_log_max_record_bytes_between_snapshots=1000, metadata_log_max_snapshot_interval_ms=60_000
    )
    create_topic(parts.cluster, "little")
    parts.settle()

    def look():
        parts.turns.event(looking.take_if_due)
        parts.settle()
        return len(files(parts))

    assert look() == 0
    parts.clock.ms += 60_000
    assert look() == 1
    parts.clock.ms += 60_000
    assert look() == 1  # nothing has changed
    create_topic(parts.cluster, "much", 50)
    assert look() == 2


def test_old_snapshots_go_by_size_and_age_and_the_newest_stays(parts):
    for name in ("a", "b", "c"):
        create_topic(parts.cluster, name)
        parts.settle()
        take_snapshot(parts)
    assert len(files(parts)) == 3
    create_topic(parts.cluster, "d")
    parts.settle()
    parts.turns.event(snapshots(parts, metadata_max_retention_bytes=1).take)
    parts.settle()
    assert len(files(parts)) == 1


def test_a_log_in_which_a_transaction_is_open_gets_none(parts):
    create_topic(parts.cluster, "a")
    parts.cluster.metadata_log._loader.replay(BeginTransactionRecord("open"))
    parts.turns.event(snapshots(parts).take)
    parts.settle()
    assert files(parts) == []


def roll_often(parts):
    partition = parts.cluster.metadata_log.partition
    partition.log.config = replace(partition.log.config, segment_bytes=400, index_interval_bytes=200)
    return partition


def grow(parts, *names):
    for name in names:
        create_topic(parts.cluster, name)
        parts.settle()


def names(parts, suffix):
    return sorted(path.name for path in (parts.directory / "__cluster_metadata-0").glob(f"*{suffix}"))


def test_a_broker_starts_after_segments_in_the_snapshot_are_deleted(parts):
    partition = roll_often(parts)
    grow(parts, *"abcdef")
    first = take_snapshot(parts)
    before = names(parts, ".log")
    grow(parts, *"ghi")
    parts.turns.event(snapshots(parts, metadata_max_retention_bytes=1).take)
    parts.settle()
    (path,) = files(parts)
    end_offset = parse_snapshot_name(path.name).end_offset
    assert partition.log_start_offset == end_offset == partition.log_end_offset
    (kept,) = names(parts, ".log")
    assert int(kept.removesuffix(".log")) <= end_offset
    assert {f"{name}.deleted" for name in before} <= {*names(parts, ".deleted")}
    assert f"{first.name}.deleted" in names(parts, ".deleted")
    grow(parts, "j")
    live = parts.cluster.image
    for end in (parts.stop, parts.kill):
        end()
        parts.start()
        assert {topic.name for topic in parts.cluster.image.topics.values()} == set("abcdefghij")
        assert parts.cluster.image.topics.keys() == live.topics.keys()
        assert names(parts, ".deleted") == []


def test_the_log_starts_at_the_oldest_kept_snapshot(parts):
    partition = roll_often(parts)
    ends = []
    for name in "abc":
        grow(parts, name, name * 2, name * 3)
        ends.append(parse_snapshot_name(take_snapshot(parts).name).end_offset)
    sizes = [path.stat().st_size for path in files(parts)]
    bound = partition.log.size_bytes + sum(sizes) - 1
    parts.turns.event(
        lambda: parts.turns.start(snapshots(parts, metadata_max_retention_bytes=bound)._clean(), print, raise_it)
    )
    parts.settle()
    assert [parse_snapshot_name(path.name).end_offset for path in files(parts)] == ends[1:]
    assert partition.log_start_offset == ends[1]
    assert partition.log.segments.first_offset <= ends[1]


def raise_it(error):
    raise error


def test_snapshots_expire_by_record_time_in_checks_once_a_minute(parts):
    grow(parts, "a")
    old = take_snapshot(parts)
    parts.clock.ms += 1_000
    grow(parts, "b")
    new = take_snapshot(parts)
    looking = snapshots(parts, metadata_max_retention_ms=60_500, metadata_log_max_snapshot_interval_ms=0)

    def left(ms):
        parts.clock.ms += ms
        parts.turns.event(looking.take_if_due)
        parts.settle()
        return files(parts)

    os.utime(old, (1, 1))
    assert left(59_400) == [old, new]
    assert left(200) == [old, new]  # the minute is not over
    assert left(400) == [new]
    assert left(10 * 60_000) == [new]


def test_a_damaged_snapshot_causes_no_deletion_until_a_sound_one_exists(parts, caplog):
    roll_often(parts)
    grow(parts, "a", "b")
    older = take_snapshot(parts)
    grow(parts, "c", "d")
    damaged = take_snapshot(parts)
    grow(parts, "e")
    parts.stop()
    damaged.write_bytes(damaged.read_bytes()[:-1])
    parts.start()
    looking = snapshots(parts, metadata_max_retention_bytes=1)
    parts.clock.ms += 60_000
    parts.turns.event(looking.take_if_due)
    parts.settle()
    assert files(parts) == [older, damaged]
    assert parts.cluster.metadata_log.partition.log_start_offset == 0
    grow(parts, "f")
    parts.turns.event(looking.take)
    parts.settle()
    assert len(files(parts)) == 1 and files(parts)[0] not in (older, damaged)


def test_missing_segments_stop_a_start_only_without_a_sound_snapshot(parts):
    roll_often(parts)
    grow(parts, *"abcdefgh")
    path = take_snapshot(parts)
    grow(parts, "i")
    parts.kill()
    segments = sorted((parts.directory / "__cluster_metadata-0").glob("*.log"))
    for segment in segments[1:3]:
        segment.unlink()
    (parts.directory / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    parts.start()
    assert set(parts.cluster.image.topics) == set("abcdefghi")
    parts.kill()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(LogDirectoryError, match=r"offset \d+ is expected"):
        parts.start()


def test_inspect_reports_missing_segments_only_without_a_snapshot(parts):
    roll_often(parts)
    grow(parts, *"abcdefgh")
    path = take_snapshot(parts)
    parts.kill()
    segments = sorted(path.parent.glob("*.log"))
    for segment in segments[1:3]:
        segment.unlink()
    (parts.directory / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    inspected = CliRunner().invoke(main, ["inspect", "--format", "json", str(parts.directory)])
    assert json.loads(inspected.stdout).get("problems", []) == []
    path.rename(path.with_suffix(".part"))
    inspected = CliRunner().invoke(main, ["inspect", "--format", "json", str(parts.directory)])
    assert "are missing before" in inspected.stdout


@pytest.mark.parametrize("failing", range(6))
def test_a_rename_that_fails_while_the_log_is_trimmed_costs_nothing(parts, monkeypatch, failing):
    roll_often(parts)
    grow(parts, *"abcd")
    take_snapshot(parts)
    grow(parts, *"efgh")
    rename, count = type(parts.disk).rename, itertools.count()

    def refuse(disk, old, new):
        if next(count) == failing:
            raise OSError(errno.EIO, "Input/output error")
        rename(disk, old, new)

    monkeypatch.setattr(type(parts.disk), "rename", refuse)
    parts.turns.event(snapshots(parts, metadata_max_retention_bytes=1).take)
    parts.settle()
    monkeypatch.undo()
    assert next(count) > failing
    assert "Input/output error" in parts.logs.offline
    parts.kill()
    parts.start()
    assert set(parts.cluster.image.topics) == set("abcdefgh")


def test_a_stop_during_a_snapshot_leaves_a_part_file_removed_later(parts):
    fill(parts)
    taking = snapshots(parts)
    parts.turns.charge(SHARE_US)
    parts.turns.event(taking.take)
    taking.stop()
    parts.settle()
    assert files(parts) == []
    assert len(list((parts.directory / "__cluster_metadata-0").glob("*.part"))) == 1
    parts.stop()
    parts.start()
    take_snapshot(parts)
    assert not list((parts.directory / "__cluster_metadata-0").glob("*.part"))


def test_a_snapshot_that_cannot_be_written_takes_the_directory_offline(parts, monkeypatch):
    fill(parts)

    def full(file, buffers):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RealFile, "append", full)
    parts.turns.event(snapshots(parts).take)
    parts.settle()
    assert "No space left" in parts.logs.offline
    assert files(parts) == []


def test_a_directory_that_is_offline_gets_no_snapshot(parts):
    fill(parts)
    parts.logs.fail(OSError(errno.EIO, "Input/output error"))
    known = names(parts, "")
    parts.turns.event(snapshots(parts).take)
    parts.settle()
    assert names(parts, "") == known
