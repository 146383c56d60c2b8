"""Metadata in the form of a KRaft quorum: snapshots, transactions, epochs, partitions of other nodes, no metadata."""

import json
import logging
from dataclasses import replace

import pytest

from ottla.broker.cluster.image import MetadataImage
from ottla.broker.cluster.kraft import MetadataBatchLoader, newest_snapshot, quorum_epoch, read_metadata, writing_epoch
from ottla.broker.cluster.snapshots import MetadataSnapshots
from ottla.broker.config import Config
from ottla.broker.log.meta_properties import LogDirectoryError
from ottla.broker.log.retention import Retention
from ottla.broker.log.side_files import SideFiles
from ottla.protocol.batch import build_batch, read_marker
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.checkpoints import encode_partition_metadata
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics import metadata_records as m
from ottla.protocol.internal_topics.kraft_records import (
    SnapshotId,
    Voter,
    build_snapshot,
    kraft_version,
    kraft_voters,
    leader_change,
    snapshot_name,
)
from ottla.protocol.internal_topics.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    UserScramCredentialRecord,
)
from ottla.protocol.records import iter_records
from ottla.testkit.metadata import create_topic

LEDGER, AUDIT = b"L" * 16, b"A" * 16
OTHER_DIRECTORY = b"D" * 16
NO_OP, TOKEN = bytes.fromhex("01140000"), bytes.fromhex("010a000000")
ACL = AccessControlEntryRecord(b"E" * 16, 2, "ledger", 3, "User:alice", "*", 3, 3)
USER = UserScramCredentialRecord("alice", 1, b"salt", b"stored", b"server", 4096)
QUOTA = ClientQuotaRecord((("user", "alice"), ("client-id", None)), "producer_byte_rate", 1024.0, False)
BROKER_REGISTRATION = bytes.fromhex("0100030001")


def partition(topic_id, index, node_id=1, directories=(), epoch=4):
    return m.PartitionRecord(index, topic_id, (node_id,), (node_id,), node_id, epoch, 0, directories)


def values(*records):
    return [each if isinstance(each, bytes) else m.encode_metadata_record(each) for each in records]


BASE = (m.FeatureLevelRecord("metadata.version", 21), m.TopicRecord("ledger", LEDGER), partition(LEDGER, 0))


def log_of(*batches, base_offset=0, epoch=5):
    """Return the bytes of a segment. Each batch is a list of records, or control records in a tuple."""
    out = b""
    for batch in batches:
        control = isinstance(batch, tuple)
        rows = list(batch) if control else [(None, value) for value in values(*batch)]
        out += build_batch(rows, base_offset=base_offset, timestamp_ms=7, control=control, partition_leader_epoch=epoch)
        base_offset += len(rows)
    return bytes(out)


class Kafkas:
    """A data directory that a quorum wrote, with few files."""

    def __init__(self, parts):
        parts.kill()
        self.parts = parts
        self.directory = parts.directory
        self.metadata = self.directory / "__cluster_metadata-0"
        for path in self.metadata.iterdir():
            path.unlink()

    def write(self, log=b"", base_offset=0, snapshot=None, epoch=5, elected=5, dirs=("ledger-0",), topic_id=LEDGER):
        (self.metadata / f"{base_offset:020d}.log").write_bytes(log)
        if snapshot is not None:
            name = snapshot_name(SnapshotId(snapshot[0], epoch))
            (self.metadata / name).write_bytes(build_snapshot([], values(*snapshot[1]), 7))
        (self.metadata / "quorum-state").write_text(json.dumps({"leaderId": 1, "leaderEpoch": elected}))
        for name in dirs:
            (self.directory / name).mkdir()
            (self.directory / name / "partition.metadata").write_bytes(encode_partition_metadata(topic_id))
        (self.directory / ".kafka_cleanshutdown").write_text("{}")
        return self

    def start(self):
        self.parts.start()
        return self.parts.cluster

    def written(self):
        """Return (epoch, control type or None, records) of each batch of the log."""
        found = []
        for path in sorted(self.metadata.glob("*.log")):
            data = path.read_bytes()
            for at, header in iter_batches(data):
                marker = read_marker(data, header, at) if header.is_control else None
                records = [] if marker else [m.decode_metadata_record(r.value) for r in iter_records(data, header, at)]
                found.append((header.partition_leader_epoch, marker and marker.control_type, records))
        return found


@pytest.fixture
def kafkas(parts):
    return Kafkas(parts)


