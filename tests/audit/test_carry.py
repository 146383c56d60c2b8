"""An audit in two runs, of which the second begins where the first ended, finds what one run finds."""

import hashlib
import json
import zlib

import numpy as np
import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from click.testing import CliRunner

from ottla.audit.carry import Carry, CarryRefused, decode, encode
from ottla.audit.pipeline import audit
from ottla.audit.request import Request
from ottla.audit.runner import ThreadRunner
from ottla.protocol.batch_header import iter_batches
from ottla.scan import events
from ottla.scan.listing import COORDINATORS
from ottla.spark_jobs.command_lines import audit as audit_command
from ottla.testkit.corpus.case import files_of
from ottla.testkit.corpus.case_run import BEGIN_MS
from ottla.testkit.corpus.catalogue import CASES
from ottla.wire.address import parse_kafka_address
from tests.corpus import KEEPING, write_files
from tests.thread_broker import ThreadBroker

SOON_MS = 600_000
HERE = {case.name: case for case in CASES}
SERVED = [case for case in CASES if case.name != "torn-transaction"]


def run_audit(directories, carry=None, **given):
    return audit(ThreadRunner(1), Request(directories, (), BEGIN_MS + SOON_MS, carry=carry, **given))


# Over the wire, these are of the answer that has the marker.
OF_FILES = [events.ENDED_SEGMENT, events.ENDED_POSITION]


def facts_of(found):
    has_files = not found.directories[0].startswith("kafka://")
    return {
        "findings": sorted(
            (one.check, one.severity, one.place, one.producer_id or 0, one.message, one.action)
            + ((one.file or "", one.position or 0) if has_files else ())
            for one in found.findings
        ),
        "open": sorted((one.topic, one.first_offset, one.verdict.value) for one in found.open_transactions),
        "ended": found.ended,
        "partitions": {
            one.name: one._replace(
                log=None,
                directory="",
                recent=(one.recent if has_files else np.delete(one.recent, OF_FILES, axis=1)).tolist(),
                torn_tails=len(one.torn_tails),
                # Over the wire the age is that at the time of the question.
                open_transactions=[each if has_files else each._replace(age_ms=None) for each in one.open_transactions],
            )
            for one in found.partitions
        },
    }


def offsets_at(whole, share):
    """Return the offset at this share of each partition, without those of the coordinators."""
    return {
        (one.log.topic, one.log.partition): one.log_start + round((one.log_end - one.log_start) * share)
        for one in whole.partitions
        if one.log.topic != COORDINATORS
    }


def store(carry):
    """Return a carry after it was written to a file and read."""
    return decode("carry", encode(carry))


@pytest.mark.parametrize("share", [0.3, 0.6, 1.0])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_two_runs_over_a_directory_find_what_one_finds(case, share, tmp_path):
    root = write_files(files_of(case), tmp_path) / "data"
    whole = run_audit((str(root),))
    first = run_audit((str(root),), Carry("carry"), until_offsets=offsets_at(whole, share))
    second = run_audit((str(root),), store(first.carry))
    assert facts_of(second) == facts_of(whole)
    third = run_audit((str(root),), store(second.carry))
    assert facts_of(third) == facts_of(whole)


@pytest.mark.parametrize("case", SERVED, ids=lambda case: case.name)
def test_two_runs_over_the_wire_find_what_one_finds(case, tmp_path):
    root = write_files(files_of(case), tmp_path) / "data"
    with ThreadBroker(root, now_ms=BEGIN_MS + SOON_MS, **KEEPING) as broker:
        address = parse_kafka_address(f"kafka://{broker.bootstrap}")
        where = (str(address),)
        whole = run_audit(where, address=address)
        first = run_audit(where, Carry("carry"), address=address, until_offsets=offsets_at(whole, 0.5))
        second = run_audit(where, store(first.carry), address=address)
    assert facts_of(second) == facts_of(whole)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_decisions_that_come_later_are_matched_with_earlier_markers(case, tmp_path):
    root = write_files(files_of(case), tmp_path) / "data"
    whole = run_audit((str(root),))
    until = {
        (one.log.topic, one.log.partition): one.log_start + (one.log_end - one.log_start) // 2
        for one in whole.partitions
    }
    first = run_audit((str(root),), Carry("carry"), until_offsets=until)
    second = run_audit((str(root),), store(first.carry))
    assert facts_of(second) == facts_of(whole)


CASE = "interleaved-transactions"


def run_command(*arguments):
    return CliRunner().invoke(audit_command, [*map(str, arguments), "--run-on", "here", "--format", "json"])


@pytest.fixture
def root(tmp_path):
    return write_files(files_of(HERE[CASE]), tmp_path / "case") / "data"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "carry"


def segment_of(root):
    (path,) = (root / f"{CASE}-0").glob("*.log")
    return path


def test_a_command_continues_where_the_last_one_ended(root, file):
    alone = run_command(root)
    assert run_command(root, "--carry", file).stdout == alone.stdout
    path = segment_of(root)
    content = path.read_bytes()
    first_size = next(position for position, header in iter_batches(content) if header.base_offset)
    path.write_bytes(bytes(first_size) + content[first_size:])  # what was read before is not read again
    assert run_command(root, "--carry", file).stdout == alone.stdout
    assert "damage" in run_command(root).stdout
    assert [one.name for one in file.parent.iterdir() if "carry" in one.name] == ["carry"]


