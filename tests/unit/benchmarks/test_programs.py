"""The programs of the benchmarks, which are run by hand: that they would start, and that their page knows them."""

import ast
import importlib
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "benchmarks"
FILES = sorted(FOLDER.rglob("*.py"))


def imported(path):
    """(module, name in it) of what the file, or a function in it, imports of ours."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in ("ottla", "parts"):
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_what_a_file_imports_of_ours_is_there(path, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    assert [f"{module}.{name}" for module, name in imported(path) if not is_there(module, name)] == []


def is_there(module, name):
    try:
        return hasattr(importlib.import_module(module), name) or bool(importlib.import_module(f"{module}.{name}"))
    except ModuleNotFoundError as error:
        if error.name.split(".")[0] in ("ottla", "parts"):
            return False
        pytest.skip(f"{error.name} is not installed")


def test_the_page_has_a_row_for_each_program_and_none_for_another():
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `([a-z_]+\.py)` \|", page, re.MULTILINE)) == sorted(
        path.name for path in FOLDER.glob("*.py")
    )
