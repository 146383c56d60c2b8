"""DescribeProducers 0: what partitions know of the producers that write to them. free

`current_txn_start_offset` is -1 without an open transaction; `coordinator_epoch` is that of the last marker. A hanging
transaction is ended with these numbers (WriteTxnMarkers).
"""

from typing import Any

from ottla.broker.api.context import Broker, Reply, Request
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
    if partition is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif partition.offline is not None:
        error = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        error, producers = ErrorCode.NONE, list(partition.producers())
    return row_class(
        version=version,
        partition_index=index,
        error_code=error,
        error_message=None if partition is None else partition.offline,
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
