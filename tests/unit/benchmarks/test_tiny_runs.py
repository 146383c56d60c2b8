"""Benchmarks from beginning to end, on an input that is as small as possible: they end, and print figures."""

import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.cache_folder import CACHE

ROOT = Path(__file__).parents[3]
QUICK_JVM = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
FEW = "--rounds 1 --megabytes 1 --seconds 0.1 --connections 2 --most 1 --requests 80"
RUNS = {
    "acls": "--entries 100 --rounds 1",
    "admin_port": "--rounds 1 --transactions 20",
    "broker": "--megabytes 1 --seconds 0.01",
    "decode": "--size-mib 1 --rounds 1",
    "first_answer": "--rounds 1 --only serve",
    "floor": "--megabytes 1 --rounds 1",
    "flush": "--seconds 0.05 --rounds 1",
    "make_log": "{tmp}/log --size-mib 1",
    "others": "--only list-transactions --seconds 1",
    "request_path": "",
    "speed": f"--without kfake --without kafka {FEW}",
    "storage": "--size-mib 128 --partitions 10 --rounds 1",
    "tls": "--megabytes 1 --rounds 1 --handshakes 3",
    "transaction_size": "--seconds 0.01 --rounds 1",
}
RUNS_ON_JAVA = {"scan": "--size-mib 1 --rounds 1 --cores 1"}
LONGER_RUNS = {
    "audit_by_address": "--size-mib 1 --rounds 1 --without-consumers",
    "cache": "--size-mib 1 --rounds 1 --partitions 1",
    "consumer_groups": "--seconds 1",
    "first_answer": "--size-mib 1 --rounds 1 --only audit",
    "kafka_source": "--size-mib 1 --dump-mib 1 --rounds 1 --cores 1 --cache {cache}",
    "others, every attack": "--seconds 0.5",
    "others, ordinary load": "--load --only producers rebalances retention --seconds 1",
    "others, every request": "--walk --only ApiVersions --scale 0 --times 1 --seconds 1",
    "others, an hour": "--hour 1 --format json",
    "remote": "--size-mib 1 --rounds 1 --delay-ms 0",
    "resolve": "--batches 2000 --partitions 2 --rounds 1",
    "speed, every broker": f"--form here=. --only table --format json {FEW}",
    "transactions": "--ids 200 --open 50 --rounds 1",
}
NEEDS = {"remote": "moto"}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_benchmark_runs_whole(name, tmp_path):
    run(name, RUNS[name], tmp_path)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("name", RUNS_ON_JAVA, ids=lambda name: f"{name}-java")
def test_benchmark_on_java_runs_whole(name, tmp_path):
    run(name, RUNS_ON_JAVA[name], tmp_path)


@pytest.mark.conformance
@pytest.mark.parametrize("name", LONGER_RUNS)
def test_longer_benchmark_runs_whole(name, tmp_path):
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed: the extra conformance has it")
    run(name, LONGER_RUNS[name], tmp_path)


def test_each_benchmark_is_run():
    names = {name.partition(",")[0] for name in (*RUNS, *RUNS_ON_JAVA, *LONGER_RUNS)}
    assert names == {path.stem for path in (ROOT / "benchmarks").glob("*.py")}


def run(name, options, tmp_path):
    command = [sys.executable, f"benchmarks/{name.partition(',')[0]}.py"]
    command += shlex.split(options.format(tmp=tmp_path, cache=CACHE))
    environment = os.environ | QUICK_JVM
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=800, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert any(character.isdigit() for character in done.stdout)
