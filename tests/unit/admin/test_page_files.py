"""Files of the page: access to them, the resources that they may load, and a single file that holds them all."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from web import Web

from ottla.admin import page_files
from ottla.admin.page_files import MODULES, escape_json, exported_page, page_routes

FOLDER = page_files.files("ottla.admin") / "page"
TOKEN = "a-token-of-some-length"
MODULE_LINES = 1845
LINE = 120


@pytest.fixture(scope="module")
def web():
    return Web(page_routes(), token=TOKEN)


@pytest.mark.parametrize("path", ["/", "/page/main.js", "/page/style.css", "/page/icon.svg"])
def test_the_page_needs_no_token_and_may_load_nothing_from_elsewhere(web, path):
    reply = web.ask("GET", path)
    assert reply.status == 200
    policy = dict(part.strip().partition(" ")[::2] for part in reply.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert not re.search(rb"https?://(?!www\.w3\.org/2000/svg)", reply.body)


@pytest.mark.parametrize(
    "path",
    [
        "/page/nothing.js",
        "/page/index.html%00",
        "/page/main.js%00.html",
        "/page/%2e%2e",
        "/page/..%2fport.py",
        "/page/%2e%2e%2fport.py",
        "/page/..\\..\\port.py",
        "/page/..%2f..%2f..%2fetc%2fpasswd",
        "/../../etc/passwd",
        "/page/../port.py",
        "/page/../../../etc/passwd",
        "/page/%2e%2e/%2e%2e/etc/passwd",
        "/page//etc/passwd",
        "/page/\xff",
        "/page/",
        "/page",
        "/%2e%2e/pyproject.toml",
    ],
)
def test_no_path_leads_to_another_file(web, path):
    reply = web.ask("GET", path, authorization=f"Bearer {TOKEN}")
    assert reply.status in (400, 404) and reply.headers["content-type"] == "application/json"
    assert b"import " not in reply.body and b"root:" not in reply.body


def test_every_page_module_is_served_and_the_folder_has_no_other_file(web):
    assert {path.name for path in FOLDER.iterdir()} == {*MODULES, "index.html", "style.css", "icon.svg"}
    for name in MODULES:
        assert web.ask("GET", f"/page/{name}").headers["content-type"] == "text/javascript; charset=utf-8"


def test_the_page_is_small_and_has_no_script_outside_its_modules():
    lines = [line for name in MODULES for line in (FOLDER / name).read_text().splitlines()]
    assert len(lines) < MODULE_LINES
    assert not [line for line in lines if len(line) > LINE]
    index = (FOLDER / "index.html").read_text()
    assert re.findall(r"<script[^>]*>(.*?)</script>", index) == [""]
    assert not re.search(r"<style|\son\w+=|\sstyle=", index)


def test_names_become_text_and_never_markup():
    scripts = "".join((FOLDER / name).read_text() for name in MODULES)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|\.parseFromString", scripts
    )


def test_no_name_in_the_data_ends_the_script_that_holds_it():
    name = "</script><!--<script>"
    before, behind = exported_page()
    piece = escape_json(json.dumps({"name": name}).encode())
    assert b"<" not in piece and json.loads(piece) == {"name": name}
    page = before + piece + behind
    assert page.count(b"</script>") == 2


@pytest.mark.skipif(shutil.which("node") is None, reason="no node on the path")
def test_node_finds_no_fault_in_the_exported_script(tmp_path):
    _, behind = exported_page()
    script = tmp_path / "page.mjs"
    script.write_bytes(behind.partition(b'<script type="module">')[2].rpartition(b"</script>")[0])
    checked = subprocess.run(["node", "--check", script], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
