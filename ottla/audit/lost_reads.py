"""Records that a group has read and that its partition no longer has, by the committed offsets of a cluster. shell

Consumers get records below the high watermark, which all in-sync replicas have. A commit names the leader epoch of the
last record before its offset. If that epoch now ends below the offset, an unclean election has lost records. Only what
a group has read is found: brokers send neither checkpoints nor records that they have truncated.
"""

from collections.abc import Collection, Mapping, MutableSequence
from typing import NamedTuple

from ottla.audit.audited import Limit
from ottla.audit.checks.finding import Finding
from ottla.audit.checks.words import span
from ottla.printable import printable
from ottla.protocol.values import TopicPartition
from ottla.scan.listing import UnreadableDirectory
from ottla.wire import Unanswered
from ottla.wire.address import KafkaAddress, connections_to
from ottla.wire.cluster import Cluster
from ottla.wire.login import error_name


class _Read(NamedTuple):
    """A committed offset of a group."""

    offset: int
    group: str


def find_lost_reads(address: KafkaAddress, places: Collection[TopicPartition]) -> tuple[list[Finding], list[Limit]]:
    """Return a warning for each leader epoch that ends below what a group has read, and questions without an answer.

    Raises UnreadableDirectory if no broker answers.
    """
    found: list[Finding] = []
    gaps: list[str] = []
    try:
        with connections_to(address).borrow() as cluster:
            topology = cluster.newest_topology({name for name, _ in places})
            latest = {(name, at): topology.topics.get(name, {}).get(at) for name, at in places}
            known = {place: one.leader_epoch for place, one in latest.items() if one is not None}
            reads = _list_reads(cluster, known, gaps)
            for (place, epoch), read in sorted(reads.items()):
                try:
                    end = cluster.epoch_end(*place, epoch)
                except Unanswered as error:  # its leader moves
                    gaps.append(str(error))
                    continue
                if 0 <= end < read.offset:
                    found.append(_describe(place, epoch, end, read))
    except Unanswered as error:
        raise UnreadableDirectory(f"{address}: {error}") from None
    return found, [Limit("replicas", gap) for gap in gaps]


def _list_reads(
    cluster: Cluster, latest: Mapping[TopicPartition, int], gaps: MutableSequence[str]
) -> dict[tuple[TopicPartition, int], _Read]:
    """Return the highest committed offset in each leader epoch before the latest one: that one has no end yet."""
    reads: dict[tuple[TopicPartition, int], _Read] = {}
    for group, error, topics in cluster.committed_offsets():
        if error:
            gaps.append(f"group {printable(group)}: {error_name(error)}")
        for topic in topics or ():
            for row in topic.partitions:
                place, epoch = (topic.name, row.partition_index), getattr(row, "committed_leader_epoch", -1)
                if not row.error_code and 0 <= epoch < latest.get(place, 0):
                    read = _Read(row.committed_offset, group)
                    reads[place, epoch] = max(read, reads.get((place, epoch), read))
    return reads


def _describe(place: TopicPartition, epoch: int, end: int, read: _Read) -> Finding:
    return Finding(
        "replicas",
        "warning",
        *place,
        end,
        None,
        None,
        f"lost: {span('offset', end, read.offset - 1)}, which group {printable(read.group)} has read in leader "
        f"epoch {epoch}; now this epoch ends at offset {end:,}: an unclean election lost them, or the topic was "
        "created again and the group has committed an offset of the former one",
        "audit the directories of all brokers, before those that are down start: they may still have the records",
    )
