"""InitProducerId: the tables INIT (on the machine) and INITREQ (through the handler)."""

from dataclasses import replace
from typing import NamedTuple

import pytest

from ottla.broker.txn.log import read_changes
from ottla.broker.txn.machine import check_step, decide_init_producer_id
from ottla.broker.txn.states import TransactionStatus as S
from ottla.broker.txn.values import NEED_PRODUCER_ID, NO_PENDING, TransactionState, TransientState
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.values import NEVER_TIMES_OUT_MS
from tests.tables.rows import (
    BUSY,
    FENCED,
    FRESH_PID,
    LOADING,
    LOGGED,
    NOW,
    OLD_PID,
    PENDING,
    PID,
    PREPARED,
    RESTING,
    build_prepare,
    build_state,
    row,
    rows,
)

INIT = 22
ANY = (-1, -1)
ASKED_MS = 30_000


class Case(NamedTuple):
    row: str
    state: TransactionState | None
    expected: tuple[int, int]
    error: E
    answer: tuple[int, int] = (-1, -1)
    record: TransactionState | None = None
    last_epoch: int = -1
    transient: TransientState = NO_PENDING
    level: int = 1


def empty(epoch, producer_id=PID, previous=PID):
    return TransactionState(producer_id, epoch, S.EMPTY, ASKED_MS, {}, -1, NOW, previous)


def fence(row_name, expected=ANY, *, epoch=5, to=6, transient=NO_PENDING, level=1, **more):
    version = 2 if level == 2 else 0
    record = build_prepare(S.PREPARE_ABORT, to, version=version, **more)
    last = epoch if level == 2 else -1
    return Case(row_name, build_state(S.ONGOING, epoch), expected, BUSY, ANY, record, last, transient, level)


LAST_4 = TransientState(last_epoch=4)
ROTATED = build_state(S.EMPTY, 0, previous=OLD_PID)
ROTATED_FROM_32766 = TransientState(last_epoch=32766)
CASES = [
    *[Case(f"INIT-1 {s.wire_name}", build_state(s), ANY, BUSY, transient=PENDING) for s in LOGGED],
    Case("INIT-1 wins over a wrong id", build_state(S.EMPTY), (9, 5), BUSY, transient=PENDING),
    Case("INIT-1 an id that is being created", None, ANY, BUSY, transient=PENDING),
    *[Case(f"INIT-2 {s.wire_name}", build_state(s), (9, 5), FENCED) for s in LOGGED],
    Case(
        "INIT-2 the id before with an epoch that is not exhausted",
        ROTATED,
        (OLD_PID, 32765),
        FENCED,
        transient=TransientState(last_epoch=32765),
    ),
    *[
        Case(f"INIT-3 {s.wire_name}, expects {word}", build_state(s), expected, BUSY)
        for s in PREPARED
        for word, expected in (("nothing", ANY), ("the held epoch", (PID, 5)), ("another epoch", (PID, 2)))
    ],
    fence("INIT-4 level 0", level=0),
    fence("INIT-4 level 1"),
    fence("INIT-4 level 2", level=2),
    fence("INIT-4 fenced in memory", transient=TransientState(fenced_epoch=6)),
    fence("INIT-4 expects the held epoch", (PID, 5)),
    fence("INIT-4 expects a lower epoch", (PID, 2)),
    fence("INIT-4 expects a higher epoch, level 2", (PID, 9), level=2),
    fence("INIT-4 level 1, epoch 32766", epoch=32766, to=32767),
    fence("INIT-4 level 2, epoch 32766", epoch=32766, to=32767, level=2, next_id=FRESH_PID),
    Case("INIT-5 new id", None, ANY, E.NONE, (FRESH_PID, 0), empty(0, FRESH_PID, FRESH_PID)),
    *[Case(f"INIT-5 {s.wire_name}", build_state(s), ANY, E.NONE, (PID, 6), empty(6)) for s in RESTING],
    Case("INIT-5 epoch 32765", build_state(S.EMPTY, 32765), ANY, E.NONE, (PID, 32766), empty(32766)),
    *[
        Case(f"INIT-6 {s.wire_name}, epoch {e}", build_state(s, e), ANY, E.NONE, (FRESH_PID, 0), empty(0, FRESH_PID))
        for s in RESTING
        for e in (32766, 32767)
    ],
    *[Case(f"INIT-7 {s.wire_name}", build_state(s), (PID, 5), E.NONE, (PID, 6), empty(6), 5) for s in RESTING],
    Case("INIT-7 new id", None, (9, 5), E.NONE, (FRESH_PID, 0), empty(0, FRESH_PID, FRESH_PID)),
    *[
        Case(f"INIT-8 {s.wire_name}", build_state(s, e), (PID, e), E.NONE, (FRESH_PID, 0), empty(0, FRESH_PID), e)
        for s, e in zip(RESTING, (32766, 32766, 32767), strict=True)
    ],
    *[
        Case(f"INIT-9 {s.wire_name}", build_state(s), (PID, 4), E.NONE, (PID, 5), empty(5), 4, transient=LAST_4)
        for s in RESTING
    ],
    Case(
        "INIT-9 over a rotation",
        ROTATED,
        (OLD_PID, 32766),
        E.NONE,
        (PID, 0),
        empty(0),
        32766,
        transient=ROTATED_FROM_32766,
    ),
    *[Case(f"INIT-10 {s.wire_name}, lower", build_state(s), (PID, 3), FENCED, transient=LAST_4) for s in RESTING],
    Case("INIT-10 higher", build_state(S.EMPTY), (PID, 6), FENCED, transient=LAST_4),
    Case("INIT-10 one below, and no last epoch", build_state(S.EMPTY), (PID, 4), FENCED),
    Case("INIT-10 over a rotation, and no last epoch", ROTATED, (OLD_PID, 32766), FENCED),
    *[
        Case(f"INIT-11 {s.wire_name}, epoch {e}", build_state(s, e), (PID, e - 1), E.UNKNOWN_SERVER_ERROR)
        for s in RESTING
        for e in (32766, 32767)
    ],
    Case(
        "INIT-11 the last epoch",
        build_state(S.EMPTY, 32766),
        (PID, 32765),
        E.UNKNOWN_SERVER_ERROR,
        transient=TransientState(last_epoch=32765),
    ),
]


