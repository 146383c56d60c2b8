"""`make site`: the pages as a static site, with every link and anchor, and nothing that is loaded from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.site_hooks import OUTSIDE, turned

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as MkDocs builds it; its strict mode fails on a link or an anchor that leads nowhere."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", folder, "--config-file", ROOT / "mkdocs.yml"]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_there_and_the_guides_are_in_the_menu(site):
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md") if page.name != "README.md"]
    assert [page for page in pages if not (site / page).with_suffix(".html").is_file()] == []
    menu = (site / "index.html").read_text(encoding="utf-8")
    guides = [*(page.name for page in (ROOT / "docs").glob("*.md") if page.name != "README.md")]
    assert [guide for guide in guides if f'href="{guide.removesuffix(".md")}.html"' not in menu] == []
    assert [
        uri for uri in OUTSIDE.values() if not (site / uri).with_suffix(".html").is_file() and uri.endswith(".md")
    ] == []


def test_nothing_is_loaded_from_elsewhere(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|link|img|iframe)[^>]*\s(?:src|href)=\"([^\"]+)", text)
        assert [each for each in loaded if re.match(r"(https?:)?//", each)] == [], page.name


@pytest.mark.parametrize(
    ("uri", "written", "needed"),
    [
        ("readme.md", "[use](docs/use.md)", "[use](use.md)"),
        ("readme.md", "[c](CONTRIBUTING.md)", "[c](contributing.md)"),
        ("readme.md", "![picture](docs/demo.svg)", "![picture](demo.svg)"),
        ("README.md", "[r](../README.md)", "[r](readme.md)"),
        ("use.md", "[r](run.md#options)", "[r](run.md#options)"),
        ("decisions/ledger.md", "[s](../simulation.md)", "[s](../simulation.md)"),
        ("decisions/ledger.md", "[c](../../CONTRIBUTING.md)", "[c](../contributing.md)"),
        ("model.md", "[the code](../ottla/testkit/scanner.py)", "the code"),
        (
            "model.md",
            "[there](https://example.org/a#b) and [here](#below)",
            "[there](https://example.org/a#b) and [here](#below)",
        ),
    ],
)
def test_links_are_turned_to_where_the_site_has_the_pages(uri, written, needed):
    assert turned(written, uri) == needed
