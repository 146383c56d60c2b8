"""The programs of the benchmarks, which are run by hand: they import, and their page lists them."""

import argparse
import ast
import importlib.util
import re
import runpy
import sys
from pathlib import Path

import pytest

from lab.usage import KINDS, command_line

FOLDER = Path(__file__).parents[3] / "benchmarks"
PROGRAMS = sorted(FOLDER.glob("*.py"))
WITH_ROUNDS = [path for path in PROGRAMS if '"--rounds"' in path.read_text(encoding="utf-8")]
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


@pytest.mark.parametrize(
    "path", [path for path in PROGRAMS if '"--rounds"' in path.read_text()], ids=lambda path: path.name
)
def test_without_a_round_a_program_ends_with_one_line(path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "argv", [path.name, "--rounds", "0"])
    with pytest.raises(SystemExit) as ended:
        try:
            runpy.run_path(str(path), run_name="__main__")
        except ModuleNotFoundError as error:
            pytest.skip(f"{error.name} is not installed")
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith("argument --rounds: '0' is not a whole number of at least 1\n")


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_a_program_measures_the_package_of_its_checkout(path):
    first = re.search(r"^(?:from|import) (parts|lab|ottla)\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert first[1] == "parts", "this import finds the checkout; lab and ottla of another one may be installed"


@pytest.fixture
def load(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))

    def load(name):
        spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def options(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("parts.options")


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "two", ""])
def test_a_count_is_a_whole_number_from_1_on(options, text):
    assert options.parse_count("1") == 1
    with pytest.raises(argparse.ArgumentTypeError, match=re.escape(repr(text))):
        options.parse_count(text)


@pytest.mark.parametrize("text", ["0", "-0.1", "nan", "inf", "two", ""])
def test_an_amount_is_a_finite_number_above_0(options, text):
    assert options.parse_amount("0.05") == 0.05
    with pytest.raises(argparse.ArgumentTypeError, match=re.escape(repr(text))):
        options.parse_amount(text)


def test_a_name_that_nothing_has_ends_with_one_line(options, capsys):
    options.check_chosen(["audit"], "aud")
    with pytest.raises(SystemExit) as ended:
        options.check_chosen([], "odit")
    assert ended.value.code == 2
    assert capsys.readouterr().err == "nothing has 'odit' in its name: run without this option to see the names\n"


def test_cpu_time_that_is_too_short_to_be_measured_has_no_rate(load, monkeypatch):
    scan = load("scan")
    monkeypatch.setattr(scan, "cpu_of_tree", lambda: 1.0)
    row = scan.row_of(scan.Case("headers", lambda: None, 1.0, "GiB", 2.0), 1)
    assert (row["cpu_s"], row["per_cpu_second"]) == (None, None)
    assert scan.line_of(row).startswith("headers ")


def test_a_reference_that_is_too_short_to_be_measured_has_no_ratio(load):
    spreads = {"data source": {"wall_s": [1.0, 1.0, 1.0], "cpu_s": [0.0, 0.0, 0.1]}}
    assert load("cache")._text_of({"what": "warm", "by": spreads}).endswith("1.00 x    nan x")


@pytest.mark.parametrize("kind", KINDS)
def test_the_word_of_the_house_is_left_out_of_the_first_line_alone(kind):
    shown = command_line(f"What it does. {kind}\n\n    run it free\n", "name").format_help()
    assert "\nWhat it does.\n\n    run it free\n" in shown


def test_help_prints_a_docstring_without_a_kind_unchanged():
    assert "\nIt is for free things.\n" in command_line("It is for free things.").format_help()
