"""Controller of the metadata: decides changes, logs them, and applies them when they are durable. shell

    lock the names -> decide -> append to `__cluster_metadata` -> durable -> apply to the image -> answer

A change runs independently of its request, so a client that disconnects leaves no change half done. A change becomes
visible when it is durable: until then a new topic does not exist, and a deleted one still does. Changes of other names
run meanwhile and share the sync (`log/flusher.py`); changes of the same name wait (`name_locks.py`). If the sync fails,
no change that waits for it is applied, and the log directory is offline.

A deleted topic disappears in one step, from the image and for every request. Then its logs are closed and its
directories renamed, a few per turn; afterwards its name is free. If the broker dies before that, the next start finds
directories of a topic id that the log does not know, and moves them aside.

Source: `QuorumController`, `ReplicationControlManager`, `RPCProducerIdManager` of Kafka 4.3.1.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, TypeVar

from ottla.broker.cluster.adoption_records import PRODUCER_ID_BLOCK
from ottla.broker.cluster.features import FeatureUpdate, update_problem
from ottla.broker.cluster.image import MetadataImage, PartitionRegistration, TopicImage
from ottla.broker.cluster.kraft_log import MetadataLog
from ottla.broker.cluster.name_locks import NameLock, NameLocks
from ottla.broker.config.describe import loggable_value
from ottla.broker.costs import APPLY_CONFIG_US, CONFIGURE_US, ENCODE_CONFIG_US, RENAME_PARTITION_US
from ottla.broker.log.log_manager import LogManager
from ottla.broker.security.changes import describe_change
from ottla.broker.turns import Handler, Turns, Wait
from ottla.protocol.checkpoints import encode_id
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.metadata_records import (
    BROKER_RESOURCE,
    NO_LEADER,
    TOPIC_RESOURCE,
    ConfigRecord,
    FeatureLevelRecord,
    Ints,
    MetadataRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    encode_metadata_record,
    encode_partition_records,
    partition_on,
)
from ottla.protocol.internal_topics.security_records import SecurityRecord
from ottla.protocol.steps import RECORD_US
from ottla.protocol.topic_names import unify_collision_chars
from ottla.protocol.values_batch import ValuesBatch

log = logging.getLogger(__name__)

R = TypeVar("R")
OnBlock = Callable[[range], None]
OnDurable = Callable[[ErrorCode], None]

T = TypeVar("T")

FEATURES: Final = "features/"
"""Name that a change of features locks; no topic can have this name."""
ACLS: Final = "acls/"
SCRAM_CREDENTIALS: Final = "scram-credentials/"
CLIENT_QUOTAS: Final = "client-quotas/"
"""Name that a change of client quotas locks."""
CHANGED_AT_ONCE: Final = 50
"""Most topics or other resources of one request that change together. All changes of one sync are applied in one step:
some 15 us for a created or deleted topic, `CONFIGURE_US` at most for one with changed configs."""
_PARTITIONS_AT_ONCE: Final = 500
_ENCODED_AT_ONCE: Final = 200
_LISTED: Final = 100


class Partitions(Protocol):
    """Operations of the controller on the partitions of topics."""

    def make(self, topic: TopicImage, indexes: range) -> None:
        """Add partitions. They exist from now on; their directories are created later."""

    def detach(self, topic: TopicImage) -> int:
        """Remove a topic's partitions in one step and return their number."""

    def configure(self, topic: TopicImage) -> None:
        """Apply the configs of a topic to its logs."""

    def follow_change(self, topic: TopicImage, index: int) -> None:
        """Follow a new leader or in-sync set of a partition."""


Place = Callable[[int, int], Ints]
"""(partition, replication factor) -> replicas, the leader first."""


