"""`make site`: the pages as a static site, with every link and anchor, and no resources of other sites."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.site_hooks import OUTSIDE, fit_page, turn_links, with_lists

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site with MkDocs. Its strict mode fails on a broken link or anchor."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", folder, "--config-file", ROOT / "mkdocs.yml"]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_there_and_the_guides_are_in_the_menu(site):
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md") if page.name != "README.md"]
    assert [page for page in pages if not (site / page).with_suffix(".html").is_file()] == []
    menu = (site / "index.html").read_text(encoding="utf-8")
    guides = [*(page.name for page in (ROOT / "docs").glob("*.md") if page.name != "README.md")]
    assert [guide for guide in guides if f'href="{guide.removesuffix(".md")}.html"' not in menu] == []
    assert [
        uri for uri in OUTSIDE.values() if not (site / uri).with_suffix(".html").is_file() and uri.endswith(".md")
    ] == []


def test_pages_load_no_resource_from_another_site(site):
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
        ("simulation.md", "[the code](../ottla/testkit/scanner.py)", "the code"),
        (
            "simulation.md",
            "[there](https://example.org/a#b) and [here](#below)",
            "[there](https://example.org/a#b) and [here](#below)",
        ),
    ],
)
def test_links_are_turned_to_where_the_site_has_the_pages(uri, written, needed):
    assert turn_links(written, uri) == needed


@pytest.mark.parametrize(
    ("rendered", "shown"),
    [
        ("<p><code>short</code></p>", '<p><code class="short">short</code></p>'),
        (
            "<table><tr><td><code>a\\|b</code></td></tr></table>",
            '<div class="wide"><table><tr><td class="short"><code class="short">a|b</code></td></tr></table></div>',
        ),
        (
            "<table><tr><th><code>log.message.timestamp.before.max.ms</code></th></tr></table>",
            '<div class="wide"><table><tr><th><code>log.<wbr>message.<wbr>timestamp.<wbr>before.<wbr>max.<wbr>ms</code>'
            "</th></tr></table></div>",
        ),
        (
            f"<table><tr><td>{'word ' * 15}</td></tr></table>",
            f'<div class="wide"><table><tr><td class="text">{"word " * 15}</td></tr></table></div>',
        ),
        (
            "<table><tr><td>END2-12</td><td>TRANSACTIONAL_ID_NOT_FOUND</td></tr></table>",
            '<div class="wide"><table><tr><td class="short">END2-12</td>'
            "<td>TRANSACTIONAL_<wbr>ID_<wbr>NOT_<wbr>FOUND</td></tr></table></div>",
        ),
        (
            "<p><code>kafka-storage\nformat --standalone</code></p>",
            "<p><code>kafka-storage format --standalone</code></p>",
        ),
        (
            '<table><tr><td><a href="u/v">confluentinc/librdkafka#2</a></td></tr></table>',
            '<div class="wide"><table><tr><td><a href="u/v">confluentinc/<wbr>librdkafka#2</a></td></tr></table></div>',
        ),
        (
            '<h2 id="a_b">A_B<a class="headerlink" href="#a_b">&para;</a></h2>',
            '<h2 id="a_b">A_<wbr>B<a class="headerlink" href="#a_b">&para;</a></h2>',
        ),
        (r"<pre><code>a \| b</code></pre>", r"<pre><code>a \| b</code></pre>"),
    ],
)
def test_a_page_fits_a_narrow_window(rendered, shown):
    assert fit_page(rendered) == shown


def test_a_list_right_after_a_line_of_text_is_rendered_as_a_list(site):
    written = "**Why.**\n- a\n  b\n- c\n\n1. d\n2. e\n```\nf\n- g\n```"
    assert with_lists(written) == written.replace("**Why.**\n", "**Why.**\n\n")
    assert with_lists("1. a\n   - b\n     c") == "1. a\n    - b\n     c"
    recipes = (site / "contributing.html").read_text(encoding="utf-8").partition("An API.")[2]
    assert recipes.index("<ol>") < recipes.index("An option.")


@pytest.mark.slow
def test_no_escape_of_markdown_is_left_in_the_code_of_a_table(site):
    for page in site.rglob("*.html"):
        cells = re.findall(r"<td[^>]*>.*?</td>", page.read_text(encoding="utf-8"), re.DOTALL)
        assert [cell for cell in cells if "\\|" in cell] == [], page.name
