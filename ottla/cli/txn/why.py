"""What pins the last stable offset of one partition. shell"""

from typing import Final, NamedTuple

from ottla.cli.output import Output
from ottla.cli.txn.cluster import READ_COMMITTED, READ_UNCOMMITTED, Address, Cluster, Unanswered, error_name
from ottla.cli.txn.judged import judged
from ottla.cli.txn.verdict import (
    OpenTransaction,
    Standing,
    Verdict,
    age_ms,
    remedies,
    seconds,
    time_left_ms,
)

ATTEMPTS: Final = 5

_Look = tuple[int, int, list[tuple[OpenTransaction, Verdict]], int]


class Explanation(NamedTuple):
    """A partition at one moment: its open transactions, the oldest first, and what their coordinators say."""

    topic: str
    partition: int
    leader: int
    last_stable_offset: int
    high_watermark: int
    transactions: list[tuple[OpenTransaction, Verdict]]
    now_ms: int

    @property
    def held_back(self) -> int:
        """How many offsets committed readers do not get yet."""
        return self.high_watermark - self.last_stable_offset


def explain(cluster: Cluster, topic: str, partition: int) -> Explanation:
    """Ask the partition's leader, then the coordinators. Unanswered if there is no such partition."""
    topology = cluster.topology([topic])
    if error := topology.errors.get(topic):
        raise Unanswered(f"topic {topic}: {error_name(error)}")
    places = topology.topics[topic]
    if partition not in places:
        raise Unanswered(f"topic {topic} has the partitions 0 to {len(places) - 1}, and no {partition}")
    leader = places[partition].leader
    if leader not in topology.brokers:
        raise Unanswered(f"{topic}-{partition} has no leader")
    for _ in range(ATTEMPTS):
        found, is_steady = _look(cluster, topology.brokers[leader], topic, partition)
        if is_steady:
            break
    return Explanation(topic, partition, leader, *found)


def _look(cluster: Cluster, address: Address, topic: str, partition: int) -> tuple[_Look, bool]:
    """The partition now, and whether nothing ended while it was asked."""
    stable = cluster.end_offset(address, topic, partition, READ_COMMITTED)
    opened, gaps = cluster.open_transactions([(topic, partition)])
    rows, ended, unsure, now_ms = judged(cluster, opened)
    if gaps or unsure:
        raise Unanswered("; ".join([*gaps, *unsure]))
    end = cluster.end_offset(address, topic, partition, READ_UNCOMMITTED)
    after = cluster.end_offset(address, topic, partition, READ_COMMITTED)
    # What begins below the last stable offset has ended since.
    rows = sorted((row for row in rows if row[0].start_offset >= after), key=lambda row: row[0].start_offset)
    return (after, max(after, end), rows, now_ms), after == stable and not ended


def show(found: Explanation, output: Output, bootstrap: str) -> None:
    """The answer in a sentence, the figures, the transactions, and what ends the one that pins and the forgotten."""
    output.line("answer", _answer(found))
    output.table(
        "partition",
        ("topic", "partition", "leader", "last_stable_offset", "high_watermark", "held_back"),
        [
            (
                found.topic,
                found.partition,
                found.leader,
                found.last_stable_offset,
                found.high_watermark,
                found.held_back,
            )
        ],
    )
    if found.transactions:
        output.table("open transactions", _COLUMNS, _rows(found))
        output.table("remedies", ("start_offset", "advice", "command"), _remedy_rows(found, bootstrap))
    output.close()


_COLUMNS: Final = (
    "start_offset",
    "frees",
    "producer_id",
    "epoch",
    "transactional_id",
    "coordinator",
    "state",
    "standing",
    "age_ms",
    "time_left_ms",
    "reason",
)


def _rows(found: Explanation) -> list[tuple[object, ...]]:
    starts = [each.start_offset for each, _ in found.transactions]
    ends = [*starts[1:], max(found.high_watermark, starts[-1])]
    return [
        (
            each.start_offset,
            until - each.start_offset,
            each.producer_id,
            each.epoch,
            verdict.known and verdict.known.transactional_id,
            verdict.known and verdict.known.coordinator,
            verdict.known and verdict.known.state,
            str(verdict.standing),
            age_ms(each, verdict, found.now_ms),
            verdict.known and time_left_ms(verdict.known, found.now_ms),
            verdict.reason,
        )
        for (each, verdict), until in zip(found.transactions, ends, strict=True)
    ]


def _remedy_rows(found: Explanation, bootstrap: str) -> list[tuple[object, ...]]:
    """Those behind the first one have time left or an outcome, except the forgotten, which would pin next."""
    return [
        (each.start_offset, remedy.advice, remedy.command)
        for number, (each, verdict) in enumerate(found.transactions)
        if number == 0 or verdict.standing is Standing.FORGOTTEN
        for remedy in remedies(each, verdict, bootstrap, found.now_ms)
    ]


def _answer(found: Explanation) -> str:
    where = f"{found.topic}-{found.partition}"
    if not found.held_back:
        opened = len(found.transactions)
        rest = f"; {opened} open transactions have nothing to read yet" if opened else ""
        return f"{where}: nothing is held back, the last stable offset is the end, {found.high_watermark}{rest}."
    offsets = "offset is" if found.held_back == 1 else "offsets are"
    held = f"{where}: {found.held_back} {offsets} held back, from {found.last_stable_offset} on"
    if not found.transactions:
        return (
            f"{held}, and no transaction is open. Its end may not be replicated yet, or transactions begin and end "
            "faster than one can ask."
        )
    first, verdict = found.transactions[0]
    who = f"producer id {first.producer_id}, epoch {first.epoch}"
    if verdict.known is not None:
        who += f", transactional id {verdict.known.transactional_id!r}"
    age = seconds(age_ms(first, verdict, found.now_ms))
    since = f"last heard of {age} ago" if verdict.standing is Standing.FORGOTTEN else f"open for {age}"
    behind = len(found.transactions) - 1
    return f"{held}, by {who} ({verdict.standing}, {since}); {behind or 'no'} open {_plural(behind)} behind it."


def _plural(count: int) -> str:
    return "transaction waits" if count == 1 else "transactions wait"
