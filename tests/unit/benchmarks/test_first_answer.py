"""The benchmark of first answers: what it takes as an answer, and what it knows of it."""

import importlib.util
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "benchmarks"
SAYS_ONE = [sys.executable, "-c", "print(1)"]


@pytest.fixture
def first_answer(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location("benchmark_first_answer", FOLDER / "first_answer.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_wrong_answer_is_not_timed(first_answer, tmp_path):
    wall_s, cpu_s = first_answer.run(SAYS_ONE, lambda said, code: said == "1\n", tmp_path, drop_caches=False)
    assert wall_s > 0 and cpu_s >= 0
    with pytest.raises(SystemExit, match="wrong answer"):
        first_answer.run(SAYS_ONE, lambda said, code: said == "2\n", tmp_path, drop_caches=False)


def test_each_round_begins_without_compiled_kernels_and_runs_again_with_them(first_answer, tmp_path):
    script = "import os, pathlib; place = pathlib.Path(os.environ['NUMBA_CACHE_DIR'], 'kernel'); "
    script += "print(place.exists()); place.touch()"
    said = []
    figures = first_answer.measure(
        [sys.executable, "-c", script], lambda out, code: not said.append(out.strip()), 2, tmp_path, drop_caches=False
    )
    assert said == ["False", "True"] * 2
    assert set(figures) == {"first_s", "first_cpu_s", "compiled_s", "compiled_cpu_s"}


def test_the_count_is_what_kafkas_consumer_returned(first_answer, tmp_path):
    *_, (key, _, goal_s, _, is_right) = first_answer.cases(tmp_path, tmp_path)
    assert (key, goal_s) == ("count", 20.0)
    assert is_right("3988\n", 0)
    assert not is_right("3987\n", 0) and not is_right("3988\n", 1)
