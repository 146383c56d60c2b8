"""A case of the corpus: its description and the script that writes it. free"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.testkit.corpus.case_run import CaseRun
from ottla.testkit.corpus.directory import PROPERTIES, as_kafka_keeps_it

FORMAT: Final = 1
"""Version of `case.json`. It is raised for changes that older readers would misread."""


class Case(NamedTuple):
    """A case: `what` describes the log, `hard` the usual reader errors, `reported` lists public threads about them."""

    name: str
    what: str
    hard: str
    reported: tuple[str, ...]
    script: Callable[[CaseRun], None]
    options: Mapping[str, Any] = {}
    """Broker options for the script, in addition to the defaults."""


def files_of(case: Case) -> dict[str, bytes]:
    """Return {path in the directory of the case: content}; always the same for the same case."""
    run = CaseRun(case.name, **case.options)
    case.script(run)
    now_ms = run.now_ms
    image = run.broker.assembly.broker.cluster.image
    kept = as_kafka_keeps_it(run.files(), image, now_ms)
    for edit in run.edits:
        edit(kept)
    document = json.dumps(expectations(case, run), indent=1) + "\n"
    return {
        "case.json": document.encode(),
        "server.properties": PROPERTIES.encode(),
        **{f"data/{path}": content for path, content in sorted(kept.items())},
    }


def expectations(case: Case, run: CaseRun) -> dict[str, Any]:
    """Return the content of `case.json`."""
    return {
        "format": FORMAT,
        "name": case.name,
        "what": case.what,
        "hard": case.hard,
        "reported": [*case.reported],
        "stopped_cleanly": run.stopped_cleanly,
        "partitions": [partition.to_json() for _, partition in sorted(run.expected.items())],
        "transactions": [
            {
                "transactional_id": name,
                "state": state,
                "producer_id": owner.producer_id,
                "producer_epoch": owner.epoch,
            }
            for name, (state, owner) in sorted(run.transactions.items())
        ],
        "group_offsets": [
            {"group": group, "topic": topic, "partition": partition, "offset": offset, "unstable": unstable}
            for (group, topic, partition), (offset, unstable) in sorted(run.offsets.items())
        ],
    }


class Written(NamedTuple):
    """A case that is written to disk."""

    case: str
    files: int
    size_bytes: int


def write_case(case: Case, directory: Path) -> Written:
    """Write `directory`/<name of the case>, which must not exist. Raises OSError on failure."""
    files = files_of(case)
    place = directory / case.name
    place.mkdir(parents=True)
    for path, content in files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(content)
    return Written(case.name, len(files), sum(map(len, files.values())))
