"""Benchmarks from beginning to end, on an input that is as small as possible: they end, and print figures."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RUNS = {
    "admin_port": "--rounds 1",
    "decode": "--size-mib 1 --rounds 1",
    "first_answer": "--rounds 1 --only serve",
    "floor": "--megabytes 1 --rounds 1",
    "scan": "--size-mib 1 --rounds 1",
    "storage": "--partitions 20 --rounds 1",
    "tls": "--megabytes 1 --rounds 1 --handshakes 3",
    "transaction_size": "--seconds 0.01 --rounds 1",
}
LONGER_RUNS = {
    "audit_by_address": "--size-mib 1 --rounds 1 --without-consumers",
    "cache": "--size-mib 1 --rounds 1 --partitions 1",
    "consumer_groups": "--seconds 1",
    "first_answer": "--size-mib 1 --rounds 1 --only audit",
    "flush": "--seconds 0.05 --rounds 1",
    "resolve": "--batches 2000 --partitions 2 --rounds 1",
    "transactions": "--ids 200 --open 50 --rounds 1",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_benchmark_runs_whole(name):
    run(name, RUNS[name])


@pytest.mark.conformance
@pytest.mark.parametrize("name", LONGER_RUNS)
def test_longer_benchmark_runs_whole(name):
    run(name, LONGER_RUNS[name])


def run(name, options):
    command = [sys.executable, f"benchmarks/{name}.py", *options.split()]
    if '"--format"' in Path(ROOT, "benchmarks", f"{name}.py").read_text():
        command += ["--format", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert any(character.isdigit() for character in done.stdout)
