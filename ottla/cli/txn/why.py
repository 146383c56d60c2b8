"""The transaction that pins the last stable offset of one partition. shell"""

from typing import Final

from ottla.broker.txn.explanation import Explanation, answer, remedy_rows
from ottla.cli.output import Output, table_of
from ottla.verdict import OpenTransaction, Verdict, age_ms, time_left_ms
from ottla.wire import Unanswered
from ottla.wire.brokers import Address
from ottla.wire.cluster import READ_COMMITTED, READ_UNCOMMITTED, Cluster
from ottla.wire.judge_open import judge_open
from ottla.wire.topology import find_leader

ATTEMPTS: Final = 5

_Snapshot = tuple[int, int, list[tuple[OpenTransaction, Verdict]], int]


def explain(cluster: Cluster, topic: str, partition: int) -> Explanation:
    """Query the partition's leader, then the coordinators. Raises Unanswered if the partition does not exist."""
    topology = cluster.topology([topic])
    leader = find_leader(topology, topic, partition)
    for _ in range(ATTEMPTS):
        found, is_steady = _read_partition(cluster, topology.brokers[leader], topic, partition)
        if is_steady:
            break
    return Explanation(topic, partition, leader, *found)


def _read_partition(cluster: Cluster, address: Address, topic: str, partition: int) -> tuple[_Snapshot, bool]:
    """Return a snapshot of the partition, and whether it is consistent: no transaction ended during the queries."""
    stable = cluster.end_offset(address, topic, partition, READ_COMMITTED)
    opened, gaps = cluster.open_transactions([(topic, partition)])
    rows, ended, unsure, now_ms = judge_open(cluster, opened)
    if gaps or unsure:
        raise Unanswered("; ".join([*gaps, *unsure]))
    end = cluster.end_offset(address, topic, partition, READ_UNCOMMITTED)
    after = cluster.end_offset(address, topic, partition, READ_COMMITTED)
    # A transaction that begins below the last stable offset has ended since.
    rows = sorted((row for row in rows if row[0].start_offset >= after), key=lambda row: row[0].start_offset)
    return (after, max(after, end), rows, now_ms), after == stable and not ended


def show(found: Explanation, output: Output, bootstrap: str, properties: str) -> None:
    """Print the answer, the figures, the transactions, and the remedies for the pinning and the forgotten ones."""
    output.line("answer", answer(found))
    names = ("topic", "partition", "leader", "last_stable_offset", "high_watermark", "held_back")
    output.table("partition", names, [[getattr(found, name) for name in names]])
    if found.transactions:
        output.table("open transactions", *table_of(_rows(found)))
        output.table("remedies", ("start_offset", "advice", "command"), remedy_rows(found, bootstrap, properties))
    output.close()


def _rows(found: Explanation) -> list[dict[str, object]]:
    starts = [each.start_offset for each, _ in found.transactions]
    ends = [*starts[1:], max(found.high_watermark, starts[-1])]
    return [
        {
            "start_offset": each.start_offset,
            "frees": until - each.start_offset,
            "producer_id": each.producer_id,
            "epoch": each.epoch,
            "transactional_id": verdict.known and verdict.known.transactional_id,
            "coordinator": verdict.known and verdict.known.coordinator,
            "state": verdict.known and verdict.known.state,
            "standing": str(verdict.standing),
            "age_ms": age_ms(each, verdict, found.now_ms),
            "time_left_ms": verdict.known and time_left_ms(verdict.known, found.now_ms),
            "reason": verdict.reason,
        }
        for (each, verdict), until in zip(found.transactions, ends, strict=True)
    ]
