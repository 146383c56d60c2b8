"""The audit command: what it prints, its exit codes, and what it ships to executors."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run_audit(spark, capsys):
    from ottla.spark_jobs.audit import main

    def run(*argv):
        code = main([str(argument) for argument in argv])
        return code, *capsys.readouterr()

    return run


@pytest.mark.spark
@pytest.mark.parametrize("name", ["clean", "unclean"])
def test_open_transactions_are_those_that_kafkas_tools_list(run_audit, reference, name):
    code, out, _ = run_audit(reference(name), "--format", "json")
    found = {one["transactional_id"]: one for one in json.loads(out)["open_transactions"]}
    assert code == 1
    assert set(found) == {"hanging-01", "tv2-01"}
    # As `kafka-transactions describe` and `describe-producers` have them in transactions.txt.
    hanging = found["hanging-01"]
    assert (hanging["producer_id"], hanging["producer_epoch"], hanging["first_offset"]) == (13, 0, 898)
    assert (hanging["topic"], hanging["partition"], hanging["timeout_ms"]) == ("ledger", 2, 900_000)
    assert json.loads(out)["audited_at_ms"] - hanging["age_ms"] == 1795253826426
    second = found["tv2-01"]
    assert (second["producer_id"], second["topic"], second["partition"]) == (14, "ledger-tv2", 1)


@pytest.mark.spark
def test_partitions_are_those_that_kafkas_consumer_saw(run_audit, reference, consumed):
    _, out, _ = run_audit(reference("unclean"), "--format", "json")
    partitions = {f"{row['topic']}-{row['partition']}": row for row in json.loads(out)["partitions"]}
    ends, records = consumed("read_uncommitted")
    for name, end in ends.items():
        row = partitions[name]
        assert row["high_watermark"] == end
        assert sum(row["records"].values()) == sum(f"{one['topic']}-{one['partition']}" == name for one in records)
    for name, end in consumed("read_committed")[0].items():
        assert partitions[name]["last_stable_offset"] == end


@pytest.mark.spark
def test_text_has_a_line_per_partition_and_tells_what_to_do(run_audit, reference):
    code, out, err = run_audit(reference("clean"))
    assert (code, err) == (1, "")
    line = next(line for line in out.splitlines() if re.match(r"ledger +2 ", line))
    assert line.split("│")[1].split() == ["0", "909", "898", "◂"]
    assert line.split("│")[2].split() == ["223", "64", "1"]
    assert line.split("│")[3].split() == ["471", "147", "4", "·"]
    assert "abort --topic ledger --partition 2 --start-offset 898" in out
    assert "__transaction_state" not in out
    assert "\033" not in out


@pytest.mark.spark
def test_clean_directory_exits_with_0(run_audit, reference):
    code, out, _ = run_audit(reference("clean"), "--topics", "audit-log,__*")
    assert code == 0
    assert "Clean" in out
    assert "__consumer_offsets" in out


@pytest.mark.spark
def test_damage_exits_with_1_and_names_the_place(run_audit, write_log):
    log = write_log()
    positions = [log.data(5) for _ in range(3)]
    data = bytearray(log.path.read_bytes())
    data[positions[1] + 70] ^= 1
    log.path.write_bytes(data)
    code, out, _ = run_audit(write_log.root)
    assert code == 1
    assert str(log.path) in out
    assert f"position {positions[1]} to {positions[2]}: CRC mismatch in the batch at offset 5" in out
    _, out, _ = run_audit(write_log.root, "--format", "json")
    assert [one["position"] for one in json.loads(out)["damage"]] == [positions[1]]


@pytest.mark.spark
def test_torn_tail_is_told_and_is_no_finding(run_audit, write_log):
    log = write_log()
    log.data(5)
    with log.path.open("ab") as file:
        file.write(b"\0" * 30)
    code, out, _ = run_audit(write_log.root)
    assert code == 0
    assert "Torn tails" in out


@pytest.mark.spark
def test_open_transaction_below_the_log_start_is_known_from_the_snapshot(run_audit, write_log):
    from ottla.protocol.snapshot import ProducerEntry, encode_snapshot

    log = write_log(base_offset=100)
    log.data(3)
    snapshot = encode_snapshot([ProducerEntry(5, 0, 9, 90, 0, 1_700_000_000_000, -1, 81)])
    (log.folder / f"{100:020d}.snapshot").write_bytes(snapshot)
    code, out, _ = run_audit(write_log.root, "--format", "json")
    (found,) = json.loads(out)["open_transactions"]
    assert (code, found["producer_id"], found["first_offset"], found["records"]) == (1, 5, 81, 0)
    assert json.loads(out)["partitions"][0]["last_stable_offset"] == 100


@pytest.mark.spark
def test_unreadable_directory_exits_with_3(run_audit, tmp_path):
    code, out, err = run_audit(tmp_path / "none")
    assert (code, out) == (3, "")
    assert err.count("\n") == 1
    assert "No such file or directory" in err
    assert run_audit(tmp_path)[0] == 3


def test_usage_exits_with_2(capsys):
    from ottla.spark_jobs.audit import main

    assert main([]) == 2
    assert main(["DIR", "--format", "yaml"]) == 2
    assert main(["--help"]) == 0


def test_executor_says_in_one_line_what_it_lacks(monkeypatch):
    from ottla.spark_jobs import needs
    from ottla.spark_jobs.audit_scan import scan_task
    from ottla.spark_jobs.plan import Range

    monkeypatch.setattr(needs, "MODULES", {**needs.MODULES, "no_such_module": "no-such-thing"})
    needs.lacking.cache_clear()
    try:
        (result,) = scan_task((Range(0, 0, "ledger", 0, 0, ()),))
    finally:
        needs.lacking.cache_clear()
    assert re.search(r"lacks no-such-thing: pip install 'ottla\[spark\]'", result.error)
    assert "\n" not in result.error


def test_topics_that_match_nothing_are_not_reported_as_clean(run_audit, reference):
    directory = reference("clean")
    assert run_audit(directory, "--topics", "ledgre,x-*") == (
        2,
        "",
        f"ottla audit: {directory}: no topic matches ledgre,x-*\n",
    )


@pytest.mark.slow
def test_java_that_does_not_start_is_told_in_one_line_behind_what_it_says_itself(reference, tmp_path):
    command = [sys.executable, ROOT / "ottla/spark_jobs/audit.py", reference("clean")]
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ottla audit: Spark, which needs Java 17, did not start with JAVA_HOME={tmp_path}: ")


def test_what_is_shipped_works_alone(tmp_path, reference):
    """The zip scans a directory in an interpreter that has nothing else of ours."""
    from ottla.spark_jobs.session import packed

    program = f"""