def test_log_that_begins_in_a_snapshot_is_read_from_there(kafkas):
    kafkas.write(log_of([m.TopicRecord("late", AUDIT), partition(AUDIT, 0)], base_offset=900), 900, (900, BASE))
    cluster = kafkas.start()
    assert sorted(cluster.topics) == ["late", "ledger"]
    assert cluster.partition("ledger", 0).leader_epoch == 4
    assert cluster.feature("metadata.version") == 21


def test_records_below_the_snapshot_are_not_applied_twice(kafkas):
    change = m.PartitionChangeRecord(0, LEDGER, leader=1)
    kafkas.write(log_of([*BASE], [change], [change]), 0, (4, [*BASE[:2], partition(LEDGER, 0, epoch=5)]))
    assert kafkas.start().topics["ledger"].leader_epochs == [6]


@pytest.mark.parametrize(("offset", "problem"), [(899, "begins at offset 900"), (901, "before the snapshot")])
def test_log_and_snapshot_with_a_gap_between_them_are_refused(kafkas, offset, problem):
    kafkas.write(b"", 900, (offset, BASE))
    with pytest.raises(LogDirectoryError, match=problem):
        kafkas.start()


def test_broken_snapshot_is_refused_by_name(kafkas):
    kafkas.write(b"", 900, (900, BASE))
    name = snapshot_name(SnapshotId(900, 5))
    content = (kafkas.metadata / name).read_bytes()
    (kafkas.metadata / name).write_bytes(content[:-1])
    with pytest.raises(LogDirectoryError, match=f"{name} is damaged"):
        kafkas.start()


def test_unknown_records_are_named_once_each_and_lost_protection_is_a_warning(kafkas, caplog):
    others = [bytes.fromhex(each) for each in ("011b00", "01630000")]
    kafkas.write(log_of([*BASE, NO_OP], [NO_OP, TOKEN, NO_OP], [ACL, USER, QUOTA], others))
    with caplog.at_level(logging.INFO):
        kafkas.start()
    told = [(each.levelno, each.getMessage()) for each in caplog.records if each.module == "kraft_log"]
    assert told == [
        (
            logging.WARNING,
            "__cluster_metadata-0 holds 1 records of type 10 (DelegationToken), which Ottla does not enforce",
        ),
        (logging.INFO, "__cluster_metadata-0: ignored 3 records of type 20 (NoOp)"),
        (logging.INFO, "__cluster_metadata-0: ignored 1 records of type 27 (RegisterController)"),
        (logging.INFO, "__cluster_metadata-0: ignored 1 records of type 99 (an unknown type)"),
    ]


def test_record_of_a_newer_kafka_is_refused_and_called_so(kafkas):
    kafkas.write(log_of([*BASE], [bytes.fromhex("010c01") + bytes(10)]))
    with pytest.raises(LogDirectoryError, match="newer Kafka"):
        kafkas.start()


def test_records_of_a_transaction_apply_together_or_never():
    loader = MetadataBatchLoader(MetadataImage())
    for record in (*BASE, m.BeginTransactionRecord(), m.TopicRecord("never", AUDIT)):
        loader.replay(record)
    assert loader.in_transaction and "never" not in loader.image.topics
    loader.replay(m.AbortTransactionRecord())
    assert not loader.in_transaction
    for record in (m.BeginTransactionRecord(), m.TopicRecord("together", AUDIT), m.EndTransactionRecord()):
        loader.replay(record)
    assert sorted(loader.image.topics) == ["ledger", "together"]


def test_large_batches_and_transactions_are_read_in_short_steps():
    acls = [ACL._replace(id=number.to_bytes(16, "big")) for number in range(2_500)]
    log = log_of([*BASE], acls[:1_250], [m.BeginTransactionRecord("many"), *acls[1_250:]], [m.EndTransactionRecord()])
    loader, steps = MetadataBatchLoader(MetadataImage()), []
    for position, header in iter_batches(log):
        steps += loader.load_steps(header, memoryview(log)[position : position + header.size_bytes])
    assert len(loader.image.acls) == len(acls)
    assert max(steps) <= 2_000.0 < 16_000.0 < sum(steps)


def test_ottla_appends_records_in_an_epoch_of_its_own(kafkas):
    log = log_of((leader_change(1),), [*BASE], [m.BeginTransactionRecord(), m.TopicRecord("half", AUDIT)])
    kafkas.write(log)
    cluster = kafkas.start()
    assert len(kafkas.written()) == 3  # a clean start writes nothing
    create_topic(cluster, "mine", 1)
    epoch, control, _ = kafkas.written()[3]
    assert (epoch, control) == (6, 2)
    assert [records[0] for _, _, records in kafkas.written()[4:]] == [
        m.AbortTransactionRecord("Node 1 found it open"),
        m.TopicRecord("mine", cluster.topics["mine"].topic_id),
    ]
    kafkas.parts.stop()
    assert (kafkas.metadata / "leader-epoch-checkpoint").read_text().split()[2:] == ["5", "0", "6", "6"]
    cluster = kafkas.start()
    create_topic(cluster, "more", 1)
    assert {epoch for epoch, *_ in kafkas.written()[3:]} == {6}
    assert sorted(cluster.topics) == ["ledger", "mine", "more"]


