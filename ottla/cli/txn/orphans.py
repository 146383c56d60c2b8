"""Open transactions that their coordinator has forgotten, in all partitions. shell"""

import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ottla.cli.output import Output, table_of
from ottla.cli.txn.progress import list_places, open_transactions
from ottla.verdict import OpenTransaction, Standing, Verdict, remedies
from ottla.wire.cluster import Cluster
from ottla.wire.judge_open import judge_open


class Search(NamedTuple):
    """Forgotten and undecided transactions, the numbers of queried items, and the queries without an answer."""

    orphans: list[tuple[OpenTransaction, Verdict]]
    unknown: list[tuple[OpenTransaction, Verdict]]
    partitions: int
    open_transactions: int
    gaps: list[str]
    now_ms: int


def search(cluster: Cluster, topics: Sequence[str], min_age_ms: int) -> Search:
    """Query every partition of these topics, or of all, and return the verdicts on the open transactions."""
    places, gaps = list_places(cluster, topics)
    opened, unheard = open_transactions(cluster, places)
    now_ms = round(time.time() * 1000)
    rows, _, unsure, now_ms = judge_open(
        cluster, [each for each in opened if now_ms - each.last_timestamp_ms >= min_age_ms]
    )
    rows.sort(key=lambda row: (row[0].place, row[0].start_offset))
    found = [row for row in rows if row[1].standing.is_abandoned]
    unknown = [row for row in rows if row[1].needs_proof and row[1].standing is Standing.UNKNOWN]
    reasons = Counter(verdict.reason for _, verdict in unknown)
    gaps += [*unheard, *unsure]
    gaps += [f"open transactions without a verdict: {count} ({reason})" for reason, count in reasons.items()]
    return Search(found, unknown, len(places), len(opened), gaps, now_ms)


def show(found: Search, output: Output, bootstrap: str, properties: str) -> None:
    """Print the answer in a sentence, the orphans, and the commands that abort each."""
    output.line("answer", _answer(found))
    if found.orphans:
        output.table("orphans", *table_of([_row(each, verdict, found.now_ms) for each, verdict in found.orphans]))
        commands = [
            (each.topic, each.partition, each.start_offset, remedy.advice, remedy.command)
            for each, verdict in found.orphans
            for remedy in remedies(each, verdict, bootstrap, found.now_ms, properties)
        ]
        output.table("remedies", ("topic", "partition", "start_offset", "advice", "command"), commands)
    if found.unknown:
        output.table("unknown", *table_of([_row(each, verdict, found.now_ms) for each, verdict in found.unknown]))
    output.close()


def _row(each: OpenTransaction, verdict: Verdict, now_ms: int) -> dict[str, object]:
    return {
        "topic": each.topic,
        "partition": each.partition,
        "producer_id": each.producer_id,
        "epoch": each.epoch,
        "coordinator_epoch": each.coordinator_epoch,
        "start_offset": each.start_offset,
        "last_write_age_ms": max(0, now_ms - each.last_timestamp_ms),
        "transactional_id": verdict.known and verdict.known.transactional_id,
        "state": verdict.known and verdict.known.state,
        "reason": verdict.reason,
    }


def _answer(found: Search) -> str:
    count = len(found.orphans)
    among = f"{found.open_transactions} open in {found.partitions} partitions"
    if found.gaps and not count:
        return f"no forgotten transactions in the answers that came, gaps: {len(found.gaps)}; {among}."
    return f"{count or 'no'} forgotten {'transaction' if count == 1 else 'transactions'}; {among}."
