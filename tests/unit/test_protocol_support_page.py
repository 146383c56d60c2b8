"""docs/protocol-support.md says what the table of APIs says."""

from pathlib import Path

from ottla.testkit.protocol_support import render

PAGE = Path(__file__).parents[2] / "docs" / "protocol-support.md"


def test_page_is_made_from_the_table():
    assert PAGE.read_text() == render(), "run `make docs`"
