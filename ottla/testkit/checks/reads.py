"""Comparison of the consumers' reads with the logs: values, order, completeness. pure"""

from collections.abc import Iterator
from itertools import pairwise

from ottla.testkit.checks.logs import VISIBLE, Logs
from ottla.testkit.checks.operations import OK, Anomaly, FullHistory, Operation


def check_reads(story: FullHistory, logs: Logs) -> Iterator[Anomaly]:
    """Find reads of missing or uncommitted values, in the wrong order, or with gaps."""
    writers = {value: send for send in story.of("send") for _key, value in send.sent}
    final_at = next((note["at"] for note in story.notes if note["f"] == "final"), None)
    seen: dict[bool, set[tuple[str, int]]] = {True: set(), False: set()}
    for poll in story.of("poll"):
        if poll.status != OK:
            continue
        committed = bool(poll.invoke["committed"])
        for _poll, key, start, end, records in poll.result["mops"]:
            yield from _check_values(poll, key, records, committed, writers, logs, story)
            yield from _check_range(poll, key, start, end, [offset for offset, _value in records], committed, logs)
            if final_at is not None and poll.began > final_at:
                seen[committed].update((key, offset) for offset, _value in records)
    if final_at is not None:
        yield from _check_unseen(seen, logs)


def _check_values(
    poll: Operation,
    key: str,
    records: list[list[object]],
    committed: bool,
    writers: dict[str, Operation],
    logs: Logs,
    story: FullHistory,
) -> Iterator[Anomaly]:
    fates = logs.at.get(key, {})
    for offset, value in records:
        assert isinstance(offset, int) and isinstance(value, str)
        stands, fate = fates.get(offset, (None, "absent"))
        writer = writers.get(value)
        txns = frozenset({writer.txn}) if writer is not None and writer.txn is not None else frozenset()
        if stands != value:
            yield Anomaly(
                "inconsistent-offsets", f"{poll.proc} read {value} at {key}@{offset}, where {stands} is", txns
            )
        elif committed and fate not in VISIBLE:
            yield Anomaly("G1a", f"{poll.proc} read {value} at {key}@{offset}, which is {fate}", txns)
        elif committed and writer is not None and writer.txn is not None:
            transaction = story.transactions[writer.txn]
            if writer.txn == poll.txn:
                yield Anomaly("precommitted-read", f"{poll.proc} read its own {value} inside {poll.txn}", txns)
            elif transaction.commit_requested is None or transaction.commit_requested > poll.ended:
                yield Anomaly("early-read", f"{poll.proc} read {value} before {writer.txn} was to be committed", txns)


def _check_range(
    poll: Operation, key: str, start: int, end: int, offsets: list[int], committed: bool, logs: Logs
) -> Iterator[Anomaly]:
    """Check that a poll from `start` to before `end` has all visible records, in order."""
    if any(later <= earlier for earlier, later in pairwise(offsets)):
        yield Anomaly("int-nonmonotonic-poll", f"{poll.proc} read {key} in the order {offsets}")
    if offsets and (offsets[0] < start or offsets[-1] >= end):
        yield Anomaly("nonmonotonic-poll", f"{poll.proc} asked {key} from {start} and read {offsets} up to {end}")
    got = set(offsets)
    for offset, value, fate in logs.between(key, start, end):
        if offset not in got and (fate in VISIBLE or not committed):
            inside = offsets and offsets[0] < offset < offsets[-1]
            kind = "int-poll-skip" if inside else "poll-skip"
            yield Anomaly(kind, f"{poll.proc} did not get {value} at {key}@{offset} between {start} and {end}")


def _check_unseen(seen: dict[bool, set[tuple[str, int]]], logs: Logs) -> Iterator[Anomaly]:
    for committed, got in seen.items():
        for key, rows in logs.rows.items():
            for offset, value, fate in rows:
                if (key, offset) not in got and (fate in VISIBLE or not committed):
                    yield Anomaly("unseen", f"{value} at {key}@{offset} was never read to the end")
