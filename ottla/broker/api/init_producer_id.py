"""InitProducerId 0-6: a producer id and epoch, for idempotence or for a transactional id. free

Without a transactional id: a fresh producer id with epoch 0, and nothing is logged. With one: the next epoch of its
producer id, which fences every older instance; an open transaction is aborted first. The request waits for the markers
of that abort, or of the previous transaction; if they take too long it is answered CONCURRENT_TRANSACTIONS and the
client repeats it.

Version notes: 2 is flexible; 3 adds the producer id and epoch that the client holds, so that it can resume (KIP-360); 4
knows PRODUCER_FENCED, older versions get INVALID_PRODUCER_EPOCH for it; 5 is the same with TRANSACTION_ABORTABLE, which
the broker does not answer here. 6 (two-phase commit, KIP-939) is unstable in Kafka 4.3.1: without
`unstable.api.versions.enable`, the connection is closed. Its flag Enable2Pc asks for transactions that never time out,
whatever the timeout of the request. That needs `transaction.two.phase.commit.enable`. KeepPreparedTxn is answered
UNSUPPORTED_VERSION, and so the producer of an open transaction in the reply is always -1.

A client with a transactional id needs WRITE on it, and TWO_PHASE_COMMIT for Enable2Pc. A client without one needs
IDEMPOTENT_WRITE on the cluster or WRITE on any topic (KIP-679).
"""

import logging
from typing import Final

from ottla.broker.api.authorization import IDEMPOTENT_WRITE, TWO_PHASE_COMMIT_ID, WRITE_ANY_TOPIC, WRITE_ID
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import encode_reply
from ottla.broker.api.request import Reply, Request
from ottla.broker.costs import AUTHORIZE_US
from ottla.broker.txn.values import Decision
from ottla.protocol.acls import CLUSTER_NAME
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

log = logging.getLogger(__name__)

FIRST_VERSION_WITH_EXPECTATION: Final = 3
FIRST_VERSION_WITH_FENCED: Final = 4


async def handle(broker: Broker, request: Request) -> Reply:
    """Initialize the producer; an error has producer id and epoch -1."""
    version, body = request.api_version, request.body
    denied = _authorize(broker, request)
    if denied:
        return _encode_answer(request, denied, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    expected = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    if version >= FIRST_VERSION_WITH_EXPECTATION:
        expected = (body.producer_id, body.producer_epoch)
    answer = await broker.transactions.init_producer_id(
        body.transactional_id,
        body.transaction_timeout_ms,
        *expected,
        two_phase_commit=body.enable2_pc,
        keep_prepared=body.keep_prepared_txn,
    )
    if body.transactional_id is not None:
        _log_answer(broker, request, answer, expected[1])
    error = answer.error
    if error == ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return _encode_answer(request, error, answer.producer_id, answer.producer_epoch)


def _encode_answer(request: Request, error: ErrorCode, producer_id: int, producer_epoch: int) -> Reply:
    return encode_reply(
        request,
        error_code=error,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        ongoing_txn_producer_id=NO_PRODUCER_ID,
        ongoing_txn_producer_epoch=NO_PRODUCER_EPOCH,
    )


def _authorize(broker: Broker, request: Request) -> ErrorCode:
    if broker.authorizer is None:
        return ErrorCode.NONE
    transactional_id = request.body.transactional_id
    if transactional_id is not None:
        needs = (WRITE_ID, TWO_PHASE_COMMIT_ID) if request.body.enable2_pc else (WRITE_ID,)
        denied = (need.error for need in needs if not broker.may(request, need, transactional_id))
        return next(denied, ErrorCode.NONE)
    if broker.may(request, IDEMPOTENT_WRITE):
        return ErrorCode.NONE
    broker.turns.charged_us += AUTHORIZE_US
    if broker.authorizer.authorize_by_resource_type(request.session, WRITE_ANY_TOPIC):
        return ErrorCode.NONE
    broker.on_denied(request, IDEMPOTENT_WRITE, CLUSTER_NAME)
    return IDEMPOTENT_WRITE.error


def _log_answer(broker: Broker, request: Request, answer: Decision, expected_epoch: int) -> None:
    """Log the producer id and epoch, or the refusal. `expected_epoch` is that of a client that resumes (KIP-360)."""
    body = request.body
    about = request.about | {"transactional_id": body.transactional_id}
    if answer.error == ErrorCode.NONE:
        fences = answer.producer_epoch > 0 and expected_epoch == NO_PRODUCER_EPOCH
        log.info(
            "Initialized transactionalId %(transactional_id).100s with producerId %(producer_id)d and producer epoch "
            "%(producer_epoch)d for client %(client_id).100s at %(peer)s%(more)s",
            about
            | {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
            | {"more": "; lower epochs are fenced" if fences else ""},
        )
    elif answer.error == ErrorCode.PRODUCER_FENCED:
        log.info(
            "Fenced client %(client_id).100s at %(peer)s: producerId %(producer_id)d, producer epoch "
            "%(producer_epoch)d of transactionalId %(transactional_id).100s is not the current one",
            about | {"producer_id": body.producer_id, "producer_epoch": body.producer_epoch},
        )
    elif answer.error == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        log.warning(
            "Refused two-phase commit to transactionalId %(transactional_id).100s of client %(client_id).100s at "
            "%(peer)s: it is disabled (transaction.two.phase.commit.enable)",
            about,
        )
    elif answer.error == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        log.warning(
            "Refused transactionalId %(transactional_id).100s of client %(client_id).100s at %(peer)s: a transaction "
            "timeout of %(asked_ms)d ms is not from 1 to %(most_ms)d (transaction.max.timeout.ms)",
            about
            | {
                "asked_ms": body.transaction_timeout_ms,
                "most_ms": broker.transactions.config.transaction_max_timeout_ms,
            },
        )
