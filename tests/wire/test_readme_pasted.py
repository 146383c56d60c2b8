"""The readme, pasted from top to end into a shell and an interpreter, and the list of the pages that are pasted."""

import contextlib
import re

import pytest

from ottla.scan.needs import lacking
from tests.pages import NOT_PASTED, PAGES
from tests.pasted import ROOT, Page, Pasting

README = Page(
    "README.md",
    left_out={"import ottla.spark_jobs": "needs Spark; tests/spark/test_pages.py pastes the readme with it"},
)


def test_the_readme_can_be_pasted(tmp_path, capsys):
    if lacking():
        pytest.skip("the extra audit is not installed")
    with contextlib.closing(Pasting(tmp_path)) as pasting:
        pasting.paste(README)
    assert capsys.readouterr().out == "[b'Account-123 -40.00']\n"
    assert (tmp_path / "audit.html").is_file()


def test_each_page_with_commands_is_pasted_or_has_a_reason():
    every = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"]
    names = {path.relative_to(ROOT).as_posix() for path in every}
    assert {name for name in names if any(Page(name).pieces())} == {page.name for page in PAGES} | NOT_PASTED.keys()


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
def test_the_list_names_only_commands_that_its_pages_have(page):
    texts = [text for _, _, text in page.pieces()]
    unused = [pattern for pattern in page.left_out if not any(re.match(pattern, text, re.DOTALL) for text in texts)]
    assert unused == []
    assert [old for old in page.edits if not any(old in text for text in texts)] == []
