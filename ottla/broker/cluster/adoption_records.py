"""Topics of a log directory without metadata, found by its partition directories. pure

ZooKeeper clusters leave such directories, and so does a Kafka whose `metadata.log.dir` is elsewhere or whose metadata
was lost. No directory has configs, features or producer ids. They are chosen so that no data is lost:
docs/decisions/kafka-directories.md.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from ottla.broker.cluster.image import INTERNAL_TOPICS
from ottla.protocol.batch_header import BatchHeader
from ottla.protocol.errors import ProtocolError
from ottla.protocol.fields import UnknownVersion
from ottla.protocol.internal_topics.metadata_records import (
    NO_LEADER,
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
    partition_on,
)
from ottla.protocol.internal_topics.transaction_records import decode_transaction_value, read_transaction_key
from ottla.protocol.records import iter_records
from ottla.protocol.values import TopicPartition

PRODUCER_ID_BLOCK: Final = 1000
"""The number of producer ids that a broker reserves at a time."""

KEEP_EVERYTHING: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Configs of a topic whose own configs are not known: it may have been compacted, or retained for years."""


MAX_PARTITIONS: Final = 100_000
"""Highest partition count: a directory called `backup-20240101` is not a partition."""


class FoundTopic(NamedTuple):
    """A topic as found in its directories; `topic_id` is None if none of them has an id (before Kafka 2.8)."""

    name: str
    topic_id: bytes | None
    indexes: tuple[int, ...]


class Contradiction(Exception):
    """Directories of one topic name that belong to two topics; the message is for the operator."""


def find_topics(places: Iterable[TopicPartition], id_on_disk: Callable[[str, int], bytes | None]) -> list[FoundTopic]:
    """Return the topics of these (name, partition) directories. Raises Contradiction."""
    found: dict[str, dict[int, bytes | None]] = {}
    for name, index in sorted(places):
        if index >= MAX_PARTITIONS:
            raise Contradiction(
                f"{name}-{index} is named like a partition, but its number is too large: move the directory elsewhere"
            )
        found.setdefault(name, {})[index] = id_on_disk(name, index)
    topics = []
    for name, ids in found.items():
        known = {topic_id: index for index, topic_id in ids.items() if topic_id is not None}
        if len(known) > 1:
            one, other = sorted(known.values())[:2]
            raise Contradiction(
                f"{name}-{one} and {name}-{other} belong to two topics of this name (partition.metadata): move the "
                "directories of one elsewhere"
            )
        topics.append(FoundTopic(name, next(iter(known), None), tuple(ids)))
    return topics


def adopted_configs(name: str, forced: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the first configs of a topic; `forced` has those of the internal topics."""
    return dict(forced[name]) if name in INTERNAL_TOPICS else dict(KEEP_EVERYTHING)


def adopting_records(
    topic: FoundTopic,
    topic_id: bytes,
    configs: Mapping[str, str],
    epochs: Mapping[int, int],
    node_id: int,
    directory_id: bytes,
) -> list[MetadataRecord]:
    """Return records that create the topic with all partitions up to the highest one found.

    A partition without a directory has no replica. `epochs` has the leader epoch of each partition with a directory.
    """
    records: list[MetadataRecord] = [TopicRecord(topic.name, topic_id)]
    records += [ConfigRecord(TOPIC_RESOURCE, topic.name, key, value) for key, value in configs.items()]
    for index in range(max(topic.indexes) + 1):
        if index in epochs:
            records.append(partition_on((node_id,), directory_id, topic_id, index, epochs[index]))
        else:
            records.append(PartitionRecord(index, topic_id, (), (), NO_LEADER, leader_epoch=0, partition_epoch=0))
    return records


def highest_producer_id(batches: Iterable[tuple[BatchHeader, memoryview]]) -> int:
    """Return the highest producer id in records of `__transaction_state`; -1 if there is none.

    Ids stay there after the partitions have removed them. Unreadable records are skipped: the coordinator, which reads
    the same records, reports them.
    """
    highest = -1
    for header, batch in batches:
        for record in iter_records(batch, header) if not header.is_control else ():
            if record.key is None or record.value is None:
                continue
            try:
                if read_transaction_key(record.key) is None:
                    continue
                value = decode_transaction_value(record.value)
            except (UnknownVersion, ProtocolError):
                continue
            highest = max(highest, value.producer_id, value.previous_producer_id, value.next_producer_id)
    return highest
