"""All scripts, in a fixed order, and where Kafka's answers to them are kept."""

import gzip
import json
from functools import cache
from pathlib import Path

from differential import partition_tables, reader_tables, tables, walks

RECORDING = Path(__file__).parents[2] / "data" / "differential" / "kafka-4.3.1-level-1.jsonl.gz"


@cache
def scripts():
    """Every script; names are unique."""
    found = [*tables.scripts(), *partition_tables.scripts(), *reader_tables.scripts(), *walks.scripts()]
    assert len({script.name for script in found}) == len(found)
    return found


@cache
def recording():
    """{script name: (digest of the script, answers)}: what Kafka said when it was asked last."""
    with gzip.open(RECORDING, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    return {row["script"]: (row["digest"], row["answers"]) for row in rows}


def record(answers):
    """Keep Kafka's answers, a line for each script."""
    rows = [{"script": script.name, "digest": script.digest, "answers": answers[script.name]} for script in scripts()]
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    RECORDING.parent.mkdir(exist_ok=True)
    RECORDING.write_bytes(gzip.compress(text.encode(), mtime=0))
