"""EndTxn of both generations and aborts by the coordinator: the tables END1, END2 and ABORT, on the machine."""

from typing import NamedTuple

import pytest

from ottla.broker.txn.end_txn_rules import completion, decide_abort, decide_end, decide_end_v2
from ottla.broker.txn.log import from_value
from ottla.broker.txn.machine import after_failed_append, check_step, decide_add_partitions, with_pending_completion
from ottla.broker.txn.states import TransactionStatus as S
from ottla.broker.txn.values import NEED_PRODUCER_ID, NO_PENDING, TransactionState, TransientState
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.transaction_records import decode_transaction_value, encode_transaction_fields
from tests.tables.rows import (
    BUSY,
    FENCED,
    FRESH_PID,
    LOGGED,
    MAPPING,
    NOW,
    OLD_PID,
    PENDING,
    PID,
    PLACES,
    PREPARED,
    STATE,
    build_prepare,
    build_state,
    row,
    rows,
)

COMMIT, ABORT = True, False
COMPLETE = (S.COMPLETE_COMMIT, S.COMPLETE_ABORT)


class Case(NamedTuple):
    row: str
    state: TransactionState | None
    commit: bool
    error: E
    producer: tuple[int, int] = (PID, 5)
    transient: TransientState = NO_PENDING
    record: TransactionState | None = None
    answer: tuple[int, int] = (-1, -1)


def both(name, state, error, **more):
    return [Case(f"{name}, {'commit' if c else 'abort'}", state, c, error, **more) for c in (COMMIT, ABORT)]


V1 = [
    *both("END1-4", None, MAPPING),
    *both("END1-4 being created", None, MAPPING, transient=PENDING),
    *[case for s in LOGGED for case in both(f"END1-5 {s.wire_name}", build_state(s), MAPPING, producer=(9, 5))],
    *both("END1-5 pending", build_state(S.ONGOING), MAPPING, producer=(9, 5), transient=PENDING),
    *[
        case
        for s in LOGGED
        for e in (4, 6)
        for case in both(f"END1-6 {s.wire_name}, epoch {e}", build_state(s), FENCED, producer=(PID, e))
    ],
    *both("END1-6 pending", build_state(S.ONGOING), FENCED, producer=(PID, 4), transient=PENDING),
    *both("END1-6 fenced in memory", build_state(S.ONGOING), FENCED, transient=TransientState(fenced_epoch=6)),
    *[case for s in LOGGED for case in both(f"END1-7 {s.wire_name}", build_state(s), BUSY, transient=PENDING)],
    Case("END1-8", build_state(S.ONGOING), COMMIT, E.NONE, record=build_prepare(S.PREPARE_COMMIT)),
    Case(
        "END1-8 begun in V2", build_state(S.ONGOING, version=2), COMMIT, E.NONE, record=build_prepare(S.PREPARE_COMMIT)
    ),
    Case("END1-9", build_state(S.ONGOING), ABORT, E.NONE, record=build_prepare(S.PREPARE_ABORT)),
    Case("END1-10", build_state(S.PREPARE_COMMIT), COMMIT, BUSY),
    Case("END1-11", build_state(S.PREPARE_COMMIT), ABORT, STATE),
    Case("END1-12", build_state(S.PREPARE_ABORT), COMMIT, STATE),
    Case("END1-13", build_state(S.PREPARE_ABORT), ABORT, BUSY),
    Case("END1-14", build_state(S.COMPLETE_COMMIT), COMMIT, E.NONE),
    Case("END1-15", build_state(S.COMPLETE_COMMIT), ABORT, STATE),
    Case("END1-16", build_state(S.COMPLETE_ABORT), COMMIT, STATE),
    Case("END1-17", build_state(S.COMPLETE_ABORT), ABORT, E.NONE),
    Case("END1-18", build_state(S.EMPTY), COMMIT, STATE),
    Case("END1-19", build_state(S.EMPTY), ABORT, STATE),
]


@rows(V1)
def test_v1(case):
    decision = decide_end(case.state, case.transient, *case.producer, case.commit, NOW)
    assert (decision.error, decision.producer_id, decision.producer_epoch) == (case.error, -1, -1)
    assert decision.record == case.record
    if decision.record is not None:
        check_step(case.state, decision.record)


