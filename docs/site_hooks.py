"""What `make site` asks of MkDocs: the pages at the root of the repository are pages of the site too. free

MkDocs reads one folder. The readme and what else stands outside of `docs/` is given to it here, and links between
all pages, which are written for whoever reads the repository, are turned to where the site has them.
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
# A cell of as many characters is text, and not a number or a name.
LONG_TEXT: Final = 60
# As many characters of code fit a line of a phone beside other words.
SHORT_NAME: Final = 24


def on_files(files: Any, config: Any) -> Any:
    """Add what stands outside of docs/; MkDocs calls this before it reads a page."""
    from mkdocs.structure.files import File

    for source, uri in OUTSIDE.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn the links of one page; MkDocs calls this for each, and its strict mode fails on one that leads nowhere."""
    return with_lists(turned(markdown, page.file.src_uri))


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Make one page fit narrow windows; MkDocs calls this for each."""
    return fitted(html)


def fitted(html: str) -> str:
    """The page with tables that scroll by themselves, and lines that break between names rather than within them."""
    parts = _BLOCK.split(html)
    parts[::2] = [_HEADING.sub(_broken, _TABLE.sub(_table, _CODE.sub(_code, part))) for part in parts[::2]]
    return "".join(parts)


def _code(match: re.Match[str]) -> str:
    """A short name stays on its line, and a line that ends within code is no end of a line to the reader."""
    text = match[1].replace("\n", " ")
    return f'<code class="short">{text}</code>' if len(text) <= SHORT_NAME else f"<code>{text}</code>"


def _table(match: re.Match[str]) -> str:
    return f'<div class="wide">{_CELL.sub(_cell, match[0])}</div>'


def _cell(match: re.Match[str]) -> str:
    """A cell's long names may break behind punctuation, a short one stays whole. Of `\\|` the escape is Markdown's."""
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
    """Lists as MkDocs knows them: behind a blank line, those within others four spaces in. GitHub needs neither."""
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


def turned(markdown: str, uri: str) -> str:
    """The text of the page that the site has at `uri`, with links as it needs them; those to sources are text."""
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
    """Where the page stands in the repository."""
    return next((source for source, other in OUTSIDE.items() if other == uri), f"docs/{uri}")
