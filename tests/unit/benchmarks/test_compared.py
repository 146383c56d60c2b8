"""Contestants of a benchmark that take turns, and their ratios."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parents[3] / "benchmarks" / "parts" / "kafka_source" / "compared.py"


@pytest.fixture(scope="module")
def comparison():
    spec = importlib.util.spec_from_file_location("benchmark_compared", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def replay(timings, order, name):
    left = iter(timings)

    def run():
        order.append(name)
        wall_s, cpu_s = next(left)
        return {"wall_s": wall_s, "cpu_s": cpu_s}

    return run


def test_contestants_take_turns_and_the_first_round_does_not_count(comparison):
    order = []
    slow = replay([(0.1, 0.1), (4.0, 9.0), (3.0, 5.0), (5.0, 6.0)], order, "slow")
    quick = replay([(9.0, 9.0), (2.0, None), (1.0, None), (1.5, None)], order, "quick")
    found = comparison.turns({"slow": slow, "quick": quick}, 3)
    assert order == ["slow", "quick"] * 4
    assert found == {"slow": {"wall_s": 3.0, "cpu_s": 6.0}, "quick": {"wall_s": 1.0, "cpu_s": None}}


def test_ratios_are_of_what_is_done_in_a_second_and_count_the_broker_with_its_reader(comparison):
    ours, theirs = {"wall_s": 2.0, "cpu_s": 4.0}, {"wall_s": 10.0, "cpu_s": 12.0, "broker_cpu_s": 8.0}
    row = comparison.row_of("records", "a source", 6.0, "M", ours, theirs)
    assert (row["ours_per_s"], row["theirs_per_s"]) == (3.0, 0.6)
    assert (row["ratio"], row["cpu_ratio"]) == (5.0, 5.0)
    # The same columns as the heading has.
    assert len(comparison.line_of(row)) == len(comparison.heading())
    assert comparison.line_of(row).split()[-4:] == ["12.00", "8.0", "5.0", "x"]


def test_without_cpu_times_only_the_wall_is_compared(comparison):
    nothing = {"wall_s": 1.0, "cpu_s": None}
    row = comparison.row_of("records", "a source", 1.0, "M", nothing, nothing)
    assert row["cpu_ratio"] is None
    assert comparison.line_of(row).endswith("1.0 x")