class Controller:
    """The only writer of the metadata.

    `on_topic_deleted` is called in the step that removes a topic. `on_security_changed` is called for a few records at
    a time, before the request that made the change is answered.
    """

    def __init__(
        self,
        image: MetadataImage,
        metadata_log: MetadataLog,
        store: LogManager,
        partitions: Partitions,
        turns: Turns,
        node_id: int,
        new_id: Callable[[], bytes],
        directory_id: Callable[[], bytes],
        place: Place,
    ) -> None:
        """Create the controller. `place` chooses the replicas of a new partition that the request does not name."""
        self.on_topic_deleted: list[Callable[[TopicImage], None]] = []
        self.on_broker_configs_changed: Callable[[], None] = lambda: None
        self.on_security_changed: list[Callable[[Sequence[SecurityRecord]], None]] = []
        self._image = image
        self._log = metadata_log
        self._store = store
        self._partitions = partitions
        self.turns = turns
        self._node_id = node_id
        self.new_id = new_id
        self._directory_id = directory_id
        self._locks = NameLocks(turns)
        self._removing: dict[bytes, tuple[TopicImage, Iterator[int]]] = {}
        self._place = place
        self._reserved_below = 0
        self.stopped_ids: set[int] = set()
        """The ids of the brokers that are stopped, of several ones in this process."""

    # --- changes, one at a time for each name ---------------------------------------------------------------------

    async def exclusively(self, names: Iterable[str], change: Callable[[], Handler[R]]) -> R:
        """Run `change` while no other change holds these topic names, and wait until it is applied.

        The change continues if its request is discarded. Raises the exception of `change`, or OSError if the change
        cannot be logged.
        """
        return await self._apart(self._run_with_locks(map(unify_collision_chars, names), change))

    async def in_parts(
        self, changes: Sequence[T], name_of: Callable[[T], str | None], change: Callable[[Sequence[T]], Handler[None]]
    ) -> None:
        """Run `exclusively` for all changes of a request, `CHANGED_AT_ONCE` at a time.

        `name_of` returns the name that a change locks, or None. If a part cannot be logged, later parts are not tried.
        """
        await self._apart(self._in_parts(changes, name_of, change))

    async def _in_parts(
        self, changes: Sequence[T], name_of: Callable[[T], str | None], change: Callable[[Sequence[T]], Handler[None]]
    ) -> None:
        for start in range(0, len(changes), CHANGED_AT_ONCE):
            part = changes[start : start + CHANGED_AT_ONCE]
            await self._run_with_locks(
                [unify_collision_chars(name) for name in map(name_of, part) if name], partial(change, part)
            )

    async def _run_with_locks(self, keys: Iterable[str], change: Callable[[], Handler[R]]) -> R:
        lock = await self._locks.take(keys)
        try:
            result = await change()
            await self.wait_applied()
        except Exception:
            with suppress(OSError):
                await self.wait_applied()
            self._locks.release(lock)
            raise
        self._locks.release(lock)
        return result

    async def _apart(self, work: Handler[R]) -> R:
        wait: Wait[tuple[R | None, Exception | None]] = Wait(self.turns)

        def on_failure(error: Exception) -> None:
            if wait.done and not isinstance(error, OSError):
                log.error("A change of the metadata failed", exc_info=error)
            wait.wake((None, error))

        self.turns.start(work, lambda result: wait.wake((result, None)), on_failure)
        result, error = await wait
        if error is not None:
            raise error
        return result  # type: ignore[return-value]

    async def wait_applied(self) -> None:
        """Wait until all logged changes are applied. Raises OSError if they never will be."""
        wait: Wait[ErrorCode] = Wait(self.turns)
        self._log.when_durable(wait.wake)
        error = await wait
        if error:
            raise OSError(f"a record of the metadata log was lost: {error.name}")

    # --- topics: called in a change that has locked the name -------------------------------------------------------

    async def create_topic(
        self, name: str, partition_count: int, configs: dict[str, str], factor: int = 1, assigned: Sequence[Ints] = ()
    ) -> bytes:
        """Log a topic whose name, configs and replicas were checked, and return its id.

        `assigned` has the replicas of each partition; if it is empty, each partition gets `factor` replicas. Raises
        OSError, as every change of the metadata, if the change cannot be logged.
        """
        topic_id = self.new_id()
        records: list[MetadataRecord] = [TopicRecord(name, topic_id)]
        records += [ConfigRecord(TOPIC_RESOURCE, name, key, value) for key, value in configs.items()]
        batch, places = await self._encode_partitions(records, topic_id, range(partition_count), factor, assigned)

        def apply() -> None:
            topic = TopicImage(name, topic_id, [0] * partition_count, places, configs)
            self._image.add_topic(topic)
            self._partitions.make(topic, range(partition_count))
            log.info(
                "Created topic %(topic)s with %(count)d partitions and topic id %(topic_id)s",
                {"topic": name, "count": partition_count, "topic_id": encode_id(topic_id)},
            )

        self._log.append_batch(batch, apply)
        return topic_id

    async def add_partitions(self, topic: TopicImage, partition_count: int, assigned: Sequence[Ints] = ()) -> None:
        """Give a topic more partitions, so that it has `partition_count`. Without `assigned` replicas they get as many
        as its partition 0."""
        added = range(topic.partition_count, partition_count)
        factor = topic.replication_factor
        batch, places = await self._encode_partitions((), topic.topic_id, added, factor, assigned)

        def apply() -> None:
            self._image.will_change(topic)
            topic.leader_epochs += [0] * len(added)
            topic.registrations += places
            self._partitions.make(topic, added)
            log.info("Topic %(topic)s has %(count)d partitions now", {"topic": topic.name, "count": partition_count})

        self._log.append_batch(batch, apply)

    async def change_partitions(self, changes: Sequence[PartitionChangeRecord]) -> None:
        """Log new leaders and in-sync sets of partitions whose topics are locked. They are in force when they are
        durable."""
        batch = await self._encode(changes)

        def apply() -> None:
            for change in changes:
                self._image.apply(change)
                topic = self._image.topics_by_id.get(change.topic_id)
                if topic is not None:
                    self._partitions.follow_change(topic, change.partition_id)

        self._log.append_batch(batch, apply)

    async def _encode_partitions(
        self, head: Sequence[MetadataRecord], topic_id: bytes, indexes: range, factor: int, assigned: Sequence[Ints]
    ) -> tuple[ValuesBatch, list[PartitionRegistration]]:
        """Encode some records and those of many partitions, a few per turn. Return them, and the places of the
        partitions. The name is locked; the caller logs the records."""
        while True:
            batch, stopped = ValuesBatch(), {*self.stopped_ids}
            batch.add([encode_metadata_record(record) for record in head])
            places = await self._add_partitions(batch, topic_id, indexes, factor, assigned)
            if stopped == self.stopped_ids:  # else a broker has stopped or started meanwhile
                return batch, places

    async def _add_partitions(
        self, batch: ValuesBatch, topic_id: bytes, indexes: range, factor: int, assigned: Sequence[Ints]
    ) -> list[PartitionRegistration]:
        places: list[PartitionRegistration] = []
        for start in range(0, len(indexes), _PARTITIONS_AT_ONCE):
            by_replicas: dict[Ints, list[int]] = {}
            some = indexes[start : start + _PARTITIONS_AT_ONCE]
            for index in some:
                replicas = assigned[index - indexes.start] if assigned else self._place(index, factor)
                by_replicas.setdefault(replicas, []).append(index)
            place_of: dict[int, PartitionRegistration] = {}
            for replicas, numbers in by_replicas.items():
                first = partition_on(replicas, self._directory_id(), topic_id, 0)
                if self.stopped_ids:
                    in_sync = tuple(each for each in replicas if each not in self.stopped_ids)
                    leader = in_sync[0] if in_sync else NO_LEADER
                    first = first._replace(leader=leader, isr=in_sync or replicas)
                batch.add(encode_partition_records(first, numbers))
                place_of |= dict.fromkeys(numbers, self._image.intern(PartitionRegistration.of(first)))
            places += map(place_of.__getitem__, some)
            await self.turns.spend(len(some) * RECORD_US)
        return places

    def delete_topic(self, topic: TopicImage) -> None:
        """Log the deletion of a topic. Its metadata is removed when that is durable, its files
        `file.delete.delay.ms` later."""
        record = RemoveTopicRecord(topic.topic_id)

        def apply() -> None:
            self._image.apply(record)
            count = self._partitions.detach(topic)
            log.info("Deleted topic %(topic)s", {"topic": topic.name})
            for listener in self.on_topic_deleted:
                listener(topic)
            lock = self._locks.follow(unify_collision_chars(topic.name))
            indexes = self._removing[topic.topic_id] = topic, iter(range(count))
            self.turns.start(self._remove(*indexes, lock), lambda result: None, _bug)

        self._log.append_batch(_batch_of([record]), apply)

    async def _remove(self, topic: TopicImage, indexes: Iterator[int], lock: NameLock) -> None:
        """Rename the directories of a deleted topic; its name stays locked until then."""
        renamed: list[str] = []
        for index in indexes:
            renamed += self._store.rename_for_deletion(topic.name, index)
            await self.turns.spend(RENAME_PARTITION_US)
        self._store.delete_later(renamed)
        self._removing.pop(topic.topic_id, None)
        await lock.wait
        self._locks.release(lock)

    def stop(self) -> None:
        """Rename the directories of deleted topics that are left; the next start deletes them."""
        for topic, indexes in self._removing.values():
            for index in indexes:
                self._store.rename_for_deletion(topic.name, index)

    async def alter_configs(self, changes: Sequence[ConfigRecord]) -> None:
        """Log configs whose values were checked and whose resources are locked. When they are durable, logs apply the
        configs of their topics at once, and those of the broker soon."""
        batch = await self._encode(changes)

        def apply() -> None:
            self.turns.charge(len(changes) * APPLY_CONFIG_US)
            for change in changes:
                self._image.apply(change)
            for name in dict.fromkeys(each.resource_name for each in changes if each.resource_type == TOPIC_RESOURCE):
                self._partitions.configure(self._image.topics[name])
                self.turns.charge(CONFIGURE_US)
            if any(each.resource_type == BROKER_RESOURCE for each in changes):
                self.on_broker_configs_changed()
            texts = (
                f"{each.resource_name} {each.name}={loggable_value(each.name, each.value)}"
                for each in changes[:_LISTED]
            )
            log.info("Changed configs: %s", _list_changes(texts, len(changes)))

        self._log.append_batch(batch, apply)

    async def _encode(self, records: Sequence[MetadataRecord]) -> ValuesBatch:
        """Encode records of configs or security, a few per turn."""
        batch = ValuesBatch()
        for start in range(0, len(records), _ENCODED_AT_ONCE):
            some = records[start : start + _ENCODED_AT_ONCE]
            batch.add([encode_metadata_record(record) for record in some])
            await self.turns.spend(len(some) * ENCODE_CONFIG_US)
        return batch

    # --- ACLs, SCRAM credentials and quotas -----------------------------------------------------------------------

    async def change_security(
        self, names: Iterable[str], decide: Callable[[], Handler[Sequence[SecurityRecord]]]
    ) -> None:
        """Change ACLs, SCRAM users or quotas: apply all records that `decide` returns, or none. Raises OSError.

        `names` are held from before the decision until it is applied. The caller must limit the records of one change
        to 10,000, as Kafka does (`QuorumController.MAX_RECORDS_PER_USER_OP`).
        """
        await self._apart(self._run_with_locks(names, partial(self._change_security, decide)))

    async def _change_security(self, decide: Callable[[], Handler[Sequence[SecurityRecord]]]) -> None:
        records = await decide()
        if records:
            await self.log_security(records)
            await self.wait_applied()
            await self.notify_security(records)

    async def log_security(self, records: Sequence[SecurityRecord]) -> None:
        """Log a change that was decided, and whose names are locked."""
        batch = await self._encode(records)

        def apply() -> None:
            self.turns.charge(len(records) * APPLY_CONFIG_US)
            texts = (describe_change(record, self._image.acls) for record in records[:_LISTED])
            listed = _list_changes(texts, len(records))
            for record in records:
                self._image.apply(record)
            log.info("Changed security: %s", listed)

        self._log.append_batch(batch, apply)

    async def notify_security(self, records: Sequence[SecurityRecord]) -> None:
        """Call the listeners for a change that is applied."""
        for start in range(0, len(records), _ENCODED_AT_ONCE):
            some = records[start : start + _ENCODED_AT_ONCE]
            for listener in self.on_security_changed:
                listener(some)
            await self.turns.spend(len(some) * ENCODE_CONFIG_US)

    # --- features and producer ids --------------------------------------------------------------------------------

    async def update_features(self, updates: Sequence[FeatureUpdate], validate_only: bool = False) -> str | None:
        """Finalize levels, all of them or none. Return the reason if they cannot be finalized. Raises OSError."""
        change = partial(self._update_features, updates, validate_only)
        return await self._apart(self._run_with_locks((FEATURES,), change))

    async def _update_features(self, updates: Sequence[FeatureUpdate], validate_only: bool) -> str | None:
        problem = update_problem(self._image.features, updates, self._node_id)
        if problem is not None or validate_only or not updates:
            return problem
        records = [FeatureLevelRecord(update.feature, update.level) for update in updates]

        def apply() -> None:
            for record in records:
                self._image.apply(record)
            log.info("Finalized %s", ", ".join(f"{each.name}={each.feature_level}" for each in records))

        self._log.append_batch(_batch_of(records), apply)
        return None

    @property
    def next_producer_id(self) -> int:
        """The first producer id after all logged blocks."""
        return max(self._image.next_producer_id, self._reserved_below)

    def reserve_producer_ids(self, node_id: int, applied: OnBlock, durable: OnDurable) -> bool:
        """Log the next block of producer ids for a broker (`log_producer_ids`)."""
        start = self.next_producer_id
        return self.log_producer_ids(node_id, range(start, start + PRODUCER_ID_BLOCK), applied, durable)

    def log_producer_ids(self, node_id: int, block: range, applied: OnBlock, durable: OnDurable) -> bool:
        """Log a block of producer ids for a broker, after all earlier blocks. Return False if the log refuses it.

        `applied` gets the block when its record is durable; then, and if the record is lost, `durable` gets the error.
        """
        if block.start < self.next_producer_id:
            raise ValueError(f"producer ids from {block.start} on are below {self.next_producer_id}, which are in use")
        record = ProducerIdsRecord(node_id, 0, block.stop)

        def apply() -> None:
            self._image.apply(record)
            applied(block)

        try:
            self._log.append_batch(_batch_of([record]), apply)
        except OSError:
            return False  # the log directory is offline, which is logged elsewhere
        self._reserved_below = block.stop
        self._log.when_durable(durable)
        return True


def _batch_of(records: Sequence[MetadataRecord]) -> ValuesBatch:
    batch = ValuesBatch()
    batch.add([encode_metadata_record(record) for record in records])
    return batch


def _list_changes(texts: Iterable[str], count: int) -> str:
    """Return the texts of the first changes in one line, with the number of the others."""
    return ", ".join(texts) + (f" (and {count - _LISTED} more)" if count > _LISTED else "")


def _bug(error: Exception) -> None:
    log.error("Removing a deleted topic failed", exc_info=error)
