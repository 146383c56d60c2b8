"""Who leads what: the image of `__cluster_metadata-0` and the partitions of this broker. shell

One broker leads every partition. A change is appended to the metadata log first and then applied to the image; the
partition directories follow, a few milliseconds of them per turn, or at once when somebody asks for one.
"""

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Protocol

from ottla.broker.cluster.adoption import PRODUCER_ID_BLOCK, Adoption
from ottla.broker.cluster.features import METADATA_FEATURE, METADATA_VERSION, TRANSACTION_FEATURE, FeatureUpdate
from ottla.broker.cluster.image import MetadataImage, Topic
from ottla.broker.cluster.kraft_log import METADATA_TOPIC, METADATA_TOPIC_ID, RECORDS_PER_COMMIT, MetadataLog
from ottla.broker.cluster.names import collision_key, topic_name_problem
from ottla.broker.log.manager import LogDirectoryError
from ottla.broker.log.partition import Partition
from ottla.broker.log.settings import PartitionSettings
from ottla.broker.ports.clock import Clock, Timer
from ottla.broker.ports.descriptors import Shortage
from ottla.protocol.errors import ErrorCode
from ottla.protocol.metadata_records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    parse_uuid,
)

log = logging.getLogger("ottla.cluster")

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

    @property
    def directory_id(self) -> str:
        """The id of the log directory, empty where it has none."""

    def partition_dirs(self) -> list[str]:
        """Names of the partition directories on disk."""

    def topic_id_on_disk(self, topic: str, index: int) -> bytes | None:
        """The topic id that a partition directory names; None if it names none."""

    def side_files(self, place: str) -> list[str]:
        """Names in the data directory (``""``) or in one partition directory."""

    def read_side_file(self, name: str) -> bytes:
        """A file by its path from the data directory. Raises OSError."""

    def set_aside_strays(self, known_ids: Container[bytes], exists: Callable[[str, int], bool]) -> None:
        """Take the directories of topics that do not exist out of the way, but for partitions that do."""

    def recover_ahead(self, partitions: Iterable[tuple[str, int, bytes, PartitionSettings]]) -> None:
        """After a crash: read the long logs of (topic, index, topic id, settings) side by side."""

    def open_partition(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        leader_epoch: int,
        settings: PartitionSettings,
        patient: bool = False,
    ) -> Partition:
        """Open or create one partition of this broker. Raises Shortage if it is `patient`."""

    def absent_partition(
        self, topic: str, index: int, topic_id: bytes, leader_epoch: int, reason: str | None = None
    ) -> Partition:
        """A partition that is not in this directory, or cannot be had now for a reason: offline for good."""

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
        self.on_broker_configs_changed: Callable[[], None] = lambda: None
        self._store = store
        self._clock = clock
        self._new_topic_id = new_topic_id
        self._settings_of = settings_of
        self._internal_topics = internal_topics
        self._partitions: dict[str, list[Partition | None]] = {}
        self._unopened: list[tuple[str, int]] = []
        self._opening: Timer | None = None
        self._stopped = False
        self._free_producer_ids = iter(range(0))
        self._log = MetadataLog(store, clock, node_id, self.image)
        self._absent: set[tuple[str, int]] = set()

    @property
    def topics(self) -> dict[str, Topic]:
        return self.image.topics

    @property
    def topics_by_id(self) -> dict[bytes, Topic]:
        return self.image.topics_by_id

    @property
    def metadata_offset(self) -> int:
        """End of the metadata log: the epoch of the finalized features."""
        return self._log.end_offset

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
        self._log.open()
        if self._log.began_empty and not self.image.topics:
            self._begin()
        else:
            self._store.set_aside_strays({METADATA_TOPIC_ID, *self.image.topics_by_id}, self.has_partition)
        self._find_absent()
        self._elect()
        self._store.recover_ahead(self._logs_here())
        for topic in self.image.topics.values():
            self._partitions[topic.name] = [None] * topic.partition_count
            if not self._store.clean_start:
                for index in range(topic.partition_count):
                    self._open(topic, index)
        if self._store.offline is not None:
            raise LogDirectoryError(self._store.offline)

    def _logs_here(self) -> Iterator[tuple[str, int, bytes, PartitionSettings]]:
        for topic in self.image.topics.values():
            settings = self._settings_of(topic.configs)
            for index in range(topic.partition_count):
                if (topic.name, index) not in self._absent:
                    yield topic.name, index, topic.topic_id, settings

    def _begin(self) -> None:
        """Write the first metadata of a directory: a new one's, or one's whose partitions alone are here."""
        directory_id = self._directory_id
        forced = {name: configs for name, (_, configs) in self._internal_topics.items()}
        directories = (directory_id,) if directory_id else ()
        adoption = Adoption(self._store, self._new_topic_id, self._settings_of, forced, self.node_id, directories)
        found = adoption.records()
        if not self.image.features:
            levels = {METADATA_FEATURE: METADATA_VERSION, TRANSACTION_FEATURE: self._transaction_version}
            found = [*(FeatureLevelRecord(name, level) for name, level in levels.items() if level), *found]
        if found:
            self._log.commit_together("Topics found in their directories", found)

    @property
    def _directory_id(self) -> bytes:
        return parse_uuid(self._store.directory_id) if self._store.directory_id else b""

    def _find_absent(self) -> None:
        """Partitions of other brokers and other log directories: making them here would show them empty."""
        directory_id = self._directory_id
        here = set(self._store.partition_dirs())
        for topic in self.image.topics.values():
            for index, place in enumerate(topic.placements):
                if not place.may_be_at(self.node_id, directory_id) and f"{topic.name}-{index}" not in here:
                    self._absent.add((topic.name, index))
        if not self._absent:
            return
        count = sum(topic.partition_count for topic in self.image.topics.values())
        topic_name, index = min(self._absent)
        if len(self._absent) == count:
            raise LogDirectoryError(
                f"{METADATA_TOPIC}-0 names {count} partitions such as {topic_name}-{index}, and none is in this "
                "directory: it is a controller's, or another node's; serve the log.dirs of a broker"
            )
        log.warning(
            "%d of %d partitions, such as %s-%d, have no replica in this directory: they are offline",
            *(len(self._absent), count, topic_name, index),
        )

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
        self._open_later(name, range(partition_count))
        log.info("Created topic %s (partitions: %d)", name, partition_count)
        return self.image.topics[name]

    def alter_configs(self, changes: Sequence[ConfigRecord]) -> None:
        """Change configs to values that were checked. Logs of topics act on theirs at once, on the broker's soon."""
        self._commit([*changes])
        for name in dict.fromkeys(each.resource_name for each in changes if each.resource_type == TOPIC_RESOURCE):
            self.configure(self.image.topics[name])
        if any(each.resource_type == BROKER_RESOURCE for each in changes):
            self.on_broker_configs_changed()
        log.info("Changed configs: %s", ", ".join(f"{each.resource_name} {each.name}={each.value}" for each in changes))

    def configure(self, topic: Topic) -> None:
        """Let a topic's logs act on its configs, and on what it inherits from the broker's."""
        settings = self._settings_of(topic.configs)
        for partition in self._partitions.get(topic.name, ()):
            if partition is not None:
                partition.settings = settings

    def add_partitions(self, topic: Topic, partition_count: int) -> None:
        """Give a topic more partitions, so that it has `partition_count`; their directories follow."""
        added = range(topic.partition_count, partition_count)
        self._commit([self._new_partition(topic.topic_id, index) for index in added])
        self._partitions[topic.name] += [None] * len(added)
        self._open_later(topic.name, added)
        log.info("Topic %s has %d partitions now", topic.name, partition_count)

    def _open_later(self, name: str, indexes: range) -> None:
        if not self._unopened:
            self._clock.next_turn(self._open_more)
        self._unopened += [(name, index) for index in reversed(indexes)]

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
        me, directory_id = (self.node_id,), self._directory_id
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
            directories=(directory_id,) if directory_id else (),
        )

    def _elect(self) -> None:
        """After an unclean stop every partition gets a new leader epoch, so clients can detect lost offsets; after a
        clean one those that Kafka left without a leader, or that another broker led."""
        changes: list[MetadataRecord] = []
        for topic in self.image.topics.values():
            for index, place in enumerate(topic.placements):
                if (topic.name, index) in self._absent:
                    continue
                if place.leader != self.node_id:
                    # `PartitionChangeBuilder`: a leader is in sync, and nobody else is known to be.
                    alone = PartitionChangeRecord(
                        index,
                        topic.topic_id,
                        (self.node_id,),
                        self.node_id,
                        eligible_leader_replicas=(),
                        last_known_elr=(),
                    )
                    changes.append(alone)
                elif not self._store.clean_start:
                    changes.append(PartitionChangeRecord(index, topic.topic_id, leader=self.node_id))
        for start in range(0, len(changes), RECORDS_PER_COMMIT):
            self._commit(changes[start : start + RECORDS_PER_COMMIT])

    def _commit(self, records: Sequence[MetadataRecord]) -> None:
        self._log.commit(records)

    def _open(self, topic: Topic, index: int) -> Partition:
        epoch = topic.leader_epochs[index]
        if (topic.name, index) in self._absent:
            partition = self._store.absent_partition(topic.name, index, topic.topic_id, epoch)
        else:
            settings = self._settings_of(topic.configs)
            # A coordinator would take what cannot be read now for empty, and go on without what it has never loaded.
            patient = topic.name not in self._internal_topics
            try:
                partition = self._store.open_partition(topic.name, index, topic.topic_id, epoch, settings, patient)
            except Shortage as short:  # not kept: who asks next tries again
                return self._store.absent_partition(topic.name, index, topic.topic_id, epoch, f"{short}")
            if partition.leader_epoch != epoch:
                partition.lead(epoch)  # it was opened before the election, to be taken over
        self._partitions[topic.name][index] = partition
        return partition

    def open_rest(self) -> None:
        """Open what nobody has asked for, little by little: retention and compaction are for all partitions."""
        closed = ((name, index) for name in list(self.image.topics) for index in range(self._count(name)))

        def open_some() -> None:
            deadline = self._clock.monotonic_ms() + OPEN_REST_BUDGET_MS
            for name, index in closed:
                self.partition(name, index)
                if self._clock.monotonic_ms() > deadline:
                    self._opening = self._clock.call_later(OPEN_REST_PAUSE_MS, open_some)
                    return

        self._opening = self._clock.call_later(OPEN_REST_PAUSE_MS, open_some)

    def stop(self) -> None:
        """Open nothing more that nobody asks for."""
        self._stopped = True
        if self._opening is not None:
            self._opening.cancel()

    def _count(self, name: str) -> int:
        """How many partitions a topic has; 0 when it was deleted."""
        return len(self._partitions.get(name, ()))

    def _open_more(self) -> None:
        """Create directories of new topics for a few milliseconds, the rest in the next turn."""
        deadline = self._clock.monotonic_ms() + OPEN_BUDGET_MS
        while self._unopened and not self._stopped:
            self.partition(*self._unopened.pop())
            if self._clock.monotonic_ms() > deadline:
                break
        if self._unopened and not self._stopped:
            self._clock.next_turn(self._open_more)
