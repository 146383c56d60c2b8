"""InitProducerId 0-5: a producer id and epoch, for idempotence or for a transactional id. free

Without a transactional id: a fresh producer id with epoch 0, and nothing is logged. With one: the next epoch of its
producer id, which fences every older instance; an open transaction is aborted first. The markers of that abort, or of
the transaction before, are waited for; if they take too long the client is told to come back (CONCURRENT_TRANSACTIONS).

Version notes: 2 is flexible; 3 adds the producer id and epoch that the client holds, so that it can resume (KIP-360);
4 knows PRODUCER_FENCED, older versions get INVALID_PRODUCER_EPOCH for it; 5 is the same with
TRANSACTION_ABORTABLE, which nothing here answers. 6 (two-phase commit, KIP-939) is unstable in Kafka 4.3.1, which
closes the connection on it too.
"""

import logging

from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.api.reply import encoded
from ottla.broker.txn.values import Decision
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

log = logging.getLogger(__name__)

FIRST_VERSION_WITH_EXPECTATION = 3
FIRST_VERSION_WITH_FENCED = 4


async def handle(broker: Broker, request: Request) -> Reply:
    """Initialise the producer; an error carries producer id and epoch -1."""
    version, body = request.api_version, request.body
    expected = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    if version >= FIRST_VERSION_WITH_EXPECTATION:
        expected = (body.producer_id, body.producer_epoch)
    answer = await broker.transactions.init_producer_id(body.transactional_id, body.transaction_timeout_ms, *expected)
    if body.transactional_id is not None:
        _tell(broker, request, answer, expected[1])
    error = answer.error
    if error is ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return encoded(request, error_code=error, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)


def _tell(broker: Broker, request: Request, answer: Decision, expected_epoch: int) -> None:
    """Who has which epoch, and so who is fenced. `expected_epoch` is that of a client that goes on (KIP-360)."""
    body, who = request.body, (request.client_id, request.peer)
    if answer.error is ErrorCode.NONE:
        fences = answer.producer_epoch > 0 and expected_epoch == NO_PRODUCER_EPOCH
        log.info(
            "Initialized transactionalId %.100s with producerId %d and producer epoch %d for client %.100s at %s%s",
            *(body.transactional_id, answer.producer_id, answer.producer_epoch, *who),
            "; lower epochs are fenced" if fences else "",
        )
    elif answer.error is ErrorCode.PRODUCER_FENCED:
        log.info(
            "Fenced client %.100s at %s: producerId %d, producer epoch %d of transactionalId %.100s is not its last",
            *(*who, body.producer_id, body.producer_epoch, body.transactional_id),
        )
    elif answer.error is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        log.warning(
            "Refused transactionalId %.100s of client %.100s at %s: a transaction timeout of %d ms is not from 1 to "
            "%d (transaction.max.timeout.ms)",
            *(body.transactional_id, *who, body.transaction_timeout_ms, broker.transactions.settings.max_timeout_ms),
        )
