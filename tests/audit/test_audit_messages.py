"""Additional messages of an audit: logs without a batch, offsets after the log's end; and its lines of JSON."""

import shutil

import pytest

from tests.documented import all_seen, check_lines

pytest.importorskip("numba", reason="the spark extra is not installed")


def test_as_of_offsets_beyond_the_log_end_are_noted_on_stderr(run_audit, write_log):
    log = write_log()
    log.data(3)
    log.roll()
    log.data(2)
    for offset in (0, 2, 4, 5):
        assert run_audit(write_log.root, "--as-of", f"ledger:0:{offset}")[2] == ""
    code, out, err = run_audit(write_log.root, "--as-of", "ledger:0:1006")
    assert (code, err) == (
        0,
        "ottla audit: --as-of names offset 1,006 of ledger:0, which ends at 5: the audit ends there\n",
    )
    assert out.startswith("Audit of ")


def test_logs_without_a_batch_are_not_called_clean(run_audit, write_log):
    log = write_log()
    log.path.touch()
    code, out, _ = run_audit(write_log.root)
    assert code == 0
    assert "Nothing to check: no batch in 1 partition." in out and "Clean" not in out
    log.data(2)
    assert "Clean: every transaction is decided" in run_audit(write_log.root)[1]
    out = run_audit(write_log.root, "--as-of", "ledger:0:0")[1]
    assert "Nothing to check: no batch in 1 partition as of ledger:0:0." in out


def test_lines_of_json_are_as_documented(run_audit, reference, tmp_path):
    root = shutil.copytree(reference("unclean"), tmp_path / "unclean")
    (root / "ledger-0" / "00000000000000000000.index").unlink()
    segment = root / "ledger-1" / "00000000000000000000.log"
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    code, out, _ = run_audit(root, "--all", "--format", "json")
    assert code == 1
    lines = check_lines("ottla audit", out)
    assert {line["check"] for line in lines} >= {"damage", "hanging", "index", "gaps", "stale", "shape"}
    # A transaction that is open at a cut has no duration.
    shutil.copytree(root / "ledger-2", tmp_path / "alone" / "ledger-2")
    for cut in ((), ("--as-of", f"ledger:2:{max(line['offset'] for line in lines if line['check'] == 'hanging') + 1}")):
        lines += check_lines("ottla audit", run_audit(tmp_path / "alone", "--format", "json", *cut)[1])
    all_seen("ottla audit", lines)
