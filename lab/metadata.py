"""Synchronous changes of the metadata, for simulations and tests that start with topics. free

They do the same as the handlers, but without yielding to other work: they wait for the disk at once.
"""

from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from ottla.broker.cluster.features import FeatureUpdate
from ottla.broker.cluster.image import TopicImage
from ottla.broker.cluster.metadata import Cluster
from ottla.protocol.internal_topics.metadata_records import ConfigRecord
from ottla.protocol.internal_topics.security_records import SecurityRecord
from ottla.protocol.topic_names import unify_collision_chars

R = TypeVar("R")

MOST_STEPS: Final = 1000


def complete(work: Coroutine[Any, None, R]) -> R:
    """Run a part of a handler to its end; where it yields to other work, it continues at once."""
    for _ in range(MOST_STEPS):
        try:
            work.send(None)
        except StopIteration as ended:
            return ended.value  # type: ignore[no-any-return]
    raise RuntimeError("the handler waits for another activity")


def sync(cluster: Cluster) -> None:
    """Sync the metadata log, so that its records apply. Raises OSError."""
    cluster.metadata_log.sync()


def run(cluster: Cluster, work: Coroutine[Any, Any, R]) -> R:
    """Run a handler, and the turns and syncs that it waits for, to its end."""
    turns = cluster.controller.turns
    results: list[R] = []
    errors: list[Exception] = []
    turns.event(lambda: _ignore(turns.start(work, results.append, errors.append)))
    for _ in range(MOST_STEPS):
        if results or errors:
            break
        with suppress(OSError):  # the waiting handler gets the error
            turns.event(lambda: sync(cluster))
    if errors:
        raise errors[0]
    return results[0]


def _ignore(activity: object) -> None:
    """Ignore the activity: the events that it waits for resume it."""


def create_topic(
    cluster: Cluster, name: str, partition_count: int = 1, configs: Mapping[str, str] = {}, factor: int = 1
) -> TopicImage:
    complete(cluster.controller.create_topic(name, partition_count, {**configs}, factor))
    sync(cluster)
    return cluster.topics[name]


def create_internal_topic(cluster: Cluster, name: str) -> TopicImage:
    complete(cluster.create_internal_topic(name))
    sync(cluster)
    return cluster.topics[name]


def add_partitions(cluster: Cluster, topic: TopicImage, partition_count: int) -> None:
    complete(cluster.controller.add_partitions(topic, partition_count))
    sync(cluster)


def delete_topic(cluster: Cluster, topic: TopicImage) -> None:
    """Delete a topic. Work that follows the deletion continues in later turns."""
    locks = cluster.controller._locks
    lock = complete(locks.take((unify_collision_chars(topic.name),)))
    cluster.controller.delete_topic(topic)
    sync(cluster)
    locks.release(lock)


def alter_configs(cluster: Cluster, changes: Sequence[ConfigRecord]) -> None:
    complete(cluster.controller.alter_configs(changes))
    sync(cluster)


def change_security(cluster: Cluster, records: Sequence[SecurityRecord]) -> None:
    complete(cluster.controller.log_security(records))
    sync(cluster)
    complete(cluster.controller.notify_security(records))


def update_features(cluster: Cluster, updates: Sequence[FeatureUpdate]) -> None:
    complete(cluster.controller._update_features(updates, False))
    sync(cluster)


def reserve_producer_ids(cluster: Cluster) -> None:
    cluster.producer_id_manager._reserve()
    sync(cluster)


def next_producer_id(cluster: Cluster) -> int:
    free = cluster.next_producer_id()
    if free is None:
        sync(cluster)
        free = cluster.next_producer_id()
    assert free is not None
    return free
