"""An audit of every case of the corpus: it finds the faults of a case, and nothing in sound cases."""

import shutil
import struct

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.audit.pipeline import audit
from ottla.audit.request import Request
from ottla.audit.runner import ThreadRunner
from ottla.protocol.batch_header import iter_batches, seal
from ottla.testkit.corpus.case import files_of
from ottla.testkit.corpus.case_run import BEGIN_MS
from ottla.testkit.corpus.catalogue import CASES
from tests.corpus import expected_of, write_files

# Before the timeout of open transactions.
SOON_MS = 600_000
WRONG = {
    "torn-transaction": [("hanging", "torn-transaction-1@0"), ("torn", "torn-transaction-1@0")],
    "hanging-transaction": [("hanging", "hanging-transaction-0@2")],
}
VERDICTS = {"torn-transaction": "decided", "hanging-transaction": "forgotten"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_audit_finds_what_is_wrong_in_a_case(case, tmp_path):
    files = files_of(case)
    root = write_files(files, tmp_path) / "data"
    found = audit(ThreadRunner(1), Request((str(root),), (), BEGIN_MS + SOON_MS))
    assert sorted((one.check, one.place) for one in found.at_least("warning")) == WRONG.get(case.name, [])
    assert sorted((one.topic, one.first_offset, one.verdict.value) for one in found.open_transactions) == [
        (partition["topic"], producer["current_txn_start_offset"], VERDICTS.get(case.name, "in time"))
        for partition in expected_of(files)["partitions"]
        for producer in partition["producers"]
        if producer["current_txn_start_offset"] >= 0
    ]


HERE = {case.name: case for case in CASES}
DAY_MS = 86_400_000
CLOCKS = {
    "a day behind": BEGIN_MS - DAY_MS,
    "as it was": BEGIN_MS + SOON_MS,
    "a month later": BEGIN_MS + 30 * DAY_MS,
}


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts_do_not_depend_on_the_clock_of_the_auditor(name, clock, tmp_path):
    root = write_files(files_of(HERE[name]), tmp_path) / "data"
    found = audit(ThreadRunner(1), Request((str(root),), (), CLOCKS[clock]))
    assert {one.verdict.value for one in found.open_transactions} == {VERDICTS[name]}
    errors = {(one.check, one.place, one.action) for one in found.at_least("error")}
    assert {(check, place) for check, place, _ in errors} == set(WRONG[name])
    assert any("kafka-transactions.sh" in action for _, _, action in errors) == (name == "hanging-transaction")


@pytest.mark.parametrize("name", VERDICTS)
def test_a_producer_whose_clock_is_a_day_ahead_hides_nothing(name, tmp_path):
    """The auditor's clock is right; the producer's times are a day later than the coordinator's."""
    root = write_files(files_of(HERE[name]), tmp_path) / "data"
    place = next(one for one in sorted(root.iterdir()) if one.name == WRONG[name][0][1].partition("@")[0])
    (segment,) = place.glob("*.log")
    content = bytearray(segment.read_bytes())
    for at, header in iter_batches(bytes(content)):
        if not header.is_control:
            shifted = [each + DAY_MS for each in struct.unpack_from(">qq", content, at + 27)]
            struct.pack_into(">qq", content, at + 27, *shifted)
            seal(content, at)
    segment.write_bytes(content)
    found = audit(ThreadRunner(1), Request((str(root),), (), BEGIN_MS + SOON_MS, ("hanging", "torn")))
    assert {one.verdict.value for one in found.open_transactions} == {VERDICTS[name]}


def test_one_whose_coordinator_has_it_is_overdue_later_and_never_to_be_aborted_in_one_partition(tmp_path):
    root = write_files(files_of(HERE["open-transaction-at-the-end"]), tmp_path) / "data"
    verdicts = {}
    for clock, now_ms in CLOCKS.items():
        found = audit(ThreadRunner(1), Request((str(root),), (), now_ms))
        (one,) = found.open_transactions
        verdicts[clock] = one.verdict.value, [each.severity for each in found.at_least("warning")]
        assert all(" abort " not in each.action for each in found.findings)
    assert verdicts == {
        "a day behind": ("unverifiable", ["warning"]),
        "as it was": ("in time", []),
        "a month later": ("overdue", ["error"]),
    }


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize(
    "case", [one for one in CASES if "open" in one.name or one.name in VERDICTS], ids=lambda case: case.name
)
def test_a_copy_of_a_partition_alone_proves_nothing(case, clock, tmp_path):
    root = write_files(files_of(case), tmp_path) / "data"
    for folder in root.iterdir():
        if folder.is_dir() and folder.name.startswith("__transaction_state"):
            shutil.rmtree(folder)
    found = audit(ThreadRunner(1), Request((str(root),), (), CLOCKS[clock], ("hanging",)))
    assert found.open_transactions
    assert {one.verdict.value for one in found.open_transactions} == {"unverifiable"}
    assert not found.at_least("error")
    assert {one.action.split()[2] for one in found.findings if one.severity != "error"} == {"why"}
    assert all("abort" not in one.action for one in found.findings)
