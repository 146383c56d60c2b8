"""ListPartitionReassignments 0: partitions whose replicas are still to be added or removed. free

A change of replicas waits only for a broker that is stopped. Partitions that do not exist are left out, and one that is
named twice is listed once. Without a list all partitions are searched. A client that may not describe the cluster gets
the partitions that it has named, without replicas.

Source: `ReplicationControlManager.listPartitionReassignments` of Kafka 4.3.1.
"""

from typing import Final

from ottla.broker.api.authorization import DESCRIBE_CLUSTER, MESSAGES
from ottla.broker.api.context import Broker
from ottla.broker.api.partition_rows import MergedTopics, all_partitions, merge_partitions
from ottla.broker.api.reply import ReplyBuilder
from ottla.broker.api.request import Reply, Request
from ottla.broker.cluster.image import PartitionRegistration
from ottla.broker.cluster.reassignment import is_in_progress
from ottla.broker.costs import ROW_US
from ottla.protocol.errors import ApiError

_NOTHING: Final = PartitionRegistration(-1, (), ())


async def handle(broker: Broker, request: Request) -> Reply:
    """List the changes in progress."""
    refused = None
    if not broker.may(request, DESCRIBE_CLUSTER):
        refused = ApiError(DESCRIBE_CLUSTER.error, MESSAGES[DESCRIBE_CLUSTER.error])
    asked = request.body.topics
    named: MergedTopics = {}
    if asked is not None:
        named = await merge_partitions(broker.turns, ((row.name, row.partition_indexes) for row in asked))
    elif refused is None:
        named = all_partitions(broker)
    reply = ReplyBuilder(broker, request)
    topics = reply.rows("topics")
    for name, indexes in named.items():
        rows = reply.rows("topics", "partitions")
        for index in indexes:
            place = _NOTHING if refused else _place(broker, name, index)
            if refused or is_in_progress(place):
                await rows.add(index, place.replicas, place.adding_replicas, place.removing_replicas)
            await broker.turns.spend(ROW_US)
        if rows.count or refused:
            await topics.add(name, rows)
    error, message = refused or ApiError()
    return reply.finish(topics=topics, error_code=error, error_message=message)


def _place(broker: Broker, topic: str, index: int) -> PartitionRegistration:
    cluster = broker.cluster
    return cluster.topics[topic].registrations[index] if cluster.has_partition(topic, index) else _NOTHING
