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


def on_files(files: Any, config: Any) -> Any:
    """Add what stands outside of docs/; MkDocs calls this before it reads a page."""
    from mkdocs.structure.files import File

    for source, uri in OUTSIDE.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn the links of one page; MkDocs calls this for each, and its strict mode fails on one that leads nowhere."""
    return turned(markdown, page.file.src_uri)


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
