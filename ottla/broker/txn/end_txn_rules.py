"""Rules for the end of transactions: EndTxn of both versions, aborts by the coordinator, the Complete record. pure

The two tables define the result of EndTxn in each state, after producer id, epoch and pending state have been checked.
The client chooses the version for EndTxn (request version 5 is V2); the cluster (`transaction.version`) chooses it for
aborts by the coordinator itself.

Source: `TransactionCoordinator.endTransaction*` and `TransactionMetadata.prepare*` of Kafka 4.3.1; KIP-98, KIP-890.
"""

from enum import Enum
from typing import Final

from ottla.broker.txn.states import COMPLETION_OF, ONGOING, PREPARE_COMMIT, PREPARED, TransactionStatus
from ottla.broker.txn.values import (
    ANSWERS,
    NEED_PRODUCER_ID,
    NO_PARTITIONS,
    Decision,
    TransactionState,
    TransientState,
    current_epoch,
    is_exhausted,
)
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.values import MAX_PRODUCER_EPOCH, NO_PRODUCER_ID

V2: Final = 2


class End(Enum):
    """The action of EndTxn, if it is not refused."""

    PREPARE = "log the Prepare record, answer, send markers"
    EMPTY_ABORT = "log PrepareAbort without partitions: only the epoch moves"
    DONE = "already ended this way: answer as the first time"


_S: Final = TransactionStatus
_E: Final = ErrorCode
_DONE: Final = End.DONE

# (state, commit) -> the action of EndTxn 0-4.
END_V1: Final[dict[tuple[TransactionStatus, bool], End | ErrorCode]] = {
    (_S.EMPTY, True): _E.INVALID_TXN_STATE,
    (_S.EMPTY, False): _E.INVALID_TXN_STATE,
    (_S.ONGOING, True): End.PREPARE,
    (_S.ONGOING, False): End.PREPARE,
    (_S.PREPARE_COMMIT, True): _E.CONCURRENT_TRANSACTIONS,
    (_S.PREPARE_COMMIT, False): _E.INVALID_TXN_STATE,
    (_S.PREPARE_ABORT, True): _E.INVALID_TXN_STATE,
    (_S.PREPARE_ABORT, False): _E.CONCURRENT_TRANSACTIONS,
    (_S.COMPLETE_COMMIT, True): End.DONE,
    (_S.COMPLETE_COMMIT, False): _E.INVALID_TXN_STATE,
    (_S.COMPLETE_ABORT, True): _E.INVALID_TXN_STATE,
    (_S.COMPLETE_ABORT, False): End.DONE,
}

# (state, repeated request, commit) -> the action of EndTxn 5. A request is repeated if its first copy has bumped the
# epoch.
END_V2: Final[dict[tuple[TransactionStatus, bool, bool], End | ErrorCode]] = {
    (_S.EMPTY, False, True): _E.INVALID_TXN_STATE,
    (_S.EMPTY, False, False): End.EMPTY_ABORT,
    (_S.ONGOING, False, True): End.PREPARE,
    (_S.ONGOING, False, False): End.PREPARE,
    (_S.PREPARE_COMMIT, True, True): _E.CONCURRENT_TRANSACTIONS,
    (_S.PREPARE_COMMIT, True, False): _E.INVALID_TXN_STATE,
    (_S.PREPARE_ABORT, True, True): _E.INVALID_TXN_STATE,
    (_S.PREPARE_ABORT, True, False): _E.CONCURRENT_TRANSACTIONS,
    (_S.COMPLETE_COMMIT, True, True): End.DONE,
    (_S.COMPLETE_COMMIT, True, False): _E.INVALID_TXN_STATE,
    (_S.COMPLETE_COMMIT, False, True): _E.INVALID_TXN_STATE,
    (_S.COMPLETE_COMMIT, False, False): End.EMPTY_ABORT,
    (_S.COMPLETE_ABORT, True, True): _E.INVALID_TXN_STATE,
    (_S.COMPLETE_ABORT, True, False): End.DONE,
    (_S.COMPLETE_ABORT, False, True): _E.INVALID_TXN_STATE,
    (_S.COMPLETE_ABORT, False, False): End.EMPTY_ABORT,
}

_OK: Final = ANSWERS[NO_ERROR]


