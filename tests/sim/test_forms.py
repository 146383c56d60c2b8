"""The simulation serves its clients in the same order whether the engine is compiled or plain Python."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab.simulation.faults import PROFILES
from lab.simulation.outcome import run_seed

SEEDS = (1, 2, 3)
PLAIN = Path(__file__).resolve().parents[4]
"""The checkout, in whose `build/form` these tests run: there `ottla` is plain Python."""
TRACES = """
import json, sys
from lab.simulation.faults import PROFILES
from lab.simulation.outcome import run_seed
from ottla.protocol import varints
assert varints.__file__.endswith(".py"), varints.__file__
print(json.dumps([run_seed(int(seed), PROFILES[sys.argv[1]]).trace for seed in sys.argv[2:]]))
"""


@pytest.mark.compiled
@pytest.mark.parametrize("profile", PROFILES)
def test_a_run_does_not_depend_on_the_form_of_the_engine(profile):
    command = [sys.executable, "-c", TRACES, profile, *map(str, SEEDS)]
    done = subprocess.run(command, cwd=PLAIN, env={"PYTHONPATH": str(PLAIN)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [run_seed(seed, PROFILES[profile]).trace for seed in SEEDS] == json.loads(done.stdout)
