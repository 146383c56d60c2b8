"""`ottla repair` on damaged copies of Kafka's directories: files that it rebuilds or leaves, and kills in between."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.broker.config import Config
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_loader import load_log
from ottla.broker.log.log_manager import LogManager
from ottla.broker.ports.disk import RealDisk
from ottla.broker.turns import Turns
from ottla.cli.inspect.directory import Directory
from ottla.cli.main import main
from ottla.cli.repair import command as repair_command
from ottla.protocol.batch import build_batch
from ottla.protocol.snapshot import decode_snapshot
from ottla.protocol.values import TransactionMarker
from tests.unit.cli.inspect.test_command import HOLD
from tests.unit.cli.kafka_directory import unpack

SEGMENT = "00000000000000000000"
# The first batch of ledger-2 that the damage of `damage_in_the_middle` spoils, and its first offset.
POSITION, OFFSET, END = 99_879, 466, 909


def run(*arguments):
    result = CliRunner().invoke(main, ["repair", "--format", "json", *map(str, arguments)], catch_exceptions=False)
    return result.exit_code, json.loads(result.stdout) if result.stdout else result.stderr


def list_changes(found):
    return {row["file"]: row["why"] for row in found.get("changes", ())}


def content(directory):
    return {
        file.relative_to(directory).as_posix(): file.read_bytes()
        for file in directory.rglob("*")
        if file.is_file() and file.name != ".lock"
    }


def producers(snapshot):
    """Return the entries of the snapshot. Kafka's are in the order of a hash table."""
    return sorted(decode_snapshot(snapshot.read_bytes()))


def flip(file, position):
    damaged = bytearray(file.read_bytes())
    damaged[position] ^= 1
    file.write_bytes(damaged)


