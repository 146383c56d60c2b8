"""WriteTxnMarkers 1-2: a coordinator, or an administrator who aborts a hanging transaction, writes markers. free

Each marker is appended to the partitions that it names. `__consumer_offsets` partitions apply or drop the pending
offsets of the transaction. Partitions that this broker does not have, or has offline, are UNKNOWN_TOPIC_OR_PARTITION
(`ReplicaManager.onlinePartition`); KAFKA_STORAGE_ERROR is for the append that fails. The answer has one row per
producer id, with the topics of all its markers.

Version notes: 1 is flexible and the first that Kafka 4 serves; 2 adds the transaction version of each marker
(KIP-1228): from 2 on its epoch is the bumped one. Markers of version 1 follow the rules of transaction version 0.

Needs ALTER of the cluster, or CLUSTER_ACTION, which the other brokers of this process have.
"""

from typing import Final

from ottla.broker.api.authorization import ALTER_OR_ACT, CLUSTER_ACTION
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import ReplyBuilder
from ottla.broker.api.request import Reply, Request
from ottla.broker.costs import LOOKUP_US, MARKER_US
from ottla.broker.turns import Wait
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import TransactionMarker

FIRST_VERSION_WITH_GENERATION: Final = 2
UNKNOWN_GENERATION: Final = -1
_NOT_LEADER: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

Results = dict[int, dict[str, dict[int, ErrorCode]]]
"""producer id -> topic -> partition -> error."""


async def handle(broker: Broker, request: Request) -> Reply:
    """Write the markers."""
    results: Results = {}
    may = request.session.is_peer or broker.may(request, ALTER_OR_ACT) or broker.may(request, CLUSTER_ACTION)
    for row in request.body.markers:
        marker = TransactionMarker(
            row.producer_id,
            row.producer_epoch,
            row.coordinator_epoch,
            row.transaction_result,
            row.transaction_version if request.api_version >= FIRST_VERSION_WITH_GENERATION else 0,
        )
        topics = results.setdefault(row.producer_id, {})
        broker.turns.charge(LOOKUP_US)
        for topic in row.topics:
            await broker.turns.spend(LOOKUP_US)
            if not topic.partition_indexes:
                continue
            errors = topics.setdefault(topic.name, {})
            for index in dict.fromkeys(topic.partition_indexes):
                errors[index] = await _write(broker, topic.name, index, marker) if may else CLUSTER_ACTION.error
                await broker.turns.spend(MARKER_US)
        await broker.turns.yield_if_due()
    if broker.transactions.sink.flushing:
        await _flush(broker, results)
    return await _reply(broker, request, results)


async def _flush(broker: Broker, results: Results) -> None:
    """Wait until the written markers are durable."""
    for topics in results.values():
        for name, errors in topics.items():
            for index, error in errors.items():
                if not error:
                    wait: Wait[ErrorCode] = Wait(broker.turns)
                    broker.transactions.sink.when_durable(name, index, wait.wake)
                    errors[index] = await wait
                await broker.turns.spend(LOOKUP_US)


async def _write(broker: Broker, name: str, index: int, marker: TransactionMarker) -> ErrorCode:
    partition = await broker.cluster.get_or_open(name, index)
    if partition is None:
        return _NOT_LEADER if broker.cluster.replica(name, index) is not None else _UNKNOWN
    if partition.offline is not None:
        return _UNKNOWN
    if marker.producer_id < 0 or marker.producer_epoch < 0 or marker.transaction_version == UNKNOWN_GENERATION:
        return ErrorCode.UNKNOWN_SERVER_ERROR  # Kafka's answer when it cannot build such a marker
    complete = broker.transactions.sink.completed_by.get(name)
    return partition.append_marker(marker).error if complete is None else complete(partition, marker)


async def _reply(broker: Broker, request: Request, results: Results) -> Reply:
    reply = ReplyBuilder(broker, request)
    markers = reply.rows("markers")
    for producer_id, topics in results.items():
        if topics:
            rows = reply.rows("markers", "topics")
            for name, errors in topics.items():
                partitions = reply.rows("markers", "topics", "partitions")
                await rows.add(name, await partitions.extend(errors.items()))
            await markers.add(producer_id, rows)
    return reply.finish(markers=markers)
