"""A failed test runs again, as often as all processes together may, and a passed one does not ask for that."""

import os
import subprocess
import sys
from pathlib import Path

from tests.reruns import AfterFailure
from tests.timeout import EVENT_TIMEOUT_S

SOURCE = """
import pytest

runs = []

@pytest.fixture(scope="module")
def shared():
    runs.append("shared")

@pytest.mark.parametrize("name", ["first", "second"])
def test_flaky(shared, name):
    runs.append(name)
    assert runs.count(name) == 2

def test_sound(shared):
    assert runs == ["shared", "first", "first", "second"]
"""


def test_reruns_of_all_processes_are_limited(tmp_path):
    (tmp_path / "test_sample.py").write_text(SOURCE)
    reruns = ["--reruns", "1", "--max-suite-reruns", "1", "-n", "1"]
    options = ["-p", "tests.groups", "-p", "tests.reruns", "-p", "no:cacheprovider", "-q"]
    places = [f"--rootdir={tmp_path}", f"--basetemp={tmp_path / 'base'}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *reruns, *options, *places, "test_sample.py"],
        capture_output=True,
        text=True,
        timeout=EVENT_TIMEOUT_S,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert "1 failed, 2 passed, 1 rerun" in done.stdout, done.stdout + done.stderr
    assert "FAILED test_sample.py::test_flaky[second]" in done.stdout


class Connection:
    asked = 0

    def get_suite_reruns(self):
        self.asked += 1
        return 3


def test_only_a_failed_test_asks_for_the_reruns_of_other_processes():
    db = Connection()
    plugin = AfterFailure(db)
    plugin.pytest_runtest_logstart()
    assert (db.get_test_failures("x"), db.get_suite_reruns(), db.asked) == (0, 0, 0)
    plugin.failed = True
    assert (db.get_suite_reruns(), db.asked) == (3, 1)
