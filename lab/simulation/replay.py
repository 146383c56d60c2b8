"""Replay equality: the state rebuilt from the logs is the live one. pure"""

from collections.abc import Iterator
from typing import Any, Final

from lab.simulation.uncompacted_copies import UncompactedCopies
from ottla.broker.api.context import Broker
from ottla.broker.assembly import Assembly
from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC
from ottla.broker.group.consumer.consumer_group import ConsumerGroup
from ottla.broker.group.shard import GroupMetadata, GroupStore
from ottla.broker.log.partition import Partition
from ottla.broker.log.producer_state_entry import ProducerStateEntry
from ottla.broker.log.producer_state_manager import ProducerStateManager
from ottla.broker.log.replay import replay
from ottla.broker.txn import machine
from ottla.broker.txn.log import read_changes
from ottla.broker.txn.values import TransactionState
from ottla.protocol.values import NO_PRODUCER_ID, NO_SEQUENCE

_OF_CONSUMER_GROUP: Final = (
    "epoch",
    "metadata_hash",
    "assignment_epoch",
    "assignment_ms",
    "members",
    "static_members",
    "targets",
    "regexes",
    "topic_subscribers",
)
NO_OFFSETS: Final[tuple[dict[Any, Any], dict[Any, Any]]] = ({}, {})


def differences(
    assembly: Assembly, expiration_ms: int | None = None, copies: UncompactedCopies | None = None
) -> Iterator[str]:
    """Return a line for each difference between the live state and the logs. Call it only between two turns.

    With `expiration_ms` partitions may have removed producers without appends for that time, or added them again.
    With `copies` logs are compacted, and the live state is compared with their uncompacted copies.
    """
    broker = assembly.broker
    groups: dict[str, GroupMetadata] = {}
    for partition in broker.cluster.partitions():
        if partition.offline is not None:
            yield f"{partition.name} is offline: {partition.offline}"
            continue
        if copies is not None and partition.name in copies:
            yield from _compacted_differences(partition, copies)
        elif expiration_ms is None:
            yield from _producer_differences(partition)
        else:
            yield from _unforgotten_differences(partition, broker.clock.now_ms() - expiration_ms)
        if partition.topic == CONSUMER_OFFSETS_TOPIC and _has_coordinator(broker, partition.index):
            store = GroupStore()
            for header, batch in partition.scan(0):
                store.replay(header, batch)
            groups |= store.groups
    yield from _transaction_differences(assembly)
    if any(each.groups.list_groups()[0] for each in broker.brokers):
        return  # the groups are still being loaded
    live = {metadata.group.group_id: metadata for metadata in broker.list_groups()}
    for group_id in sorted(live.keys() | groups.keys()):
        left, right = live.get(group_id), groups.get(group_id)
        # A group whose members do not have their assignments yet is in no log.
        found = NO_OFFSETS if left is None else left.offsets.to_value()
        replayed = NO_OFFSETS if right is None else right.offsets.to_value()
        if found != replayed:
            yield f"group {group_id} holds {found}, its log {replayed}"
        yield from _group_differences(group_id, left, right)


def _has_coordinator(broker: Broker, index: int) -> bool:
    """Return whether groups of this partition are served: the only broker that may lead it may be stopped."""
    return broker.links is None or any(index in each.groups._manager.shards for each in broker.brokers)


def _group_differences(group_id: str, live: GroupMetadata | None, replayed: GroupMetadata | None) -> Iterator[str]:
    """Compare a group of the consumer protocol with its records."""
    left, right = _consumer_group(live), _consumer_group(replayed)
    for name in left.keys() | right.keys():
        if left.get(name) != right.get(name):
            yield f"group {group_id} has the {name} {left.get(name)}, its log {right.get(name)}"


def _consumer_group(metadata: GroupMetadata | None) -> dict[str, object]:
    """Return the logged state of a group of the consumer protocol; empty for others."""
    if metadata is None or not isinstance(metadata.group, ConsumerGroup):
        return {}
    group = metadata.group
    return {name: getattr(group, name) for name in _OF_CONSUMER_GROUP}


def _producer_differences(partition: Partition) -> Iterator[str]:
    rebuilt = ProducerStateManager()
    for header, batch in partition.scan(0):
        replay(rebuilt, header, batch)
    live = {producer.producer_id: producer for producer in partition.producers()}
    for producer in rebuilt:
        problem = _difference(live.pop(producer.producer_id, None), producer)
        if problem is not None:
            yield f"{partition.name}: producer {producer.producer_id} {problem}"
    for producer_id in live:
        yield f"{partition.name}: producer {producer_id} is not in the log"
    first = next(iter(rebuilt.ongoing_txns), partition.log_end_offset)
    if partition.last_stable_offset != first:
        yield f"{partition.name}: the last stable offset is {partition.last_stable_offset}, by the log {first}"


