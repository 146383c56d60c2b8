"""Partitions whose last stable offset is held back: of a cluster, of a topic, or of a group. shell"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.cli.output import Output, table_of
from ottla.cli.txn.progress import open_transactions
from ottla.protocol.hashing import coordinator_partition
from ottla.protocol.values import TopicPartition
from ottla.verdict import OpenTransaction, Standing, Verdict, age_ms, remedies
from ottla.wire import Unanswered
from ottla.wire.cluster import GROUP, LATEST, READ_COMMITTED, READ_UNCOMMITTED, Cluster
from ottla.wire.judge_open import judge_open
from ottla.wire.login import error_name

CONSUMER_OFFSETS = "__consumer_offsets"


class HeldPartition(NamedTuple):
    """A partition, its last stable offset and high watermark, and its oldest open transaction with the verdict."""

    place: TopicPartition
    last_stable_offset: int
    high_watermark: int
    oldest: OpenTransaction
    verdict: Verdict
    others: int

    @property
    def held_back(self) -> int:
        """The number of offsets that readers with read_committed do not get yet."""
        return self.high_watermark - self.last_stable_offset


class HeldPartitions(NamedTuple):
    """Held partitions, the worst first, the number that was asked, and the requests without an answer."""

    held: list[HeldPartition]
    asked: int
    gaps: list[str]
    now_ms: int


def places_of_group(cluster: Cluster, group: str) -> tuple[list[TopicPartition], list[str]]:
    """Return the partitions of which a group has committed offsets, and the one that holds its offsets.

    An offset that is committed in an open transaction holds back the latter.
    """
    _, address = cluster.find_coordinator(group, GROUP)
    places = []
    for _, error, topics in cluster.fetch_offsets(address, [group]):
        if error:
            raise Unanswered(f"group {group!r}: {error_name(error)}")
        places = [(topic.name, row.partition_index) for topic in topics for row in topic.partitions]
    if not places:
        raise Unanswered(f"group {group!r} has no committed offsets, or does not exist")
    topology = cluster.topology([CONSUMER_OFFSETS])
    if hidden := topology.errors.get(CONSUMER_OFFSETS):
        return sorted(places), [f"topic {CONSUMER_OFFSETS}: {error_name(hidden)}"]
    count = len(topology.topics[CONSUMER_OFFSETS])
    return [*sorted(places), (CONSUMER_OFFSETS, coordinator_partition(group, count))], []


def search(cluster: Cluster, places: Sequence[TopicPartition], gaps: Sequence[str]) -> HeldPartitions:
    """Query these partitions, then the coordinators of their open transactions."""
    opened, unheard = open_transactions(cluster, places)
    rows, _, unsure, now_ms = judge_open(cluster, opened)
    rows.sort(key=lambda row: (row[0].place, row[0].start_offset))
    of_place: dict[TopicPartition, list[tuple[OpenTransaction, Verdict]]] = {}
    for row in rows:
        of_place.setdefault(row[0].place, []).append(row)
    stable = cluster.offsets(list(of_place), LATEST, READ_COMMITTED)
    ends = cluster.offsets(list(of_place), LATEST, READ_UNCOMMITTED)
    held = [
        HeldPartition(place, stable.offsets[place], ends.offsets[place], *row[0], len(row) - 1)
        for place, row in of_place.items()
        if place in stable.offsets and ends.offsets.get(place, 0) > stable.offsets[place] >= row[0][0].start_offset
    ]
    reasons = [f"{name}-{number}: {why}" for (name, number), why in {**stable.errors, **ends.errors}.items()]
    return HeldPartitions(sorted(held, key=_badness), len(places), [*gaps, *unheard, *unsure, *reasons], now_ms)


def _badness(held: HeldPartition) -> tuple[int, int, TopicPartition]:
    """Sort what never ends by itself first, then what is overdue, then by the offsets that are held back."""
    standing = held.verdict.standing
    rank = 0 if standing.is_abandoned else 1 if standing is Standing.OVERDUE else 2
    return rank, -held.held_back, held.place


def show(found: HeldPartitions, output: Output, bootstrap: str, properties: str) -> None:
    """Print the answer in a sentence, the partitions, and what ends each transaction that holds some back."""
    output.line("answer", _answer(found))
    if found.held:
        output.table("held partitions", *table_of([_row(held, found.now_ms) for held in found.held]))
        commands = {
            (remedy.advice, remedy.command): (held.place[0], held.place[1], held.oldest.start_offset)
            for held in reversed(found.held)
            for remedy in reversed(remedies(held.oldest, held.verdict, bootstrap, found.now_ms, properties))
            if remedy.command
        }
        rows = [(*place, *remedy) for remedy, place in reversed(commands.items())]
        output.table("remedies", ("topic", "partition", "start_offset", "advice", "command"), rows)
    output.close()


def _answer(found: HeldPartitions) -> str:
    if not found.held:
        known = " in the answers that came" if found.gaps else ""
        return f"nothing is held back{known}; partitions: {found.asked}."
    place, verdict = found.held[0].place, found.held[0].verdict
    offsets = sum(held.held_back for held in found.held)
    some = "1 partition is" if len(found.held) == 1 else f"{len(found.held)} partitions are"
    known = f"transactional id {verdict.known.transactional_id!r}" if verdict.known else "an unknown transactional id"
    return (
        f"{some} held back, {offsets} offsets in all; partitions: {found.asked}. The worst is {place[0]}-{place[1]}, "
        f"by {known} ({verdict.standing})."
    )


def _row(held: HeldPartition, now_ms: int) -> dict[str, object]:
    known = held.verdict.known
    return {
        "topic": held.place[0],
        "partition": held.place[1],
        "held_back": held.held_back,
        "last_stable_offset": held.last_stable_offset,
        "high_watermark": held.high_watermark,
        "producer_id": held.oldest.producer_id,
        "epoch": held.oldest.epoch,
        "transactional_id": known and known.transactional_id,
        "standing": str(held.verdict.standing),
        "age_ms": age_ms(held.oldest, held.verdict, now_ms),
        "other_open": held.others,
    }