def decide_end(
    state: TransactionState | None, transient: TransientState, producer_id: int, epoch: int, commit: bool, now_ms: int
) -> Decision:
    """Decide EndTxn 0-4. Producer id and epoch are checked before the pending state."""
    if state is None or state.producer_id != producer_id:
        return ANSWERS[ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    if epoch != current_epoch(state, transient):
        return ANSWERS[ErrorCode.PRODUCER_FENCED]
    if transient.pending is not None:
        return ANSWERS[ErrorCode.CONCURRENT_TRANSACTIONS]
    outcome = END_V1[state.status, commit]
    if isinstance(outcome, ErrorCode):
        return ANSWERS[outcome]
    if outcome is _DONE:
        return _OK
    record = _prepare(state, commit, epoch, now_ms)
    return Decision(NO_ERROR, record, last_epoch=transient.last_epoch)


def decide_end_v2(
    state: TransactionState | None,
    transient: TransientState,
    producer_id: int,
    epoch: int,
    commit: bool,
    now_ms: int,
    fresh_producer_id: int = NO_PRODUCER_ID,
) -> Decision:
    """Decide EndTxn 5. Each transaction bumps the epoch; the answer has the next producer id and epoch.

    The pending state is checked before producer id and epoch. Returns NEED_PRODUCER_ID when the epoch is exhausted.
    """
    if transient.pending is not None:
        return ANSWERS[ErrorCode.CONCURRENT_TRANSACTIONS]
    if state is None:
        return ANSWERS[ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    current = current_epoch(state, transient)
    rotated = state.previous_producer_id == producer_id and epoch == MAX_PRODUCER_EPOCH - 1 and current == 0
    if state.producer_id != producer_id and not rotated:
        return ANSWERS[ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    repeated = current == epoch + 1 or (rotated and state.status not in PREPARED)
    outcome = END_V2.get((state.status, repeated, commit))
    if outcome is None or not (repeated or epoch == current):
        return ANSWERS[ErrorCode.PRODUCER_FENCED]
    if isinstance(outcome, ErrorCode):
        return ANSWERS[outcome]
    if outcome is _DONE:
        return Decision(NO_ERROR, producer_id=state.producer_id, producer_epoch=current)
    return _prepare_v2(state, transient, commit, now_ms, fresh_producer_id, NO_ERROR)


def decide_abort(
    state: TransactionState,
    transient: TransientState,
    level: int,
    now_ms: int,
    fresh_producer_id: int,
    answer: ErrorCode,
) -> Decision:
    """Decide an abort by the coordinator itself (a new instance, a timeout), which fences the producer.

    `level` is the cluster's `transaction.version`. The id passes through PrepareEpochFence and PrepareAbort in one
    decision. At level 0 and 1 the epoch of a failed append is kept, so that it is not bumped twice.
    """
    if level >= V2:
        return _prepare_v2(state, transient, False, now_ms, fresh_producer_id, answer)
    fence = transient.fenced_epoch
    if fence < 0:
        fence = min(state.producer_epoch + 1, MAX_PRODUCER_EPOCH)
    record = _prepare(state, False, fence, now_ms)
    return Decision(answer, record, fenced_epoch=fence)


def completion(state: TransactionState, now_ms: int) -> TransactionState:
    """Return the Complete record of a prepared transaction. It switches to the next producer id if there is one."""
    rotates = state.client_version >= V2 and state.next_producer_id != NO_PRODUCER_ID
    return TransactionState(
        state.next_producer_id if rotates else state.producer_id,
        0 if rotates else state.producer_epoch,
        COMPLETION_OF[state.status],
        state.timeout_ms,
        NO_PARTITIONS,
        state.start_ms,
        now_ms,
        state.producer_id,
        NO_PRODUCER_ID,
        state.client_version,
    )


def _prepare(state: TransactionState, commit: bool, epoch: int, now_ms: int) -> TransactionState:
    return TransactionState(
        state.producer_id,
        epoch,
        PREPARE_COMMIT if commit else _S.PREPARE_ABORT,
        state.timeout_ms,
        state.partitions,
        state.start_ms,
        now_ms,
        state.producer_id,
        NO_PRODUCER_ID,
        0,
    )


def _prepare_v2(
    state: TransactionState,
    transient: TransientState,
    commit: bool,
    now_ms: int,
    fresh_producer_id: int,
    answer: ErrorCode,
) -> Decision:
    """Prepare with a bumped epoch. An abort at epoch 32767 keeps it; a commit at that epoch fails."""
    current = current_epoch(state, transient)
    if current >= MAX_PRODUCER_EPOCH and commit:
        return ANSWERS[ErrorCode.UNKNOWN_SERVER_ERROR]
    rotates = is_exhausted(current)
    if rotates and fresh_producer_id == NO_PRODUCER_ID:
        return NEED_PRODUCER_ID
    bumped = min(current + 1, MAX_PRODUCER_EPOCH)
    record = TransactionState(
        state.producer_id,
        bumped,
        PREPARE_COMMIT if commit else _S.PREPARE_ABORT,
        state.timeout_ms,
        state.partitions,
        state.start_ms if state.status is ONGOING else now_ms,
        now_ms,
        state.producer_id,
        fresh_producer_id if rotates else NO_PRODUCER_ID,
        V2,
    )
    if answer:
        return Decision(answer, record, last_epoch=current)
    return Decision(
        answer,
        record,
        last_epoch=current,
        producer_id=fresh_producer_id if rotates else state.producer_id,
        producer_epoch=0 if rotates else bumped,
    )
