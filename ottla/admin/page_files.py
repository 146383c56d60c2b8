"""The page of the admin port: its files as routes, and all of them in one file that needs no broker. shell

The page is plain HTML, CSS and modules of JavaScript in `page/`, without a build step. So that one file can hold them,
a module imports with lines `import { name } from "./other.js";`, exports declarations only, and declares no name of
another module.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from ottla.admin.routes import ENTRY, AdminError, AdminRequest, AdminResponse, Headers, Route

HTML: Final = "text/html; charset=utf-8"
_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
MODULES: Final = (
    "dom.js",
    "model.js",
    "lanes.js",
    "source.js",
    "scrubber.js",
    "timeline.js",
    "card.js",
    "partitions.js",
    "topics.js",
    "groups.js",
    "broker.js",
    "main.js",
)
"""The modules, each after those that it imports."""
_FILES: Final = (*MODULES, "style.css", "icon.svg")

_NOTHING: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src 'self' data:"
_POLICY: Final = f"{_NOTHING}; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'"
_HEADERS: Final[Headers] = (("Content-Security-Policy", _POLICY), ("Referrer-Policy", "no-referrer"))

_IMPORT: Final = re.compile(r'^import \{[^}\n]*\} from "\./([a-z_]+\.js)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:function|const|class) )", re.MULTILINE)
_LEFT: Final = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)
_END_OF_TAG: Final = re.compile(r"</(?:script|style)|<!--", re.IGNORECASE)


def page_routes() -> Sequence[Route]:
    """Return `GET /` and the routes of the files that it loads. They hold no data of the broker, so they are public."""
    contents = {name: _read(name) for name in _FILES}
    index = _read("index.html")

    async def show(request: AdminRequest) -> AdminResponse:
        return AdminResponse(body=index, content_type=HTML, headers=_HEADERS)

    async def load(request: AdminRequest) -> AdminResponse:
        name = request.parameters["name"]
        if name not in contents:
            raise AdminError(404, f"The page has no file {name}")
        return AdminResponse(body=contents[name], content_type=_TYPES[name.rpartition(".")[2]], headers=_HEADERS)

    return [
        Route(
            "GET",
            ENTRY,
            show,
            "The page: transactions, partitions, topics, groups and the broker, live",
            is_public=True,
        ),
        Route("GET", "/page/{name}", load, "A file of the page", is_public=True),
    ]


@cache
def exported_page() -> tuple[bytes, bytes]:
    """Return the page in one file as two parts: before and after the JSON of its data (see `escape_json`).

    Its policy allows this script and this style, by their hashes, and no requests.
    """
    style = _read("style.css").decode()
    script = "".join(_inline(name) for name in MODULES)
    for text in (style, script):
        if found := _END_OF_TAG.search(text):
            raise ValueError(f"{found[0]!r} in a file of the page would end its tag")
    policy = f"{_NOTHING}; script-src '{_hash(script)}'; style-src '{_hash(style)}'"
    icon = f"data:image/svg+xml;base64,{b64encode(_read('icon.svg')).decode()}"
    page = _read("index.html").decode()
    for old, new in (
        (
            '<meta charset="utf-8">',
            f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">',
        ),
        ('href="page/icon.svg"', f'href="{icon}"'),
        ('<link rel="stylesheet" href="page/style.css">', f"<style>{style}</style>"),
        ('<script type="module" src="page/main.js"></script>\n', ""),
    ):
        if page.count(old) != 1:
            raise ValueError(f"index.html must have {old!r} once")
        page = page.replace(old, new)
    head, _, _ = page.rpartition("</body>")
    before = f'{head}<script type="application/json" id="data">'
    rest = f'</script>\n<script type="module">{script}</script>\n</body>\n</html>\n'
    return before.encode(), rest.encode()


def escape_json(piece: bytes) -> bytes:
    """Return a piece of JSON escaped for a script element: no name in it can end the tag."""
    return piece.replace(b"<", rb"\u003c")


def _read(name: str) -> bytes:
    return files(__package__).joinpath("page", name).read_bytes()


def _inline(name: str) -> str:
    """Return a module without its imports and exports. ValueError if some cannot be removed."""
    text = _read(name).decode()
    earlier = MODULES[: MODULES.index(name)]
    for other in _IMPORT.findall(text):
        if other not in earlier:
            raise ValueError(f"{name} imports {other}, which must stand before it in MODULES")
    text = _EXPORT.sub("", _IMPORT.sub("", text))
    if left := _LEFT.search(text):
        raise ValueError(f"{name} has {left[0]!r}, which cannot be put into one file")
    return text


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
