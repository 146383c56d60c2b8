"""Topics by the cluster's metadata log, if a directory has one: replicas, age, compaction. shell

`__cluster_metadata-0` is on controllers. Without a copy in the directory, the topics are unknown.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from ottla.protocol.batch_header import BatchHeader, iter_batches
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.metadata_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
    decode_metadata_record,
)
from ottla.protocol.records import iter_records
from ottla.protocol.values import TopicPartition
from ottla.scan import storage
from ottla.scan.index_files import batch_positions

METADATA = "__cluster_metadata"
_TOPIC_RESOURCE = 2
_WINDOW_BYTES = 4 << 20
# Kafka writes no batch above 8 MiB to the metadata log (`KafkaRaftClient.MAX_BATCH_SIZE_BYTES`).
_LARGEST_BATCH_BYTES = 64 << 20
# Kafka compacts these topics, whatever their configuration.
_ALWAYS_COMPACTED = ("__consumer_offsets", "__transaction_state", "__share_group_state")


class Topics(NamedTuple):
    """Known topics.

    `alone`: partitions that never had a second replica. `compacted`: topics that are or were compacted.
    `created_ms`: when a partition was created, or its topic created again, if the segments still have the record.
    `counts`: the number of partitions of each topic.
    """

    alone: frozenset[TopicPartition]
    compacted: frozenset[str]
    created_ms: Mapping[TopicPartition, int] = {}
    counts: Mapping[str, int] = {}

    def cleaned_below(self, cleaned: Mapping[TopicPartition, int] | None, topic: str, partition: int) -> int | None:
        """Return the first dirty offset of a partition; None if missing offsets may have been compacted anywhere.

        `cleaned`: the directory's checkpoint, None without one. A replica fetches records that its leader has compacted
        already, so its own checkpoint proves nothing.
        """
        if cleaned is None:
            return None
        known = topic in self.compacted or topic in _ALWAYS_COMPACTED or any(name == topic for name, _ in cleaned)
        if known and (topic, partition) not in self.alone:
            return None
        return cleaned.get((topic, partition), 0)


def read_topics(directory: str) -> Topics:
    """Return the known topics; files that cannot be read are skipped."""
    names: dict[bytes, str] = {}
    replicas: dict[tuple[bytes, int], int] = {}
    compacted: set[str] = set()
    created: dict[TopicPartition, int] = {}
    for path, position in _files(storage.join(directory, f"{METADATA}-0")):
        try:
            for content, at, header in _batches(path, position):
                if header.is_control:
                    continue
                for record in iter_records(content, header, at):
                    new = _take(record.value, names, replicas, compacted)
                    # A batch of a snapshot has the time of the snapshot.
                    if new is not None and new[0] in names and path.endswith(".log"):
                        created[names[new[0]], new[1]] = header.max_timestamp
        except (OSError, ProtocolError):
            continue
    alone = {(names[topic], number) for (topic, number), most in replicas.items() if most == 1 and topic in names}
    counts: dict[str, int] = {}
    for topic, number in replicas:
        if topic in names:
            counts[names[topic]] = max(counts.get(names[topic], 0), number + 1)
    return Topics(frozenset(alone), frozenset(compacted), created, counts)


def _batches(path: str, position: int) -> Iterator[tuple[bytes, int, BatchHeader]]:
    """Yield each batch of a file from `position` on: the bytes that contain it, its position in them, its header.

    The file is read in windows: a metadata segment may have a GiB. Raises OSError, ProtocolError.
    """
    with closing(storage.open_file(path)) as file:
        size_bytes = _WINDOW_BYTES
        while content := file.read(size_bytes, position):
            end = 0
            for at, header in iter_batches(content):
                yield content, at, header
                end = at + header.size_bytes
            if not end and (len(content) < size_bytes or size_bytes >= _LARGEST_BATCH_BYTES):
                return  # the batch is truncated, or longer than a broker accepts
            size_bytes = _WINDOW_BYTES if end else _LARGEST_BATCH_BYTES
            position += end


def _files(folder: str) -> list[tuple[str, int]]:
    """Return the newest snapshot, then the segments, each with the position at which newer records begin.

    A controller writes two records a second when nothing happens, and keeps them for a week.
    """
    try:
        names = [entry.name for entry in storage.entries(folder)]
    except OSError:
        return []
    snapshots = [name for name in names if name.endswith(".checkpoint")][-1:]
    known_to = int(snapshots[0][:20]) if snapshots else 0
    segments = [name for name in names if name.endswith(".log")]
    bases = [int(storage.stem_of(name)) for name in segments]
    files = [(storage.join(folder, name), 0) for name in snapshots]
    for index, name in enumerate(segments):
        if name == segments[-1] or bases[index + 1] > known_to:
            path = storage.join(folder, name)
            files.append((path, _position(path, bases[index], known_to)))
    return files


def _position(path: str, base_offset: int, offset: int) -> int:
    """Return the position of the batch that the last index entry below `offset` names; 0 if there is none."""
    try:
        entries = batch_positions(path, base_offset, storage.status(path).size_bytes)
    except OSError:
        return 0
    below = entries[entries[:, 0] < offset]
    return int(below[-1, 1]) if len(below) else 0


def _take(
    value: bytes | memoryview | None,
    names: dict[bytes, str],
    replicas: dict[tuple[bytes, int], int],
    compacted: set[str],
) -> tuple[bytes, int] | None:
    """Add the content of a record, and return the partition that it creates, or None."""
    record = None if value is None else decode_metadata_record(value)
    if isinstance(record, TopicRecord):
        names[record.topic_id] = record.name
    elif isinstance(record, PartitionRecord):
        key = record.topic_id, record.partition_id
        replicas[key] = max(replicas.get(key, 0), len({*record.replicas, *record.adding_replicas}))
        return key
    elif isinstance(record, PartitionChangeRecord) and (record.replicas or record.adding_replicas):
        # The partition was moved: its present records came from another replica.
        replicas[record.topic_id, record.partition_id] = 2
    elif (
        isinstance(record, ConfigRecord)
        and (record.resource_type, record.name) == (_TOPIC_RESOURCE, "cleanup.policy")
        and "compact" in (record.value or "")
    ):
        compacted.add(record.resource_name)
    return None
