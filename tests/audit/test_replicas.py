"""The check `replicas`: differences that brokers may have are no finding, and each fault is found at its offset."""

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from kafka import KafkaAdminClient, KafkaConsumer, OffsetAndMetadata, TopicPartition

from ottla.audit.checks.finding import CHECKS
from ottla.audit.listed import Listed
from ottla.audit.replica_tasks import compare_replicas
from ottla.audit.request import list_all
from ottla.audit.runner import ThreadRunner
from ottla.audit.tasks import Settings
from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import iter_batches, read_header, seal
from ottla.protocol.checkpoints import (
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    encode_epochs,
    encode_offsets,
    encode_partition_metadata,
)
from ottla.scan.cluster.offset_window import OffsetWindow
from ottla.scan.listing import PartitionLog
from ottla.wire.address import KafkaAddress
from tests.audit.copies_by_seed import FAULTS, write_pairs
from tests.conformance.open_transactions import Client
from tests.thread_broker import ThreadBroker

SEED = 20_260
WORDS = {"crc": "damaged", "unclean": "lost", "unclean and nothing written": "lost"}
SETTINGS = Settings(CHECKS, 10_000, None, 86_400_000, None)


def compare(*directories):
    """Return the findings on the partitions of these directories, by topic."""
    listed = [one for directory in directories for one in list_all(str(directory))]
    compared = compare_replicas(ThreadRunner(2), listed, {}, SETTINGS)
    found = {}
    for one in compared.findings:
        found.setdefault(one.topic, []).append(one)
    return found


@pytest.mark.slow
def test_a_thousand_sound_pairs_have_no_finding(tmp_path):
    directories, _ = write_pairs(tmp_path, SEED, 1_000)
    assert compare(*directories) == {}


@pytest.mark.slow
def test_each_planted_fault_is_found_at_its_offset(tmp_path):
    directories, made = write_pairs(tmp_path, SEED, 300, FAULTS)
    found = compare(*directories)
    for one in made:
        (finding,) = found.pop(one.name, ())
        assert (finding.offset, f": {one.records:,} record" in finding.message) == (one.offset, True), (one, finding)
        assert finding.message.split()[0] == WORDS.get(one.fault, "different"), (one, finding)
        batch = read_header(Path(finding.file).read_bytes(), finding.position)
        assert batch.base_offset <= one.offset <= batch.last_offset, (one, finding)
    assert found == {}


