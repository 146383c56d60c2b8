"""AlterReplicaLogDirs 1-2: move replicas to another log directory. free

Version notes: 2 is flexible. There is one directory, so a replica is there already or the directory is not found, and
nothing moves. A partition that is named twice counts once, with its last directory. A client that may not alter the
cluster gets CLUSTER_AUTHORIZATION_FAILED for each partition.

Source: `ReplicaManager.alterReplicaLogDirs` of Kafka 4.3.1.
"""

from typing import Final

from ottla.broker.api.authorization import ALTER_CLUSTER
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import with_tables
from ottla.broker.api.request import Reply, Request
from ottla.broker.costs import LOOKUP_US, ROW_US
from ottla.protocol.errors import ErrorCode

MOST_CHARS: Final = 255 - len(f".{'0' * 32}-future")
"""The most characters of a partition whose files Kafka can copy to another directory."""


async def handle(broker: Broker, request: Request) -> Reply:
    """Answer for each partition whether it is in the wanted directory."""
    wanted: dict[str, dict[int, str]] = {}
    for directory in request.body.dirs:
        for topic in directory.topics:
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, directory.path))
            await broker.turns.spend(ROW_US + len(topic.partitions) * LOOKUP_US)
    may = broker.may(request, ALTER_CLUSTER)
    volume = broker.logs.volume()
    own_path = broker.logs.directory if volume is None else volume.path
    tables: list[tuple[str, list[tuple[int, ErrorCode]]]] = []
    for name, paths in wanted.items():
        rows: list[tuple[int, ErrorCode]] = []
        for index, path in paths.items():
            error = _error(broker, name, index, is_here=path == own_path) if may else ALTER_CLUSTER.error
            rows.append((index, error))
            await broker.turns.spend(ROW_US)
        tables.append((name, rows))
    return await with_tables(broker, request, "results", "partitions", tables)


def _error(broker: Broker, topic: str, index: int, *, is_here: bool) -> ErrorCode:
    """Return the error for a partition that is wanted in the directory of this broker, or in another one."""
    if len(f"{topic}-{index}") > MOST_CHARS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if not is_here:
        return ErrorCode.LOG_DIR_NOT_FOUND
    opened = broker.cluster.open_partitions(topic)
    partition = opened[index] if 0 <= index < len(opened) else None
    if broker.logs.offline is not None or (partition is not None and partition.offline is not None):
        return ErrorCode.KAFKA_STORAGE_ERROR
    if not broker.cluster.has_partition(topic, index):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if broker.cluster.has_replica(topic, index) else ErrorCode.REPLICA_NOT_AVAILABLE
