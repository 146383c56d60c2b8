"""The table of `speed.py`: its pure part, and the brokers that it leaves out."""

import argparse
import importlib.util
import re
import shutil
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "benchmarks"
OURS, OTHER = "compiled", "kfake"


@pytest.fixture(autouse=True)
def programs(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))


@pytest.fixture
def rows():
    return importlib.import_module("parts.speed.rows")


@pytest.fixture
def table():
    return importlib.import_module("parts.speed.table")


@pytest.fixture
def interpreter():
    return importlib.import_module("parts.interpreter")


def cells(text, label):
    line = next(line for line in text.splitlines() if line.startswith(f"| {label}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def drawn(table, samples):
    return table.of_brokers(samples, [OURS, OTHER], [OURS], 1000)


def test_a_cell_has_the_minimum_the_median_and_the_maximum(table):
    text = drawn(table, {OURS: {"consume": [0.3, 0.1, 0.25]}, OTHER: {"consume": [120.0, 12.34, 1200.0]}})
    assert cells(text, "consume")[3:] == ["0.10 / 0.25 / 0.30", "12.3 / 120 / 1,200"]


def test_a_median_of_ours_above_its_goal_is_marked_and_that_of_another_is_not(table):
    samples = {OURS: {"consume": [0.2, 0.26, 0.3]}, OTHER: {"consume": [1.0, 1.0, 1.0]}}
    text = drawn(table, samples)
    assert cells(text, "consume")[2:] == ["", "0.20 / 0.26 / 0.30", "1.00 / 1.00 / 1.00"]
    assert cells(text, "relative to kfake's")[2:] == ["0.25", "0.20 / 0.26 / 0.30, **missed**", "-"]
    assert "missed" not in drawn(table, samples | {OURS: {"consume": [0.2, 0.25, 0.3]}})


def test_a_figure_relative_to_another_brokers_is_that_of_each_round(table):
    samples = {OURS: {"tx16_per_s": [800.0, 600.0, 900.0]}, OTHER: {"tx16_per_s": [1000.0, 2000.0, 1000.0]}}
    text = drawn(table, samples)
    assert cells(text, "relative to kfake's")[2:] == ["at least 0.8", "0.30 / 0.80 / 0.90", "-"]
    slower = samples | {OURS: {"tx16_per_s": [790.0, 600.0, 900.0]}}
    assert cells(drawn(table, slower), "relative to kfake's")[3].endswith("**missed**")


def test_a_figure_relative_to_the_floor_is_for_our_brokers_alone(table):
    samples = {"floor": {"write": [0.5]}, OURS: {"produce_1k": [0.7]}, OTHER: {"produce_1k": [0.7]}}
    assert cells(drawn(table, samples), "relative to receive")[3:] == ["1.40 / 1.40 / 1.40", "-"]


def test_without_kfake_nothing_is_relative_to_it(table):
    text = table.of_brokers({OURS: {"tx16_per_s": [800.0]}}, [OURS], [OURS], 1000)
    assert "16 producers" in text
    assert "kfake" not in text


def test_ratios_are_the_medians_of_those_in_each_round_to_the_first_column(table):
    samples = {
        "floor": {"write": [1.0]},
        OURS: {"consume": [1.0, 2.0, 4.0], "tx_ms": [0.0]},
        OTHER: {"consume": [2.0, 2.0, 2.0], "tx_ms": [1.0]},
        "other": {},
    }
    text = table.of_ratios(samples, [OURS, OTHER, "other"], 1000)
    assert cells(text, "relative to compiled")[1:] == [OTHER, "other"]
    assert cells(text, "consume")[1:] == ["1.00", "-"]
    assert len(text.splitlines()) == 3, "a figure that is too small to be measured has no ratio"


def test_every_line_of_a_table_is_as_wide_as_its_head(table):
    text = drawn(table, {OURS: {"consume": [0.3]}, OTHER: {}})
    assert len({len(line) for line in text.splitlines()}) == 1


def test_growth_is_relative_to_the_broker_with_few_in_the_same_round(table):
    text = table.of_growth(
        {"Produce": {1: [(50.0, 50.0)], 1000: [(50.0, 60.0), (100.0, 110.0), (50.0, 75.0)]}, "end": {10: [(1, 2)]}}
    )
    assert cells(text, "CPU of one request")[1:] == ["1", "10", "1,000"]
    assert cells(text, "Produce")[1:] == ["50.0 / 50.0 / 50.0; 1.00", "", "60.0 / 75.0 / 110; 1.20"]


def test_only_the_text_between_the_markers_is_replaced(table):
    page = (
        "before\n<!-- speed table -->\nold\n<!-- /speed table -->\nafter\n<!-- speed growth -->\n<!-- /speed growth -->"
    )
    written = table.between_markers(page, "table", "| new |")
    assert written == page.replace("old", "| new |")
    assert table.between_markers(written, "table", "| new |") == written


@pytest.mark.parametrize("page", ["nothing", "<!-- speed table -->\n", "<!-- /speed table -->\n<!-- speed table -->\n"])
def test_a_page_without_both_markers_is_refused(table, page):
    with pytest.raises(ValueError, match="speed table"):
        table.between_markers(page, "table", "x")


def test_the_page_of_figures_has_both_markers(table):
    page = (FOLDER.parent / "docs" / "measured.md").read_text(encoding="utf-8")
    for name in ("table", "growth"):
        assert "| new |" in table.between_markers(page, name, "| new |")


@pytest.mark.parametrize(
    ("variables", "kinds"),
    [
        ({"CONFIG_ARGS": "'--enable-optimizations' '--with-lto'"}, ["PGO", "LTO"]),
        ({"CONFIG_ARGS": "'--with-lto=full' '--enable-shared'"}, ["LTO"]),
        ({"CONFIG_ARGS": "'--with-lto=no' '--enable-shared'"}, []),
        ({"CONFIG_ARGS": "", "PY_CFLAGS_NODIST": "-O3 -flto -fprofile-use -fprofile-correction"}, ["PGO", "LTO"]),
        ({"PGO_PROF_USE_FLAG": "-fprofile-use -fprofile-correction", "CONFIG_ARGS": None}, []),
    ],
)
def test_a_build_shows_what_it_was_configured_with(interpreter, variables, kinds):
    assert interpreter.kinds(variables) == kinds


@pytest.fixture
def columns():
    return importlib.import_module("parts.speed.columns")


def test_kfake_is_left_out_with_the_reason_where_go_is_missing(columns, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = columns.compare([], [], Path("kafka.sh"), tmp_path)
    assert found.columns == []
    assert "kfake is left out: Go is not installed" in found.notes
    assert "Apache Kafka is left out: no java and no mvn here" in found.notes


def compare_forms(columns, tmp_path, *texts):
    forms = [columns.parse_form(text) for text in texts]
    return columns.compare(forms, ["kfake", "kafka"], Path("kafka.sh"), tmp_path)


@pytest.mark.slow
def test_a_form_runs_the_package_of_its_directory_and_is_named_by_its_label(columns, tmp_path):
    shutil.copytree(FOLDER.parent / "ottla", tmp_path / "ottla", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    version = tmp_path / "ottla" / "__init__.py"
    version.write_text(re.sub(r'__version__ = "[^"]+"', '__version__ = "9.8.7"', version.read_text()))
    found = compare_forms(columns, tmp_path, f"now={FOLDER.parent}", f"compiled, PGO={tmp_path}:{sys.executable}")
    assert [(column.name, column.ours) for column in found.columns] == [("now", True), ("compiled, PGO", True)]
    here, there = found.notes
    assert "9.8.7" not in here and ("; commit " in here) == (FOLDER.parent / ".git").exists()
    assert "9.8.7" in there and "plain Python" in there and "commit" not in there


def test_an_interpreter_without_the_dependencies_is_refused_with_the_remedy(columns, tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    with pytest.raises(SystemExit, match=rf"(?s){python} cannot run the Ottla of bare: .*No module.*pip install"):
        compare_forms(columns, tmp_path, f"bare={FOLDER.parent}:{python}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("plain", "'plain' is not LABEL=DIR"),
        ("=.", "'=.' is not LABEL=DIR"),
        ("plain=", "'plain=' is not LABEL=DIR"),
        ("kfake=.", "'kfake' cannot be a label"),
        ("a|b=.", "'a|b' cannot be a label"),
        ("plain=/nowhere", "/nowhere has no ottla"),
        ("plain=.:/nowhere/python", "/nowhere/python is no program"),
    ],
)
def test_a_form_that_cannot_be_measured_is_refused(columns, text, reason):
    with pytest.raises(argparse.ArgumentTypeError, match=re.escape(reason)):
        columns.parse_form(text)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--form", f"now={FOLDER.parent}"] * 2, "two forms have the same label"),
        (["--write", "/nowhere/page.md"], "No such file or directory: '/nowhere/page.md'"),
        (["--write", str(FOLDER / "README.md")], "the page has no lines <!-- speed table --> and"),
    ],
)
def test_invalid_options_are_refused_before_anything_is_measured(options, reason, monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("benchmark_speed", FOLDER / "speed.py")
    speed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(speed)
    monkeypatch.setattr(sys, "argv", ["speed.py", *options])
    with pytest.raises(SystemExit) as ended:
        speed.parse()
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


def test_the_smallest_size_is_measured_even_if_fewer_are_wanted():
    growth = importlib.import_module("parts.speed.growth")
    assert growth.up_to(5, growth.PARTITIONS) == [10]
    assert growth.up_to(100, growth.PARTITIONS) == [10, 100]
