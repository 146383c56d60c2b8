"""DescribeTransactions 0: state, producer and partitions of transactional ids. free

Partitions of a prepared transaction are those whose markers are not written yet. An id in error has its error and
nothing else. `transaction_start_time_ms` is -1 when the id never began one.
"""

from typing import Any

from ottla.broker.api.context import Broker, Reply, Request
from ottla.protocol import codec
from ottla.protocol.errors import ErrorCode

DESCRIBE_TRANSACTIONS = 65


async def handle(broker: Broker, request: Request) -> Reply:
    """One row for each id, in the order asked."""
    version = request.api_version
    rows = [_row(broker, version, transactional_id) for transactional_id in request.body.transactional_ids]
    return codec.response_class(DESCRIBE_TRANSACTIONS)(version=version, throttle_time_ms=0, transaction_states=rows)


def _row(broker: Broker, version: int, transactional_id: str) -> Any:
    row_class = codec.response_class(DESCRIBE_TRANSACTIONS).TransactionState
    error, state, partitions = broker.transactions.describe(transactional_id)
    if state is None:
        return row_class(
            version=version,
            error_code=error,
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return row_class(
        version=version,
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=state.status.wire_name,
        transaction_timeout_ms=state.timeout_ms,
        transaction_start_time_ms=state.start_ms,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        topics=[
            row_class.TopicData(version=version, topic=topic, partitions=indexes) for topic, indexes in topics.items()
        ],
    )
