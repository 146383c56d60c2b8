"""The readme, pasted from top to end into a shell and an interpreter."""

import contextlib

import pytest

from ottla.scan.needs import lacking
from tests.pasted import Page, Pasting

README = Page(
    "README.md",
    left_out={"import ottla.spark_jobs": "needs Spark; tests/spark/test_pages.py pastes the readme with it"},
)


def test_the_readme_can_be_pasted(tmp_path, capsys, monkeypatch):
    if lacking():
        pytest.skip("the extra audit is not installed")
    with contextlib.closing(Pasting(tmp_path)) as pasting:
        pasting.paste(README)
    assert "[b'Account-123 -40.00']" in capsys.readouterr().out
    assert (tmp_path / "audit.html").is_file()
