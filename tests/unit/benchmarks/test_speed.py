"""The table of `speed.py`: its pure part, and the brokers that it leaves out."""

import importlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "benchmarks"
OURS, OTHER = "Ottla, compiled walk", "kfake"


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
    samples = {OURS: {"consume": [0.3, 0.41, 0.5]}, OTHER: {"consume": [0.9, 0.9, 0.9]}}
    assert cells(drawn(table, samples), "consume")[2:] == [
        "0.4",
        "0.30 / 0.41 / 0.50, **missed**",
        "0.90 / 0.90 / 0.90",
    ]
    assert "missed" not in drawn(table, samples | {OURS: {"consume": [0.3, 0.4, 0.5]}})


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


def test_kfake_is_left_out_with_the_reason_where_go_is_missing(monkeypatch, tmp_path):
    columns = importlib.import_module("parts.speed.columns")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = columns.compare([], [], ["python-walk"], Path("kafka.sh"), tmp_path)
    assert not [column.name for column in found.columns if not column.ours]
    assert "kfake is left out: Go is not installed" in found.notes
    assert "Apache Kafka is left out: no java and no mvn here" in found.notes


@pytest.mark.slow
def test_another_state_is_named_by_its_commit_and_served_from_its_own_folder(tmp_path):
    columns = importlib.import_module("parts.speed.columns")
    here, there = columns.processes.ROOT, tmp_path / "there"
    for name in ("ottla", "benchmarks"):
        shutil.copytree(here / name, there / name, ignore=shutil.ignore_patterns("__pycache__"))
    git = ("git", "-C", str(there), "-c", "user.name=n", "-c", "user.email=e")
    for command in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "there")):
        subprocess.run([*git, *command], check=True)
    commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True).stdout
    found = columns.compare([], [there], ["python-walk", "kfake", "kafka"], Path("kafka.sh"), tmp_path)
    other = found.columns[-1]
    assert (other.name, other.ours) == (f"Ottla at {commit.strip()}", True)
    assert Path(other.start.keywords["program"][0]).is_relative_to(there)


def test_a_folder_that_is_no_ottla_checkout_is_refused_with_its_path(tmp_path):
    columns = importlib.import_module("parts.speed.columns")
    with pytest.raises(SystemExit, match=f"{re.escape(str(tmp_path))} is no checkout of Ottla that can be measured: "):
        columns.compare([], [tmp_path], ["python-walk", "kfake", "kafka"], Path("kafka.sh"), tmp_path)