@rows(CASES)
def test_decision(case):
    given = (case.state, case.transient, ASKED_MS, *case.expected, case.level, NOW)
    decision = decide_init_producer_id(*given, FRESH_PID)
    needs_id = case.record is not None and FRESH_PID in (case.record.producer_id, case.record.next_producer_id)
    assert decide_init_producer_id(*given) == (NEED_PRODUCER_ID if needs_id else decision)
    assert (decision.error, (decision.producer_id, decision.producer_epoch)) == (case.error, case.answer)
    assert decision.record == case.record
    assert decision.last_epoch == case.last_epoch
    if decision.record is not None:
        check_step(case.state, decision.record)


@row("INIT-4 the log refuses the abort")
def test_an_abort_that_is_not_logged_is_answered_with_the_error_of_the_log(row, rig):
    producer = rig.producer()
    rig.add("t", producer, ("foo", 1))
    rig.log_of("t").refuse = E.NOT_ENOUGH_REPLICAS
    assert rig.init() == (E.COORDINATOR_NOT_AVAILABLE, None, -1, -1, -1, -1)
    assert rig.state()[:3] == (*producer, S.ONGOING)
    assert rig.sink.written == []


@row("INIT-4 answered when the abort is durable")
def test_an_abort_is_answered_when_it_is_durable(row, rig):
    producer = rig.producer()
    rig.add("t", producer, ("foo", 1))
    rig.log_of("t").hold = True
    answers = rig.begin(rig.coordinator.init_producer_id("t", 60_000))
    assert (answers, rig.state().status, rig.sink.written) == ([], S.ONGOING, [])
    rig.turns.event(rig.log_of("t").release)
    assert [(a.error, a.producer_id, a.producer_epoch) for a in answers] == [(BUSY, -1, -1)]
    assert [(topic, index, marker.commit) for topic, index, marker in rig.sink.written] == [("foo", 1, False)]


