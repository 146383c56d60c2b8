"""Outcome of an operation by its error code: it happened, it certainly did not, or it is unknown. pure

Source: where Kafka's ReplicaManager, GroupCoordinator and TransactionCoordinator answer with each error. If the error
can come after an append (a log failed, a leader or coordinator moved while it waited for replicas), the outcome is
unknown. An error that is not listed here gives an unknown outcome too.
"""

from typing import Final

from ottla.protocol.errors import ErrorCode
from ottla.testkit.checks.operations import FAIL, INFO, OK

_E: Final = ErrorCode
_OPEN: Final = frozenset(
    {
        *(_E.UNKNOWN_SERVER_ERROR, _E.REQUEST_TIMED_OUT, _E.NETWORK_EXCEPTION, _E.KAFKA_STORAGE_ERROR),
        *(_E.UNKNOWN_TOPIC_OR_PARTITION, _E.UNKNOWN_TOPIC_ID, _E.LEADER_NOT_AVAILABLE, _E.NOT_LEADER_OR_FOLLOWER),
        *(_E.FENCED_LEADER_EPOCH, _E.UNKNOWN_LEADER_EPOCH, _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        *(_E.COORDINATOR_NOT_AVAILABLE, _E.NOT_COORDINATOR, _E.TRANSACTION_COORDINATOR_FENCED),
    }
)
_REFUSED: Final = frozenset(int(error) for error in ErrorCode if error and error not in _OPEN)
_WRITTEN_BEFORE: Final = ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def outcome(error: int) -> str:
    """Return OK, FAIL or INFO for the error code of a row."""
    if error in (0, _WRITTEN_BEFORE):
        return OK
    return FAIL if error in _REFUSED else INFO


def joint_outcome(errors: list[int]) -> str:
    """Return the outcome of one operation with several rows: INFO unless all rows have the same outcome."""
    outcomes = {outcome(error) for error in errors}
    return outcomes.pop() if len(outcomes) == 1 else INFO
