"""`ottla inspect` on copies of the directories that Apache Kafka wrote, and on damaged ones."""

import asyncio
import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from lab.metadata import change_security
from ottla.broker.config import Config, Listener
from ottla.broker.server import Server
from ottla.cli.main import main
from ottla.protocol.internal_topics.security_records import AccessControlEntryRecord, ClientQuotaRecord
from tests.unit.cli.kafka_directory import unpack

HOLD = """
import sys
from ottla.broker.ports.disk import RealDisk
lock = RealDisk().lock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def run(*arguments):
    result = CliRunner().invoke(main, ["inspect", "--format", "json", *map(str, arguments)], catch_exceptions=False)
    return result.exit_code, json.loads(result.stdout) if result.stdout else result.stderr


def partition(found, name):
    (row,) = [row for row in found["partitions"] if row["partition"] == name]
    return row


def content(directory):
    return {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in directory.rglob("*") if file.is_file()}


@pytest.fixture(scope="module", params=["clean", "unclean"])
def directory(request, tmp_path_factory):
    return unpack(request.param, tmp_path_factory.mktemp("kafka"))


@pytest.mark.slow
def test_inspect_reports_a_kafka_directory_and_changes_no_file(directory):
    before = content(directory)
    code, found = run(directory)
    assert code == 0
    assert content(directory) == before
    identity = {row["what"]: row["value"] for row in found["identity"]}
    assert identity["cluster.id"] == "AAAAAAAAQACAAAAAAAAAAQ"
    assert identity["node.id"] == "1"
    assert identity["format"] == "Apache Kafka (KRaft)"
    assert identity["transaction.version"] == 2
    assert identity["clean stop"] is (directory.name == "clean")
    ledger = partition(found, "ledger-2")
    assert (ledger["log_start"], ledger["log_end"], ledger["last_stable"]) == (0, 909, 898)
    assert (ledger["high_watermark"], ledger["segments"], ledger["size_bytes"]) == (909, 1, 196_845)
    assert partition(found, "compacted-0")["segments"] == 2
    assert len(found["partitions"]) == 23


def test_open_transactions_are_seen_from_both_sides(directory):
    _, found = run(directory)
    by_partition = {(row["partition"], row["first_offset"]) for row in found["open transactions, by partition"]}
    assert by_partition == {("ledger-2", 898), ("ledger-tv2-1", 151)}
    by_coordinator = {row["transactional_id"]: row for row in found["open transactions, by coordinator"]}
    assert set(by_coordinator) == {"hanging-01", "tv2-01"}
    hanging = by_coordinator["hanging-01"]
    assert (hanging["state"], hanging["start_ms"], hanging["partitions"]) == ("Ongoing", 1795253826426, "ledger-2")
    assert found["groups"] == [{"group": "auditors", "offsets": 1, "in_open_transactions": 0}]


def test_a_start_after_a_clean_stop_reads_little_and_after_a_crash_the_tail(directory):
    _, found = run(directory)
    ledger = partition(found, "ledger-2")
    if directory.name == "clean":
        assert (ledger["state"], ledger["recovery_point"]) == ("sound", 909)
        assert ledger["scan_bytes"] < 5_000
    else:
        assert (ledger["state"], ledger["recovery_point"]) == ("recovers", 0)
        assert ledger["scan_bytes"] >= ledger["size_bytes"]


def test_a_wrong_crc_is_found_with_verify(tmp_path):
    directory = unpack("clean", tmp_path)
    log = directory / "ledger-2" / "00000000000000000000.log"
    damaged = bytearray(log.read_bytes())
    damaged[100_000] ^= 1
    log.write_bytes(damaged)
    assert run(directory)[0] == 0
    code, found = run(directory, "--verify")
    assert code == 1
    assert found["problems"] == [
        {
            "partition": "ledger-2",
            "verdict": "damaged",
            "what": "00000000000000000000.log: wrong CRC at position 99879; a start would not notice",
        }
    ]


@pytest.mark.parametrize(("name", "state"), [("unclean", "torn"), ("clean", "damaged")])
def test_a_torn_tail_is_cut_above_the_recovery_point_and_damage_below(tmp_path, name, state):
    directory = unpack(name, tmp_path)
    log = directory / "ledger-0" / "00000000000000000000.log"
    log.write_bytes(log.read_bytes()[:-20])
    code, found = run(directory)
    assert code == (state == "damaged")
    row = partition(found, "ledger-0")
    assert row["state"] == state
    assert row["cut_bytes"] == (58 if state == "torn" else 0)
    assert row["log_end"] == (905 if state == "torn" else None)
    assert [row["partition"] for row in found["problems"]] == ["ledger-0"]


def test_leftovers_of_deletions_and_compactions_are_listed(tmp_path):
    directory = unpack("clean", tmp_path)
    (directory / "compacted-0" / "00000000000000000000.log.deleted").write_bytes(b"")
    (directory / "old-0.0123456789abcdef0123456789abcdef-delete").mkdir()
    code, found = run(directory)
    assert code == 0
    assert found["left over"] == [
        {"directory": "compacted-0", "what": "00000000000000000000.log.deleted"},
        {
            "directory": "old-0.0123456789abcdef0123456789abcdef-delete",
            "what": "not a partition that a start would load",
        },
    ]


@pytest.mark.slow
def test_a_broker_that_runs_is_named_and_not_disturbed(tmp_path):
    directory = unpack("unclean", tmp_path)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        _, found = run(directory)
        assert f"in use by process {holder.pid}" in found["state"]
        assert (directory / ".lock").read_text() == f"{holder.pid}\n"
    finally:
        holder.communicate("")
    assert "in use" not in run(directory)[1]["state"]


def test_checkpoints_that_cannot_be_read_are_problems(tmp_path):
    directory = unpack("clean", tmp_path)
    (directory / "recovery-point-offset-checkpoint").write_text("7\n")
    code, found = run(directory)
    assert code == 1
    assert "recovery-point-offset-checkpoint: checkpoint of unknown version '7'" in found["problems"][0]["what"]


def test_a_torn_replication_checkpoint_is_reported_with_exit_code_0(tmp_path):
    directory = unpack("clean", tmp_path)
    (directory / "replication-offset-checkpoint").write_text("0\n2\nt")
    code, found = run(directory)
    assert code == 0
    assert [row["verdict"] for row in found["problems"]] == ["torn"]
    assert "the next start writes it again" in found["problems"][0]["what"]


def test_a_directory_of_something_else_is_refused(tmp_path):
    assert run(tmp_path) == (2, f"ottla: {tmp_path}: not a log directory: it is empty\n")
    assert run(tmp_path / "absent")[0] == 2


@pytest.mark.slow
def test_acls_users_and_quotas_are_counted(tmp_path):
    async def live():
        users = "SCRAM-SHA-512=[name=alice,password=a],SCRAM-SHA-256=[name=alice,password=a]"
        listener = Listener("PLAINTEXT", "127.0.0.1", 0)
        server = Server(Config(log_dirs=str(tmp_path / "data"), listeners=(listener,), add_scram=users))
        await server.start()
        acls = [AccessControlEntryRecord(bytes([n] * 16), 2, "ledger", 3, "User:alice", "*", 3, 3) for n in range(3)]
        rates = ("producer_byte_rate", "consumer_byte_rate")
        quotas = [ClientQuotaRecord((("user", "alice"),), rate, 1.0, False) for rate in rates]
        change_security(server.broker.cluster, [*acls, *quotas])
        await server.stop()

    asyncio.run(live())
    _, found = run(tmp_path / "data")
    identity = {row["what"]: row["value"] for row in found["identity"]}
    assert (identity["ACLs"], identity["SCRAM credentials"], identity["entities with quotas"]) == (3, 2, 1)


def test_text_output_has_the_stop_state_and_open_transactions(directory):
    result = CliRunner().invoke(main, ["inspect", str(directory)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "hanging-01" in result.stdout
    assert result.stdout.startswith(f"{directory}: {'not ' if directory.name == 'unclean' else ''}cleanly stopped; 13")