@pytest.fixture(autouse=True)
def no_device(monkeypatch):
    """Skip fsync and fdatasync: no test here loses power, and hundreds of syncs are slow."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    monkeypatch.setattr("os.fdatasync", lambda descriptor: None)


@pytest.fixture(scope="module")
def kafka_dir(tmp_path_factory):
    return unpack("clean", tmp_path_factory.mktemp("kafka"))


@pytest.fixture
def clean(kafka_dir, tmp_path):
    """Copy some of the partitions, which is faster than all."""
    names = [
        "__cluster_metadata-0",
        "__consumer_offsets-1",
        "__transaction_state-2",
        "compacted-0",
        "ledger-1",
        "ledger-2",
    ]
    (tmp_path / "clean").mkdir()
    for each in kafka_dir.iterdir():
        if each.is_file():
            shutil.copy2(each, tmp_path / "clean")
        elif each.name in names:
            shutil.copytree(each, tmp_path / "clean" / each.name)
    return tmp_path / "clean"


@pytest.fixture
def damage_in_the_middle(clean):
    flip(clean / "ledger-2" / f"{SEGMENT}.log", 100_000)
    return clean


def test_a_clean_kafka_directory_needs_no_repair(kafka_dir):
    before = content(kafka_dir)
    assert run(kafka_dir, "--dry-run") == (0, {"result": f"{kafka_dir}: 23 partitions, nothing to repair."})
    assert run(kafka_dir) == (0, {"result": f"{kafka_dir}: 23 partitions, nothing to repair."})
    assert content(kafka_dir) == before


@pytest.mark.slow
def test_after_a_crash_what_is_missing_is_made_and_a_second_run_finds_nothing(kafka_dir, tmp_path):
    directory = unpack("unclean", tmp_path)
    before = content(directory)
    code, planned = run(directory, "--dry-run")
    assert code == 1
    assert content(directory) == before
    code, found = run(directory)
    assert code == 0
    assert list_changes(found) == list_changes(planned)
    assert set(list_changes(found).values()) == {
        "it was missing",
        "it does not hold the largest timestamp of the segment",
    }
    # As Kafka itself made it at the clean stop that followed its recovery.
    theirs = kafka_dir / "ledger-0" / "00000000000000000906.snapshot"
    ours = directory / "ledger-0" / "00000000000000000906.snapshot"
    assert producers(ours) == producers(theirs)
    logs = {name: each for name, each in before.items() if name.endswith(".log")}
    assert {name: each for name, each in content(directory).items() if name in logs} == logs
    assert run(directory)[1] == {"result": f"{directory}: 23 partitions, nothing to repair."}


@pytest.mark.parametrize(
    ("file", "position"),
    [
        (f"ledger-1/{SEGMENT}.index", 31),
        (f"ledger-1/{SEGMENT}.timeindex", 31),
        (f"ledger-1/{SEGMENT}.txnindex", 12),
        (f"ledger-1/{SEGMENT}.txnindex", 0),
        ("ledger-1/00000000000000000841.snapshot", 30),
        ("ledger-1/leader-epoch-checkpoint", 0),
        ("ledger-1/partition.metadata", 9),
    ],
)
@pytest.mark.parametrize("is_lost", [False, True])
def test_a_damaged_or_lost_file_becomes_what_it_was(clean, file, position, is_lost):
    original = (clean / file).read_bytes()
    if is_lost:
        (clean / file).unlink()
    else:
        flip(clean / file, position)
    assert run(clean, "--dry-run")[0] == 1
    code, found = run(clean)
    assert code == 0
    assert list(list_changes(found)) == [file]
    repaired = (clean / file).read_bytes()
    if file.endswith("leader-epoch-checkpoint"):
        assert repaired == b"0\n1\n0 0\n"  # the epoch that began at the end left no batch
    elif file.endswith("index") and not file.endswith("txnindex"):
        assert abs(len(repaired) - len(original)) <= 12
    elif file.endswith("snapshot"):
        (clean / file).with_suffix(".was").write_bytes(original)
        assert producers(clean / file) == producers((clean / file).with_suffix(".was"))
    else:
        assert repaired == original
    assert run(clean)[1] == {"result": f"{clean}: 6 partitions, nothing to repair."}


class Clock:
    def now_ms(self):
        return 1_795_000_000_000

    def monotonic_ms(self):
        return 0.0


def write_a_log(directory, stop):
    """Write 40 transactions, every third aborted, the last one open. Return (end, last stable offset)."""
    manager = LogManager(
        RealDisk(), Clock(), Turns(lambda callback: callback(), pytest.fail), Config(log_dirs=str(directory))
    )
    manager.open()
    settings = LogConfig(segment_bytes=12_000)
    partition = manager.open_partition("t", 0, bytes(15) + b"\1", 0, settings)
    for number in range(40):
        producer_id = number % 3
        batch = build_batch(
            [(b"k", bytes(300))] * 3,
            timestamp_ms=1_795_000_000_000 + number,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=number // 3 * 3,
            transactional=True,
        )
        assert partition.append_own(batch).error == 0
        if number < 39:
            assert partition.append_marker(TransactionMarker(producer_id, 0, 0, number % 3 != 1, 1)).error == 0
    found = partition.log_end_offset, partition.last_stable_offset
    stop(manager)
    return found


def test_our_own_log_after_a_clean_stop_needs_nothing_and_after_a_kill_its_active_segment(tmp_path):
    end, stable = write_a_log(tmp_path / "clean", LogManager.close)
    assert run(tmp_path / "clean") == (0, {"result": f"{tmp_path / 'clean'}: 1 partitions, nothing to repair."})
    assert write_a_log(tmp_path / "killed", LogManager.abandon) == (end, stable)
    for directory in (tmp_path / "clean", tmp_path / "killed"):
        inspected = CliRunner().invoke(main, ["inspect", "--format", "json", str(directory)], catch_exceptions=False)
        (row,) = json.loads(inspected.stdout)["partitions"]
        assert (row["log_end"], row["last_stable"], row["open_transactions"]) == (end, stable, 1)
        assert row["segments"] > 2
    assert {row["why"] for row in run(tmp_path / "killed")[1]["changes"]} == {"it was missing"}
    assert run(tmp_path / "killed")[1]["result"].endswith("nothing to repair.")
    names = {file.name: file for file in (tmp_path / "clean" / "t-0").iterdir()}
    assert {file.name for file in (tmp_path / "killed" / "t-0").iterdir()} == set(names)
    for name, file in names.items():
        if not name.endswith(".snapshot"):
            assert (tmp_path / "killed" / "t-0" / name).read_bytes() == file.read_bytes(), name


def test_all_indexes_and_snapshots_of_our_own_log_can_be_made_again(tmp_path):
    write_a_log(tmp_path / "log", LogManager.close)
    before = content(tmp_path / "log")
    beside = [file for file in (tmp_path / "log" / "t-0").iterdir() if file.suffix not in (".log", ".metadata")]
    assert {file.suffix for file in beside} == {".index", ".timeindex", ".txnindex", ".snapshot", ""}
    for file in beside:
        file.unlink()
    assert run(tmp_path / "log")[0] == 0
    after = content(tmp_path / "log")
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} == set()


def test_files_of_no_segment_go(clean):
    (clean / "ledger-1" / "00000000000000000777.index").write_bytes(b"")
    (clean / "ledger-1" / "00000000000000009999.snapshot").write_bytes(b"")
    code, found = run(clean)
    assert code == 0
    assert set(list_changes(found)) == {"ledger-1/00000000000000000777.index", "ledger-1/00000000000000009999.snapshot"}
    assert not (clean / "ledger-1" / "00000000000000000777.index").exists()


def test_damage_in_the_middle_is_kept_and_the_cost_of_a_cut_is_reported(damage_in_the_middle):
    before = content(damage_in_the_middle)
    code, found = run(damage_in_the_middle)
    assert code == 1
    assert content(damage_in_the_middle) == before
    (cost,) = found["a cut gives up"]
    assert (cost["partition"], cost["position"], cost["first_lost_offset"]) == ("ledger-2", POSITION, OFFSET)
    assert cost["looks_like"] == "damage that no crash leaves"
    log = damage_in_the_middle / "ledger-2" / f"{SEGMENT}.log"
    assert (cost["bytes"], cost["offsets"]) == (log.stat().st_size - POSITION, END - OFFSET)
    assert (cost["batches"], cost["records"], cost["committed"], cost["aborted"]) == (338, 305, 103, 32)
    commands = [row["command"] for row in found["choices"]]
    assert commands == [None, f"ottla repair {damage_in_the_middle} --truncate ledger-2"]


def test_costs_count_group_offsets_and_transactional_ids(clean):
    for name in ("__consumer_offsets-1", "__transaction_state-2"):
        flip(clean / name / f"{SEGMENT}.log", 100)
    _, found = run(clean, "--dry-run")
    costs = {row["partition"]: row for row in found["a cut gives up"]}
    assert costs["__consumer_offsets-1"]["group_offsets"] == 1
    assert costs["__transaction_state-2"]["transactional_ids"] >= 3


def test_truncate_leaves_the_files_that_serve_would_leave(damage_in_the_middle, tmp_path):
    served = tmp_path / "served"
    shutil.copytree(damage_in_the_middle, served)
    found = Directory(served)
    start = found.start_of("ledger-2", 0)._replace(clean=False, recovery_point=0, truncate_damaged=True)
    theirs = load_log(RealDisk(), str(served / "ledger-2"), found.settings_of("ledger-2"), start)
    assert theirs.segments.end_offset == OFFSET
    theirs.segments.close()

    planned = run(damage_in_the_middle, "--dry-run", "--truncate", "ledger-2")[1]
    assert (damage_in_the_middle / "ledger-2" / f"{SEGMENT}.log").stat().st_size > POSITION
    code, done = run(damage_in_the_middle, "--truncate", "ledger-2")
    assert code == 0
    assert list_changes(done) == list_changes(planned)
    assert "choices" not in done
    for suffix in ("log", "txnindex"):
        ours = (damage_in_the_middle / "ledger-2" / f"{SEGMENT}.{suffix}").read_bytes()
        assert ours == (served / "ledger-2" / f"{SEGMENT}.{suffix}").read_bytes()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert f"\nledger 2 {OFFSET}\n" in (damage_in_the_middle / name).read_text()
        assert "\nledger 1 841\n" in (damage_in_the_middle / name).read_text()
    assert run(damage_in_the_middle)[1]["result"].endswith("nothing to repair.")
    inspected = CliRunner().invoke(main, ["inspect", "--verify", str(damage_in_the_middle)])
    assert inspected.exit_code == 0


def test_later_segments_go_with_what_is_before_them(clean):
    log = clean / "compacted-0" / f"{SEGMENT}.log"
    flip(log, log.stat().st_size - 5)
    assert run(clean, "--dry-run")[0] == 1
    code, found = run(clean, "--truncate", "compacted-0")
    assert code == 0
    gone = {"log", "index", "timeindex"}
    assert {f"compacted-0/00000000000000000132.{suffix}" for suffix in gone} <= set(list_changes(found))
    assert not list((clean / "compacted-0").glob("*132.*log"))
    assert run(clean)[1]["result"].endswith("nothing to repair.")


class Killed(Exception):
    pass


class DyingDisk(RealDisk):
    """A disk that dies at the step number `left`, before it or in the middle of it."""

    left = 0

    def _step(self):
        type(self).left -= 1
        if self.left < 0:
            raise Killed

    def write_atomically(self, path, data, sync=True):
        Path(f"{path}.tmp").write_bytes(bytes(data)[: len(data) // 2])
        self._step()
        super().write_atomically(path, data, sync)

    def rename(self, old, new):
        self._step()
        super().rename(old, new)

    def remove(self, path):
        self._step()
        super().remove(path)

    def open(self, path, create=False):
        self._step()
        return super().open(path, create)


@pytest.mark.slow
def test_a_kill_at_any_step_leaves_it_repairable(damage_in_the_middle, tmp_path, monkeypatch):
    (damage_in_the_middle / "ledger-1" / f"{SEGMENT}.index").unlink()
    for each in ("__consumer_offsets-1", "__transaction_state-2", "compacted-0"):
        shutil.rmtree(damage_in_the_middle / each)
    whole = tmp_path / "whole"
    shutil.copytree(damage_in_the_middle, whole)
    code, done = run(whole, "--truncate", "ledger-2")
    assert code == 0
    monkeypatch.setattr("ottla.broker.ports.disk.RealDisk", DyingDisk)
    for step in range(len(done["changes"])):
        directory = tmp_path / f"killed-{step}"
        shutil.copytree(damage_in_the_middle, directory)
        DyingDisk.left = step
        with pytest.raises(Killed):
            run(directory, "--truncate", "ledger-2")
        DyingDisk.left = 10**6
        assert run(directory, "--truncate", "ledger-2")[0] == 0, step
        left = {name: each for name, each in content(directory).items() if not name.endswith(".tmp")}
        assert left == content(whole), step
        shutil.rmtree(directory)


def test_a_broker_that_runs_is_not_disturbed(clean):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(clean / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        before = content(clean)
        for arguments in ([clean], [clean, "--dry-run"]):
            code, told = run(*arguments)
            assert (code, str(holder.pid) in told) == (2, True)
        assert content(clean) == before
    finally:
        holder.communicate("")


def test_unusable_directories_and_unknown_partitions_are_refused(clean, tmp_path):
    (tmp_path / "empty").mkdir()
    assert run(tmp_path / "empty")[0] == 2
    assert run(clean, "--truncate", "nowhere-0") == (2, "ottla: --truncate nowhere-0: there is no such partition\n")
    (clean / "recovery-point-offset-checkpoint").write_text("7\n")
    assert run(clean)[0] == 2


def test_text_output_names_the_changed_file(clean):
    (clean / "ledger-1" / f"{SEGMENT}.index").unlink()
    result = CliRunner().invoke(main, ["repair", str(clean)], catch_exceptions=False)
    assert f"ledger-1/{SEGMENT}.index" in result.stdout
    assert result.exit_code == repair_command.NOTHING
