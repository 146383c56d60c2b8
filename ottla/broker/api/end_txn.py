"""EndTxn 0-5: commit or abort. free

Answered when the outcome is durable. The markers are written after the reply. Until they are written and Complete is
logged, requests for the id wait for a limited time (`transaction.markers.wait.ms`) or get CONCURRENT_TRANSACTIONS;
EndTxn always gets the error at once. A repeated request for an ended transaction succeeds.

Version notes: 2 knows PRODUCER_FENCED, older versions get INVALID_PRODUCER_EPOCH for it; 3 is flexible; 4 is the same
with TRANSACTION_ABORTABLE, which the broker does not answer here; 5 uses transactions V2 (KIP-890): each transaction
bumps the epoch, and the answer has the next producer id and epoch.
"""

from typing import Final

from ottla.broker.api.authorization import WRITE_ID
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import encode_reply
from ottla.broker.api.request import Reply, Request
from ottla.protocol.errors import ErrorCode

FIRST_VERSION_WITH_FENCED: Final = 2
FIRST_VERSION_WITH_PRODUCER: Final = 5


async def handle(broker: Broker, request: Request) -> Reply:
    """End the open transaction."""
    version, body = request.api_version, request.body
    if not broker.may(request, WRITE_ID, body.transactional_id):
        return encode_reply(request, error_code=WRITE_ID.error)
    v2 = version >= FIRST_VERSION_WITH_PRODUCER
    answer = await broker.transactions.end(
        body.transactional_id, body.producer_id, body.producer_epoch, body.committed, v2=v2
    )
    error = answer.error
    if version < FIRST_VERSION_WITH_FENCED and error == ErrorCode.PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    reply = encode_reply(request, 0, error, answer.producer_id, answer.producer_epoch)
    return reply._replace(error_code=error) if error else reply
