"""docs/data-source.md and docs/streaming.md name every column of every view with its type, and every option."""

import re
from pathlib import Path

import pytest

from ottla.scan import schemas
from ottla.spark_jobs.options import OPTIONS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "data-source.md").read_text()


@pytest.mark.parametrize("view", [view for view in schemas.VIEWS if view != schemas.HANGING])
def test_page_has_the_columns_of(view):
    section = PAGE.split(f"### {view}\n")[1].split("\n#")[0]
    columns = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section, re.MULTILINE)
    assert [(name, kind.strip("`")) for name, kind in columns] == list(schemas.VIEWS[view].items())


def test_page_has_the_options():
    section = PAGE.split("## Options\n")[1].split("\n#")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`([^`]+)`", " ".join(cells))) == sorted(OPTIONS)


def test_page_and_docstring_name_the_same_options():
    pytest.importorskip("pyspark", reason="the spark extra is not installed")
    from ottla.spark_jobs.source import OttlaSource

    told = OttlaSource.__doc__ or ""
    assert [name for name in OPTIONS if name not in told] == []
    assert [view for view in schemas.VIEWS if view not in told] == []