@pytest.mark.parametrize(
    ("log_epoch", "elected", "epoch"), [(-1, None, 1), (1, None, 1), (5, 5, 6), (5, 7, 8), (6, 5, 6), (-1, 0, 1)]
)
def test_writer_never_shares_an_epoch_with_kafka(log_epoch, elected, epoch):
    assert writing_epoch(log_epoch, elected) == epoch


def test_partition_that_kafka_left_without_a_leader_gets_one(kafkas):
    resigned = m.PartitionChangeRecord(0, LEDGER, (), m.NO_LEADER, eligible_leader_replicas=(1,))
    kafkas.write(log_of([*BASE], [resigned]))
    cluster = kafkas.start()
    assert cluster.topics["ledger"].leader_epochs == [6]
    _, _, (elected,) = kafkas.written()[-1]
    assert (elected.leader, elected.isr, elected.eligible_leader_replicas) == (1, (1,), ())


def test_partition_of_another_node_or_directory_is_offline_and_not_made(kafkas, caplog):
    elsewhere = [
        m.TopicRecord("audit", AUDIT),
        partition(AUDIT, 2, directories=(OTHER_DIRECTORY,)),
        partition(AUDIT, 0, node_id=3),
        partition(AUDIT, 1, directories=(bytes(16),)),
    ]
    kafkas.write(log_of([*BASE], elsewhere))
    cluster = kafkas.start()
    assert [cluster.partition("audit", index).offline is None for index in range(3)] == [False, True, False]
    assert "2 of 4 partitions, such as audit-0, have no replica" in caplog.text
    assert "audit-0" not in kafkas.parts.directories()
    assert cluster.partition("audit", 0).read(0, 1).error.name == "KAFKA_STORAGE_ERROR"
    kafkas.parts.stop()
    assert (kafkas.directory / ".kafka_cleanshutdown").exists()


def test_directory_of_a_controller_is_refused(kafkas):
    kafkas.write(log_of([*BASE[:2], partition(LEDGER, 0, node_id=3)]), dirs=())
    with pytest.raises(LogDirectoryError, match="a controller"):
        kafkas.start()


def test_bootstrap_records_are_taken_where_there_is_no_metadata(kafkas):
    (kafkas.directory / "bootstrap.checkpoint").write_bytes(build_snapshot([], values(*BASE), 7))
    kafkas.write()
    cluster = kafkas.start()
    assert cluster.partition("ledger", 0).leader_epoch == 4
    first, *_, last = [record for _, control, records in kafkas.written() if control is None for record in records]
    assert (first, last) == (m.BeginTransactionRecord("Bootstrap records"), m.EndTransactionRecord())


def test_bootstrap_records_interrupted_by_a_kill_are_written_again(kafkas):
    (kafkas.directory / "bootstrap.checkpoint").write_bytes(build_snapshot([], values(*BASE), 7))
    kafkas.write(log_of([m.BeginTransactionRecord("Bootstrap records"), *BASE[:2]]))
    assert kafkas.start().topics["ledger"].leader_epochs == [4]


@pytest.mark.parametrize("clean", [True, False])
def test_a_partition_without_metadata_gets_an_epoch_above_its_log(kafkas, clean):
    kafkas.write()
    (kafkas.directory / "ledger-0" / f"{0:020d}.log").write_bytes(log_of([NO_OP]))
    (kafkas.directory / "ledger-0" / "leader-epoch-checkpoint").write_text("0\n1\n5 0\n")
    if not clean:
        (kafkas.directory / ".kafka_cleanshutdown").unlink()
    cluster = kafkas.start()
    (told,) = cluster.topics["ledger"].leader_epochs
    assert told > 5
    assert cluster.partition("ledger", 0).leader_epoch == told
    assert cluster.topics["ledger"].topic_id == LEDGER


def test_directory_that_is_only_called_like_a_partition_is_no_topic(kafkas):
    kafkas.write()
    (kafkas.directory / "backup-20240101").mkdir()
    assert sorted(kafkas.start().topics) == ["ledger"]


def test_missing_partitions_below_the_highest_are_offline(kafkas):
    kafkas.write(dirs=("ledger-2",))
    cluster = kafkas.start()
    assert [cluster.partition("ledger", index).offline is None for index in range(3)] == [False, False, True]
    assert cluster.topics["ledger"].configs == {"retention.ms": "-1", "retention.bytes": "-1"}


