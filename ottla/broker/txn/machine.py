"""The transaction machine: decide, then apply. pure

`decide_*` take the durable state, the transient state and the request, and return a `Decision`; they change nothing.
`apply` makes a durable record the new state, live and in recovery alike, and `effects` returns the actions that follow.
Only the functions that return a `TransientState` change the state that is kept in memory alone.

Source: `TransactionCoordinator`, `TransactionMetadata` of Kafka 4.3.1; KIP-98, KIP-360, KIP-890.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

from ottla.broker.txn.end_txn_rules import completion, decide_abort
from ottla.broker.txn.states import EMPTY, ONGOING, PREPARED, RESTING, TransactionStatus, check_move
from ottla.broker.txn.values import (
    ANSWERS,
    NEED_PRODUCER_ID,
    NO_PARTITIONS,
    NO_PENDING,
    Decision,
    Partitions,
    TransactionState,
    TransientState,
    current_epoch,
    is_exhausted,
)
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.values import (
    NEVER_TIMES_OUT_MS,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TopicPartition,
)

_S: Final = TransactionStatus
_OK: Final = ANSWERS[NO_ERROR]


class Effect(Enum):
    """An action that follows a durable record."""

    START_TIMEOUT = "the transaction began: it ends at start + timeout"
    STOP_TIMEOUT = "the transaction has an outcome: it cannot time out any more"
    SEND_MARKERS = "write the outcome to every partition, then log Complete"


class Impossible(Exception):
    """A record that cannot follow the state before it. This is a bug of the machine, found before the record is
    logged."""


# ---- decisions


def decide_init_producer_id(
    state: TransactionState | None,
    transient: TransientState,
    timeout_ms: int,
    expected_producer_id: int,
    expected_epoch: int,
    level: int,
    now_ms: int,
    fresh_producer_id: int = NO_PRODUCER_ID,
) -> Decision:
    """Decide InitProducerId of a transactional id. Expected id and epoch are both >= 0 (KIP-360) or both -1.

    An open transaction is aborted, and the client must repeat the request. Returns NEED_PRODUCER_ID for a new
    transactional id and for one whose epoch is exhausted.
    """
    if transient.pending is not None:
        return ANSWERS[ErrorCode.CONCURRENT_TRANSACTIONS]
    if state is None:
        if fresh_producer_id == NO_PRODUCER_ID:
            return NEED_PRODUCER_ID
        state = _unborn(fresh_producer_id, timeout_ms, now_ms)
    current = current_epoch(state, transient)
    expects = expected_epoch != NO_PRODUCER_EPOCH
    if expects and not _producer_id_is_valid(state, current, expected_producer_id, expected_epoch):
        return ANSWERS[ErrorCode.PRODUCER_FENCED]
    if state.status in PREPARED:
        return ANSWERS[ErrorCode.CONCURRENT_TRANSACTIONS]
    if state.status is ONGOING:
        return decide_abort(state, transient, level, now_ms, fresh_producer_id, ErrorCode.CONCURRENT_TRANSACTIONS)
    if is_exhausted(current):
        if not expects or expected_epoch == current:
            return _rotate_producer_id(
                state, timeout_ms, now_ms, fresh_producer_id, current if expects else NO_PRODUCER_EPOCH
            )
        return ANSWERS[ErrorCode.UNKNOWN_SERVER_ERROR]
    if not expects:
        return _initialize(state, current + 1, NO_PRODUCER_EPOCH, timeout_ms, now_ms)
    if current == NO_PRODUCER_EPOCH or expected_epoch == current:
        return _initialize(state, current + 1, current, timeout_ms, now_ms)
    if expected_epoch == transient.last_epoch:
        return _initialize(state, current, transient.last_epoch, timeout_ms, now_ms)
    return ANSWERS[ErrorCode.PRODUCER_FENCED]


def decide_add_partitions(
    state: TransactionState | None,
    transient: TransientState,
    producer_id: int,
    epoch: int,
    partitions: Sequence[TopicPartition],
    now_ms: int,
    client_version: int = 0,
) -> Decision:
    """Decide AddPartitionsToTxn and AddOffsetsToTxn. The first addition begins the transaction."""
    if transient.pending is not None:
        return ANSWERS[ErrorCode.CONCURRENT_TRANSACTIONS]
    if state is None or state.producer_id != producer_id:
        return ANSWERS[ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    if epoch != current_epoch(state, transient):
        return ANSWERS[ErrorCode.PRODUCER_FENCED]
    if state.status in PREPARED:
        return ANSWERS[ErrorCode.CONCURRENT_TRANSACTIONS]
    open_already = state.status is ONGOING
    if open_already and _all_in(partitions, state.partitions):
        return _OK
    added: Partitions = dict.fromkeys(partitions)
    record = TransactionState(
        producer_id,
        epoch,
        ONGOING,
        state.timeout_ms,
        {**state.partitions, **added} if open_already else added,
        state.start_ms if open_already else now_ms,
        now_ms,
        producer_id,
        state.next_producer_id,
        client_version,
    )
    return Decision(NO_ERROR, record, last_epoch=transient.last_epoch)


def verify_partitions(
    state: TransactionState | None,
    transient: TransientState,
    producer_id: int,
    epoch: int,
    partitions: Sequence[TopicPartition],
) -> list[ErrorCode]:
    """Return for each partition, in order, whether it is in the open transaction. The pending state is ignored."""
    if state is None or state.producer_id != producer_id:
        refusal = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    elif epoch != current_epoch(state, transient):
        refusal = ErrorCode.PRODUCER_FENCED
    elif state.status in PREPARED:
        refusal = ErrorCode.CONCURRENT_TRANSACTIONS
    else:
        known = state.partitions
        return [NO_ERROR if each in known else ErrorCode.TRANSACTION_ABORTABLE for each in partitions]
    return [refusal] * len(partitions)


def is_ending(state: TransactionState | None, transient: TransientState) -> bool:
    """Return whether an outcome is being logged or its markers written. A request can be decided again when Complete
    is applied."""
    if state is None:
        return False
    pending = transient.pending
    return state.status in PREPARED or (pending is not None and pending.status in PREPARED)


def has_timed_out(state: TransactionState, transient: TransientState, now_ms: int) -> bool:
    """Return whether the coordinator must abort the open transaction. The timeout runs from the first added
    partition."""
    return (
        state.status is ONGOING
        and transient.pending is None
        and state.timeout_ms != NEVER_TIMES_OUT_MS
        and state.start_ms + state.timeout_ms < now_ms
    )


def has_expired(state: TransactionState, transient: TransientState, now_ms: int, expiration_ms: int) -> bool:
    """Return whether the transactional id has expired and is to be removed."""
    return state.status in RESTING and transient.pending is None and state.last_update_ms <= now_ms - expiration_ms


def dead(state: TransactionState) -> TransactionState:
    """Return the pending state of an id whose tombstone is being logged."""
    check_move(state.status, _S.DEAD)
    return state._replace(status=_S.DEAD, partitions=NO_PARTITIONS)


# ---- application


def apply_record(states: dict[str, TransactionState], transactional_id: str, record: TransactionState | None) -> None:
    """Make a durable record the state of its id, live and in recovery alike. None is a tombstone."""
    if record is None:
        states.pop(transactional_id, None)
    else:
        states[transactional_id] = record


_EFFECTS: Final[dict[tuple[TransactionStatus | None, TransactionStatus], tuple[Effect, ...]]] = {
    (_S.EMPTY, _S.ONGOING): (Effect.START_TIMEOUT,),
    (_S.COMPLETE_COMMIT, _S.ONGOING): (Effect.START_TIMEOUT,),
    (_S.COMPLETE_ABORT, _S.ONGOING): (Effect.START_TIMEOUT,),
    (_S.ONGOING, _S.PREPARE_COMMIT): (Effect.STOP_TIMEOUT, Effect.SEND_MARKERS),
    (_S.ONGOING, _S.PREPARE_ABORT): (Effect.STOP_TIMEOUT, Effect.SEND_MARKERS),
    (_S.EMPTY, _S.PREPARE_ABORT): (Effect.SEND_MARKERS,),
    (_S.COMPLETE_COMMIT, _S.PREPARE_ABORT): (Effect.SEND_MARKERS,),
    (_S.COMPLETE_ABORT, _S.PREPARE_ABORT): (Effect.SEND_MARKERS,),
    # A recovered id: the previous record is not known.
    (None, _S.ONGOING): (Effect.START_TIMEOUT,),
    (None, _S.PREPARE_COMMIT): (Effect.SEND_MARKERS,),
    (None, _S.PREPARE_ABORT): (Effect.SEND_MARKERS,),
}


def effects(before: TransactionState | None, after: TransactionState) -> tuple[Effect, ...]:
    """Return the actions that follow the durable record `after`. `before` is None in recovery."""
    return _EFFECTS.get((None if before is None else before.status, after.status), ())


def check_step(before: TransactionState | None, after: TransactionState) -> None:
    """Raise if `after` cannot follow `before`: IllegalMove because of its state, Impossible because of its fields."""
    if after.producer_id < 0 or after.producer_epoch < 0:
        raise Impossible(f"a record without a producer: {after}")
    if before is None:
        if after.status is not EMPTY:
            raise Impossible(f"the first record of an id is {after.status.wire_name}")
        return
    check_move(before.status, after.status)
    same_id = after.producer_id == before.producer_id
    epoch_step = after.producer_epoch - before.producer_epoch
    if after.status is EMPTY:
        sound = (after.producer_epoch == 0 or (same_id and epoch_step in (0, 1))) and after.start_ms == NO_TIMESTAMP
        sound = sound and not after.partitions
    elif after.status is ONGOING:
        # A fence whose append failed has bumped the epoch in memory.
        sound = same_id and epoch_step in (0, 1) and before.partitions.keys() <= after.partitions.keys()
    elif after.status in PREPARED:
        sound = same_id and epoch_step in (0, 1) and after.partitions == before.partitions
    else:
        rotated = after.producer_id == before.next_producer_id and after.producer_epoch == 0
        sound = (rotated or (same_id and epoch_step == 0)) and not after.partitions and after.start_ms >= 0
    if not sound or (after.status is not EMPTY and after.timeout_ms != before.timeout_ms):
        raise Impossible(f"{after} cannot follow {before}")


# ---- events of the transient state


def append_began(
    transient: TransientState, pending: TransactionState, fenced_epoch: int = NO_PRODUCER_EPOCH
) -> TransientState:
    """Return the transient state while a record is logged. Competing requests are refused, and those of a fenced epoch
    are refused also afterwards."""
    return transient._replace(pending=pending, fenced_epoch=max(transient.fenced_epoch, fenced_epoch))


def after_failed_append(transient: TransientState, decision: Decision) -> TransientState:
    """Return the transient state after a failed append. The epoch of a failed fence is kept, so that the old producer
    stays fenced."""
    if decision.fenced_epoch < 0:
        return transient._replace(pending=None)
    return TransientState(fenced_epoch=decision.fenced_epoch)


def after_record(transient: TransientState, last_epoch: int) -> TransientState:
    """Return the transient state after a record was applied, with the last epoch of its decision."""
    if transient.fenced_epoch < 0:
        return NO_PENDING if last_epoch == NO_PRODUCER_EPOCH else TransientState(last_epoch=last_epoch)
    return TransientState(last_epoch=last_epoch, fenced_epoch=transient.fenced_epoch)


def with_pending_completion(transient: TransientState, state: TransactionState, now_ms: int) -> TransientState:
    """Return the transient state after a Prepare record: its Complete record is pending until the markers are
    written."""
    complete = completion(state, now_ms)
    return TransientState(complete, transient.last_epoch, NO_PRODUCER_EPOCH, state.partitions.copy())


# ---- parts of InitProducerId


def _unborn(producer_id: int, timeout_ms: int, now_ms: int) -> TransactionState:
    return TransactionState(producer_id, NO_PRODUCER_EPOCH, EMPTY, timeout_ms, NO_PARTITIONS, NO_TIMESTAMP, now_ms)


def _producer_id_is_valid(state: TransactionState, current: int, producer_id: int, epoch: int) -> bool:
    return (
        current == NO_PRODUCER_EPOCH
        or producer_id == state.producer_id
        or (producer_id == state.previous_producer_id and is_exhausted(epoch))
    )


def _initialize(state: TransactionState, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Decision:
    record = TransactionState(
        state.producer_id,
        epoch,
        EMPTY,
        timeout_ms,
        NO_PARTITIONS,
        NO_TIMESTAMP,
        now_ms,
        state.producer_id,
        state.next_producer_id,
        state.client_version,
    )
    return Decision(NO_ERROR, record, last_epoch, state.producer_id, epoch)


def _rotate_producer_id(
    state: TransactionState, timeout_ms: int, now_ms: int, fresh_producer_id: int, last_epoch: int
) -> Decision:
    if fresh_producer_id == NO_PRODUCER_ID:
        return NEED_PRODUCER_ID
    born = _initialize(state, 0, last_epoch, timeout_ms, now_ms)
    assert born.record is not None
    record = born.record._replace(producer_id=fresh_producer_id)
    return born._replace(record=record, producer_id=fresh_producer_id)


def _all_in(partitions: Iterable[TopicPartition], known: Partitions) -> bool:
    return all(each in known for each in partitions)
