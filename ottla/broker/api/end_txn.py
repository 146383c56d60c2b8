"""EndTxn 0-3: commit or abort. free

Answered when the outcome is durable. The markers follow behind the reply; until they are written and Complete is
logged, requests for the id meet CONCURRENT_TRANSACTIONS. A repetition of an ended transaction's request succeeds.

Version notes: 2 knows PRODUCER_FENCED, older versions get INVALID_PRODUCER_EPOCH for it; 3 is flexible. Versions 4
(TRANSACTION_ABORTABLE) and 5 (the epoch moves with each transaction, KIP-890) are not served.
"""

from ottla.broker.api.context import Broker, Encoded, Reply, Request
from ottla.protocol.errors import ErrorCode
from ottla.protocol.reply_wire import encode_error_reply

END_TXN = 26
FIRST_VERSION_WITH_FENCED = 2


async def handle(broker: Broker, request: Request) -> Reply:
    """End the open transaction."""
    version, body = request.api_version, request.body
    answer = await broker.transactions.end(
        body.transactional_id, body.producer_id, body.producer_epoch, body.committed, v2=False
    )
    error = answer.error
    if error is ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return Encoded([encode_error_reply(END_TXN, version, request.correlation_id, error)])
