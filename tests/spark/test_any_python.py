"""Spark with any Python that runs the script: its workers use the same Python, and the format is found."""

import os
import sys
from pathlib import Path

import pytest

from ottla.spark_jobs import interpreter


@pytest.fixture
def said_nothing(monkeypatch, tmp_path):
    """An environment that was not activated: `python3` is another Python, which has nothing that a worker needs."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "python3").symlink_to(os.path.realpath(sys.executable))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(interpreter, "_running_session", lambda: None)


def test_pyspark_python_is_set_to_this_interpreter(said_nothing):
    interpreter.use_this_python()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PYSPARK_PYTHON", "/elsewhere/python"),
        ("PYSPARK_DRIVER_PYTHON", "jupyter"),
        ("PYSPARK_GATEWAY_PORT", "1"),
        ("PATH", str(Path(sys.executable).parent)),
    ],
)
def test_a_configured_environment_is_not_changed(said_nothing, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    interpreter.use_this_python()
    assert os.environ.get("PYSPARK_PYTHON") == (value if name == "PYSPARK_PYTHON" else None)


@pytest.mark.spark
def test_a_script_of_an_environment_that_is_not_activated(reader_process, write_log):
    write_log().data(5)
    assert reader_process.worker_prefix == sys.prefix
    assert reader_process.count(write_log.root)[0] == "5"
