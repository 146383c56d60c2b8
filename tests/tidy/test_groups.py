"""Tests that start a JVM run in one process: a file that the scheduler does not know fails with the remedy."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.groups import JVM, MARKS_OF_JVM, group_of
from tests.timeout import EVENT_TIMEOUT_S

SOURCE = """
import pytest

@pytest.mark.parametrize("broker", ["ottla", pytest.param("{case}", marks=pytest.mark.{mark})])
def test_both(broker):
    pass
"""


@pytest.fixture
def run(tmp_path):
    """Run one file of tests with pytest-xdist; return the exit code and the output."""

    def go(source):
        (tmp_path / "test_sample.py").write_text(source)
        options = ["-p", "tests.groups", "-p", "no:cacheprovider", "-n", "1", "-q", "test_sample.py"]
        places = [f"--rootdir={tmp_path}", f"--basetemp={tmp_path / 'base'}"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *places],
            capture_output=True,
            text=True,
            timeout=EVENT_TIMEOUT_S,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        return done.returncode, done.stdout + done.stderr

    return go


@pytest.mark.parametrize("mark", MARKS_OF_JVM)
def test_a_file_that_is_not_listed_fails_with_the_place_of_the_list(run, mark):
    code, output = run(SOURCE.format(case="jvm", mark=mark))
    remedy = f"test_both[jvm] is marked {mark}: add test_sample.py to GROUP_OF_FILES in tests/groups.py"
    assert (code, remedy in output, "INTERNALERROR" in output) == (1, True, False), output


def test_cases_for_apache_kafka_and_java_need_no_list(run):
    code, output = run(SOURCE.format(case="apache", mark="maven"))
    assert code == 0, output
    for name in ("apache", "apache-1", "1-apache", "java"):
        assert group_of(f"tests/wire/client/test_x.py::test_y[{name}]") == JVM
    assert group_of("tests/wire/client/test_x.py::test_y[ottla]") == "tests/wire/client/test_x.py"
