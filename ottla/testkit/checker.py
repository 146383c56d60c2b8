"""The checker: compares a recorded client history with the final logs; reports every breach of exactly-once. shell

    python -m ottla.testkit.checker HISTORY.jsonl DATA_DIR

A history is JSON lines. An operation is an `invoke` and at most one completion of the same `op`:

    {"i": 3, "t": 12.5, "proc": "p1", "type": "invoke|ok|fail|info", "f": ..., "op": 2, ...}

`ok`: it happened. `fail`: it certainly did not and never will. `info`, or no completion: it is not known. `t` is in ms;
the order of lines is the order of time. Values are unique per key, keys are "topic/partition".

    f              fields of invoke                                  fields of ok
    init           txn_id                                            txn_id, pid, epoch
    send           txn_id, txn, pid, epoch,                          mops [["send", key, value, offset]]
                   mops [["send", key, value]]
    end            txn, commit, pid, epoch                           pid, epoch to go on with (transactions V2)
    offsets        txn, group, pid, epoch, mops [["offset", key, offset]],
                   metadata (the txn, committed with the offset)
    poll           committed, txn                                    mops [["poll", key, from, next, [[offset, value]]]]
    fetch-offsets  group                                             mops [["offset", key, offset]]

`txn` names a transaction as its client saw it, null outside of one. A copy ends with its source (`value<in/0/17`).
Notes (`type` "note"): `final` before the last reads of everything from the start, `cause` for a transaction that a
request of an earlier one has hit (`cause`, `txn`, `of`): transactions V1 cannot tell the two apart (KAFKA-17754), so
anomalies of that transaction are counted apart. Of a history that was recorded from outside (`ottla.testkit.history`):
`scope` with the first offset of each key that is judged (`begins`; others may have written before it and elsewhere) and
the keys that copies name as their source (`sources`; no other is expected to be copied), `repeated` with values that
several records have, which are named by `unique_name`, and `same` with names that even so are not unique.

Not found: anomalies below the log start, reorderings of equal values, and isolation that Kafka does not promise (G0 is
reported on request, G1b and write skew never).
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from ottla import files
from ottla.printable import printable
from ottla.testkit.checks.cycles import check_cycles
from ottla.testkit.checks.exactly_once import check_exactly_once
from ottla.testkit.checks.fates import check_fates
from ottla.testkit.checks.logs import Logs, check_logs
from ottla.testkit.checks.operations import Anomaly, Entry, FullHistory, read_story
from ottla.testkit.checks.reads import check_reads
from ottla.testkit.scanner import ScannedPartition, scan_partition

OFFSETS_TOPIC = "__consumer_offsets"
MOST_HISTORY_BYTES = 128 << 20
OF_BOTH = ("late-offsets", "late-produce")
"""Causes that hit the late request's own transaction too: its records get the fate of the later transaction."""

KINDS = (
    "broken-log",
    "offset-gap",
    "sequence-gap",
    "coordinator-epoch",
    "phantom",
    "duplicate",
    "inconsistent-offsets",
    "lost-write",
    "G1a",
    "torn-txn",
    "hanging-txn",
    "zombie-write",
    "nonmonotonic-send",
    "int-nonmonotonic-send",
    "precommitted-read",
    "early-read",
    "poll-skip",
    "int-poll-skip",
    "nonmonotonic-poll",
    "int-nonmonotonic-poll",
    "unseen",
    "skipped-input",
    "reprocessed",
    "uncommitted-output",
    "offset-divergence",
    "G1c",
    "G0",
)
"""Every class of anomaly. G0 is legal in Kafka."""


def check(
    entries: Iterable[Entry],
    partitions: dict[str, ScannedPartition],
    *,
    logs_only: bool = False,
    report_legal: bool = False,
) -> list[Anomaly]:
    """Check a history. `partitions` are by "topic/index", those of `__consumer_offsets` among them.

    `logs_only`: acknowledged writes may be gone (a power loss without flushes), so only the logs are checked.
    """
    story = read_story(entries)
    data = {key: partition for key, partition in partitions.items() if not key.startswith("__")}
    offsets = [partition for key, partition in partitions.items() if key.rpartition("/")[0] == OFFSETS_TOPIC]
    repeated, same = story.note("repeated"), story.note("same")
    logs = Logs(
        data,
        offsets,
        repeated=frozenset(repeated["values"] if repeated else ()),
        same=frozenset(same["names"] if same else ()),
    )
    found = list(check_logs(logs))
    if not logs_only:
        found += _judge(story, logs, report_legal)
    return list(_explain(story, found))


def check_files(history: Path, data_dir: Path) -> list[Anomaly]:
    """Run `check` on files: a history and the data directory of a broker that has stopped."""
    lines = files.read_argument(str(history), MOST_HISTORY_BYTES).decode().splitlines()
    entries = [json.loads(line) for line in lines if line.strip()]
    partitions = {}
    for directory in sorted(data_dir.iterdir()):
        topic, dash, index = directory.name.rpartition("-")
        if directory.is_dir() and dash and index.isdigit():
            partitions[f"{topic}/{index}"] = scan_partition(directory)
    return check(entries, partitions)


def _judge(story: FullHistory, logs: Logs, report_legal: bool) -> Iterator[Anomaly]:
    yield from check_fates(story, logs)
    yield from check_reads(story, logs)
    yield from check_exactly_once(story, logs)
    yield from check_cycles(story, logs, report_legal)


def _explain(story: FullHistory, anomalies: Iterable[Anomaly]) -> Iterator[Anomaly]:
    """Set the cause of each anomaly of a transaction that a late request has hit."""
    causes: dict[str, str] = {}
    for note in story.notes:
        if note["f"] != "cause":
            continue
        hit = [note["txn"]]
        if note["cause"] in OF_BOTH:
            hit.append(note["of"])
        causes.update({name: note["cause"] for name in hit if name is not None})
    for anomaly in anomalies:
        cause = next((causes[name] for name in sorted(anomaly.txns) if name in causes), "")
        yield anomaly._replace(cause=cause)


def report(history: Path, data_dir: Path) -> int:
    """Print one line per anomaly that `check_files` finds; return 1 if one of them has no known cause, else 0."""
    found = check_files(history, data_dir)
    for anomaly in found:
        print(printable(str(anomaly)))
    print(f"{len(found)} anomalies")
    return 1 if any(not anomaly.cause for anomaly in found) else 0


def main(arguments: list[str]) -> int:
    """Report on the two paths of a command line; return the exit code."""
    if len(arguments) != 2:
        print("usage: python -m ottla.testkit.checker HISTORY.jsonl DATA_DIR", file=sys.stderr)
        return 2
    return report(Path(arguments[0]), Path(arguments[1]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