def _compacted_differences(partition: Partition, copies: UncompactedCopies) -> Iterator[str]:
    """Compare as `_producer_differences` does, but only the state that a start from a compacted log can restore.

    That is a producer's epoch, open transaction and last sequence. It is not the time or the coordinator epoch of a
    marker that compaction replaced by an empty batch. If the start of the log was deleted, a producer may be missing.
    """
    rebuilt = ProducerStateManager()
    for header, batch in copies.batches(partition):
        replay(rebuilt, header, batch)
    live = {producer.producer_id: producer for producer in partition.producers()}
    for producer in rebuilt:
        known = live.get(producer.producer_id)
        if known is None:
            if not partition.log_start_offset or producer.current_txn_first_offset >= 0:
                yield f"{partition.name}: producer {producer.producer_id} was forgotten"
        elif _essence(known, partition.log_start_offset) != _essence(producer, partition.log_start_offset):
            title = f"{partition.name}: producer {producer.producer_id}"
            yield f"{title} is {known.to_value()}, by the whole log {producer.to_value()}"
    first = next(iter(rebuilt.ongoing_txns), partition.log_end_offset)
    if partition.last_stable_offset != max(first, partition.log_start_offset):
        yield f"{partition.name}: the last stable offset is {partition.last_stable_offset}, by the whole log {first}"


def _essence(producer: ProducerStateEntry, log_start_offset: int) -> tuple[int, int, int]:
    last_sequence = producer.last_sequence if producer.last_data_offset >= log_start_offset else NO_SEQUENCE
    return producer.epoch, producer.current_txn_first_offset, last_sequence


def _unforgotten_differences(partition: Partition, limit_ms: int) -> Iterator[str]:
    """Compare as `_producer_differences` does; producers last active at or before `limit_ms` may be missing."""
    rebuilt = ProducerStateManager()
    for header, batch in partition.scan(0):
        replay(rebuilt, header, batch)
    for producer in rebuilt:
        live = next((each for each in partition.producers() if each.producer_id == producer.producer_id), None)
        if live is None:
            if producer.last_timestamp_ms > limit_ms or producer.current_txn_first_offset >= 0:
                yield f"{partition.name}: producer {producer.producer_id} was forgotten too early"
        elif (live.epoch, live.current_txn_first_offset) != (producer.epoch, producer.current_txn_first_offset):
            mine, replayed = live.to_value(), producer.to_value()
            yield f"{partition.name}: producer {producer.producer_id} is {mine}, by the log {replayed}"


def _difference(live: ProducerStateEntry | None, rebuilt: ProducerStateEntry) -> str | None:
    """Return the difference of a producer's live and replayed state, or None.

    After a restart the broker knows fewer of the last batches than a whole replay finds, but at least one. A snapshot
    holds the time of a producer's last marker instead of the time of its last batch.
    """
    if live is None:
        return "was forgotten"
    *state, batches = rebuilt.to_value()
    *live_state, live_batches = live.to_value()
    if state != live_state:
        return f"is {live_state}, by the log {state}"
    assert isinstance(batches, tuple) and isinstance(live_batches, tuple)
    batches, live_batches = tuple(b[:3] for b in batches), tuple(b[:3] for b in live_batches)
    if live_batches != batches[len(batches) - len(live_batches) :] or bool(live_batches) != bool(batches):
        return f"knows batches {live_batches}, by the log {batches}"
    return None


def _transaction_differences(assembly: Assembly) -> Iterator[str]:
    for shard in assembly.broker.transaction_shards():
        states: dict[str, TransactionState] = {}
        for header, batch in shard.log.scan(0):
            for transactional_id, state in read_changes(header, batch, "replay"):
                machine.apply_record(states, transactional_id, state)
        for transactional_id in sorted(states.keys() | shard.states.keys()):
            live, logged = shard.states.get(transactional_id), states.get(transactional_id)
            if live is not None and logged is not None and logged.previous_producer_id == NO_PRODUCER_ID:
                live = live._replace(previous_producer_id=NO_PRODUCER_ID)  # records of level 0 do not have it
            if live != logged:
                yield (
                    f"{transactional_id} is {shard.states.get(transactional_id)}, "
                    f"by the log {states.get(transactional_id)}"
                )
