"""Writes the pages of `make site` from the repository's Markdown: `python -m lab.site_pages FOLDER`. free

Zensical reads one folder of pages, and needs lists as Python-Markdown does. Links between pages are written for readers
of the repository; the pages have the addresses of the site. The configuration is copied next to the pages, so that
`zensical build --config-file FOLDER/zensical.toml` writes `FOLDER/site`.
"""

import posixpath
import re
import shutil
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
# Pages outside of docs/, and those that have other names on the site.
RENAMED: Final = {
    "README.md": "index.md",
    "docs/README.md": "guides.md",
    "docs/decisions/README.md": "decisions/index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "license.txt",
    "benchmarks/README.md": "benchmarks.md",
}
_CONFIG: Final = "docs/site/zensical.toml"
_LINK: Final = re.compile(r"\[([^\]]*)\]\((?!https?://|#)([^)#\s]+)([^)]*)\)")
_CODE: Final = re.compile(r"`[^`]+`")
_ITEM: Final = re.compile(r"(-|\d+\.) ")
_INNER_ITEM: Final = re.compile(r"^ {2,3}(?=(-|\d+\.) )")


def write_pages(folder: Path) -> None:
    """Write the pages to `folder/pages` in place of those of an earlier run, and the configuration to `folder`."""
    shutil.rmtree(folder / "pages", ignore_errors=True)
    for source, uri in _pages().items():
        target = folder / "pages" / uri
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.endswith(".md"):
            markdown = (ROOT / source).read_text(encoding="utf-8")
            target.write_text(adapt_lists(turn_links(markdown, source)), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / source, target)
    shutil.copyfile(ROOT / _CONFIG, folder / "zensical.toml")


def _pages() -> dict[str, str]:
    """Return the address of each page and picture on the site, by its path in the repository."""
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*") if path.is_file()]
    return {name: name.removeprefix("docs/") for name in files if name != _CONFIG} | RENAMED


def turn_links(markdown: str, source: str) -> str:
    """Return the text of the page with links of the site. Links to source files become text."""
    folder = posixpath.dirname(_address(source))

    def turn(match: re.Match[str]) -> str:
        text, link, anchor = match.groups()
        linked = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
        if linked not in RENAMED and not linked.startswith("docs/"):
            return text
        return f"[{text}]({posixpath.relpath(_address(linked), folder or '.')}{anchor})"

    return _LINK.sub(turn, markdown)


def _address(source: str) -> str:
    return RENAMED.get(source) or source.removeprefix("docs/")


def adapt_lists(markdown: str) -> str:
    """Return Markdown of GitHub as Python-Markdown reads it.

    Lists come after a blank line, inner lists have four spaces, and `|` in the code of a table has no backslash.
    """
    lines: list[str] = []
    is_code = False
    for line in markdown.split("\n"):
        is_code ^= line.startswith("```")
        before = lines[-1] if lines else ""
        if not is_code:
            line = _INNER_ITEM.sub("    ", line)
            if line.startswith("|"):
                line = _CODE.sub(lambda code: code[0].replace(r"\|", "|"), line)
            if _ITEM.match(line) and before and not before[0].isspace() and not _ITEM.match(before):
                lines.append("")
        lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
