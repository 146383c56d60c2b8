"""Every row of the decision tables has a test with its id, and every such test has a row."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.tables.rows import ROW

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "decision-tables.md"
EXCEPTIONS = "## Rows without a test"
REASONS = ("authorization: ", "version not served: ", "one process: ", "a group that has ended ")


def read_page():
    """Return ([row ids of the tables, in order], {row id: why it has no test}, the page)."""
    page = PAGE.read_text(encoding="utf-8")
    tables, exceptions = page.split(EXCEPTIONS)
    reasons = dict(re.findall(r"^\| (\S+-\d+) \| (.*) \|$", exceptions, re.MULTILINE))
    return re.findall(r"^\| (\S+-\d+) \|", tables, re.MULTILINE), reasons, page


@pytest.fixture(scope="module")
def case_counts(request):
    """Return row id -> number of cases with it, as pytest collects them here, whatever it runs."""
    files = request.node.getparent(pytest.Dir).collect()
    cases = [case for file in files for case in file.collect() if hasattr(case, "callspec")]
    named = [ROW.match(case.callspec.id.removeprefix("calm-").removeprefix("pending-")) for case in cases]
    return Counter(match.group() for match in named if match is not None)


def test_ids_are_unique_and_well_formed():
    ids, reasons, _ = read_page()
    assert [row for row, count in Counter(ids).items() if count > 1] == []
    assert all(ROW.fullmatch(row) for row in ids)
    assert [row for row in reasons if row not in ids] == []


def test_the_rows_of_each_table_are_numbered_without_a_gap():
    numbers = {}
    for row in read_page()[0]:
        prefix, number = row.rsplit("-", 1)
        numbers.setdefault(prefix, []).append(int(number))
    for prefix, found in numbers.items():
        assert found in (list(range(len(found))), list(range(1, len(found) + 1))), prefix


def test_every_row_has_a_test_or_a_reason(case_counts):
    ids, reasons, _ = read_page()
    assert [row for row in ids if row not in case_counts and row not in reasons] == []
    assert [row for row in reasons if row in case_counts] == []


def test_every_test_has_a_row(case_counts):
    assert sorted(set(case_counts) - set(read_page()[0])) == []


def test_the_reasons_are_of_the_known_kinds():
    _, reasons, _ = read_page()
    assert {row: why for row, why in reasons.items() if not why.startswith(REASONS)} == {}


def test_the_page_counts_right(case_counts):
    ids, reasons, page = read_page()
    for table, count in Counter(row.rsplit("-", 1)[0] for row in ids).items():
        without = sum(row.startswith(f"{table}-") for row in reasons)
        cases = sum(number for row, number in case_counts.items() if row.rsplit("-", 1)[0] == table)
        print(f"{table:8} {count:3} rows, {count - without:3} with a test, {without:2} without, {cases:4} cases")
    line = f"Count: {len(ids)} rows, {len(ids) - len(reasons)} with a test, {len(reasons)} without."
    print(line, f"{sum(case_counts.values())} cases")
    assert line in page


def test_no_case_is_skipped_or_expected_to_fail():
    marks = [
        f"{path.name}:{node.lineno}"
        for path in sorted(HERE.glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("skip", "skipif", "xfail", "importorskip")
    ]
    assert marks == []
