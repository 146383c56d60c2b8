"""Each planted fault is found by its check at its place. `test_audit.py` has the findings without a fault."""

import re
import shutil
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.audit.pipeline import audit
from ottla.audit.request import Request
from ottla.audit.runner import ThreadRunner
from tests.audit.mutations_of_files import MUTATIONS

# When the reference was written; both of its open transactions are overdue.
NOW_MS = 1_795_260_000_000
OPEN_IN_THE_REFERENCE = {("hanging", "ledger-2@898"), ("hanging", "ledger-tv2-1@151")}


def wrong(root, now_ms=NOW_MS):
    return audit(ThreadRunner(1), Request((str(root),), (), now_ms)).at_least("warning")


@pytest.mark.parametrize("planted", MUTATIONS, ids=lambda one: one.name)
def test_each_fault_is_found_by_its_check_at_its_place(reference, tmp_path, planted):
    root = tmp_path / "log"
    shutil.copytree(reference("clean"), root)
    place = planted.plant(root)
    new = [one for one in wrong(root) if (one.check, one.place) not in OPEN_IN_THE_REFERENCE or one.check != "hanging"]
    if planted.check == "hanging":
        new = [one for one in wrong(root) if "overdue" not in one.message]
    found = [one for one in new if one.check == planted.check]
    assert [
        one
        for one in found
        if f"{one.topic}-{one.partition}" == place.name
        and (place.offset is None or one.offset == place.offset)
        and (place.position is None or one.position == place.position)
    ], [(one.check, one.place, one.position, one.message) for one in new]


def test_there_are_thirty_and_more_and_the_docs_list_each():
    page = (Path(__file__).parents[2] / "docs/audits.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| `(\w+)` \|$", page, re.MULTILINE)
    assert rows == [(one.what, one.check) for one in MUTATIONS]
    assert len(MUTATIONS) >= 30


@pytest.mark.parametrize(
    "name", ["", "commit_turned_into_abort", "remove_marker", "batch_twice", "aborted_entry_stable"]
)
def test_partitions_cut_into_ranges_are_found_the_same_in(reference, tmp_path, monkeypatch, name):
    from ottla.audit import pipeline

    root = tmp_path / "log"
    shutil.copytree(reference("clean"), root)
    for planted in MUTATIONS:
        if planted.name == name:
            planted.plant(root)
    request = Request((str(root),), (), NOW_MS)
    whole = audit(ThreadRunner(2), request)
    works = []
    monkeypatch.setattr(pipeline, "LARGEST_CUT_BYTES", 30_000)
    monkeypatch.setattr(pipeline.tasks, "scan", recording(pipeline.tasks.scan, works))
    cut = audit(ThreadRunner(2), request)
    assert len(works) > len(whole.partitions) + 15
    # Only the first differences of a file are shown, and their order in a chunk is not that of offsets.
    assert split_index(cut) == split_index(whole)
    for one, other in zip(cut.partitions, whole.partitions, strict=True):
        assert one._replace(recent=None) == other._replace(recent=None)
    assert cut.model == whole.model


def test_partitions_are_cut_only_if_whole_ones_leave_cores_idle(reference, monkeypatch):
    from ottla.audit import pipeline

    works = []
    monkeypatch.setattr(pipeline, "LEAST_CUT_BYTES", 1)
    monkeypatch.setattr(pipeline.tasks, "scan", recording(pipeline.tasks.scan, works))
    request = Request((str(reference("clean")),), (), NOW_MS)
    audit(ThreadRunner(2), request)
    assert all(work.is_last for work in works)
    audit(ThreadRunner(2), request._replace(topics=("compacted",)))
    assert not all(work.is_last for work in works)


def split_index(found):
    index = {one.file for one in found.findings if one.check == "index"}
    return index, [one for one in found.findings if one.check != "index"]


def recording(function, calls):
    def record(work):
        calls.append(work)
        return function(work)

    return record