@pytest.mark.parametrize("commit", [COMMIT, ABORT], ids=["commit", "abort"])
@row("END1-20", "END1-21")
def test_states_that_are_never_held_are_not_decided(row, commit):
    status = S.DEAD if row == "END1-20" else S.PREPARE_EPOCH_FENCE
    with pytest.raises(KeyError):
        decide_end(build_state(status), NO_PENDING, PID, 5, commit, NOW)
    # And no log can have one as the state of an id.
    with pytest.raises(ProtocolError, match=f"status {int(status)}"):
        from_value(decode_transaction_value(encode_transaction_fields(build_state(status), ())))


REPEATED = (PID, 4)
OVER = TransientState(last_epoch=32766)


def build_rotation(status):
    return build_state(status, 0, previous=OLD_PID)


def empty_abort(name, status):
    return Case(
        name,
        build_state(status),
        ABORT,
        E.NONE,
        record=build_prepare(S.PREPARE_ABORT, 6, began=NOW, partitions={}, version=2),
        answer=(PID, 6),
    )


def build_case(name, status, outcome, epoch=5, answer=(PID, 6), next_id=-1):
    record = build_prepare(outcome, epoch + 1, next_id=next_id, version=2)
    commit = outcome is S.PREPARE_COMMIT
    return Case(name, build_state(status, epoch), commit, E.NONE, (PID, epoch), NO_PENDING, record, answer)


V2 = [
    *both("END2-3", None, MAPPING),
    *both("END2-4 an id that is being created", None, BUSY, transient=PENDING),
    *[case for s in LOGGED for case in both(f"END2-4 {s.wire_name}", build_state(s), BUSY, transient=PENDING)],
    *both("END2-4 another producer id", build_state(S.ONGOING), BUSY, producer=(9, 5), transient=PENDING),
    *both("END2-4 another epoch", build_state(S.ONGOING), BUSY, producer=(PID, 9), transient=PENDING),
    *[case for s in LOGGED for case in both(f"END2-5 {s.wire_name}", build_state(s), MAPPING, producer=(9, 5))],
    *both("END2-5 the id before, not at 32766", build_rotation(S.COMPLETE_COMMIT), MAPPING, producer=(OLD_PID, 32765)),
    *both(
        "END2-5 the id before, not at once",
        build_state(S.EMPTY, 1, previous=OLD_PID),
        MAPPING,
        producer=(OLD_PID, 32766),
    ),
    *[
        case
        for s in (S.ONGOING, S.EMPTY)
        for e in (3, 4, 6)
        for case in both(f"END2-6 {s.wire_name}, epoch {e}", build_state(s), FENCED, producer=(PID, e))
    ],
    *[
        case
        for number, s in ((6, S.EMPTY), (6, S.ONGOING), (7, S.PREPARE_COMMIT), (7, S.PREPARE_ABORT))
        for case in both(
            f"END2-{number} {s.wire_name}, over a rotation", build_rotation(s), FENCED, producer=(OLD_PID, 32766)
        )
    ],
    *[
        case
        for s in PREPARED
        for e in (3, 5, 6)
        for case in both(f"END2-7 {s.wire_name}, epoch {e}", build_state(s), FENCED, producer=(PID, e))
    ],
    *[
        case
        for s in COMPLETE
        for e in (3, 6)
        for case in both(f"END2-8 {s.wire_name}, epoch {e}", build_state(s), FENCED, producer=(PID, e))
    ],
    build_case("END2-9", S.ONGOING, S.PREPARE_COMMIT),
    build_case("END2-10", S.ONGOING, S.PREPARE_ABORT),
    Case("END2-11", build_state(S.EMPTY), COMMIT, STATE),
    empty_abort("END2-12", S.EMPTY),
    Case("END2-13", build_state(S.PREPARE_COMMIT), COMMIT, BUSY, REPEATED),
    Case("END2-14", build_state(S.PREPARE_COMMIT), ABORT, STATE, REPEATED),
    Case("END2-15", build_state(S.PREPARE_ABORT), COMMIT, STATE, REPEATED),
    Case("END2-16", build_state(S.PREPARE_ABORT), ABORT, BUSY, REPEATED),
    Case("END2-17", build_state(S.COMPLETE_COMMIT), COMMIT, E.NONE, REPEATED, answer=(PID, 5)),
    Case("END2-18", build_state(S.COMPLETE_COMMIT), ABORT, STATE, REPEATED),
    Case("END2-19", build_state(S.COMPLETE_COMMIT), COMMIT, STATE),
    empty_abort("END2-20", S.COMPLETE_COMMIT),
    Case("END2-21", build_state(S.COMPLETE_ABORT), COMMIT, STATE, REPEATED),
    Case("END2-22", build_state(S.COMPLETE_ABORT), ABORT, E.NONE, REPEATED, answer=(PID, 5)),
    Case("END2-23", build_state(S.COMPLETE_ABORT), COMMIT, STATE),
    empty_abort("END2-24", S.COMPLETE_ABORT),
    Case("END2-25 commit", build_rotation(S.COMPLETE_COMMIT), COMMIT, E.NONE, (OLD_PID, 32766), OVER, answer=(PID, 0)),
    Case("END2-25 commit, then abort", build_rotation(S.COMPLETE_COMMIT), ABORT, STATE, (OLD_PID, 32766), OVER),
    Case("END2-25 abort", build_rotation(S.COMPLETE_ABORT), ABORT, E.NONE, (OLD_PID, 32766), OVER, answer=(PID, 0)),
    Case("END2-25 abort, then commit", build_rotation(S.COMPLETE_ABORT), COMMIT, STATE, (OLD_PID, 32766), OVER),
    build_case("END2-27 commit", S.ONGOING, S.PREPARE_COMMIT, 32765, (PID, 32766)),
    build_case("END2-27 abort", S.ONGOING, S.PREPARE_ABORT, 32765, (PID, 32766)),
    build_case("END2-28 commit", S.ONGOING, S.PREPARE_COMMIT, 32766, (FRESH_PID, 0), FRESH_PID),
    build_case("END2-28 abort", S.ONGOING, S.PREPARE_ABORT, 32766, (FRESH_PID, 0), FRESH_PID),
    Case(
        "END2-28 empty abort",
        build_state(S.EMPTY, 32766),
        ABORT,
        E.NONE,
        (PID, 32766),
        NO_PENDING,
        build_prepare(S.PREPARE_ABORT, 32767, began=NOW, partitions={}, next_id=FRESH_PID, version=2),
        (FRESH_PID, 0),
    ),
]


