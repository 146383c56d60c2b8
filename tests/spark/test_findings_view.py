"""The view `findings` has the rows of `ottla audit`, for directories with every kind of fault."""

import json
import shutil

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")
pytest.importorskip("pyspark", reason="the spark extra is not installed")

from pyspark.sql.datasource import EqualTo, IsNotNull

from ottla.scan import schemas
from ottla.spark_jobs.options import OptionError
from ottla.spark_jobs.views.base import PushedReader
from ottla.testkit.corpus.case import files_of
from ottla.testkit.corpus.catalogue import CASES
from tests.audit.mutations_of_files import MUTATIONS
from tests.audit.test_checks_reused import unpack
from tests.corpus import write_files
from tests.spark.views import read_all, read_view, reader_of

NOW_NS = 1_795_260_000_000_000_000
PLANTED = {one.name: one.plant for one in MUTATIONS}
FAULTS = {
    "markers": ("commit_turned_into_abort", "remove_last_marker", "marker_without_decision", "older_coordinator"),
    "producers": ("sequence_jumps", "zombie_idempotent", "reuse_aborted_sequences"),
    "files": ("segment_lost", "flip_bit", "offset_index_position", "aborted_entry_extra"),
}
CHECKS = {
    "markers": {"hanging", "torn", "zombie"},
    "producers": {"sequence", "zombie", "reused"},
    "files": {"damage", "gaps", "index"},
}


@pytest.fixture(autouse=True)
def one_time(monkeypatch):
    """Stop the clock, because messages have ages."""
    monkeypatch.setattr("time.time_ns", lambda: NOW_NS)


@pytest.fixture
def same_rows(run_audit):
    """Compare the view with `ottla audit`, by options of the command, and return the rows."""

    def compare(root, **options):
        flags = [f"--{name.replace('.', '-')}={value}" for name, value in options.items()]
        code, out, err = run_audit(root, "--format", "json", *flags)
        assert code < 2, err
        lines = map(json.loads, out.splitlines())
        names = {"producer_id": "producerId", "transactional_id": "transactionalId"}
        nothing = dict.fromkeys(schemas.VIEWS["findings"])
        # The last lines are open transactions that are no findings.
        findings = [one for one in lines if one["check"] != "open"]
        expected = [nothing | {names.get(name, name): value for name, value in one.items()} for one in findings]
        rows = read_view(root, "findings", **options)
        assert rows == expected
        return rows

    return compare


@pytest.mark.parametrize("faults", FAULTS)
def test_view_has_the_findings_of_the_audit_in_a_directory_with(same_rows, reference, tmp_path, faults):
    root = tmp_path / "log"
    shutil.copytree(reference("clean"), root)
    for name in FAULTS[faults]:
        PLANTED[name](root)
    rows = same_rows(root)
    assert {one["check"] for one in rows if one["severity"] != "info"} >= CHECKS[faults]
    assert "shape" in {one["check"] for one in rows}


@pytest.mark.parametrize("name", ["torn-transaction", "hanging-transaction"])
def test_view_has_the_findings_of_the_audit_in_a_case_of_the_corpus(same_rows, tmp_path, name):
    (case,) = (one for one in CASES if one.name == name)
    rows = same_rows(write_files(files_of(case), tmp_path) / "data")
    assert "error" in {one["severity"] for one in rows}


def test_view_has_the_suspicions_of_the_audit(same_rows, tmp_path):
    assert "reused" in {one["check"] for one in same_rows(unpack(tmp_path))}


@pytest.mark.parametrize(
    "options",
    [
        {"checks": "torn,gaps", "topics": "ledger*,__*"},
        {"as.of": "1795253827000"},
        {"as.of": "ledger:0:100"},
        {"since": "2026-11-21T09:37"},
        {"copies": "ledger=audit-log,key"},
        {"transactional.id.expiration.ms": "1000", "producer.id.expiration.ms": "1000"},
    ],
    ids=lambda options: ",".join(options),
)
def test_view_takes_the_options_of_the_audit(same_rows, reference, options):
    rows = same_rows(reference("clean"), **options)
    assert rows != read_view(reference("clean"), "findings")


def test_several_copies_are_separated_by_semicolons(reference):
    pairs = "ledger=audit-log,key; audit-log=ledger,key"
    found = read_view(reference("clean"), "findings", checks="copies", copies=pairs)
    assert {one["topic"] for one in found} == {"ledger", "audit-log"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checks": "tron"}, "the view findings takes the options of ottla audit; --checks: no check tron"),
        ({"as.of": "yesterday"}, "--as-of yesterday: neither ISO 8601"),
        ({"producer.id.expiration.ms": "0"}, "--producer-id-expiration-ms: 0: not a number of milliseconds above 0"),
        ({"topics": "legder"}, "no topic matches legder"),
        ({"partitions": "0"}, "option partitions is for the views records and"),
        ({"view": "batches", "checks": "torn"}, "option checks is for the view findings, not batches"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(reference, options, message):
    view = options.pop("view", "findings")
    with pytest.raises((OptionError, ValueError), match=message):
        read_view(reference("clean"), view, **options)


def test_pushed_filters_and_chosen_columns_change_no_row(reference):
    everything = read_view(reference("clean"), "findings", columns=("check", "topic", "partition"))
    reader = PushedReader(reader_of(reference("clean"), "findings", columns=("check", "topic", "partition")))
    filters = [IsNotNull(("topic",)), EqualTo(("topic",), "ledger"), EqualTo(("check",), "hanging")]
    assert reader.pushFilters(filters) == filters
    reader.arrow_schema = reader.inner.arrow_schema
    assert read_all(reader) == everything
    assert None in {one["topic"] for one in everything}
