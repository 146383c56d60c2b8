"""Verdicts on open transactions: query partitions, then coordinators, then partitions again. shell

A coordinator knows a transaction from before its first batch until after its marker. So a transaction is forgotten if
it is open with the same first offset before and after the query to the coordinator, and the coordinator does not know
it. A transaction that ended in between is not forgotten. A former leader that does not know its successor still shows
what has ended, so the last answer is of the leader with the highest epoch that a broker knows.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

from ottla.protocol.values import TopicPartition
from ottla.verdict import OpenTransaction, Standing, Verdict, by_producer, judge, without_clock
from ottla.wire.cluster import Cluster, CoordinatorView
from ottla.wire.visibility import find_hidden

Row = tuple[OpenTransaction, Verdict]


class Judgement(NamedTuple):
    """Open transactions with their verdicts, the number that ended meanwhile, and the queries without an answer."""

    rows: list[Row]
    ended: int
    gaps: list[str]
    now_ms: int


def judge_open(cluster: Cluster, opened: Sequence[OpenTransaction]) -> Judgement:
    """Query the coordinators about open transactions, and the partitions again about those in doubt."""
    if not opened:
        return Judgement([], 0, [], _now_ms())
    view = cluster.coordinators(each.producer_id for each in opened)
    now_ms = _now_ms()
    rows = _judge_all(opened, view, now_ms)
    if any(verdict.standing is Standing.FORGOTTEN for _, verdict in rows):
        # Checked only now, because a user that sees its own transactions needs no further rights.
        hidden = tuple(find_hidden(cluster, view.brokers))
        rows = _judge_all(opened, view._replace(gaps=view.gaps + hidden), now_ms)
    rows = _confirm_overdue(cluster, rows)
    places = dict.fromkeys(each.place for each, verdict in rows if verdict.needs_proof)
    still_open, gaps = cluster.open_transactions(list(places), of_newest=True)
    stayed = {_identity(each): each for each in still_open}
    kept = [
        (stayed.get(_identity(each), each), verdict)
        for each, verdict in rows
        if not verdict.needs_proof or _identity(each) in stayed
    ]
    return Judgement(kept, len(rows) - len(kept), gaps, now_ms)


def _judge_all(opened: Sequence[OpenTransaction], view: CoordinatorView, now_ms: int) -> list[Row]:
    known = by_producer(view.known)
    return [(each, judge(each, known.get(each.producer_id, ()), now_ms, view.gaps)) for each in opened]


def _confirm_overdue(cluster: Cluster, rows: list[Row]) -> list[Row]:
    """Decide by the coordinator's clock which transactions are overdue, not by the clock of this machine."""
    late = [verdict.known for _, verdict in rows if verdict.standing is Standing.OVERDUE and verdict.known is not None]
    confirmed = cluster.overdue_ids(late)
    return [
        (each, without_clock(verdict))
        if verdict.standing is Standing.OVERDUE and verdict.known and verdict.known.transactional_id not in confirmed
        else (each, verdict)
        for each, verdict in rows
    ]


def _identity(each: OpenTransaction) -> tuple[TopicPartition, int, int, int]:
    return each.place, each.producer_id, each.epoch, each.start_offset


def _now_ms() -> int:
    return round(time.time() * 1000)