@rows(V2)
def test_v2(case):
    given = (case.state, case.transient, *case.producer, case.commit, NOW)
    decision = decide_end_v2(*given, FRESH_PID)
    needs_id = case.record is not None and case.record.next_producer_id == FRESH_PID
    assert decide_end_v2(*given) == (NEED_PRODUCER_ID if needs_id else decision)
    assert (decision.error, (decision.producer_id, decision.producer_epoch)) == (case.error, case.answer)
    assert decision.record == case.record
    if case.record is not None:
        assert decision.last_epoch == case.state.producer_epoch
        check_step(case.state, decision.record)


def test_at_epoch_32767_a_transaction_can_only_be_aborted_which_gives_its_producer_another_id():
    before = build_state(S.ONGOING, 32767)
    decision = decide_end_v2(before, NO_PENDING, PID, 32767, ABORT, NOW, FRESH_PID)
    assert (decision.error, decision.producer_id, decision.producer_epoch) == (E.NONE, FRESH_PID, 0)
    assert decision.record == build_prepare(S.PREPARE_ABORT, 32767, next_id=FRESH_PID, version=2)
    check_step(before, decision.record)
    refused = decide_end_v2(before, NO_PENDING, PID, 32767, COMMIT, NOW, FRESH_PID)
    assert (refused.error, refused.record) == (E.UNKNOWN_SERVER_ERROR, None)


@pytest.mark.parametrize("outcome", PREPARED, ids=["commit", "abort"])
@row("END2-29 exhausted", "END2-29 not exhausted")
def test_complete_switches_to_the_next_producer_id(row, outcome):
    rotates = row == "END2-29 exhausted"
    before = build_prepare(outcome, 32767 if rotates else 32766, next_id=FRESH_PID if rotates else -1, version=2)
    done = S.COMPLETE_COMMIT if outcome is S.PREPARE_COMMIT else S.COMPLETE_ABORT
    producer = (FRESH_PID, 0) if rotates else (PID, 32766)
    expected = TransactionState(*producer, done, 60_000, {}, before.start_ms, NOW + 9, PID, -1, 2)
    assert completion(before, NOW + 9) == expected
    check_step(before, expected)
    # The next transaction belongs to the new producer.
    added = decide_add_partitions(expected, NO_PENDING, *producer, [("foo", 0)], NOW + 10, 2)
    assert (added.error, added.record.producer_id, added.record.producer_epoch) == (E.NONE, *producer)


