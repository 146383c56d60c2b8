"""DescribeLogDirs 1-5: the one log directory, and the sizes of its partitions. free

Version notes: 2 is flexible; 3 adds an error of the whole answer; 4 the size of the volume and its free space
(KIP-827); 5 whether the directory is cordoned, which it never is (KIP-1066). There are no lagging and no future
replicas, because there is one broker with one directory. A client that may not describe the cluster gets no directory.
"""

from ottla.broker.api.authorization import DESCRIBE_CLUSTER
from ottla.broker.api.context import Broker
from ottla.broker.api.partition_rows import MergedTopics, merge_partitions
from ottla.broker.api.reply import ReplyBuilder, encode_reply
from ottla.broker.api.request import Reply, Request
from ottla.broker.costs import LOOKUP_US, ROW_US
from ottla.protocol.errors import ErrorCode


async def handle(broker: Broker, request: Request) -> Reply:
    """Describe the directory with the requested partitions, or with all of them if the request has no list."""
    if not broker.may(request, DESCRIBE_CLUSTER):
        return encode_reply(request, error_code=DESCRIBE_CLUSTER.error)
    reply = ReplyBuilder(broker, request)
    topics = reply.rows("results", "topics")
    for name, indexes in (await _read_topics(broker, request)).items():
        broker.turns.charge(ROW_US)
        partitions = reply.rows("results", "topics", "partitions")
        for index in indexes:
            await broker.turns.spend(ROW_US)
            size_bytes = await broker.cluster.size_bytes(name, index)
            if size_bytes is not None:
                await partitions.add(index, size_bytes, 0, False)
        if partitions.count:
            await topics.add(name, partitions)
    results = reply.rows("results")
    volume = broker.logs.volume()
    if volume is None:
        await results.add(ErrorCode.KAFKA_STORAGE_ERROR, broker.logs.directory)
    else:
        await results.add(ErrorCode.NONE, volume.path, topics, volume.total_bytes, volume.usable_bytes)
    return reply.finish(results=results)


async def _read_topics(broker: Broker, request: Request) -> MergedTopics:
    """Return topic -> partitions, each once."""
    if request.body.topics is None:
        broker.turns.charge(len(broker.cluster.topics) * LOOKUP_US)
        return {name: range(topic.partition_count) for name, topic in broker.cluster.topics.items()}
    return await merge_partitions(broker.turns, ((row.topic, row.partitions) for row in request.body.topics))