def expect_refusal(root, file, *more):
    before = file.read_bytes()
    result = run_command(root, "--carry", file, *more)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert file.read_bytes() == before
    (line,) = result.stderr.splitlines()
    return line


def test_a_log_that_was_truncated_is_refused_with_both_offsets(root, file):
    assert run_command(root, "--carry", file).exit_code == 0
    path = segment_of(root)
    content = path.read_bytes()
    batches = [(header.base_offset, position) for position, header in iter_batches(content)]
    end = batches[-1][0]
    path.write_bytes(content[: batches[-1][1]])
    line = expect_refusal(root, file)
    assert f"{CASE}-0 ends at offset {end}, and {file} continues at {end + 1}: the log was truncated" in line


def test_a_cluster_that_lost_its_end_is_refused(root, file, tmp_path):
    with ThreadBroker(root, now_ms=BEGIN_MS + SOON_MS, **KEEPING) as broker:
        assert run_command(f"kafka://{broker.bootstrap}", "--carry", file).exit_code == 0
    carry = decode(str(file), file.read_bytes())
    longer = [one._replace(end_offset=one.end_offset + 7) for one in carry.partitions]
    file.write_bytes(encode(carry._replace(partitions=tuple(longer))))
    with ThreadBroker(root, now_ms=BEGIN_MS + SOON_MS, **KEEPING) as broker:
        assert "the log was truncated" in expect_refusal(f"kafka://{broker.bootstrap}", file)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda carry: carry._replace(cluster_id="another"), "is of cluster another, and this is "),
        (
            lambda carry: carry._replace(
                partitions=tuple(one._replace(topic_id=bytes(range(16))) for one in carry.partitions)
            ),
            "was deleted and created again after",
        ),
        (lambda carry: carry._replace(settings="--checks torn"), "was written with --checks torn: use these"),
    ],
    ids=["cluster", "topic", "settings"],
)
def test_a_file_of_something_else_is_refused(root, file, change, told):
    assert run_command(root, "--carry", file).exit_code == 0
    file.write_bytes(encode(change(decode(str(file), file.read_bytes()))))
    assert told in expect_refusal(root, file)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda content: b"", "is not a file of --carry"),
        (lambda content: b"x" * 1000, "is not a file of --carry"),
        (lambda content: content.replace(b"carry 1 ", b"carry 9 ", 1), "has version 9 of --carry files"),
        (lambda content: content[:-1], "is damaged, by its checksum"),
        (lambda content: content[:-9] + b"\0" + content[-8:], "is damaged, by its checksum"),
    ],
    ids=["empty", "other", "version", "cut", "flipped"],
)
def test_a_broken_file_is_refused(root, file, change, told):
    assert run_command(root, "--carry", file).exit_code == 0
    file.write_bytes(change(file.read_bytes()))
    assert told in expect_refusal(root, file)


@pytest.mark.parametrize(
    "value", [[], {}, ["Carry"], ["Carry", "p", "", "", 5], ["eval", 1], ["array", 1, "x"], [["array"], 1], 5, None]
)
def test_content_that_is_no_carry_is_refused(value):
    body = zlib.compress(json.dumps(value).encode())
    head = b"ottla-audit-carry 1 %s\n" % hashlib.sha256(body).hexdigest().encode()
    with pytest.raises(CarryRefused, match="carry is damaged; remove it"):
        decode("carry", head + body)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--as-of", "2026-01-01"], "--carry cannot be used with --as-of"),
        (["--since", "2026-01-01"], "--carry cannot be used with --since"),
        (["--copies", "a=b,key"], "--carry cannot be used with --copies"),
    ],
)
def test_options_that_leave_out_records_are_refused(root, file, more, told):
    file.write_bytes(b"kept")
    assert told in expect_refusal(root, file, *more)


def test_a_file_in_a_log_directory_is_refused(root):
    result = run_command(root, "--carry", root / "carry")
    assert result.exit_code == 2
    assert "is in the log directory" in result.stderr


def test_offsets_that_were_deleted_before_they_were_read_are_a_warning(tmp_path):
    case = HERE["log-starts-in-an-aborted-transaction"]
    root = write_files(files_of(case), tmp_path) / "data"
    whole = run_audit((str(root),))
    carry = store(run_audit((str(root),), Carry("carry")).carry)
    starts = {one.name: one.log_start for one in whole.partitions if one.log_start > 0}
    assert starts
    early = [one._replace(end_offset=0) if one.name in starts else one for one in carry.partitions]
    found = run_audit((str(root),), carry._replace(partitions=tuple(early))).findings
    warnings = [one for one in found if one.message.endswith("were deleted before an audit read them")]
    assert {one.severity for one in warnings} == {"warning"}
    assert {f"{one.topic}-{one.partition}": one.message.split()[:4] for one in warnings} == {
        name: ["offsets", "0", "to", f"{start - 1:,}"] for name, start in starts.items()
    }
