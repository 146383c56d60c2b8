"""AddPartitionsToTxn 0-3: partitions join the transaction of a transactional id; the first begins it. free

All or nothing: when a partition is unknown or belongs to an internal topic, it carries its error and the others carry
OPERATION_NOT_ATTEMPTED. Otherwise the coordinator's answer holds for every partition.

Version notes: 2 knows PRODUCER_FENCED, older versions get INVALID_PRODUCER_EPOCH for it; 3 is flexible. Versions 4-5
(batches of transactions and verification, sent by brokers) are not served: a broker of one verifies in place.
"""

from ottla.broker.api.context import Broker, Encoded, Reply, Request
from ottla.broker.cluster.image import INTERNAL_TOPICS
from ottla.broker.txn.values import TopicPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.reply_wire import encode_partition_errors

ADD_PARTITIONS_TO_TXN = 24
FIRST_VERSION_WITH_FENCED = 2


async def handle(broker: Broker, request: Request) -> Reply:
    """Add the partitions and answer for each."""
    version, body = request.api_version, request.body
    asked = [(topic.name, index) for topic in body.v3_and_below_topics for index in topic.partitions]
    refused = _refusals(broker, asked)
    if refused:
        default = ErrorCode.OPERATION_NOT_ATTEMPTED
    else:
        default = await broker.transactions.add_partitions(
            body.v3_and_below_transactional_id,
            body.v3_and_below_producer_id,
            body.v3_and_below_producer_epoch,
            asked,
        )
        if default is ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_FENCED:
            default = ErrorCode.INVALID_PRODUCER_EPOCH
    rows = [
        (topic.name, [(index, refused.get((topic.name, index), default)) for index in topic.partitions])
        for topic in body.v3_and_below_topics
    ]
    return Encoded([encode_partition_errors(ADD_PARTITIONS_TO_TXN, version, request.correlation_id, rows)])


def _refusals(broker: Broker, asked: list[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
    """The partitions that no client may add, with the reason."""
    topics = broker.cluster.topics
    refused = {}
    for name, index in asked:
        if name in INTERNAL_TOPICS:
            refused[name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            continue
        topic = topics.get(name)
        if topic is None or not 0 <= index < topic.partition_count:
            refused[name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused
