"""The cases of the corpus on our broker: its answers and a consumer's records match case.json."""

import pytest

from ottla.testkit.corpus.case import files_of
from ottla.testkit.corpus.catalogue import CASES
from tests.corpus import KEEPING, consume, expected_of, expected_records, told_by, write_files
from tests.thread_broker import ThreadBroker


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_broker_and_consumer_agree_with_the_expectations_of_a_case(case, tmp_path):
    files = files_of(case)
    expected = expected_of(files)
    with ThreadBroker(write_files(files, tmp_path) / "data", **KEEPING) as served:
        said, written = told_by(served.bootstrap, expected)
        assert said == written
        for isolation in ("read_committed", "read_uncommitted"):
            assert consume(served.bootstrap, expected, isolation) == expected_records(expected, isolation)