def write_copies(tmp_path, write_log, watermark=20):
    """Write three equal copies of a partition with 20 records, and return their directories."""
    log = write_log()
    for number in range(10):
        log.data(2, value=b"v%d" % number)
    (log.folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (write_log.root / "replication-offset-checkpoint").write_text(f"0\n1\nledger 0 {watermark}\n")
    directories = [tmp_path / f"broker-{node}" for node in (1, 2, 3)]
    for directory in directories:
        shutil.copytree(write_log.root, directory)
    return directories


def change(directory, value):
    """Change a value in a segment; the CRC of its batch is right. Return the position of the batch."""
    path = directory / "ledger-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    at = content.index(value)
    content[at : at + 2] = b"XX"
    position = max(position for position, _ in iter_batches(content) if position < at)
    seal(content, position)
    path.write_bytes(content)
    return position


def test_the_copy_that_differs_from_two_others_is_named(tmp_path, write_log, run_audit):
    directories = write_copies(tmp_path, write_log)
    position = change(directories[1], b"v4")
    code, out, _ = run_audit(*directories, "--format", "json")
    (found,) = [one for one in map(json.loads, out.splitlines()) if one.get("check") == "replicas"]
    one, two, three = map(str, directories)
    assert (code, found["severity"], found["offset"], found["position"]) == (1, "error", 8, position)
    assert found["file"] == f"{two}/ledger-0/{0:020d}.log"
    assert found["message"].startswith(f"different in {two} and {one}, {three}: 1 record, offset 8, below both")
    code, out, _ = run_audit(*directories, "--checks", "replicas", "--report", tmp_path / "audit.html")
    assert (code, "Findings: 1 difference between replicas." in out) == (1, True)
    assert "ledger-0@8" in (tmp_path / "audit.html").read_text()
    assert run_audit(*directories, "--as-of", "ledger:0:8", "--checks", "replicas")[0] == 0
    assert run_audit(directories[0], directories[2], "--checks", "replicas")[0] == 0


def test_records_above_a_high_watermark_are_not_compared(tmp_path, write_log, run_audit):
    directories = write_copies(tmp_path, write_log, watermark=8)
    change(directories[1], b"v4")
    assert run_audit(*directories, "--checks", "replicas")[0] == 0


def test_a_copy_without_a_high_watermark_is_checked_in_part(tmp_path, write_log, run_audit):
    directories = write_copies(tmp_path, write_log)
    (directories[2] / "replication-offset-checkpoint").unlink()
    code, out, _ = run_audit(*directories, "--checks", "replicas")
    assert (code, "Checked in part: replicas: ledger-0 in" in out) == (0, True)
    code, _, err = run_audit(*directories, "--checks", "replicas", "--require", "replicas")
    assert (code, "replicas could not be checked completely" in err) == (2, True)


def test_a_copy_with_a_broken_checkpoint_is_not_compared(tmp_path, write_log, run_audit):
    directories = write_copies(tmp_path, write_log)
    path = directories[2] / "ledger-0" / "leader-epoch-checkpoint"
    path.write_text("0\n2\n0 0\n")
    code, out, _ = run_audit(*directories, "--checks", "replicas", "--format", "json")
    (found,) = map(json.loads, out.splitlines())
    assert (code, found["severity"]) == (1, "warning")
    assert found["message"].startswith(f"{directories[2]} is not compared completely: {path}: checkpoint announces 2")


def write_epochs(directory, spans, watermark):
    """Write a copy with batches of two records: (first offset, end offset, leader epoch) of each span."""
    folder = directory / "ledger-0"
    folder.mkdir(parents=True)
    content = b""
    for first, end, epoch in spans:
        for base in range(first, end, 2):
            records = [(b"k", b"%d of epoch %d" % (base, epoch))] * 2
            content += build_batch(records, base_offset=base, timestamp_ms=1_000, partition_leader_epoch=epoch)
    (folder / f"{0:020d}.log").write_bytes(content)
    (folder / LEADER_EPOCHS).write_bytes(encode_epochs([(epoch, first) for first, _, epoch in spans]))
    (directory / HIGH_WATERMARKS).write_bytes(encode_offsets({("ledger", 0): watermark}))
    return directory


def test_each_unclean_election_is_a_finding(tmp_path):
    one = write_epochs(tmp_path / "one", [(0, 100, 0), (100, 150, 2)], 150)
    other = write_epochs(tmp_path / "other", [(0, 60, 0), (60, 120, 1), (120, 160, 3)], 160)
    found = [(found.offset, found.message.partition(", acknowledged")[0]) for found in compare(one, other)["ledger"]]
    assert found == [
        (60, f"lost in {other}: 40 records, offsets 60 to 99"),
        (100, f"lost in {one}: 20 records, offsets 100 to 119"),
        (120, f"lost in {other}: 30 records, offsets 120 to 149"),
    ]


def test_one_election_that_lost_records_of_two_leaders_is_one_finding(tmp_path):
    one = write_epochs(tmp_path / "one", [(0, 60, 0), (60, 100, 1)], 100)
    other = write_epochs(tmp_path / "other", [(0, 40, 0), (40, 70, 2), (70, 120, 3)], 120)
    (found,) = compare(one, other)["ledger"]
    assert found.message.startswith(f"lost in {other}: 60 records, offsets 40 to 99, acknowledged")
    assert f"leader epoch 2 begins in {other} at offset 40" in found.message


def test_copies_of_a_deleted_topic_are_not_compared(tmp_path, write_log, run_audit):
    directories = write_copies(tmp_path, write_log)
    change(directories[1], b"v4")
    for directory, topic_id in zip(directories, (1, 2, 1), strict=True):
        content = encode_partition_metadata(bytes([topic_id] * 16))
        (directory / "ledger-0" / "partition.metadata").write_bytes(content)
    assert run_audit(*directories, "--checks", "replicas")[0] == 0


def test_a_copy_that_a_broker_does_not_send_is_a_limit_and_no_finding():
    address = KafkaAddress((("127.0.0.1", 1),), timeout_s=0.1)
    listed = []
    for broker in (1, 2):
        window = OffsetWindow(address, "ledger", b"i" * 16, 0, 0, 9, replica=broker)
        log = PartitionLog("ledger", 0, window.path, 0, 0, (), (), window)
        listed.append(Listed(f"broker {broker}", log, None, 9))
    found = compare_replicas(ThreadRunner(1), listed, {}, SETTINGS)
    assert found.findings == []
    assert [one.reason.partition(":")[0] for one in found.reduced] == [
        "broker 1 is not compared completely",
        "broker 2 is not compared completely",
    ]


def test_one_directory_has_no_replica(tmp_path, write_log, run_audit):
    write_copies(tmp_path, write_log)
    code, _, err = run_audit(tmp_path / "broker-1", "--checks", "replicas")
    assert (code, "one directory has no other replica: name those of several brokers" in err) == (2, True)


def test_a_cluster_is_compared_if_the_check_is_named(tmp_path, run_audit):
    with ThreadBroker(tmp_path) as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        admin.create_topics({"ledger": {"num_partitions": 2, "replication_factor": 1}}, wait_for_metadata=True)
        admin.close()
        code, out, _ = run_audit(f"kafka://{broker.bootstrap}", "--checks", "replicas")
        assert "replicas: 2 partitions have one copy here, such as ledger-0: nothing to compare" in out
        assert (code, "Checked in part: replicas: brokers do not show their checkpoints" in out) == (0, True)
        assert "replicas" not in run_audit(f"kafka://{broker.bootstrap}")[1]
        assert run_audit(f"kafka://{broker.bootstrap}", "--checks", "replicas", "--dry-run")[0] == 0


@pytest.mark.slow
def test_records_that_a_group_has_read_and_the_leader_lacks_are_lost(tmp_path, run_audit):
    with ThreadBroker(tmp_path) as broker:
        client = Client(broker.bootstrap)
        client.create_topic("ledger", 2)
        for partition in (0, 1):
            client.produce("ledger", partition, count=10)
        client.close()
    (tmp_path / ".kafka_cleanshutdown").unlink()  # the next start begins a leader epoch
    with ThreadBroker(tmp_path) as broker:
        client = Client(broker.bootstrap)
        client.produce("ledger", 0, count=10)
        client.produce("ledger", 1, count=10)
        client.close()
        consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id="readers")
        former, sound = TopicPartition("ledger", 0), TopicPartition("ledger", 1)
        consumer.assign([former, sound])
        consumer.commit({former: OffsetAndMetadata(13, "", 0), sound: OffsetAndMetadata(10, "", 0)})
        consumer.close()
        code, out, _ = run_audit(f"kafka://{broker.bootstrap}", "--checks", "replicas", "--format", "json")
    (found,) = [one for one in map(json.loads, out.splitlines()) if one.get("severity") == "warning"]
    assert (code, found["topic"], found["partition"], found["offset"]) == (1, "ledger", 0, 10)
    words = "lost: offsets 10 to 12, which group readers has read in leader epoch 0; now this epoch ends at offset 10"
    assert found["message"].startswith(words)
