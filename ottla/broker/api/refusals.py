"""Refused requests in the event history, if there is one, and rows with errors. free"""

from collections.abc import Mapping
from typing import Final

from ottla.broker.api.context import Broker, count_rows
from ottla.broker.api.fencing_log import log_fenced, sender_fields
from ottla.broker.api.request import Request
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode

ROUTINE: Final = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )
)
"""Errors that correct clients get in normal operation and retry, or that another row explains."""
_FENCED: Final = frozenset((ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH))
_NOT_AUTHORIZED: Final = frozenset(
    (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
)
_OWNER: Final = ("transactional_id", "producer_id", "producer_epoch")


def record_refusal(broker: Broker, request: Request, error_code: int, reason: str = "") -> None:
    """Record that the whole request, or a row of it, is answered with this error."""
    events = broker.events
    if events is None or error_code in ROUTINE:
        return
    if error_code in _NOT_AUTHORIZED and broker.authorizer is not None:
        return  # recorded where it was found, with the deciding entry (`denial_log.py`)
    sender = sender_fields(request.body)
    reason = reason or ", ".join(f"{name} {value}" for name, value in sender.items() if name != _OWNER[0])
    transactional_id, producer_id, producer_epoch = (sender.get(name) for name in _OWNER)
    events.record_refusal(
        *(ApiKey(request.api_key).title, ErrorCode(error_code).name, request.client_id or "", request.peer),
        *(transactional_id, reason),
        producer=(-1 if producer_id is None else producer_id, -1 if producer_epoch is None else producer_epoch),
        is_fenced=error_code in _FENCED,
    )


def report_rows(broker: Broker, request: Request, errors: Mapping[int, int]) -> None:
    """Count the errors of rows, record the first one that is not routine, and log a fenced producer."""
    count_rows(broker, request, errors)
    fenced = next((error for error in errors if error in _FENCED), None)
    if fenced is not None:
        log_fenced(broker, request, fenced)
    error_code = next((error for error in errors if error not in ROUTINE), None)
    if error_code is not None:
        rows = sum(errors.values())
        record_refusal(broker, request, error_code, f"the first of {rows} rows with errors" if rows > 1 else "")