@row("INIT-12 new id", "INIT-12 exhausted", "INIT-12 open and exhausted at level 2")
def test_without_a_producer_id_nothing_is_logged(row, make_rig):
    rig = make_rig(2 if "level 2" in row else 1).start()
    if "new" not in row:
        producer = rig.producer()
        if "open" in row:
            rig.add("t", producer, ("foo", 1))
        shard = rig.shard_of()
        shard.states["t"] = shard.states["t"]._replace(producer_epoch=32766)
    before, logged = rig.durable(), len(rig.log_of("t").batches)
    rig.cluster.no_ids = True
    answer = rig.init()
    assert (answer.error, answer.producer_id, answer.producer_epoch) == (LOADING, -1, -1)
    assert (rig.durable(), len(rig.log_of("t").batches)) == (before, logged)
    rig.cluster.no_ids = False
    assert rig.init().error is (BUSY if "open" in row else E.NONE)


def statuses(rig):
    """Return (status, epoch) of each state in the log of the id "t"."""
    seen = []
    for header, batch in rig.log_of("t").batches:
        seen += [(change.state.status, change.state.producer_epoch) for change in read_changes(header, batch, "log")]
    return seen


@row("INIT-13 level 1", "INIT-13 level 2")
def test_a_restart_with_an_open_transaction_costs_two_epochs(row, make_rig):
    rig = make_rig(int(row[-1])).start()
    rig.add("t", rig.producer(), ("foo", 1))
    assert rig.init().error is BUSY
    rig.clock.settle()
    again = rig.init()
    assert (again.error, again.producer_id, again.producer_epoch) == (E.NONE, PID, 2)
    assert statuses(rig) == [
        (S.EMPTY, 0),
        (S.ONGOING, 0),
        (S.PREPARE_ABORT, 1),
        (S.COMPLETE_ABORT, 1),
        (S.EMPTY, 2),
    ]


@row("INIT-14")
def test_the_last_epoch_does_not_survive_a_restart(row, rig):
    producer = rig.producer()
    for _ in range(2):  # INIT-7, then its repetition, INIT-9
        answer = rig.init(expected=producer)
        assert (answer.error, answer.producer_id, answer.producer_epoch) == (E.NONE, PID, 1)
    rig.restart()
    assert rig.init(expected=producer).error is FENCED
    assert rig.state().producer_epoch == 1


@row("INIT-15 level 0", "INIT-15 level 1", "INIT-16 level 2")
def test_a_resume_after_an_abort_is_fenced_below_level_2(row, make_rig):
    level = int(row[-1])
    rig = make_rig(level).start()
    producer = rig.producer()
    rig.add("t", producer, ("foo", 1))
    assert rig.init(expected=producer).error is BUSY
    rig.clock.settle()
    assert rig.state()[1:3] == (1, S.COMPLETE_ABORT)
    answer = rig.init(expected=producer)
    if level < 2:
        assert (answer.error, answer.producer_id, answer.producer_epoch) == (FENCED, -1, -1)
        assert rig.state()[1:3] == (1, S.COMPLETE_ABORT)
    else:
        assert (answer.error, answer.producer_id, answer.producer_epoch) == (E.NONE, PID, 1)
        assert rig.state()[1:3] == (1, S.EMPTY)


# ---- the request


def init(ask, version, name="t", timeout_ms=60_000, **expected):
    answer = ask(INIT, version, transactional_id=name, transaction_timeout_ms=timeout_ms, **expected)
    return E(answer.error_code), answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", [3, 4, 5, 6])
@row(*[f"INITREQ-4 {half} alone{of}" for half in ("id", "epoch") for of in ("", ", without a transactional id")])
def test_half_an_expectation(row, ask, rig, version):
    half = {"producer_epoch": 0} if "epoch" in row else {"producer_id": 0}
    name = None if "without" in row else "t"
    assert init(ask, version, name, **half) == (E.INVALID_REQUEST, -1, -1)
    assert rig.durable() == {}


