"""Who leads what: the image of `__cluster_metadata-0` and the partitions of this broker. shell

One broker leads every partition. A change is appended to the metadata log first and then applied to the image; the
partition directories follow, a few milliseconds of them per turn, or at once when somebody asks for one.
"""

import logging
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Protocol
from uuid import UUID

from ottla.broker.cluster.features import METADATA_FEATURE, METADATA_VERSION, TRANSACTION_FEATURE, FeatureUpdate
from ottla.broker.cluster.image import MetadataImage, Topic
from ottla.broker.cluster.names import collision_key, topic_name_problem
from ottla.broker.log.manager import LogDirectoryError
from ottla.broker.log.partition import Partition
from ottla.broker.log.settings import PartitionSettings
from ottla.broker.ports.clock import Clock
from ottla.protocol.batch import BatchHeader, build_batch, crc_is_valid
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.metadata_records import (
    TOPIC_RESOURCE,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from ottla.protocol.records import iter_records

log = logging.getLogger("ottla.cluster")

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = UUID(int=1).bytes
METADATA_EPOCH = 1
METADATA_SETTINGS = PartitionSettings(max_message_bytes=8 * 1024 * 1024)
"""`KafkaRaftClient.MAX_BATCH_SIZE_BYTES`: what bounds the messages of topics does not bound their metadata."""
PRODUCER_ID_BLOCK = 1000
OPEN_BUDGET_MS = 3.0
OPEN_REST_BUDGET_MS = 1.0
OPEN_REST_PAUSE_MS = 10.0


class PartitionStore(Protocol):
    """What the cluster needs of the log manager."""

    @property
    def clean_start(self) -> bool:
        """Whether the last broker on this directory stopped cleanly."""

    @property
    def offline(self) -> str | None:
        """Why nothing can be read or written, or None."""

    def partition_dirs(self) -> list[str]:
        """Names of the partition directories on disk."""

    def set_aside_strays(self, known_ids: Container[bytes], exists: Callable[[str, int], bool]) -> None:
        """Take the directories of topics that do not exist out of the way, but for partitions that do."""

    def open_partition(
        self, topic: str, index: int, topic_id: bytes, leader_epoch: int, settings: PartitionSettings
    ) -> Partition:
        """Open or create one partition of this broker."""

    def sync(self, partition: Partition) -> None:
        """Put what a partition has appended on the device. Raises OSError."""

    def delete_partition(self, topic: str, index: int) -> None:
        """Schedule one partition directory for deletion."""


class Cluster:
    """The metadata of one broker and the partitions that it leads."""

    def __init__(
        self,
        store: PartitionStore,
        clock: Clock,
        node_id: int,
        new_topic_id: Callable[[], bytes],
        settings_of: Callable[[dict[str, str]], PartitionSettings],
        internal_topics: dict[str, tuple[int, dict[str, str]]],
        default_partitions: int,
        transaction_version: int = 2,
    ) -> None:
        """`new_topic_id` draws a fresh id; `settings_of` gives what a topic's configs mean for its logs;
        `internal_topics` has the partition count and the forced configs of each; `transaction_version` is the level
        of that feature in a directory that has no metadata yet."""
        self.node_id = node_id
        self.default_partitions = default_partitions
        self._transaction_version = transaction_version
        self.image = MetadataImage()
        self.on_topic_deleted: list[Callable[[Topic], None]] = []
        self._store = store
        self._clock = clock
        self._new_topic_id = new_topic_id
        self._settings_of = settings_of
        self._internal_topics = internal_topics
        self._partitions: dict[str, list[Partition | None]] = {}
        self._unopened: list[tuple[str, int]] = []
        self._free_producer_ids = iter(range(0))
        self._log: Partition

    @property
    def topics(self) -> dict[str, Topic]:
        return self.image.topics

    @property
    def topics_by_id(self) -> dict[bytes, Topic]:
        return self.image.topics_by_id

    @property
    def metadata_offset(self) -> int:
        """End of the metadata log: the epoch of the finalized features."""
        return self._log.log_end_offset

    def feature(self, name: str) -> int:
        """The finalized level of a feature, 0 when it is not finalized."""
        return self.image.features.get(name, 0)

    def update_features(self, updates: Sequence[FeatureUpdate]) -> None:
        """Finalize levels that were checked (`features.update_problem`). Raises OSError when they cannot be logged."""
        records: list[MetadataRecord] = [FeatureLevelRecord(update.feature, update.level) for update in updates]
        if records:
            self._commit(records)
            log.info("Finalized %s", ", ".join(f"{update.feature}={update.level}" for update in updates))

    def open(self) -> None:
        """Replay the metadata log and, after a crash, open every partition that it names. Raises LogDirectoryError.

        After a clean stop there is nothing to recover, and partitions are opened when somebody asks for them.
        """
        self._log = self._store.open_partition(METADATA_TOPIC, 0, METADATA_TOPIC_ID, METADATA_EPOCH, METADATA_SETTINGS)
        self._replay()
        if self.image.features:
            self._store.set_aside_strays({METADATA_TOPIC_ID, *self.image.topics_by_id}, self.has_partition)
        else:
            self._check_that_nothing_is_lost()
            levels = {METADATA_FEATURE: METADATA_VERSION, TRANSACTION_FEATURE: self._transaction_version}
            self._commit([FeatureLevelRecord(name, level) for name, level in levels.items() if level])
        if not self._store.clean_start:
            self._elect_again()
        for topic in self.image.topics.values():
            self._partitions[topic.name] = [None] * topic.partition_count
            if not self._store.clean_start:
                for index in range(topic.partition_count):
                    self._open(topic, index)
        if self._store.offline is not None:
            raise LogDirectoryError(self._store.offline)

    def _check_that_nothing_is_lost(self) -> None:
        """Topics whose metadata is gone would be replaced by new ones, from offset 0 and with other ids."""
        orphans = [name for name in self._store.partition_dirs() if name != f"{METADATA_TOPIC}-0"]
        if orphans:
            raise LogDirectoryError(
                f"{METADATA_TOPIC}-0 names no topic, but {len(orphans)} partition directories such as {orphans[0]} are "
                "here: put the metadata log back, or serve an empty --data-dir"
            )

    def _replay(self) -> None:
        """Make the image from the log, which is read from its first record or not at all."""
        problem = self._log.offline
        if problem is None and self._log.log_start_offset > 0:
            problem = f"begins at offset {self._log.log_start_offset}: what was before is in a snapshot, not read here"
        if problem is not None:
            raise LogDirectoryError(f"{self._log.name}: {problem}")
        end_offset = 0
        try:
            for header, batch in self._log.scan(0):
                end_offset = header.base_offset
                if not crc_is_valid(batch, header):
                    raise ProtocolError("wrong CRC")
                self._apply(header, batch)
        except (ProtocolError, LookupError) as damage:
            raise LogDirectoryError(f"{self._log.name} is damaged at offset {end_offset}: {damage}") from damage

    def _apply(self, header: BatchHeader, batch: memoryview) -> None:
        if header.is_control:
            return
        for record in iter_records(batch, header):
            value = decode_metadata_record(record.value) if record.value is not None else None
            if value is not None:
                self.image.apply(value)

    def partition(self, topic: str, index: int) -> Partition | None:
        """The partition, or None when the cluster has no such topic or index."""
        partitions = self._partitions.get(topic)
        if partitions is None or not 0 <= index < len(partitions):
            return None
        partition = partitions[index]
        if partition is None:
            partition = self._open(self.image.topics[topic], index)
        return partition

    def has_partition(self, topic: str, index: int) -> bool:
        """Whether the cluster has such a partition; opens nothing."""
        known = self.image.topics.get(topic)
        return known is not None and 0 <= index < known.partition_count

    def partitions(self) -> Iterable[Partition]:
        """Every open partition."""
        for partitions in self._partitions.values():
            for partition in partitions:
                if partition is not None:
                    yield partition

    def next_producer_id(self) -> int:
        """A producer id that was never handed out before: blocks are logged before their first id is used."""
        free = next(self._free_producer_ids, None)
        if free is None:
            start = self.image.next_producer_id
            self._commit([ProducerIdsRecord(self.node_id, 0, start + PRODUCER_ID_BLOCK)])
            self._free_producer_ids = iter(range(start, start + PRODUCER_ID_BLOCK))
            free = next(self._free_producer_ids)
        return free

    def name_problem(self, name: str | None) -> tuple[ErrorCode, str] | None:
        """Why a topic called `name` cannot be created, or None."""
        problem = topic_name_problem(name)
        if problem is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, problem
        assert name is not None
        if name == METADATA_TOPIC:  # its partition 0 is the log of this class (`ControllerApis.createTopics`)
            return ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
        if name in self.image.topics:
            return ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists."
        key = collision_key(name)
        for other in self.image.topics:
            if collision_key(other) == key:
                return ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
        return None

    def create_topic(self, name: str, partition_count: int, configs: dict[str, str]) -> Topic:
        """Create a topic whose name and configs were checked; its directories follow in this and later turns.

        Raises OSError, as whatever changes the metadata, when the change cannot be logged.
        """
        topic_id = self._new_topic_id()
        records: list[MetadataRecord] = [TopicRecord(name, topic_id)]
        records += [ConfigRecord(TOPIC_RESOURCE, name, key, value) for key, value in configs.items()]
        records += [self._new_partition(topic_id, index) for index in range(partition_count)]
        self._commit(records)
        self._partitions[name] = [None] * partition_count
        if not self._unopened:
            self._clock.next_turn(self._open_more)
        self._unopened += [(name, index) for index in reversed(range(partition_count))]
        log.info("Created topic %s (partitions: %d)", name, partition_count)
        return self.image.topics[name]

    def ensure_internal_topic(self, name: str) -> Topic:
        """The internal topic, created on first use with its forced configs."""
        topic = self.image.topics.get(name)
        if topic is None:
            partition_count, configs = self._internal_topics[name]
            topic = self.create_topic(name, partition_count, configs)
        return topic

    def delete_topic(self, topic: Topic) -> None:
        """Remove a topic: its metadata now, its files after `file.delete.delay.ms`."""
        self._commit([RemoveTopicRecord(topic.topic_id)])
        for index in range(len(self._partitions.pop(topic.name))):
            self._store.delete_partition(topic.name, index)
        log.info("Deleted topic %s", topic.name)
        for listener in self.on_topic_deleted:
            listener(topic)

    def _new_partition(self, topic_id: bytes, index: int) -> PartitionRecord:
        me = (self.node_id,)
        return PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=me,
            isr=me,
            removing_replicas=(),
            adding_replicas=(),
            leader=self.node_id,
            leader_epoch=0,
            partition_epoch=0,
            directories=(),
        )

    def _elect_again(self) -> None:
        """After an unclean stop every partition gets a new leader epoch, so clients can detect lost offsets."""
        changes: list[MetadataRecord] = [
            PartitionChangeRecord(index, topic.topic_id, leader=self.node_id)
            for topic in self.image.topics.values()
            for index in range(topic.partition_count)
        ]
        for start in range(0, len(changes), 5000):
            self._commit(changes[start : start + 5000])

    def _commit(self, records: list[MetadataRecord]) -> None:
        batch = build_batch(
            [(None, encode_metadata_record(record), ()) for record in records], timestamp_ms=self._clock.now_ms()
        )
        result = self._log.append_own(batch)
        if result.error:
            raise OSError(f"the metadata log refused a record: {result.error.name}")
        # As Kafka's quorum does: a topic or a block of producer ids that a power loss takes back would be handed out
        # again, while the logs still know the old one (`KafkaRaftClient` flushes before the high watermark moves).
        self._store.sync(self._log)
        for record in records:
            self.image.apply(record)

    def _open(self, topic: Topic, index: int) -> Partition:
        partition = self._store.open_partition(
            topic.name, index, topic.topic_id, topic.leader_epochs[index], self._settings_of(topic.configs)
        )
        self._partitions[topic.name][index] = partition
        return partition

    def _open_more(self) -> None:
        """Create directories of new topics for a few milliseconds, the rest in the next turn."""
        deadline = self._clock.monotonic_ms() + OPEN_BUDGET_MS
        while self._unopened:
            self.partition(*self._unopened.pop())
            if self._clock.monotonic_ms() > deadline:
                break
        if self._unopened:
            self._clock.next_turn(self._open_more)
    def open_rest(self) -> None:
        """Open what nobody has asked for, little by little: retention and compaction are for all partitions."""
        closed = ((name, index) for name in list(self.image.topics) for index in range(self._count(name)))

        def open_some() -> None:
            deadline = self._clock.monotonic_ms() + OPEN_REST_BUDGET_MS
            for name, index in closed:
                self.partition(name, index)
                if self._clock.monotonic_ms() > deadline:
                    self._clock.call_later(OPEN_REST_PAUSE_MS, open_some)
                    return

        self._clock.call_later(OPEN_REST_PAUSE_MS, open_some)

    def _count(self, name: str) -> int:
        """How many partitions a topic has; 0 when it was deleted."""
        return len(self._partitions.get(name, ()))

