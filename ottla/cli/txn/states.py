"""`ottla txn list`: the states of transactional ids at their coordinators. shell"""

import time
from collections.abc import Sequence
from typing import NamedTuple

from ottla.cli.output import Output, table_of
from ottla.verdict import OPEN_STATES, KnownTransaction, judge_time, time_left_ms
from ottla.wire.cluster import Cluster


class States(NamedTuple):
    """States of ids, those with the oldest transaction first, and the brokers without an answer."""

    known: list[KnownTransaction]
    gaps: list[str]
    now_ms: int


def search(cluster: Cluster, with_ended: bool) -> States:
    """Query all brokers for the ids that they coordinate: those with an open transaction, or all."""
    states: Sequence[str] = () if with_ended else OPEN_STATES
    known, gaps = cluster.known_transactions(cluster.topology([]), states)
    known.sort(key=lambda each: (not is_open(each), each.start_ms, each.transactional_id))
    return States(known, gaps, round(time.time() * 1000))


def is_open(known: KnownTransaction) -> bool:
    """Return whether the id has a transaction that is neither committed nor aborted everywhere."""
    return known.state in OPEN_STATES


def show(found: States, output: Output) -> None:
    """Print the number of open transactions, and a row for each id."""
    count = sum(map(is_open, found.known))
    known = " in the answers that came" if found.gaps else ""
    output.line("answer", f"{count or 'no'} open {'transaction' if count == 1 else 'transactions'}{known}.")
    if found.known:
        output.table("transactions", *table_of([state_row(each, found.now_ms) for each in found.known]))
    output.close()


def state_row(known: KnownTransaction, now_ms: int) -> dict[str, object]:
    """Return the columns of an id."""
    is_ongoing = known.state == "Ongoing"
    return {
        "transactional_id": known.transactional_id,
        "coordinator": known.coordinator,
        "state": known.state,
        "producer_id": known.producer_id,
        "epoch": known.epoch,
        "partitions": len(known.partitions),
        "age_ms": max(0, now_ms - known.start_ms) if is_open(known) and known.start_ms >= 0 else None,
        "time_left_ms": time_left_ms(known, now_ms),
        "standing": str(judge_time(known, now_ms).standing) if is_ongoing else None,
    }
