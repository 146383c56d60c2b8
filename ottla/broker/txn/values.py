"""Values of the transaction machine: the durable state, the transient state, decisions. pure

`TransactionState` is exactly the last record of a transactional id in `__transaction_state`. All state that is kept in
memory only is a field of `TransientState`; recovery starts from `NO_PENDING`, and the check that a replay gives the
same state compares the rest.
"""

from typing import Final, NamedTuple

from ottla.broker.txn.states import TransactionStatus
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import MAX_PRODUCER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

Partitions = dict[TopicPartition, None]
"""An ordered set (markers are written in the order of adding). Never changed once it is part of a record."""

NO_PARTITIONS: Final[Partitions] = {}


class TransactionState(NamedTuple):
    """The durable state of a transactional id. Times are in ms, -1 for none.

    `previous_producer_id` is the producer id before the last transition (different only after a rotation),
    `next_producer_id` the one that the Complete record switches to. `client_version` is 2 if the client uses
    transactions V2 (KIP-890), else 0.
    """

    producer_id: int
    producer_epoch: int
    status: TransactionStatus
    timeout_ms: int
    partitions: Partitions
    start_ms: int
    last_update_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0


class TransientState(NamedTuple):
    """State of a transactional id that is not in its last record. It is lost in a restart, by design.

    pending: the record being logged, or the Complete record that waits for its markers. Set when a decision's append
        has begun and when a Prepare record is applied; cleared when the record is durable or its append has failed.
    last_epoch: the epoch before the last bump, so that a repeated request is recognized. Set with each record.
    fenced_epoch: the epoch that an abort by the coordinator reaches, from the append of its Prepare on. It is kept
        if that append fails, so that the old producer stays fenced and the next attempt does not bump again. Cleared
        when a Complete record is prepared.
    awaiting: the partitions of a prepared transaction whose markers are not written yet. The fan-out deletes from it
        in place; all other changes are replacements.

    In addition, `Shard.waiting` holds the requests that wait while a Complete record is pending. A request is added
    before it is decided, and removed when Complete is applied, when its time is up or when its connection closes.
    """

    pending: TransactionState | None = None
    last_epoch: int = NO_PRODUCER_EPOCH
    fenced_epoch: int = NO_PRODUCER_EPOCH
    awaiting: Partitions = NO_PARTITIONS


NO_PENDING: Final = TransientState()


class Decision(NamedTuple):
    """The result of a request.

    Without a record the answer is final at once. With one, `error` and the producer id and epoch are the answer when
    the record is durable. The effects of the record (markers, timers) depend on the record alone (`machine.effects`),
    so that recovery has the same ones. `fenced_epoch` is set from the append on, also if the append fails.
    """

    error: ErrorCode
    record: TransactionState | None = None
    last_epoch: int = NO_PRODUCER_EPOCH
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    fenced_epoch: int = NO_PRODUCER_EPOCH


ANSWERS: Final = {error: Decision(error) for error in ErrorCode}
"""An answer without a record for every error code: nothing is logged, nothing changes."""

NEED_PRODUCER_ID: Final = Decision(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
"""Not an answer: decide again with a fresh producer id (compare with `is`)."""


def is_exhausted(epoch: int) -> bool:
    """Return whether the producer id must be replaced before another producer may use it (epoch 32767 is kept for
    fencing)."""
    return epoch >= MAX_PRODUCER_EPOCH - 1


def current_epoch(state: TransactionState, transient: TransientState) -> int:
    """Return the epoch that requests must have."""
    epoch, fenced_epoch = state.producer_epoch, transient.fenced_epoch
    return epoch if epoch >= fenced_epoch else fenced_epoch
