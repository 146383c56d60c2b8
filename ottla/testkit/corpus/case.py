"""A case of the corpus: what it is, why it is hard, and the script that writes it. free"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ottla.testkit.corpus.directory import PROPERTIES, as_kafka_keeps_it
from ottla.testkit.corpus.stage import Stage

FORMAT: Final = 1
"""Of `case.json`: it grows when a reader of the one before would read it wrongly."""


class Case(NamedTuple):
    """`what` is in the log, `hard` is what readers get wrong, `reported` are public threads about that."""

    name: str
    what: str
    hard: str
    reported: tuple[str, ...]
    script: Callable[[Stage], None]
    options: Mapping[str, Any] = {}
    """Of the broker that writes it, beside the defaults."""


def files_of(case: Case) -> dict[str, bytes]:
    """{path in the directory of the case: content}. The same case has the same files."""
    stage = Stage(case.name, **case.options)
    case.script(stage)
    now_ms = stage.now_ms
    image = stage.broker.assembly.broker.cluster.image
    kept = as_kafka_keeps_it(stage.files(), image, now_ms)
    for edit in stage.edits:
        edit(kept)
    told = json.dumps(expectations(case, stage), indent=1) + "\n"
    return {
        "case.json": told.encode(),
        "server.properties": PROPERTIES.encode(),
        **{f"data/{path}": content for path, content in sorted(kept.items())},
    }


def expectations(case: Case, stage: Stage) -> dict[str, Any]:
    """What stands in `case.json`."""
    return {
        "format": FORMAT,
        "name": case.name,
        "what": case.what,
        "hard": case.hard,
        "reported": [*case.reported],
        "stopped_cleanly": stage.stopped_cleanly,
        "partitions": [book.told() for _, book in sorted(stage.books.items())],
        "transactions": [
            {"transactional_id": name, "state": state, "producer_id": who.producer_id, "producer_epoch": who.epoch}
            for name, (state, who) in sorted(stage.transactions.items())
        ],
        "group_offsets": [
            {"group": group, "topic": topic, "partition": partition, "offset": offset, "unstable": unstable}
            for (group, topic, partition), (offset, unstable) in sorted(stage.offsets.items())
        ],
    }
