"""All scripts for three brokers, in a fixed order, and the answers of Kafka."""

import gzip
import json
from functools import cache
from pathlib import Path

from tests.conformance.several_brokers import (
    cluster_scripts,
    coordinator_scripts,
    fetch_scripts,
    leader_scripts,
    replica_scripts,
)

RECORDING = Path(__file__).parents[2] / "data" / "differential" / "kafka-4.3.1-three-brokers.jsonl.gz"


@cache
def scripts():
    """Return {name: script}. Those without a stop come first, because a real broker starts in seconds."""
    modules = (leader_scripts, fetch_scripts, coordinator_scripts, cluster_scripts, replica_scripts)
    found = [script for module in modules for script in module.scripts()]
    assert len({script.name for script in found}) == len(found)
    return {script.name: script for script in sorted(found, key=lambda script: "stop" in str(script.steps))}


@cache
def recording():
    """Return {script name: (digest of the script, answers)}."""
    with gzip.open(RECORDING, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    return {row["script"]: (row["digest"], row["answers"]) for row in rows}


def record(answers):
    """Store {script name: (digest, answers)}, a line for each script."""
    rows = [{"script": name, "digest": digest, "answers": each} for name, (digest, each) in answers.items()]
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    RECORDING.write_bytes(gzip.compress(text.encode(), mtime=0))
