"""An audit of every case of the corpus: what is wrong in one is found, and nothing in the others."""

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.audit.pipeline import audit
from ottla.audit.request import Request
from ottla.audit.runner import HereRunner
from ottla.testkit.corpus.case import files_of
from ottla.testkit.corpus.catalogue import CASES
from ottla.testkit.corpus.stage import BEGIN_MS
from tests.corpus import expected_of, write_files

# Before the timeout of what is open.
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
    found = audit(HereRunner(1), Request((str(root),), (), BEGIN_MS + SOON_MS))
    assert sorted((one.check, one.place) for one in found.at_least("warning")) == WRONG.get(case.name, [])
    assert sorted((one.topic, one.first_offset, one.verdict.value) for one in found.open_transactions) == [
        (partition["topic"], producer["current_txn_start_offset"], VERDICTS.get(case.name, "in time"))
        for partition in expected_of(files)["partitions"]
        for producer in partition["producers"]
        if producer["current_txn_start_offset"] >= 0
    ]