@pytest.mark.parametrize("version", range(7))
@row("INITREQ-5")
def test_an_idempotent_producer(row, ask, rig, version):
    assert init(ask, version, None, timeout_ms=-5) == (E.NONE, PID, 0)
    expected = {"producer_id": PID, "producer_epoch": 7} if version >= 3 else {}
    assert init(ask, version, None, timeout_ms=2**31 - 1, **expected) == (E.NONE, PID + 1, 0)
    assert all(log.batches == [] for log in rig.cluster.logs)


@row("INITREQ-6")
def test_an_idempotent_producer_without_a_producer_id(row, ask, rig):
    rig.cluster.no_ids = True
    assert init(ask, 4, None) == (LOADING, -1, -1)


@pytest.mark.parametrize("version", range(7))
@row("INITREQ-7")
def test_the_empty_id(row, ask, rig, version):
    assert init(ask, version, "") == (E.INVALID_REQUEST, -1, -1)
    assert all(log.batches == [] for log in rig.cluster.logs)


@row("INITREQ-8", "INITREQ-8 and keeps the prepared transaction")
def test_two_phase_commit_is_disabled(row, ask, rig):
    asked = {"enable2_pc": True, "keep_prepared_txn": "keeps" in row, "timeout_ms": 0}
    assert init(ask, 6, **asked) == (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1, -1)
    assert rig.durable() == {}


@row("INITREQ-9", "INITREQ-9 with two-phase commit")
def test_a_prepared_transaction_cannot_be_kept(row, ask, rig):
    enable_two_phase_commit(rig)
    rig.add("t", rig.producer(), ("foo", 1))
    asked = {"enable2_pc": "with" in row, "keep_prepared_txn": True, "timeout_ms": 0}
    assert init(ask, 6, **asked) == (E.UNSUPPORTED_VERSION, -1, -1)
    assert rig.state().status is S.ONGOING


@row("INITREQ-10 zero", "INITREQ-10 negative", "INITREQ-11 one above", "INITREQ-11 the largest")
def test_a_timeout_out_of_range(row, ask, rig):
    timeout_ms = {"zero": 0, "negative": -1, "above": 900_001, "largest": 2**31 - 1}[row.split()[-1]]
    assert init(ask, 4, timeout_ms=timeout_ms) == (E.INVALID_TRANSACTION_TIMEOUT, -1, -1)
    assert rig.durable() == {}
    for edge_ms in (1, 900_000):
        assert init(ask, 4, timeout_ms=edge_ms)[0] is E.NONE
        assert rig.state().timeout_ms == edge_ms


def enable_two_phase_commit(rig):
    rig.coordinator.config = replace(rig.config, transaction_two_phase_commit_enable=True)


@pytest.mark.parametrize("asked_ms", [0, -5, 900_001, 60_000])
@row("INITREQ-12")
def test_a_transaction_of_two_phase_commit_never_times_out(row, ask, rig, asked_ms):
    enable_two_phase_commit(rig)
    assert init(ask, 6, timeout_ms=asked_ms, enable2_pc=True) == (E.NONE, PID, 0)
    assert rig.state().timeout_ms == NEVER_TIMES_OUT_MS
    assert init(ask, 5) == (E.NONE, PID, 1)
    assert rig.state().timeout_ms == 60_000, "the id is an ordinary one again"


@row("INITREQ-13 loading", "INITREQ-13 offline")
def test_a_failed_lookup(row, ask, rig):
    if "loading" in row:
        rig.coordinator.states.shards.clear()
        rig.coordinator.states.loading.update(range(5))
        assert init(ask, 4) == (LOADING, -1, -1)
    else:
        rig.log_of("t").offline = "no space left"
        assert init(ask, 4) == (E.NOT_COORDINATOR, -1, -1)
    assert rig.log_of("t").batches == []


@pytest.mark.parametrize("version", range(7))
@row("INITREQ-14 timeout", "INITREQ-14 pending")
def test_an_error_has_no_producer(row, ask, rig, version):
    if "timeout" in row:
        assert init(ask, version, timeout_ms=0) == (E.INVALID_TRANSACTION_TIMEOUT, -1, -1)
    else:
        rig.producer()
        rig.add("t", (PID, 0), ("foo", 1))
        assert init(ask, version) == (BUSY, -1, -1)
