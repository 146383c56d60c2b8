"""All scripts, in a fixed order, and where Kafka's answers to them are kept."""

import gzip
import json
from functools import cache
from pathlib import Path

from differential import (
    exhaustion_tables,
    generation_tables,
    group_tables,
    id_tables,
    listing_tables,
    marker_tables,
    meeting_tables,
    mixed_tables,
    mixed_walks,
    partition_tables,
    producer_tables,
    reader_tables,
    tables,
    two_phase_tables,
    walks,
)

LEVELS = (0, 1, 2)
SETTINGS = (*LEVELS, *two_phase_tables.OPTIONS)
"""Brokers at each `transaction.version`, and those at the latest with other options, by their names."""
RECORDINGS = Path(__file__).parents[2] / "data" / "differential"


@cache
def scripts(level=2):
    """Return every script for brokers at this `transaction.version`, or in this setting; names are unique.

    At level 0 Kafka cannot log the records that transactions V2 need: it answers UNSUPPORTED_VERSION, and then always
    CONCURRENT_TRANSACTIONS to the next requests. There is nothing to compare.
    """
    if level not in LEVELS:
        return list(two_phase_tables.scripts(level))
    modules = [tables, partition_tables, reader_tables, walks]
    if level:
        modules += [generation_tables, mixed_tables, marker_tables, producer_tables, group_tables, listing_tables]
        modules += [id_tables, meeting_tables, exhaustion_tables, mixed_walks]
    found = [script for module in modules for script in module.scripts()]
    if level == max(LEVELS):
        found += mixed_tables.scripts_of_levels()
    assert len({script.name for script in found}) == len(found)
    return found


def recording_file(level):
    """The answers of Kafka in a setting."""
    return RECORDINGS / f"kafka-4.3.1-{f'level-{level}' if level in LEVELS else level}.jsonl.gz"


@cache
def recorded_lines(level):
    """{script name: line of the recording}. Lines are equal if the scripts and Kafka's answers are."""
    with gzip.open(recording_file(level), "rt") as lines:
        return {json.loads(line.partition(',"digest":')[0] + "}")["script"]: line for line in lines}


@cache
def recording(level):
    """{script name: (digest of the script, answers)}: what Kafka said when it was asked last."""
    rows = {name: json.loads(line) for name, line in recorded_lines(level).items()}
    return {name: (row["digest"], row["answers"]) for name, row in rows.items()}


def record(level, answers):
    """Keep Kafka's answers, a line for each script."""
    rows = [
        {"script": script.name, "digest": script.digest, "answers": answers[script.name]} for script in scripts(level)
    ]
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    RECORDINGS.mkdir(exist_ok=True)
    recording_file(level).write_bytes(gzip.compress(text.encode(), mtime=0))
