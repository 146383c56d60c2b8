"""Pages that are generated from code agree with the code."""

from pathlib import Path

import pytest

from lab import metrics_page, options_page, protocol_support

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "render"),
    [
        ("protocol-support.md", protocol_support.render),
        ("options.md", options_page.render),
        ("metrics.md", metrics_page.render),
    ],
)
def test_a_page_is_what_its_source_renders(page, render):
    assert (DOCS / page).read_text(encoding="utf-8") == render(), "run `make docs`"
