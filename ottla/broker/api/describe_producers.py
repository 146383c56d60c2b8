"""DescribeProducers 0: what partitions know of the producers that write to them. free

`current_txn_start_offset` is -1 without an open transaction; `coordinator_epoch` is that of the last marker. A hanging
transaction is ended with these numbers (WriteTxnMarkers). A partition that an existing topic does not have is refused
without a message, as Kafka does it.
"""

from typing import Any

from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.cluster.names import topic_name_problem
from ottla.broker.log.producers import Producer
from ottla.protocol import codec
from ottla.protocol.errors import ErrorCode

DESCRIBE_PRODUCERS = 61


async def handle(broker: Broker, request: Request) -> Reply:
    """One row for each partition, in the order asked."""
    version = request.api_version
    response = codec.response_class(DESCRIBE_PRODUCERS)
    return response(
        version=version,
        throttle_time_ms=0,
        topics=[
            response.TopicResponse(
                version=version,
                name=topic.name,
                partitions=[_row(broker, version, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.body.topics
        ],
    )


def _row(broker: Broker, version: int, name: str, index: int) -> Any:
    row_class = codec.response_class(DESCRIBE_PRODUCERS).TopicResponse.PartitionResponse
    partition = broker.cluster.partition(name, index)
    producers: list[Producer] = []
    message: str | None = None
    if partition is None:
        error, message = _why_absent(broker, name)
    elif partition.offline is not None:
        error, message = ErrorCode.KAFKA_STORAGE_ERROR, partition.offline
    else:
        error, producers = ErrorCode.NONE, list(partition.producers())
    return row_class(
        version=version,
        partition_index=index,
        error_code=error,
        error_message=message,
        active_producers=[
            row_class.ProducerState(
                version=version,
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                last_sequence=each.last_sequence,
                last_timestamp=each.last_timestamp_ms,
                coordinator_epoch=each.coordinator_epoch,
                current_txn_start_offset=each.transaction_start,
            )
            for each in producers
        ],
    )


def _why_absent(broker: Broker, name: str) -> tuple[ErrorCode, str | None]:
    problem = topic_name_problem(name)
    if problem is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, problem
    message = None if name in broker.cluster.topics else "This server does not host this topic-partition."
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message
