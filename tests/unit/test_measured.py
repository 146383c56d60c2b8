"""Figures of the README: docs/measured.md contains each, and has one figure of a kind."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MEASURED = (ROOT / "docs/measured.md").read_text(encoding="utf-8")
OURS, KAFKA = "compiled", "Kafka 4.3.1"
TABLE = MEASURED[MEASURED.index("| broker CPU: ") :]

# Rows of the README whose figures are medians of the table of all brokers, by the row there.
MEDIANS = {
    "produce, broker's CPU, batches up to 1 MB": "produce, records of 1 KiB, batches up to 1 MB",
    "consume, broker's CPU": "consume, records of 1 KiB",
    "transaction of one record, broker's CPU": "transaction of one record, one producer",
    "transactions of one record, 16 producers": "transactions of one record, 16 producers",
}
# The others, by the row that has the same figures.
SAME = {
    "ready after": "ready after",
    "resident memory, idle / loaded": "resident memory, idle / loaded",
    "audit of a log, every check, against `kafka-dump-log`": "`ottla audit` with every check, likewise",
}


def rows(text):
    """Yield the cells of each row of the tables in `text`."""
    for line in text.splitlines():
        if line.startswith("|") and not re.fullmatch(r"[|\s:-]+", line):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def readme_rows():
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Measured\n")[2].partition("\n## ")[0]
    return {cells[0]: cells[1:] for cells in rows(section) if cells[0]}


def measured_row(name):
    found = [cells for cells in rows(MEASURED) if cells[0] == name]
    assert len(found) == 1, f"docs/measured.md has {len(found)} rows {name!r}"
    return found[0]


def median(cell, unit):
    """Return the figure in the middle of `minimum / median / maximum`, as the README writes it."""
    figure = cell.split(" / ")[1]
    return figure + unit if unit.startswith("/") else f"{figure} {unit}"


def test_the_readme_shows_no_other_rows():
    assert set(readme_rows()) == MEDIANS.keys() | SAME.keys()


@pytest.mark.parametrize(("name", "source"), MEDIANS.items())
def test_a_figure_of_the_readme_is_the_median_of_the_table(name, source):
    header, *lines = rows(TABLE)
    row = next(cells for cells in lines if cells[0] == source)
    unit = row[header.index("unit")]
    assert readme_rows()[name] == [median(row[header.index(column)], unit) for column in (OURS, KAFKA)]


@pytest.mark.parametrize(("name", "source"), SAME.items())
def test_a_readme_row_equals_its_row_of_the_measured_page(name, source):
    assert readme_rows()[name] == measured_row(source)[1:3]
