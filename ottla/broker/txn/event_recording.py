"""Changes of a transactional id as events of the history: a begin, a decision, an end. pure"""

from itertools import islice
from typing import TYPE_CHECKING, Final

from ottla.broker.txn.states import ONGOING, PREPARE_COMMIT, PREPARED, TransactionStatus
from ottla.broker.txn.values import TransactionState

if TYPE_CHECKING:
    from ottla.broker.events import Events

_COMPLETE_COMMIT: Final = TransactionStatus.COMPLETE_COMMIT
_COMPLETE: Final = (_COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)


def record_event(
    events: "Events", transactional_id: str, before: TransactionState | None, after: TransactionState
) -> None:
    """Add a durable record to the event history. Empty aborts bump an epoch and end nothing, so they are not
    recorded."""
    status = after.status
    owner = after.producer_id, after.producer_epoch
    if status is ONGOING:
        if before is not None and before.status is ONGOING:
            known, now = len(before.partitions), len(after.partitions)
            events.record_addition(
                transactional_id, *owner, islice(after.partitions, known, now), now - known
            )  # they come last
        else:
            events.began(transactional_id, *owner, after.partitions)
    elif status in PREPARED:
        if after.partitions:
            events.record_prepare(transactional_id, *owner, status is PREPARE_COMMIT)
    elif status in _COMPLETE and before is not None and before.partitions:
        events.record_completion(transactional_id, *owner, status is _COMPLETE_COMMIT)
    elif status is TransactionStatus.DEAD:
        events.record_expiration(transactional_id, *owner)
