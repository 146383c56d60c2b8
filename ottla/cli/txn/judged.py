"""Partitions, then coordinators, then partitions again: what stayed is judged. shell

A transaction is in its coordinator's set from before its first batch until after its marker. So one that is open before
and after the coordinator was asked, with the same first offset, and was not in the set between, is forgotten; one that
has ended meanwhile only looked like it.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

from ottla.broker.txn.verdict import OpenTransaction, Standing, Verdict, by_producer, judge
from ottla.cli.txn.cluster import Cluster
from ottla.protocol.values import TopicPartition

_IN_DOUBT = (Standing.FORGOTTEN, Standing.UNKNOWN)


class Judged(NamedTuple):
    """Open transactions with their verdicts, how many of those asked about have ended, and what could not be asked."""

    rows: list[tuple[OpenTransaction, Verdict]]
    ended: int
    gaps: list[str]
    now_ms: int


def judged(cluster: Cluster, opened: Sequence[OpenTransaction]) -> Judged:
    """Ask the coordinators about open transactions, and the partitions once more about those in doubt."""
    if not opened:
        return Judged([], 0, [], _now_ms())
    view = cluster.coordinators(each.producer_id for each in opened)
    now_ms, known = _now_ms(), by_producer(view.known)
    rows = [(each, judge(each, known.get(each.producer_id, ()), now_ms, view.gaps)) for each in opened]
    places = dict.fromkeys(each.place for each, verdict in rows if verdict.standing in _IN_DOUBT)
    still_open, gaps = cluster.open_transactions(list(places))
    stayed = {_identity(each): each for each in still_open}
    kept = [
        (stayed.get(_identity(each), each), verdict)
        for each, verdict in rows
        if verdict.standing not in _IN_DOUBT or _identity(each) in stayed
    ]
    return Judged(kept, len(rows) - len(kept), gaps, now_ms)


def _identity(each: OpenTransaction) -> tuple[TopicPartition, int, int, int]:
    return each.place, each.producer_id, each.epoch, each.start_offset


def _now_ms() -> int:
    return round(time.time() * 1000)
