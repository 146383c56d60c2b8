"""Committed positions of groups by ListGroups and OffsetFetch, for users who may not read `__consumer_offsets`. shell

They become records of `__consumer_offsets`, as if each group had committed once. Pending commits of transactions,
members and generations are missing.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC
from ottla.broker.group.log import offsets_batch
from ottla.broker.ports.disk import Disk
from ottla.cli.pull.mark import PartitionMark, TopicMark, check_topic
from ottla.cli.pull.partition import load_log_files, make_directory, save_log_files
from ottla.protocol.batch_header import LOG_OVERHEAD, PLACE
from ottla.protocol.checkpoints import LAST_BASE_OFFSET, LAST_INT
from ottla.protocol.errors import ProtocolError
from ottla.protocol.fields import fits_a_string
from ottla.protocol.hashing import coordinator_partition
from ottla.protocol.internal_topics.offsets_records import OffsetKey, OffsetValue
from ottla.wire.cluster import Cluster
from ottla.wire.login import error_name

PARTITIONS: Final = 50
"""`offsets.topic.num.partitions`: the broker that serves the copy must have the same number."""
CONFIGS: Final = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
_RECORDS_PER_BATCH: Final = 500

Commits = list[tuple[OffsetKey, OffsetValue]]


class Positions(NamedTuple):
    """Committed positions, and the reasons why groups are missing."""

    commits: Commits
    gaps: tuple[str, ...]


def ask_positions(cluster: Cluster, now_ms: int) -> Positions:
    """Ask each broker for the groups that it coordinates, and for their committed offsets.

    Raises Unanswered, ProtocolError for answers that no record can hold.
    """
    commits: Commits = []
    gaps: list[str] = []
    for group, error, topics in cluster.committed_offsets():
        if not fits_a_string(group):
            raise ProtocolError(f"a broker lists the group {group[:80]!r}...")
        if error:
            gaps.append(f"group {group}: {error_name(error)}")
        for topic in topics or ():
            for row in topic.partitions:
                if row.error_code:
                    gaps.append(f"group {group}, {topic.name}-{row.partition_index}: {error_name(row.error_code)}")
                elif row.committed_offset >= 0:
                    key = OffsetKey(group, check_topic(topic.name, 1), row.partition_index)
                    commits.append((key, _value(row, now_ms)))
    return Positions(sorted(commits), tuple(gaps))


def _value(row: Any, now_ms: int) -> OffsetValue:
    """Return the value of a commit at `now_ms`: the answer does not have the time of the commit."""
    offset, epoch, metadata = row.committed_offset, getattr(row, "committed_leader_epoch", -1), row.metadata or ""
    if offset > LAST_BASE_OFFSET or not -1 <= epoch <= LAST_INT or not fits_a_string(metadata):
        raise ProtocolError(f"a broker answers the committed offset {offset} in leader epoch {epoch}")
    return OffsetValue(offset, epoch, metadata, now_ms)


def write_positions(
    disk: Disk, place: str, marked: TopicMark, commits: Commits, now_ms: int, write_mark: Callable[[], None]
) -> None:
    """Replace the partitions of `__consumer_offsets` by these commits. Raises OSError."""
    marked.partitions = {index: PartitionMark(0, None, 0) for index in range(marked.count)}
    write_mark()
    of_partition: dict[int, Commits] = {index: [] for index in range(marked.count)}
    for commit in commits:
        of_partition[coordinator_partition(commit[0].group, marked.count)].append(commit)
    for index, some in of_partition.items():
        directory = f"{place}/{CONSUMER_OFFSETS_TOPIC}-{index}"
        make_directory(disk, directory, marked.topic_id)
        for name in disk.list(directory):
            if name.endswith((".index", ".timeindex", ".snapshot")):  # of the last run
                disk.remove(f"{directory}/{name}")
        disk.write_atomically(f"{directory}/{0:020d}.log", _encode(some, now_ms))
        loaded = load_log_files(disk, directory, 0, 0, now_ms)
        save_log_files(disk, directory, loaded, 0)
        marked.partitions[index].end = loaded.segments.end_offset
        marked.partitions[index].copied_ms = now_ms


def _encode(commits: Commits, now_ms: int) -> bytes:
    content = bytearray()
    for start in range(0, len(commits), _RECORDS_PER_BATCH):
        batch = offsets_batch(commits[start : start + _RECORDS_PER_BATCH], now_ms, None)
        PLACE.pack_into(batch, 0, start, len(batch) - LOG_OVERHEAD, 0)
        content += batch
    return bytes(content)
