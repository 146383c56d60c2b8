"""The cases of the corpus as the data source shows them, read in this process: records, fates, ends of partitions."""

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from ottla.testkit.corpus.case import files_of
from ottla.testkit.corpus.catalogue import CASES
from tests.corpus import aborted_of, expected_of, expected_records, is_internal, write_files
from tests.spark.views import read_view

ISOLATIONS = ("read_committed", "read_uncommitted")


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def case(request, tmp_path_factory):
    """Return (directory of the case, content of its case.json)."""
    files = files_of(request.param)
    return write_files(files, tmp_path_factory.mktemp(request.param.name)) / "data", expected_of(files)


def test_records_are_those_of_the_case(case):
    root, expected = case
    for isolation in ISOLATIONS:
        found = {place: [] for place in expected_records(expected, isolation)}
        for row in read_view(root, "records", isolation_level=isolation):
            headers = [(header["key"], header["value"]) for header in row["headers"] or []]
            found[row["topic"], row["partition"]].append(
                (row["offset"], row["timestampType"], row["timestamp"], row["key"], row["value"], headers)
            )
        assert found == expected_records(expected, isolation)


def test_fates_and_ends_are_those_of_the_case(case):
    root, expected = case
    named = {f"{p['topic']}-{p['partition']}": p for p in expected["partitions"] if not is_internal(p)}
    for row in read_view(root, "partitions"):
        partition = named[f"{row['topic']}-{row['partition']}"]
        ends = row["logStart"], row["logEnd"], row["lastStableOffset"]
        assert ends == tuple(partition[name] for name in ("log_start_offset", "log_end_offset", "last_stable_offset"))
    aborted = {name: [] for name in named}
    for row in read_view(root, "transactions"):
        if row["fate"] == "aborted" and row["firstOffset"] is not None:  # a marker alone aborts nothing
            aborted[f"{row['topic']}-{row['partition']}"].append((row["firstOffset"], row["producerId"]))
    for name, partition in named.items():
        told = [entry for entry in sorted(aborted[name]) if entry[0] < partition["last_stable_offset"]]
        assert told == aborted_of(partition)