import sys
sys.path.insert(0, {str(packed(tmp_path))!r})
import ottla, pyspark_ottla
from ottla.spark_jobs.audit_scan import scan_task
from ottla.spark_jobs.listing import list_partitions
from ottla.spark_jobs.plan import plan_tasks
assert "ottla.zip" in ottla.__file__ and "ottla.zip" in pyspark_ottla.__file__
tasks = plan_tasks(list_partitions({str(reference("clean"))!r}), 2, 1 << 30)
results = [result for task in tasks for result in scan_task(task)]
assert not any(result.error for result in results), results
print(sum(len(result.fates.aborted) for result in results))
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "numba")}
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=120, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 300


@pytest.mark.spark
@pytest.mark.slow
def test_spark_submit_runs_the_script_from_a_checkout(reference, tmp_path):
    submit = shutil.which("spark-submit", path=str(Path(sys.executable).parent)) or shutil.which("spark-submit")
    assert submit, "pyspark brings spark-submit"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [submit, "--master", "local[2]", ROOT / "ottla/spark_jobs/audit.py", reference("clean"), "--format", "json"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env=environment,
    )
    assert done.returncode == 1, done.stderr
    assert {one["transactional_id"] for one in json.loads(done.stdout)["open_transactions"]} == {
        "hanging-01",
        "tv2-01",
    }
