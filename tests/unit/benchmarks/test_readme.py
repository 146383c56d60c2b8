"""The page of the benchmarks, against the programs that stand beside it."""

import re
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "benchmarks"


def test_the_page_has_a_row_for_each_program_and_none_for_another():
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `([a-z_]+\.py)` \|", page, re.MULTILINE)) == sorted(
        path.name for path in FOLDER.glob("*.py")
    )
