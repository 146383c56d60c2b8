"""The cluster: the image of `__cluster_metadata-0`, and all partitions. shell

One broker leads every partition. Several brokers of one process share the cluster, and each has a `View` of it, with
the partitions that it leads. `controller.py` changes the metadata. The partition directories are created
afterwards, in shares, or at once when a partition is requested.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from ottla.broker.cluster import reassignment
from ottla.broker.cluster.adoption import Adoption
from ottla.broker.cluster.controller import Controller
from ottla.broker.cluster.features import (
    GROUP_FEATURE,
    GROUP_VERSION,
    METADATA_FEATURE,
    METADATA_VERSION,
    TRANSACTION_FEATURE,
)
from ottla.broker.cluster.image import MetadataImage, TopicImage
from ottla.broker.cluster.kraft_log import (
    METADATA_SETTINGS,
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    RECORDS_PER_COMMIT,
    MetadataLog,
)
from ottla.broker.cluster.producer_id_manager import ProducerIdManager, Reserve
from ottla.broker.costs import OPEN_PARTITION_US, PASSWORD_US
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_manager import LogManager
from ottla.broker.log.meta_properties import LogDirectoryError
from ottla.broker.log.partition import Partition
from ottla.broker.ports.clock import Clock, Timer
from ottla.broker.ports.descriptors import Shortage
from ottla.broker.turns import Handler, Turns, Wait
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.metadata_records import (
    FeatureLevelRecord,
    Ints,
    MetadataRecord,
    PartitionChangeRecord,
    parse_uuid,
)
from ottla.protocol.steps import Steps, to_the_end
from ottla.protocol.topic_names import detect_invalid_topic
from ottla.protocol.values import TopicPartition

log = logging.getLogger(__name__)

OPEN_REST_PAUSE_MS: Final = 10.0
_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_NOT_LEADER: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Cluster:
    """Metadata of one broker, and the partitions that it leads."""

    def __init__(
        self,
        store: LogManager,
        clock: Clock,
        turns: Turns,
        node_id: int,
        new_topic_id: Callable[[], bytes],
        settings_of: Callable[[dict[str, str]], LogConfig],
        internal_topics: dict[str, tuple[int, dict[str, str], int]],
        default_partitions: int,
        transaction_version: int = 2,
        metadata_settings: LogConfig = METADATA_SETTINGS,
        first_users: Callable[[], Iterable[MetadataRecord]] = tuple,
        broker_count: int = 1,
        default_factor: int = 1,
    ) -> None:
        """Create the cluster without its state, which `open` reads.

        `new_topic_id` returns a random new id. `settings_of` returns the log settings for a topic's configs.
        `internal_topics` has the partition count, the forced configs and the replication factor of each.
        `default_factor` is the factor of other topics that are created without one. `transaction_version` is the level
        of that feature in a directory without metadata. `first_users` are the user records of a directory without
        metadata. `metadata_settings` are those of the metadata log. The brokers have `broker_count` ids, from
        `node_id` on.
        """
        self.node_id = node_id
        self.own_ids = range(node_id, node_id + broker_count)
        """The ids of the brokers that this process is."""
        self.on_leader_changed: list[Callable[[str, int], None]] = []
        """Callbacks that run with topic and partition in the step that changes a leader."""
        self.default_factor = min(default_factor, broker_count)
        self.default_partitions = default_partitions
        self._transaction_version = transaction_version
        self._first_users = first_users
        self.image = MetadataImage()
        self._store = store
        self._clock = clock
        self._turns = turns
        self._new_topic_id = new_topic_id
        self._settings_of = settings_of
        self._internal_topics = internal_topics
        self._partitions: dict[str, list[Partition | None]] = {}
        self._unopened: deque[tuple[str, range]] = deque()
        self._opening: Timer | None = None
        self._stopped = False
        self.metadata_log = MetadataLog(store, clock, node_id, self.image, metadata_settings)
        """Log from which the image is replayed."""
        self._absent: set[TopicPartition] = set()
        self.controller = Controller(
            self.image,
            self.metadata_log,
            store,
            self,
            turns,
            node_id,
            new_topic_id,
            lambda: self.directory_id,
            self._place,
        )
        self.reserve_producer_ids: Reserve = self.controller.reserve_producer_ids
        self.producer_id_manager = ProducerIdManager(self.controller.reserve_producer_ids, turns, node_id)

    @property
    def topics(self) -> dict[str, TopicImage]:
        return self.image.topics

    @property
    def topics_by_id(self) -> dict[bytes, TopicImage]:
        return self.image.topics_by_id

    @property
    def stopped_ids(self) -> set[int]:
        """The ids of the brokers of this process that are stopped."""
        return self.controller.stopped_ids

    @property
    def on_topic_deleted(self) -> list[Callable[[TopicImage], None]]:
        """Callbacks that run in the step that removes a topic."""
        return self.controller.on_topic_deleted

    def feature(self, name: str) -> int:
        """Return the finalized level of a feature, 0 if it is not finalized."""
        return self.image.features.get(name, 0)

    def open(self) -> None:
        """Replay the metadata log and, after a crash, open every partition that it names. Raises LogDirectoryError.

        A clean stop leaves nothing to recover, so partitions are opened on their first use.
        """
        to_the_end(self.open_steps())

    def open_steps(self) -> Steps[None]:
        """Run `open` in steps. Stopping between steps leaves the same files as a crash during a start."""
        yield from self.metadata_log.open_steps()
        if self.metadata_log.began_empty and not self.image.topics:
            yield from self._begin()
        else:
            self._store.rename_strays({METADATA_TOPIC_ID, *self.image.topics_by_id}, self.has_partition)
        self._find_absent()
        self._elect()
        yield from self._store.recover_in_processes(self._logs_here())
        for topic in self.image.topics.values():
            self._partitions[topic.name] = [None] * topic.partition_count
            if not self._store.clean_start:
                for index in range(topic.partition_count):
                    yield from self._open_steps(topic, index)
                    yield 0.0  # the work was charged where it was done
        if self._store.offline is not None:
            raise LogDirectoryError(self._store.offline)

    def _logs_here(self) -> Iterator[tuple[str, int, bytes, LogConfig]]:
        for topic in self.image.topics.values():
            settings = self._settings_of(topic.configs)
            for index in range(topic.partition_count):
                if (topic.name, index) not in self._absent:
                    yield topic.name, index, topic.topic_id, settings

    def _begin(self) -> Steps[None]:
        """Write the first metadata of a directory, which is new or has partitions without metadata."""
        directory_id = self.directory_id
        forced = {name: configs for name, (_, configs, _) in self._internal_topics.items()}
        adoption = Adoption(self._store, self._new_topic_id, self._settings_of, forced, self.node_id, directory_id)
        found = adoption.records()
        if not self.image.features:
            levels = {
                METADATA_FEATURE: METADATA_VERSION,
                TRANSACTION_FEATURE: self._transaction_version,
                GROUP_FEATURE: GROUP_VERSION,
            }
            features = [FeatureLevelRecord(name, level) for name, level in levels.items() if level]
            found = [*features, *found]
            for user in self._first_users():
                found.append(user)
                yield PASSWORD_US
        if found:
            yield from self.metadata_log.commit_together("Topics found in their directories", found)

    @property
    def directory_id(self) -> bytes:
        """The id of the log directory; empty if it has none."""
        return parse_uuid(self._store.properties.directory_id) if self._store.properties.directory_id else b""

    def _find_absent(self) -> None:
        """Find partitions of other brokers and other log directories. Creating them here would show them as empty."""
        directory_id = self.directory_id
        here = set(self._store.partition_dirs())
        for topic in self.image.topics.values():
            for index, place in enumerate(topic.registrations):
                is_here = any(place.may_be_at(node_id, directory_id) for node_id in self.own_ids)
                if not is_here and f"{topic.name}-{index}" not in here:
                    self._absent.add((topic.name, index))
        if not self._absent:
            return
        count = sum(topic.partition_count for topic in self.image.topics.values())
        topic_name, index = min(self._absent)
        if len(self._absent) == count:
            raise LogDirectoryError(
                f"{METADATA_TOPIC}-0 names {count} partitions such as {topic_name}-{index}, and none is in this "
                "directory, which belongs to a controller or another node: serve the log.dirs of a broker"
            )
        log.warning(
            "%d of %d partitions, such as %s-%d, have no replica in this directory: they are offline",
            *(len(self._absent), count, topic_name, index),
        )

    def leader_of(self, topic: str, index: int) -> tuple[int, int]:
        """Return the id of the broker that leads the partition, and its epoch; (-1, -1) if there is none."""
        return self.image.leader_of(topic, index)

    def replica(self, topic: str, index: int) -> Partition | None:
        """Return the partition if this broker has a replica of it, else None."""
        return self.partition(topic, index)

    def has_replica(self, topic: str, index: int) -> bool:
        """Return whether this broker has a replica of the partition. Opens nothing."""
        return self.has_partition(topic, index)

    def absence(self, topic: str, index: int) -> ErrorCode:
        """Return the error for a partition that `partition` does not return (`ReplicaManager.getPartitionOrError`)."""
        return _NOT_LEADER if self.has_partition(topic, index) else _UNKNOWN

    def partition(self, topic: str, index: int) -> Partition | None:
        """Return the partition, or None if the cluster has no such topic or index, or this broker does not lead it."""
        partitions = self._partitions.get(topic)
        if partitions is None or not 0 <= index < len(partitions):
            return None
        partition = partitions[index]
        if partition is None:
            partition = to_the_end(self._open_steps(self.image.topics[topic], index))
        return partition

    def is_unopened(self, topic: str, index: int) -> bool:
        """Return whether the partition exists and is not open yet (`get_or_open` opens it in several turns)."""
        partitions = self._partitions.get(topic)
        return partitions is not None and 0 <= index < len(partitions) and partitions[index] is None

    def open_partitions(self, topic: str) -> Sequence[Partition | None]:
        """Return the partitions of a topic by number, None for those that are not open. Opens nothing."""
        return self._partitions.get(topic, ())

    async def get_or_open(self, topic: str, index: int) -> Partition | None:
        """Return the partition. If it is not open yet, open it in several turns: reading it may take seconds."""
        if self.is_unopened(topic, index):
            await self._load_in_steps(topic, index)
        return self.partition(topic, index)

    async def size_bytes(self, topic: str, index: int) -> int | None:
        """Return the size of a partition's segments; None if they cannot be read. A closed partition is not opened."""
        if not self.is_unopened(topic, index):
            partition = self.partition(topic, index)
            return partition.log.size_bytes if partition is not None and partition.offline is None else None
        if (topic, index) in self._absent or self._store.offline is not None:
            return None
        place, size_bytes = f"{topic}-{index}", 0
        try:
            for name in self._store.side_files.names(place):  # none if the directory is still to be made
                if name.endswith(".log"):
                    size_bytes += self._store.side_files.size_bytes(f"{place}/{name}")
                    await self._turns.yield_if_due()
        except FileNotFoundError:  # it was deleted meanwhile
            return None
        except OSError as error:
            self._store.fail_unless_short(error)
            return None
        return size_bytes

    def has_partition(self, topic: str, index: int) -> bool:
        """Return whether the cluster has such a partition. Opens nothing."""
        known = self.image.topics.get(topic)
        return known is not None and 0 <= index < known.partition_count

    def partitions(self) -> Iterable[Partition]:
        """Yield every open partition."""
        for partitions in self._partitions.values():
            for partition in partitions:
                if partition is not None:
                    yield partition

    def take_producer_ids_from(self, reserve: Reserve) -> None:
        """Take blocks of producer ids from another place than the metadata log, which still has a record of each."""
        self.reserve_producer_ids = reserve
        self.producer_id_manager = ProducerIdManager(reserve, self._turns, self.node_id)

    def next_producer_id(self) -> int | None:
        """Return an unused producer id; None if no id is durable yet (`producer_ids`)."""
        return self.producer_id_manager.next_id()

    async def producer_ids(self) -> bool:
        """Wait until a producer id is available; return False if there is none now."""
        return await self.producer_id_manager.wait_for_id()

    def name_problem(self, name: str | None) -> tuple[ErrorCode, str] | None:
        """Return the reason why a topic of this name cannot be created, or None."""
        problem = detect_invalid_topic(name)
        if problem is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, problem
        assert name is not None
        if name == METADATA_TOPIC:  # its partition 0 is the log of this class (`ControllerApis.createTopics`)
            return ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
        if name in self.image.topics:
            return ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists."
        other = self.image.colliding_topic(name)
        if other is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
        return None

    def internal_partition_count(self, name: str) -> int:
        """Return the number of partitions that an internal topic has, or will have."""
        topic = self.image.topics.get(name)
        return self._internal_topics[name][0] if topic is None else topic.partition_count

    async def ensure_internal_topic(self, name: str) -> TopicImage:
        """Return the internal topic, creating it on first use with its forced configs. Raises OSError."""
        topic = self.image.topics.get(name)
        if topic is None:
            await self.controller.exclusively((name,), partial(self.create_internal_topic, name))
            topic = self.image.topics[name]
        return topic

    async def create_internal_topic(self, name: str) -> None:
        """Log an internal topic, unless it exists; the name is locked."""
        if name not in self.image.topics:
            count, configs, factor = self._internal_topics[name]
            await self.controller.create_topic(name, count, configs, min(factor, len(self.own_ids)))

    # --- partitions, as the controller changes them ---------------------------------------------------------------

    def make(self, topic: TopicImage, indexes: range) -> None:
        """Add partitions. They exist from now on; their directories are created later."""
        self._partitions.setdefault(topic.name, []).extend([None] * len(indexes))
        if not self._unopened:
            self._clock.next_turn(lambda: self._start(self._open_new()))
        self._unopened.append((topic.name, indexes))

    def detach(self, topic: TopicImage) -> int:
        """Remove a topic's partitions in one step and return their number."""
        return len(self._partitions.pop(topic.name))

    def configure(self, topic: TopicImage) -> None:
        """Apply the configs of a topic, and those it inherits from the broker, to its logs."""
        settings = self._settings_of(topic.configs)
        for partition in self._partitions.get(topic.name, ()):
            if partition is not None:
                partition.log.config = settings

    # --- leaders --------------------------------------------------------------------------------------------------

    def follow_change(self, topic: TopicImage, index: int) -> None:
        """Follow a new leader, and its epoch, or a new in-sync set of a partition."""
        partition, leader_epoch = self._partitions[topic.name][index], topic.leader_epochs[index]
        if partition is not None:
            self._count_replicas(partition, topic)
        if partition is None or partition.leader_epoch != leader_epoch:  # a closed one is opened in its epoch
            if partition is not None:
                partition.lead(leader_epoch)
            for callback in self.on_leader_changed:
                callback(topic.name, index)

    def _count_replicas(self, partition: Partition, topic: TopicImage) -> None:
        """Let a partition know how many of its replicas at the brokers of this process are in sync."""
        place = topic.registrations[partition.index]
        partition.replicas = max(1, sum(each in self.own_ids for each in place.replicas))
        partition.in_sync = partition.replicas if len(self.own_ids) == 1 else len(place.isr)

    def _elect(self) -> None:
        """Elect leaders. After an unclean stop every partition gets a new leader epoch, so that clients can detect lost
        offsets. After a clean stop only partitions that Kafka left without a leader, or that a broker led which this
        process is not. The replicas of the brokers that this process is are in sync."""
        changes: list[MetadataRecord] = []
        for topic in self.image.topics.values():
            for index, place in enumerate(topic.registrations):
                if (topic.name, index) in self._absent:
                    continue
                own = tuple(replica for replica in place.replicas if replica in self.own_ids) or self._place(index, 1)
                if reassignment.is_in_progress(place) and place.leader in own:
                    settled = reassignment.settle(place, self.own_ids)  # it waited for a broker; all of them run now
                    change = reassignment.change_of(place, settled, topic.topic_id, index)
                    changes += [] if change is None else [change]
                    place, own = settled, tuple(each for each in settled.replicas if each in self.own_ids)
                if place.leader not in own:
                    # `PartitionChangeBuilder`: the leader is in sync; no other replica is known to be.
                    elected = PartitionChangeRecord(index, topic.topic_id, own, own[0])
                    changes.append(elected._replace(eligible_leader_replicas=(), last_known_elr=()))
                    continue
                joined = None if {*own} <= {*place.isr} else own
                if not self._store.clean_start:
                    changes.append(PartitionChangeRecord(index, topic.topic_id, joined, place.leader))
                elif joined:
                    changes.append(PartitionChangeRecord(index, topic.topic_id, joined))
        for start in range(0, len(changes), RECORDS_PER_COMMIT):
            self.metadata_log.commit(changes[start : start + RECORDS_PER_COMMIT])

    def _place(self, index: int, factor: int) -> Ints:
        """Return the replicas of a new partition: partition i begins at the broker i modulo their number. Brokers that
        are stopped come last."""
        stopped = self.stopped_ids
        ids = self.own_ids if not stopped else [each for each in self.own_ids if each not in stopped]
        running = [ids[(index + each) % len(ids)] for each in range(min(factor, len(ids)))]
        return (*running, *sorted(stopped)[: factor - len(running)])

    def _open_steps(self, topic: TopicImage, index: int) -> Steps[Partition]:
        self._turns.charge(OPEN_PARTITION_US)
        epoch = topic.leader_epochs[index]
        if (topic.name, index) in self._absent:
            partition = self._store.absent_partition(topic.name, index, topic.topic_id, epoch)
        else:
            settings = self._settings_of(topic.configs)
            # A coordinator would take an unreadable partition for empty, and continue without its records.
            patient = topic.name not in self._internal_topics
            try:
                partition = yield from self._store.open_steps(
                    topic.name, index, topic.topic_id, epoch, settings, patient
                )
            except Shortage as short:  # not stored, so that the next request tries again
                return self._store.absent_partition(topic.name, index, topic.topic_id, epoch, f"{short}")
            if partition.leader_epoch != epoch:
                partition.lead(epoch)  # the adoption opened it before the election
            self._count_replicas(partition, topic)
        self._partitions[topic.name][index] = partition
        return partition

    def open_rest(self) -> None:
        """Open the other partitions in the background, because all of them need retention and compaction."""
        self._opening = self._clock.call_later(OPEN_REST_PAUSE_MS, lambda: self._start(self._open_rest()))

    def stop(self) -> None:
        """Stop opening partitions, and rename the directories of deleted topics."""
        self._stopped = True
        self.controller.stop()
        if self._opening is not None:
            self._opening.cancel()

    async def _open_rest(self) -> None:
        for name in list(self.image.topics):
            for index in range(len(self._partitions.get(name, ()))):
                await self._load_in_steps(name, index)
                if self._open_if_there(name, index) and self._turns.is_spent:
                    # No client waits for this, so leave most of the time to other work.
                    wait: Wait[None] = Wait(self._turns)
                    self._opening = self._clock.call_later(OPEN_REST_PAUSE_MS, partial(wait.wake, None))
                    await wait
                    await self._turns.yield_if_due()

    async def _load_in_steps(self, name: str, index: int) -> None:
        """Do the long part of opening a partition in several turns, if it is not open yet."""
        topic = self.image.topics.get(name)
        if topic is None or self._stopped or (name, index) in self._absent:
            return
        settings = self._settings_of(topic.configs)
        for cost_us in self._store.load_in_steps(name, index, topic.topic_id, settings):
            await self._turns.spend(cost_us)
        await self._turns.yield_if_due()  # the file look-ups were charged where they were made

    async def _open_new(self) -> None:
        """Create the directories of new topics and partitions, in several turns."""
        while self._unopened:
            name, indexes = self._unopened[0]
            for index in indexes:
                if self._open_if_there(name, index):
                    await self._turns.yield_if_due()
            self._unopened.popleft()

    def _open_if_there(self, name: str, index: int) -> bool:
        """Open a partition if it is not open yet and was not deleted; return whether it did."""
        partitions = () if self._stopped else self._partitions.get(name, ())
        if index >= len(partitions) or partitions[index] is not None:
            return False
        to_the_end(self._open_steps(self.image.topics[name], index))
        return True

    def _start(self, work: Handler[None]) -> None:
        self._turns.start(work, lambda result: None, _bug)


def _bug(error: Exception) -> None:
    log.error("A partition could not be opened", exc_info=error)
