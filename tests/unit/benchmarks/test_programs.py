"""The programs of the benchmarks, which are run by hand: they import, and their page lists them."""

import ast
import importlib
import re
import runpy
import sys
from pathlib import Path

import pytest

from lab.usage import KINDS, command_line

FOLDER = Path(__file__).parents[3] / "benchmarks"
PROGRAMS = sorted(FOLDER.glob("*.py"))
FILES = sorted(FOLDER.rglob("*.py"))


def find_imports(path):
    """Yield (module, name in it) for each import of this project in the file or in a function of it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in ("ottla", "parts"):
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_imports_from_ottla_and_parts_exist(path, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    assert [f"{module}.{name}" for module, name in find_imports(path) if not is_there(module, name)] == []


def is_there(module, name):
    try:
        return hasattr(importlib.import_module(module), name) or bool(importlib.import_module(f"{module}.{name}"))
    except ModuleNotFoundError as error:
        if error.name.split(".")[0] in ("ottla", "parts"):
            return False
        pytest.skip(f"{error.name} is not installed")


def test_the_page_has_a_row_for_each_program_and_none_for_another():
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `([a-z_]+\.py)` \|", page, re.MULTILINE)) == sorted(path.name for path in PROGRAMS)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_help_prints_the_first_docstring_line_without_its_kind(path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "argv", [path.name, "--help"])
    with pytest.raises(SystemExit) as ended:
        try:
            runpy.run_path(str(path), run_name="__main__")
        except ModuleNotFoundError as error:
            pytest.skip(f"{error.name} is not installed")
    shown = capsys.readouterr().out
    first = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))).splitlines()[0]
    assert ended.value.code == 0
    assert first.rpartition(" ")[0] + "\n" in shown
    assert first not in shown


@pytest.mark.parametrize("kind", KINDS)
def test_the_word_of_the_house_is_left_out_of_the_first_line_alone(kind):
    shown = command_line(f"What it does. {kind}\n\n    run it free\n", "name").format_help()
    assert "\nWhat it does.\n\n    run it free\n" in shown


def test_help_prints_a_docstring_without_a_kind_unchanged():
    assert "\nIt is for free things.\n" in command_line("It is for free things.").format_help()
