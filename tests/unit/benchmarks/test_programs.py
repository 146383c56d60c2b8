"""The programs of the benchmarks, which are run by hand: that they would start, and that their page knows them."""

import ast
import importlib.util
import re
import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "benchmarks"
FILES = sorted(FOLDER.rglob("*.py"))
PROGRAMS = sorted(FOLDER.glob("*.py"))


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
        if is_ours(error.name):
            return False
        pytest.skip(f"{error.name} is not installed")


def is_ours(module):
    return module.split(".")[0] in ("ottla", "parts")


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_a_program_says_what_it_takes(path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr("sys.argv", [str(path), "--help"])
    try:
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(path), run_name="__main__")
    except ModuleNotFoundError as error:
        if is_ours(error.name):
            raise
        pytest.skip(f"{error.name} is not installed")
    assert ended.value.code == 0 and capsys.readouterr().out.startswith(f"usage: {path.name}")


def test_a_scan_too_short_for_the_clock_has_no_rate_of_cpu(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location("benchmark_scan", FOLDER / "scan.py")
    scan = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scan)
    monkeypatch.setattr(scan, "cpu_of_tree", lambda: 1.0)
    row = scan.row_of(scan.Case("headers", lambda: None, 0.001, "GiB", 2.0), 1)
    assert (row["cpu_s"], row["per_cpu_second"]) == (None, None) and row["per_second"] > 0
    assert scan.line_of(row).startswith("headers ")


def test_the_page_has_a_row_for_each_program_and_none_for_another():
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `([a-z_]+\.py)` \|", page, re.MULTILINE)) == sorted(path.name for path in PROGRAMS)