def test_two_topics_under_one_name_stop_the_start(kafkas):
    kafkas.write(dirs=("ledger-0",))
    kafkas.write(dirs=("ledger-1",), topic_id=AUDIT)
    with pytest.raises(LogDirectoryError, match="ledger-0 and ledger-1 belong to two topics"):
        kafkas.start()


def test_newest_snapshot_is_the_one_that_reaches_furthest():
    names = [snapshot_name(SnapshotId(*each)) for each in ((0, 0), (900, 5), (1000, 4))]
    assert newest_snapshot([*names, "00000000000000002000-0000000009.checkpoint.part"]) == (1000, 4)
    assert newest_snapshot(["00000000000000000000.log"]) is None


def test_quorum_state_without_an_epoch_is_refused(kafkas):
    assert quorum_epoch(b'{"leaderEpoch":3}') == 3
    for broken in (b"", b"{}", b"[]", b'{"leaderEpoch":"3"}', b"\xff"):
        with pytest.raises(ProtocolError):
            quorum_epoch(broken)
    kafkas.write(log_of([*BASE]))
    (kafkas.metadata / "quorum-state").write_text("{}")
    with pytest.raises(LogDirectoryError, match="quorum-state"):
        kafkas.start()


def snapshot_of(parts):
    """Take a snapshot, and delete everything that it replaces."""
    retention = Retention(
        lambda: (), parts.disk, parts.clock, parts.turns, parts.logs.deleter, parts.logs.fail_unless_short
    )
    taking = MetadataSnapshots(
        parts.cluster.metadata_log,
        parts.logs,
        parts.clock,
        parts.turns,
        Config(metadata_max_retention_bytes=1),
        retention.delete_old_segments,
    )
    parts.turns.event(taking.take)
    parts.settle()


def test_snapshots_keep_kafka_records_that_ottla_does_not_use(kafkas, parts, monkeypatch):
    monkeypatch.setattr(
        SideFiles, "start_sync", lambda logs, names, on_end: logs._clock.next_turn(lambda: on_end(None))
    )
    voters = (kraft_version(), kraft_voters(Voter(1, LEDGER, "CONTROLLER", "127.0.0.1", 9093)))
    metrics = m.encode_metadata_record(m.ConfigRecord(16, "subscription", "interval.ms", "100"))
    aborted = [m.BeginTransactionRecord("half"), TOKEN, m.AbortTransactionRecord("no")]
    mirrored = m.PartitionRecord(
        *(1, LEDGER, (1, 2), (2,), 2, 4, 9, (LEDGER, AUDIT), (2,), (3,), 1), eligible_leader_replicas=(1,)
    )
    shrunk = m.PartitionChangeRecord(1, LEDGER, isr=(1,), eligible_leader_replicas=(), last_known_elr=(2,))
    log = log_of(voters, [*BASE, mirrored], [BROKER_REGISTRATION, NO_OP, TOKEN, metrics], aborted, [shrunk])
    kafkas.write(log, dirs=("ledger-0", "ledger-1"))
    before = kafkas.start().image
    assert before.passed_over == [BROKER_REGISTRATION, TOKEN, metrics]
    placement = before.topics["ledger"].registrations[1]
    assert placement == (1, (1, 2), (LEDGER, AUDIT), (1,), (2,), (3,), 1, None, None)
    partition = parts.cluster.metadata_log.partition
    partition.log.config = replace(partition.log.config, segment_bytes=300)
    for name in ("ours", "more"):
        create_topic(parts.cluster, name)
        parts.settle()
        snapshot_of(parts)
    assert partition.log.segments.first_offset > 0
    parts.stop()
    after = kafkas.start().image
    assert after == before
    assert [after.quorum[kind] for kind in sorted(after.quorum)] == [*voters]


def test_metadata_files_are_read_offline_and_gaps_are_refused():
    image = MetadataImage()
    files = {"00000000000000000000.log": log_of([*BASE]), "00000000000000000003.log": log_of([NO_OP], base_offset=3)}
    assert read_metadata(files, image).skipped == {20: 1}
    assert sorted(image.topics) == ["ledger"]
    with pytest.raises(ProtocolError, match="where 3 is expected"):
        read_metadata(files | {"00000000000000000003.log": log_of([NO_OP], base_offset=5)}, MetadataImage())
    with pytest.raises(ProtocolError, match="ends inside the batch"):
        read_metadata({"00000000000000000000.log": log_of([*BASE])[:-1]}, MetadataImage())
