"""ListTransactions 0: the transactional ids of this broker, filtered by state and producer id. free

While a partition of the transaction log is being loaded the whole answer is COORDINATOR_LOAD_IN_PROGRESS. State names
that do not exist are given back; ids that are being forgotten are left out. Versions 1 (duration) and 2 (pattern,
KIP-1152) are not served.
"""

from typing import Any

from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.txn.states import TransactionStatus
from ottla.protocol import codec
from ottla.protocol.errors import ErrorCode

LIST_TRANSACTIONS = 66
SLICE_MS = 5.0
CHECK_EVERY = 256

_BY_NAME = {status.wire_name: status for status in TransactionStatus}


async def handle(broker: Broker, request: Request) -> Reply:
    """Every id that passes the filters, a few ms of them per turn."""
    version, body = request.api_version, request.body
    response = codec.response_class(LIST_TRANSACTIONS)
    unknown = [name for name in body.state_filters if name not in _BY_NAME]
    if broker.transactions.loading:
        error, rows = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, []
    else:
        error, rows = ErrorCode.NONE, await _rows(broker, request)
    return response(
        version=version,
        throttle_time_ms=0,
        error_code=error,
        unknown_state_filters=[] if error else unknown,
        transaction_states=rows,
    )


async def _rows(broker: Broker, request: Request) -> list[Any]:
    body = request.body
    row_class = codec.response_class(LIST_TRANSACTIONS).TransactionState
    states = {_BY_NAME[name] for name in body.state_filters if name in _BY_NAME} if body.state_filters else None
    producer_ids = set(body.producer_id_filters) or None
    rows = []
    until_ms = broker.clock.monotonic_ms() + SLICE_MS
    for shard in broker.transactions.shards():
        for count, (transactional_id, state) in enumerate(list(shard.states.items())):
            if (
                (states is None or state.status in states)
                and (producer_ids is None or state.producer_id in producer_ids)
                and not shard.is_dying(transactional_id)
            ):
                rows.append(
                    row_class(
                        version=request.api_version,
                        transactional_id=transactional_id,
                        producer_id=state.producer_id,
                        transaction_state=state.status.wire_name,
                    )
                )
            if count % CHECK_EVERY == 0 and broker.clock.monotonic_ms() > until_ms:
                await broker.turns.pause()
                until_ms = broker.clock.monotonic_ms() + SLICE_MS
    return rows
