"""The corpus: its files are always the same, and its expectations agree with the files and with each other."""

import json
import re
from pathlib import Path

import pytest

from ottla.testkit.corpus.case import files_of
from ottla.testkit.corpus.catalogue import CASES
from ottla.testkit.scanner import scan_contents
from tests.corpus import DIGESTS, aborted_of, digest, expected_of, is_internal, raw

PAGE = Path(__file__).parents[3] / "docs" / "corpus.md"
FATES = ("plain", "committed", "aborted", "open")


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def written(request):
    """Return a case, its files, and its case.json."""
    files = files_of(request.param)
    return request.param, files, expected_of(files)


def scan(files, partition):
    folder = f"data/{partition['topic']}-{partition['partition']}/"
    logs = sorted(path for path in files if path.startswith(folder) and path.endswith(".log"))
    return scan_contents([(Path(path), files[path]) for path in logs])


def test_a_case_has_the_same_bytes_every_time(written):
    """A change of a case, or of the bytes of a broker, fails here. `python -m tests.corpus` updates the digests."""
    case, files, _ = written
    assert digest(files) == digest(files_of(case))
    assert json.loads(DIGESTS.read_text()).get(case.name) == digest(files)


def test_no_case_is_left_over_among_the_digests():
    assert sorted(json.loads(DIGESTS.read_text())) == sorted(case.name for case in CASES)


def test_every_field_is_documented(written):
    _, _, expected = written
    rows = re.findall(r"^\| (?:`(\w+)`)? ?\| (`format`.*|`\w+`.*) \|$", PAGE.read_text(), re.MULTILINE)
    fields = {name: re.findall(r"`(\w+)`", names) for name, names in rows}
    waiting = [("", expected)]
    while waiting:
        name, shown = waiting.pop()
        assert [*shown] == fields[name], name
        for inner, value in shown.items():
            waiting += [(inner, row) for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def row_of(case):
    """Return the row of the case in the table of the page."""
    threads = [re.fullmatch(r"https://github.com/(.+)/(?:issues|pull)/(\d+)", url) for url in case.reported]
    reported = ", ".join(f"[{found[1]}#{found[2]}]({found[0]})" for found in threads)
    return f"| `{case.name}` | {case.what} | {reported} |"


def test_the_readme_counts_the_cases():
    assert f"[{len(CASES)} small log directories](docs/corpus.md)" in (PAGE.parents[1] / "README.md").read_text()


def test_the_page_has_a_row_of_each_case_in_their_order():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `") and line.count("|") == 4]
    assert [line for line in rows if line.split("`")[1] in {case.name for case in CASES}] == [*map(row_of, CASES)]


def test_values_name_the_fate_that_their_script_meant(written):
    _, _, expected = written
    for partition in expected["partitions"]:
        for row in () if is_internal(partition) else partition["records"]:
            meant = (raw(row["value"]) or b"").split(b" ")[0].decode(errors="replace")
            assert meant not in FATES or meant == row["fate"], row


def test_every_offset_is_a_record_or_in_a_gap(written):
    _, _, expected = written
    for partition in expected["partitions"]:
        gaps = [offset for gap in partition["gaps"] for offset in range(gap["first_offset"], gap["last_offset"] + 1)]
        everything = range(partition["log_start_offset"], partition["log_end_offset"])
        assert sorted(gaps + partition["read_committed"]) == [*everything]


def test_the_second_scanner_agrees_with_the_expectations_of_a_case(written):
    _, files, expected = written
    for partition in expected["partitions"]:
        found, start = scan(files, partition), partition["log_start_offset"]
        assert found.log_end_offset == partition["log_end_offset"]
        assert found.last_stable_offset == partition["last_stable_offset"]
        aborted = [(first, who) for who, first, marker, _ in found.aborted_index if marker >= start]
        assert sorted(entry for entry in aborted if entry[0] < found.last_stable_offset) == aborted_of(partition)
        for isolation in ("read_committed", "read_uncommitted"):
            offsets = [record.offset for record in found.records(isolation) if record.offset >= start]
            assert offsets == partition[isolation]
        markers = [(batch.base_offset, batch.marker.upper()) for batch in found.batches if batch.marker]
        assert [entry for entry in markers if entry[0] >= start] == [
            (row["offset"], row["type"]) for row in partition["markers"]
        ]
        shown = [
            (record.offset, record.timestamp, record.key, record.value, record.headers, record.fate)
            for record in found.records()
            if record.offset >= start
        ]
        assert shown == [
            (
                row["offset"],
                row["timestamp"],
                raw(row["key"]),
                raw(row["value"]),
                [(header["key"], raw(header["value"])) for header in row["headers"]],
                row["fate"],
            )
            for row in partition["records"]
        ]
