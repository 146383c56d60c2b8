"""Batches larger than Ottla reads: each command reports them in one line, and never as damaged or lost."""

import json
import struct
import subprocess
import sys
import zlib

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.protocol.batch import build_batch
from ottla.protocol.compression import GZIP
from ottla.protocol.internal_topics.transaction_records import (
    TransactionValue,
    encode_transaction_value,
    transaction_key,
)
from tests.legacy_messages import message
from tests.unusual_frames import bomb

LARGER = "larger than Ottla reads: the zstd records take more than 256 MiB"
MEMORY_LIMIT_KB = 300 * 1024
RUN = """
import sys
from ottla.cli.main import main
try:
    main()
finally:
    if sys.platform == "linux":
        with open("/proc/self/status") as status:  # getrusage has the peak of the process that forked this one, too
            print(*(line for line in status if line.startswith("VmHWM")), file=sys.stderr, end="")
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Write bombs between valid batches: offsets 0 to 2, 6 to 8, ... are valid."""
    root = tmp_path_factory.mktemp("bombs") / "log"
    write(root / "t-0", [build_batch([(b"k", b"v")] * 3, timestamp_ms=1_000), bomb().batch] * 4)
    return root


def write(folder, batches):
    folder.mkdir(parents=True)
    content = b"".join(struct.pack(">q", 3 * at) + bytes(batch)[8:] for at, batch in enumerate(batches))
    (folder / f"{0:020d}.log").write_bytes(content)


def ottla(*arguments):
    """Run a command within the memory limit. Return (exit code, stdout, lines of stderr)."""
    command = [sys.executable, "-c", RUN, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    said = done.stderr.splitlines()
    if sys.platform == "linux":
        assert int(said.pop().split()[1]) < MEMORY_LIMIT_KB
    assert "Traceback" not in done.stderr and "damaged" not in (done.stdout + done.stderr).replace("none damaged", "")
    return done.returncode, done.stdout, said


def test_dump(log):
    code, out, said = ottla("dump", log / "t-0", "--records")
    assert code == 2
    assert len(said) == 1 and f"{LARGER} (offset 3, position" in said[0] and "kafka-dump-log" in said[0]
    offsets = [int(line.split()[2]) for line in out.splitlines() if line.startswith("| ")]
    assert offsets == [0, 1, 2, 6, 7, 8, 12, 13, 14, 18, 19, 20]
    assert out.splitlines()[-1].startswith(f"not checked: {LARGER}")


def test_dump_as_json(log):
    code, out, _ = ottla("dump", log / "t-0", "--records", "--format", "json")
    verdict = json.loads(out.splitlines()[-1])
    assert code == 2 and verdict["sound"] is None and LARGER in verdict["unread"]


@pytest.mark.slow
def test_commands_that_read_no_records_report_no_loss(log):
    pytest.importorskip("pyarrow", reason="the audit extra is not installed")
    for command in (("dump", log / "t-0"), ("inspect", log), ("audit", log)):
        code, out, _ = ottla(*command)
        assert code == 0 and "lost" not in out


@pytest.mark.slow
def test_export(log, tmp_path):
    pytest.importorskip("numba", reason="the audit extra is not installed")
    code, _, said = ottla("export", log, tmp_path / "out")
    assert code == 2 and len(said) == 1
    assert LARGER in said[0] and "(batch at offset 3); --on-damage report leaves the damage out" in said[0]
    code, out, said = ottla("export", log, tmp_path / "out", "--on-damage", "report")
    assert code == 0 and out.startswith("12 records in 1 files")
    assert len(said) == 4 and all(line.startswith("large batch, not read: ") for line in said)


@pytest.mark.slow
def test_an_audit_warns_of_the_coordinator_batch_it_did_not_read(tmp_path):
    pytest.importorskip("pyarrow", reason="the audit extra is not installed")
    sound = build_batch([(transaction_key("id"), None)] * 3, timestamp_ms=1_000)
    write(tmp_path / "log" / "__transaction_state-0", [sound, bomb().batch])
    code, out, _ = ottla("audit", tmp_path / "log", "--format", "json")
    found = [one for one in map(json.loads, out.splitlines()) if one["severity"] != "info"]
    assert code == 1
    assert [(one["check"], one["severity"], one["offset"]) for one in found] == [("unread", "warning", 3)]
    assert LARGER in found[0]["message"]


@pytest.mark.slow
def test_an_audit_does_not_call_forgotten_what_that_batch_may_hold_open(tmp_path):
    pytest.importorskip("pyarrow", reason="the audit extra is not installed")
    empty = encode_transaction_value(TransactionValue(13, 2, 60_000, 0, None, 1_000, -1))
    states = build_batch([(transaction_key("id"), empty)] * 3, timestamp_ms=1_000)
    write(tmp_path / "log" / "__transaction_state-0", [states, bomb().batch])
    producer = {"producer_id": 13, "producer_epoch": 3, "base_sequence": 0, "transactional": True}
    write(tmp_path / "log" / "t-0", [build_batch([(b"k", b"v")], timestamp_ms=2_000, **producer)])
    code, out, _ = ottla("audit", tmp_path / "log", "--format", "json")
    (found,) = [one for one in map(json.loads, out.splitlines()) if one["check"] == "hanging"]
    assert (code, found["severity"]) == (1, "info")
    assert "unverifiable: a batch of __transaction_state-0 was not read" in found["message"]
    assert LARGER in found["message"]
    assert "forgotten" not in out


def test_inspect_reports_a_coordinator_log_that_it_did_not_read_to_its_end(tmp_path):
    write(tmp_path / "log" / "__transaction_state-0", [bomb().batch])
    code, out, _ = ottla("inspect", tmp_path / "log")
    assert code == 2
    assert f"__transaction_state-0 was not read to its end: {LARGER}" in " ".join(out.split())  # lines are folded


@pytest.mark.slow
def test_an_audit_of_copies_fails_in_one_line_on_a_batch_too_large(log):
    pytest.importorskip("pyarrow", reason="the audit extra is not installed")
    write(log.parent / "both" / "t-0", [bomb().batch])
    write(log.parent / "both" / "u-0", [bomb().batch])
    code, _, said = ottla("audit", log.parent / "both", "--copies", "t=u,key")
    assert code == 2 and len(said) == 1 and LARGER in said[0]


def large_wrapper():
    """A message of magic 1 whose gzip value holds one message of 300 MiB."""
    size, piece = 300 << 20, bytes(1 << 20)
    covered = struct.pack(">bBqii", 1, 0, 0, -1, size)
    crc = zlib.crc32(covered)
    for _ in range(300):
        crc = zlib.crc32(piece, crc)
    packer = zlib.compressobj(1, wbits=31)
    packed = packer.compress(struct.pack(">qiI", 0, 4 + len(covered) + size, crc) + covered)
    packed += b"".join(packer.compress(piece) for _ in range(300)) + packer.flush()
    return message(0, None, packed, magic=1, attributes=GZIP)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["dump", "export"])
def test_an_old_message_that_is_too_large_is_not_called_damaged(command, tmp_path):
    write(tmp_path / "log" / "t-0", [large_wrapper()])
    arguments = {
        "dump": ["dump", tmp_path / "log" / "t-0", "--records"],
        "export": ["export", tmp_path / "log", tmp_path / "out"],
    }
    result = CliRunner().invoke(main, [str(each) for each in arguments[command]], catch_exceptions=False)
    assert result.exit_code == 2
    assert "larger than Ottla reads: the gzip records take more than 256 MiB" in result.stderr
    assert "damaged" not in result.stdout + result.stderr
