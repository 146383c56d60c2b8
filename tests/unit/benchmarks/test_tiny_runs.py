"""Benchmarks from beginning to end, on an input that is as small as possible: they end, and print figures."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RUNS = {
    "acls": "--entries 20 --rounds 1",
    "admin_port": "--rounds 1",
    "decode": "--size-mib 1 --rounds 1",
    "first_answer": "--size-mib 1 --rounds 1 --only audit",
    "floor": "--megabytes 1 --rounds 1",
    "flush": "--seconds 0.05 --rounds 1",
    "scan": "--size-mib 1 --rounds 1",
    "storage": "--partitions 20 --rounds 1",
    "tls": "--megabytes 1 --rounds 1 --handshakes 3",
    "transaction_size": "--seconds 0.01 --rounds 1",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_benchmark_runs_whole(name):
    command = [sys.executable, f"benchmarks/{name}.py", *RUNS[name].split(), "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert figures(json.loads(done.stdout))


def figures(found):
    """Return the numbers of a JSON document."""
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, list):
        return [number for each in found for number in figures(each)]
    return [found] if isinstance(found, int | float) and not isinstance(found, bool) else []
