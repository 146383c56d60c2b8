"""Error codes that a coordinator returns when an append to its log fails. pure

Source: `TransactionStateManager.appendTransactionToLog`, `CoordinatorOperationExceptionHelper` of Kafka 4.3.1.
"""

from typing import Final

from ottla.protocol.errors import ErrorCode

_E = ErrorCode
_CLIENT_ERRORS: Final = {
    _E.UNKNOWN_TOPIC_OR_PARTITION: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_ENOUGH_REPLICAS: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _E.COORDINATOR_NOT_AVAILABLE,
    _E.REQUEST_TIMED_OUT: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_LEADER_OR_FOLLOWER: _E.NOT_COORDINATOR,
    _E.KAFKA_STORAGE_ERROR: _E.NOT_COORDINATOR,
    _E.MESSAGE_TOO_LARGE: _E.UNKNOWN_SERVER_ERROR,
    _E.RECORD_LIST_TOO_LARGE: _E.UNKNOWN_SERVER_ERROR,
    # The log refuses offsets of a transaction (groups).
    _E.INVALID_TXN_STATE: _E.UNKNOWN_SERVER_ERROR,
}


def client_error(error: ErrorCode) -> ErrorCode:
    """Return the error that clients of a coordinator get for the error of an append to its log."""
    return _CLIENT_ERRORS.get(error, error)
