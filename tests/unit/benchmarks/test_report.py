"""The benchmark's table and verdicts."""

import importlib.util
import json
from pathlib import Path

import pytest

MACHINE = {"python": "CPython 3.11.7, PGO", "cores": 2, "load_1_min": 0.5, "write_cpu_s_gb": 0.4}
PATH = Path(__file__).parents[3] / "benchmarks" / "parts" / "broker" / "report.py"


@pytest.fixture(scope="module")
def report():
    spec = importlib.util.spec_from_file_location("benchmark_report", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def line_of(text, label):
    return next(line for line in text.splitlines() if line.startswith(label))


def test_a_target_is_reached_or_missed_in_its_own_direction(report):
    text = report.as_text({"ottla": {"ready_s": 0.4, "tx16_per_s": 2000.0}}, MACHINE)
    assert line_of(text, "ready after").endswith("reached")
    assert line_of(text, "one-record transactions, 16").endswith("MISSED")


def test_a_target_is_missed_if_the_ratio_to_kafka_is_too_high(report):
    ours = {"tx1_cpu_ms": 0.4}
    assert line_of(report.as_text({"ottla": ours}, MACHINE), "  broker CPU each").endswith("reached")
    compared = report.as_text({"ottla": ours, "kafka": {"tx1_cpu_ms": 2.0}}, MACHINE)
    assert line_of(compared, "  broker CPU each").endswith("MISSED")
    assert "0.20" in line_of(compared, "  broker CPU each")


def test_an_unmeasured_figure_is_left_out_or_printed_as_a_dash(report):
    text = report.as_text({"ottla": {"ready_s": 0.4, "idle_mb": None}, "kafka": {"ready_s": None}}, MACHINE)
    assert "resident" not in text
    assert " - " in line_of(text, "ready after")


def test_json_has_the_ratios_of_one_run(report):
    document = json.loads(report.as_json({"ottla": {"tx1_cpu_ms": 0.5}, "kafka": {"tx1_cpu_ms": 4.0}}, MACHINE))
    assert document["ratios"]["tx1_cpu_ms"] == 0.125
    assert document["ratios"]["ready_s"] is None