# ---- aborts by the coordinator


class Abort(NamedTuple):
    row: str
    epoch: int
    level: int
    reached: int
    next_id: int = -1
    fenced: int = -1


ABORTS = [
    Abort("ABORT-1 level 0", 5, 0, 6),
    Abort("ABORT-1 level 1", 5, 1, 6),
    Abort("ABORT-1 level 1, exhausted", 32766, 1, 32767),
    Abort("ABORT-1 level 1, at the end", 32767, 1, 32767),
    Abort("ABORT-1 level 1, fenced before", 5, 1, 6, fenced=6),
    Abort("ABORT-2", 5, 2, 6),
    Abort("ABORT-2 exhausted", 32766, 2, 32767, FRESH_PID),
    Abort("ABORT-2 at the end", 32767, 2, 32767, FRESH_PID),
    Abort("ABORT-3 level 0", 5, 0, 6),
    Abort("ABORT-3 level 1, at the end", 32767, 1, 32767),
    Abort("ABORT-4", 5, 2, 6),
    Abort("ABORT-4 exhausted", 32766, 2, 32767, FRESH_PID),
]


@pytest.mark.parametrize("version", [0, 2], ids=["a V1 client", "a V2 client"])
@rows(ABORTS)
def test_abort_by_the_coordinator(case, version):
    before = build_state(S.ONGOING, case.epoch, version=version)
    transient = TransientState(fenced_epoch=case.fenced)
    fresh = FRESH_PID if case.next_id > 0 else -1
    if case.next_id > 0:
        assert decide_abort(before, transient, case.level, NOW, -1, BUSY) is NEED_PRODUCER_ID
    decision = decide_abort(before, transient, case.level, NOW, fresh, BUSY)
    generation = 2 if case.level == 2 else 0
    assert decision.record == build_prepare(S.PREPARE_ABORT, case.reached, next_id=case.next_id, version=generation)
    assert (decision.error, decision.producer_id, decision.producer_epoch) == (BUSY, -1, -1)
    assert decision.last_epoch == (case.epoch if case.level == 2 else -1)
    check_step(before, decision.record)


@row("ABORT-5 level 0", "ABORT-5 level 1", "ABORT-6", "ABORT-6 exhausted")
def test_a_coordinator_abort_completes_with_a_new_epoch_or_producer_id(row):
    level = 2 if row.startswith("ABORT-6") else int(row[-1])
    epoch = 32766 if "exhausted" in row else 5
    before = build_state(S.ONGOING, epoch)
    record = decide_abort(before, NO_PENDING, level, NOW, FRESH_PID, BUSY).record
    after = with_pending_completion(NO_PENDING, record, NOW + 9)
    assert after.awaiting == PLACES
    producer = (FRESH_PID, 0) if "exhausted" in row else (PID, epoch + 1)
    assert after.pending == TransactionState(
        *producer, S.COMPLETE_ABORT, 60_000, {}, before.start_ms, NOW + 9, PID, -1, record.client_version
    )
    assert after.fenced_epoch == -1
    check_step(record, after.pending)


@row("ABORT-7 level 0", "ABORT-7 level 1", "ABORT-8 level 2")
def test_an_abort_that_was_not_logged(row):
    level = int(row[-1])
    before = build_state(S.ONGOING)
    first = decide_abort(before, NO_PENDING, level, NOW, -1, BUSY)
    kept = after_failed_append(TransientState(pending=first.record), first)
    assert kept == (TransientState(fenced_epoch=6) if level < 2 else NO_PENDING)
    assert decide_abort(before, kept, level, NOW, -1, BUSY).record == first.record
    old = decide_add_partitions(before, kept, PID, 5, [("foo", 3)], NOW)
    assert old.error is (FENCED if level < 2 else E.NONE)
