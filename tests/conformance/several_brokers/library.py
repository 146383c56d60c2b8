"""All scripts for three brokers and for one, in a fixed order, and the answers of Kafka."""

import gzip
import json
from functools import cache
from pathlib import Path

from tests.conformance.several_brokers import (
    administration_scripts,
    cluster_scripts,
    coordinator_scripts,
    fetch_scripts,
    leader_scripts,
    replica_scripts,
)

FOLDER = Path(__file__).parents[2] / "data" / "differential"
RECORDINGS = {1: FOLDER / "kafka-4.3.1-one-broker.jsonl.gz", 3: FOLDER / "kafka-4.3.1-three-brokers.jsonl.gz"}
"""The answers by the number of brokers."""


@cache
def scripts(brokers=3):
    """Return {name: script}. Those without a stop come first, because a real broker starts in seconds."""
    modules = (
        leader_scripts,
        fetch_scripts,
        coordinator_scripts,
        cluster_scripts,
        replica_scripts,
        administration_scripts,
    )
    found = [script for module in modules for script in module.scripts()]
    if brokers == 1:
        found = administration_scripts.scripts_of_one()
    assert len({script.name for script in found}) == len(found)
    return {script.name: script for script in sorted(found, key=lambda script: "stop" in str(script.steps))}


@cache
def recording(brokers=3):
    """Return {script name: (digest of the script, answers)}."""
    with gzip.open(RECORDINGS[brokers], "rt") as lines:
        rows = [json.loads(line) for line in lines]
    return {row["script"]: (row["digest"], row["answers"]) for row in rows}


def record(answers, brokers=3):
    """Store {script name: (digest, answers)}, a line for each script."""
    rows = [{"script": name, "digest": digest, "answers": each} for name, (digest, each) in answers.items()]
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    RECORDINGS[brokers].write_bytes(gzip.compress(text.encode(), mtime=0))
