"""The pytest project of a user: one file, with the plugin of the test kit."""

import os
import subprocess
import sys
from pathlib import Path


def run(directory, source, *arguments):
    """Run pytest on a project of one file and return the end of its output."""
    (directory / "test_project.py").write_text(source)
    plugin = ["-p", "ottla.testkit.pytest_plugin", "-p", "no:cacheprovider", "--strict-markers"]
    places = [f"--rootdir={directory}", f"--basetemp={directory / 'base'}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, *places, "-q", *arguments, str(directory)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])},
    )
    return done.returncode, done.stdout + done.stderr
