"""Hooks of MkDocs for `make site`, which add the pages at the root of the repository to the site. free

MkDocs reads one folder. The hooks add the readme and the other pages outside of `docs/`. Links between pages are
written for readers of the repository; the hooks rewrite them to the addresses of the site.
"""

import posixpath
import re
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
OUTSIDE: Final = {
    "README.md": "readme.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "license.txt",
    "benchmarks/README.md": "benchmarks.md",
}
_LINK: Final = re.compile(r"\[([^\]]*)\]\((?!https?://|#)([^)#\s]+)([^)]*)\)")

_ITEM: Final = re.compile(r"(-|\d+\.) ")
_INNER_ITEM: Final = re.compile(r"^ {2,3}(?=(-|\d+\.) )")
_TABLE: Final = re.compile(r"<table>.*?</table>", re.DOTALL)
_HEADING: Final = re.compile(r'(?<=>)[^<>]+(?=<a class="headerlink")')
_CELL: Final = re.compile(r"(<t[dh][^>]*>)(.*?)(?=</t[dh]>)", re.DOTALL)
_BLOCK: Final = re.compile(r"(<pre>.*?</pre>)", re.DOTALL)
_CODE: Final = re.compile(r"<code>(.*?)</code>", re.DOTALL)
_LONG_NAME: Final = re.compile(r"<code>.*?</code>|(?<![\w.])[A-Z_]{18,}(?!\w)|(?<=>)[^<>\s]{18,}(?=</a>)", re.DOTALL)
_BREAK: Final = re.compile(r"((?<=\w)[.,/_=](?=\w))")
_TAG: Final = re.compile(r"<[^>]+>")
# A table cell with at least this many characters is text, not a number or a name.
LONG_TEXT: Final = 60
# Code of up to this many characters fits a line of a phone next to other words.
SHORT_NAME: Final = 24


def on_files(files: Any, config: Any) -> Any:
    """Add the pages outside of docs/. MkDocs calls this before it reads a page."""
    from mkdocs.structure.files import File

    for source, uri in OUTSIDE.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite the links of one page. MkDocs calls this for each page; its strict mode fails on a broken link."""
    return with_lists(turn_links(markdown, page.file.src_uri))


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Make one page fit narrow windows. MkDocs calls this for each page."""
    return fit_page(html)


def fit_page(html: str) -> str:
    """Return the page with tables that scroll by themselves, and lines that break between names, not within them."""
    parts = _BLOCK.split(html)
    parts[::2] = [_HEADING.sub(_broken, _TABLE.sub(_table, _CODE.sub(_code, part))) for part in parts[::2]]
    return "".join(parts)


def _code(match: re.Match[str]) -> str:
    """Keep a short name on one line, and replace line ends within code by spaces."""
    text = match[1].replace("\n", " ")
    return f'<code class="short">{text}</code>' if len(text) <= SHORT_NAME else f"<code>{text}</code>"


def _table(match: re.Match[str]) -> str:
    return f'<div class="wide">{_CELL.sub(_cell, match[0])}</div>'


def _cell(match: re.Match[str]) -> str:
    """Let long names of a cell break after punctuation, and keep a short cell whole. Unescape Markdown's `\\|`."""
    opening, content = match.groups()
    text = _TAG.sub("", content)
    if len(text) >= LONG_TEXT:
        opening = opening.replace("<td", '<td class="text"')
    elif len(text) < SHORT_NAME and " " not in text and not _LONG_NAME.search(text):
        opening = opening.replace("<td", '<td class="short"')
    return opening + _LONG_NAME.sub(_broken, content.replace(r"\|", "|"))


def _broken(match: re.Match[str]) -> str:
    return _BREAK.sub(r"\1<wbr>", match[0])


def with_lists(markdown: str) -> str:
    """Return Markdown with lists as MkDocs needs them: after a blank line, and inner lists indented by four spaces.

    GitHub needs neither.
    """
    lines: list[str] = []
    is_code = False
    for line in markdown.split("\n"):
        is_code ^= line.startswith("```")
        line = line if is_code else _INNER_ITEM.sub("    ", line)
        before = lines[-1] if lines else ""
        if not is_code and _ITEM.match(line) and before and not before[0].isspace() and not _ITEM.match(before):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def turn_links(markdown: str, uri: str) -> str:
    """Return the text of the page that the site has at `uri`, with links of the site. Links to sources become text."""
    folder = posixpath.dirname(_source(uri))

    def turn(match: re.Match[str]) -> str:
        text, link, anchor = match.groups()
        source = posixpath.normpath(posixpath.join(folder, link))
        if source not in OUTSIDE and not source.startswith("docs/"):
            return text
        target = OUTSIDE.get(source) or source.removeprefix("docs/")
        return f"[{text}]({posixpath.relpath(target, posixpath.dirname(uri) or '.')}{anchor})"

    return _LINK.sub(turn, markdown)


def _source(uri: str) -> str:
    """Return the path of the page in the repository."""
    return next((source for source, other in OUTSIDE.items() if other == uri), f"docs/{uri}")
