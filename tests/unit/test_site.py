"""`make site`: the pages as a static site, with every link and anchor, and no resources of other sites."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

from lab.site_pages import RENAMED, ROOT, adapt_lists, turn_links, write_pages

# Pages with long names, wide tables, long lines of code and pictures.
HARD_TO_FIT = ("index.html", "options.html", "protocol-support.html", "decision-tables.html", "decisions/index.html")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site with Zensical. Its strict mode fails on a link to a page or an anchor that does not exist."""
    pytest.importorskip("zensical", reason="the site extra (zensical) is not installed")
    folder = tmp_path_factory.mktemp("site")
    write_pages(folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", folder / "zensical.toml"]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "site"


class Page(HTMLParser):
    """The ids of a page, the addresses that it links to, and those that it loads."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.linked, self.loaded = set(), [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.ids.add(named.get("id"))
        if tag == "a" and "href" in named:
            self.linked.append(named["href"])
        self.loaded += [named[key] for key in ("src", "href") if key in named and tag != "a"]


@pytest.fixture(scope="module")
def pages(site):
    # The page of unknown addresses links from the root of a server.
    return {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


@pytest.mark.slow
def test_every_page_is_there_and_the_guides_are_in_the_menu(site, pages):
    docs = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md") if path.name != "README.md"]
    missing = [page for page in docs if site / page.with_suffix(".html") not in pages]
    assert missing == []
    assert [uri for uri in RENAMED.values() if not (site / uri.replace(".md", ".html")).is_file()] == []
    menu = {address.removeprefix("./") for address in pages[site / "index.html"].linked}
    assert [page for page in docs if len(page.parts) == 1 and f"{page.stem}.html" not in menu] == []


@pytest.mark.slow
def test_links_anchors_and_pictures_exist(pages):
    broken = []
    for path, page in pages.items():
        for address in (*page.linked, *page.loaded):
            url = urlsplit(address)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            target = target / "index.html" if target.is_dir() else target
            has_anchor = not url.fragment or target not in pages or unquote(url.fragment) in pages[target].ids
            if not target.is_file() or not has_anchor:
                broken.append((path.name, address))
    assert broken == []


def test_pages_load_no_resource_from_another_site(pages):
    loaded = {address for page in pages.values() for address in page.loaded}
    assert any(address.endswith(".css") for address in loaded)
    assert [address for address in loaded if re.match(r"(https?:)?//", address)] == []


@pytest.mark.slow
def test_no_page_scrolls_sideways_on_a_phone(site, tab):
    tab.resize(400, 900, is_phone=True)
    for page in HARD_TO_FIT:
        tab.open((site / page).as_uri())
        assert tab.value("document.documentElement.scrollWidth") <= 400, page


@pytest.mark.slow
def test_code_has_a_button_that_copies_it_without_prompts(site, tab):
    tab.open((site / "use.html").as_uri())
    tab.until("!!document.querySelector('.md-code__button')")
    tab.value("document.execCommand = () => { window.copied = document.activeElement.value; return true }; 0")
    clicked = "(document.querySelector('.md-code__button').click(), window.copied)"
    assert tab.until(clicked).startswith("pip install .\nottla serve")


@pytest.mark.parametrize(
    ("source", "written", "needed"),
    [
        ("README.md", "[use](docs/use.md)", "[use](use.md)"),
        ("README.md", "[c](CONTRIBUTING.md)", "[c](contributing.md)"),
        ("README.md", "![picture](docs/demo.svg)", "![picture](demo.svg)"),
        ("docs/README.md", "[r](../README.md)", "[r](index.md)"),
        ("docs/README.md", "[d](decisions/README.md)", "[d](decisions/index.md)"),
        ("docs/use.md", "[r](run.md#options)", "[r](run.md#options)"),
        ("docs/decisions/ledger.md", "[s](../simulation.md)", "[s](../simulation.md)"),
        ("docs/decisions/ledger.md", "[c](../../CONTRIBUTING.md)", "[c](../contributing.md)"),
        ("docs/simulation.md", "[the code](../ottla/testkit/scanner.py)", "the code"),
        (
            "docs/simulation.md",
            "[there](https://example.org/a#b) and [here](#below)",
            "[there](https://example.org/a#b) and [here](#below)",
        ),
    ],
)
def test_links_are_turned_to_where_the_site_has_the_pages(source, written, needed):
    assert turn_links(written, source) == needed


def test_a_list_right_after_a_line_of_text_gets_a_blank_line():
    written = "**Why.**\n- a\n  b\n- c\n\n1. d\n2. e\n```\nf\n- g\n```"
    assert adapt_lists(written) == written.replace("**Why.**\n", "**Why.**\n\n")
    assert adapt_lists("1. a\n   - b\n     c") == "1. a\n    - b\n     c"


def test_no_escape_of_markdown_is_left_in_the_code_of_a_table():
    assert adapt_lists(r"| `a\|b` | c \| d |") == r"| `a|b` | c \| d |"
    assert adapt_lists("```\n| `a\\|b` |\n```") == "```\n| `a\\|b` |\n```"
