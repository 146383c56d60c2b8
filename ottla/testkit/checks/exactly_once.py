"""Consume, produce, commit: every input below the committed offset has exactly one output. pure

A copied value ends with its source: `c1:7<in/0/17`.
"""

import re
from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from ottla.testkit.checks.logs import VISIBLE, CommittedOffset, Logs
from ottla.testkit.checks.operations import OK, Anomaly, FullHistory, Operation

SOURCE: Final = re.compile(r"<([^<>]+/\d+)/(\d+)$")
"""End of the value of a copy: the key and the offset of its source."""


def check_exactly_once(story: FullHistory, logs: Logs) -> Iterator[Anomaly]:
    """Find inputs with no output or two, uncommitted copies, and fetched offsets that the log does not have."""
    writers = {value: send for send in story.of("send") for _key, value in send.sent}
    outputs: dict[tuple[str, int], list[str]] = {}
    for value in logs.places:
        source = SOURCE.search(value)
        if source is not None and logs.visible(value):
            outputs.setdefault((source[1], int(source[2])), []).append(value)
    scope = story.note("scope")
    for group, key in sorted({(op.invoke["group"], mop[1]) for op in story.of("offsets") for mop in op.invoke["mops"]}):
        if scope is not None and key not in scope["sources"]:
            continue
        last = _last_commit(logs, group, key)
        final = last.offset if last else 0
        committers = _committers(story, group, key)
        for offset, value, fate in logs.rows.get(key, ()):
            if fate not in VISIBLE:
                continue
            made = outputs.get((key, offset), [])
            txns = frozenset(name for each in made for name in _txn(writers.get(each))) or committers
            if offset < final and not made:
                yield Anomaly("skipped-input", f"{value} at {key}@{offset} has no output, {group} is at {final}", txns)
            elif offset < final and len(made) > 1:
                yield Anomaly("reprocessed", f"{value} at {key}@{offset} became {made}", txns | committers)
            elif offset >= final and made:
                # A late commit may have moved the group back, so the last commit may be the cause.
                txns |= {last.metadata} if last and last.metadata else set()
                yield Anomaly(
                    "uncommitted-output", f"{value} at {key}@{offset} became {made}, {group} is at {final}", txns
                )
    yield from _check_offset_fetches(story, logs)


def _last_commit(logs: Logs, group: str, key: str) -> CommittedOffset | None:
    """Return the last committed offset of a group by position in the log, or None.

    Offsets of a transaction count once its commit marker is written. The metadata of a commit names its transaction.
    """
    rows = [row for row in logs.committed if (row.group, row.key) == (group, key) and row.fate in VISIBLE]
    return max(rows, key=attrgetter("position"), default=None)


def _committers(story: FullHistory, group: str, key: str) -> frozenset[str]:
    """Return the transactions that committed offsets of the group on this partition."""
    moved = (op for op in story.of("offsets") if op.invoke["group"] == group and op.invoke["mops"][0][1] == key)
    return frozenset(name for op in moved for name in _txn(op))


def _check_offset_fetches(story: FullHistory, logs: Logs) -> Iterator[Anomaly]:
    """Check that OffsetFetch returns committed offsets, and at the end the last one."""
    final_at = next((note["at"] for note in story.notes if note["f"] == "final"), None)
    for fetch in story.of("fetch-offsets"):
        if fetch.status != OK:
            continue
        group = fetch.invoke["group"]
        for _offset, key, found in fetch.result["mops"]:
            known = [
                row.offset for row in logs.committed if (row.group, row.key) == (group, key) and row.fate in VISIBLE
            ]
            if found >= 0 and found not in known:
                yield Anomaly(
                    "offset-divergence", f"{fetch.proc} received offset {found} for {key} of {group}, log: {known}"
                )
            last = _last_commit(logs, group, key)
            if final_at is not None and fetch.began > final_at and found != (last.offset if last else -1):
                yield Anomaly("offset-divergence", f"{group} ends at {found} on {key}, log: {known}")


def _txn(operation: Operation | None) -> list[str]:
    return [operation.txn] if operation is not None and operation.txn is not None else []
