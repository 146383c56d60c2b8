"""EndTxn and aborts through handlers and coordinator: END1, END2 and ABORT without the state machine's decision."""

from ottla.broker.txn.states import TransactionStatus as S
from ottla.broker.txn.values import NO_PENDING
from ottla.protocol.errors import ErrorCode as E
from tests.tables.rows import BUSY, FENCED, LOADING, MAPPING, PID, STATE, row, rows

END = 26
FOO, BAR = ("foo", 1), ("bar", 0)


def end(ask, version, producer, committed=True, name="t"):
    asked = {"producer_id": producer[0], "producer_epoch": producer[1], "committed": committed}
    answer = ask(END, version, transactional_id=name, **asked)
    return (E(answer.error_code), answer.producer_id, answer.producer_epoch) if version >= 5 else E(answer.error_code)


def build_refusal(version, error):
    return (error, -1, -1) if version >= 5 else error


@rows([*[(f"END1-2 version {v}", v) for v in range(5)], ("END2-1 version 5", 5)])
def test_the_empty_id(case, ask, rig):
    _, version = case
    assert end(ask, version, (PID, 0), name="") == build_refusal(version, E.INVALID_REQUEST)
    assert all(log.batches == [] for log in rig.cluster.logs)


LOOKUPS = [
    (f"{'END2-2' if version >= 5 else 'END1-3'} version {version}, {why}", version, why)
    for version in range(6)
    for why in ("loading", "offline")
]


@rows(LOOKUPS)
def test_a_failed_lookup(case, ask, rig):
    _, version, why = case
    producer = rig.producer()
    logged = len(rig.log_of("t").batches)
    if why == "loading":
        rig.coordinator.states.shards.clear()
        rig.coordinator.states.loading.update(range(5))
    else:
        rig.log_of("t").offline = "no space left"
    error = LOADING if why == "loading" else E.NOT_COORDINATOR
    assert end(ask, version, producer) == build_refusal(version, error)
    assert len(rig.log_of("t").batches) == logged


def open_transaction(rig, *places):
    producer = rig.producer()
    rig.add("t", producer, *(places or (FOO,)))
    return producer


@row("END1-23 commit", "END1-23 abort")
def test_an_id_is_busy_while_prepare_is_being_logged(row, rig):
    commit = "commit" in row
    producer = open_transaction(rig)
    rig.log_of("t").hold = True
    answers = rig.begin(rig.coordinator.end("t", *producer, commit, v2=False))
    assert (answers, rig.state().status, rig.sink.written) == ([], S.ONGOING, [])
    assert rig.end("t", producer, commit).error is BUSY
    assert rig.end("t", producer, commit, v2=True).error is BUSY
    assert rig.init().error is BUSY
    assert rig.init(expected=producer).error is BUSY
    assert rig.add("t", producer, BAR) is BUSY
    assert rig.coordinator.verify("t", *producer, [FOO]) == [E.NONE]
    rig.clock.advance(120_000)  # nor does the timeout
    rig.turns.event(rig.log_of("t").release)
    assert answers[0].error is E.NONE
    assert rig.state()[:3] == (*producer, S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)


@row("END1-24 commit", "END1-24 abort")
def test_end_txn_is_answered_before_the_markers(row, rig):
    commit = "commit" in row
    producer = open_transaction(rig)
    rig.sink.answers[FOO] = [E.NOT_LEADER_OR_FOLLOWER] * 3
    assert rig.end("t", producer, commit).error is E.NONE
    assert rig.state().status is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
    assert (rig.sink.written, rig.shard_of().transient["t"].awaiting) == ([], {FOO: None})
    for asked_commit in (commit, not commit):
        assert rig.end("t", producer, asked_commit).error is BUSY
        assert rig.end("t", producer, asked_commit, v2=True).error is BUSY
    rig.clock.advance(200)
    assert rig.state().status is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert [(topic, index, marker.commit) for topic, index, marker in rig.sink.written] == [(*FOO, commit)]


@row("END2-26 pending", "END2-26 mapping", "END2-26 fenced", "END2-26 state", "END2-26 log")
def test_an_error_of_version_5_has_no_producer(row, ask, rig):
    rig.cluster.level = 2
    producer = open_transaction(rig)
    kind = row.split()[1]
    if kind == "pending":
        rig.sink.answers[FOO] = [E.NOT_LEADER_OR_FOLLOWER] * 9
        assert end(ask, 5, producer) == (E.NONE, PID, 1)
        assert end(ask, 5, producer) == (BUSY, -1, -1)
    elif kind == "mapping":
        assert end(ask, 5, (9, 0)) == (MAPPING, -1, -1)
    elif kind == "fenced":
        assert end(ask, 5, (PID, 7)) == (FENCED, -1, -1)
    elif kind == "state":
        assert end(ask, 5, producer) == (E.NONE, PID, 1)
        assert end(ask, 5, producer, committed=False) == (STATE, -1, -1)
    else:
        rig.log_of("t").refuse = E.NOT_ENOUGH_REPLICAS
        assert end(ask, 5, producer) == (E.COORDINATOR_NOT_AVAILABLE, -1, -1)
        assert rig.state()[:3] == (*producer, S.ONGOING)


@row("END2-12 served")
def test_the_empty_abort_writes_no_marker(row, ask, rig):
    rig.cluster.level = 2
    producer = rig.producer()
    logged = len(rig.log_of("t").batches)
    assert end(ask, 5, producer, committed=False) == (E.NONE, PID, 1)
    assert rig.state()[:3] == (PID, 1, S.COMPLETE_ABORT)
    assert (rig.sink.written, len(rig.log_of("t").batches)) == ([], logged + 2)


def exhaust_epochs(rig, *places):
    producer = open_transaction(rig, *places)
    shard = rig.shard_of()
    shard.states["t"] = shard.states["t"]._replace(producer_epoch=32766)
    return producer[0], 32766


@row("END2-29 served, commit", "END2-29 served, abort")
def test_markers_carry_the_old_producer_of_a_rotation(row, ask, rig):
    rig.cluster.level = 2
    commit = "commit" in row
    producer = exhaust_epochs(rig, FOO, BAR)
    fresh = rig.cluster.next_id
    assert end(ask, 5, producer, commit) == (E.NONE, fresh, 0)
    assert [(*place, m.producer_id, m.producer_epoch, m.commit) for *place, m in rig.sink.written] == [
        (*FOO, PID, 32767, commit),
        (*BAR, PID, 32767, commit),
    ]
    state = rig.state()
    assert state[:3] == (fresh, 0, S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert (state.previous_producer_id, state.next_producer_id) == (PID, -1)
    assert end(ask, 5, producer, commit) == (E.NONE, fresh, 0)  # its repetition, END2-25


@row("END2-30 commit", "END2-30 abort", "END2-30 empty abort")
def test_without_a_producer_id_an_exhausted_one_is_not_ended(row, ask, rig):
    rig.cluster.level = 2
    producer = exhaust_epochs(rig)
    if "empty" in row:
        shard = rig.shard_of()
        shard.states["t"] = shard.states["t"]._replace(status=S.EMPTY, partitions={}, start_ms=-1)
    before, logged = rig.state(), len(rig.log_of("t").batches)
    rig.cluster.no_ids = True
    assert end(ask, 5, producer, "commit" in row) == (LOADING, -1, -1)
    assert (rig.state(), len(rig.log_of("t").batches), rig.sink.written) == (before, logged, [])


@row("END2-31 commit", "END2-31 abort", "END2-31 empty abort")
def test_v2_does_not_end_at_level_0(row, ask, rig):
    producer = rig.producer() if "empty" in row else open_transaction(rig)
    rig.cluster.level = 0
    before, logged = rig.state(), len(rig.log_of("t").batches)
    assert end(ask, 5, producer, "commit" in row) == (E.UNSUPPORTED_VERSION, -1, -1)
    assert (rig.state(), len(rig.log_of("t").batches)) == (before, logged)
    assert "t" not in rig.shard_of().transient


@row("ABORT-5 served", "ABORT-6 served")
def test_markers_of_an_abort_by_the_coordinator(row, make_rig):
    rig = make_rig(1 if row.startswith("ABORT-5") else 2).start()
    open_transaction(rig, FOO, BAR)
    assert rig.init().error is BUSY
    assert [(*place, m.producer_id, m.producer_epoch, m.commit) for *place, m in rig.sink.written] == [
        (*FOO, PID, 1, False),
        (*BAR, PID, 1, False),
    ]
    assert rig.state()[:3] == (PID, 1, S.COMPLETE_ABORT)


@row("ABORT-7 served, level 0", "ABORT-7 served, level 1", "ABORT-8 served, level 2")
def test_aborts_that_the_log_refuses_move_the_epoch_once(row, make_rig):
    rig = make_rig(int(row[-1])).start()
    producer = open_transaction(rig)
    rig.log_of("t").refuse = E.NOT_ENOUGH_REPLICAS
    for _ in range(3):
        assert rig.init().error is E.COORDINATOR_NOT_AVAILABLE
    assert rig.state()[:3] == (*producer, S.ONGOING)
    rig.log_of("t").refuse = E.NONE
    assert rig.coordinator.verify("t", *producer, [FOO]) == [E.NONE if row.endswith("2") else FENCED]
    assert rig.init().error is BUSY
    assert rig.state()[:3] == (PID, 1, S.COMPLETE_ABORT)
    assert rig.shard_of().transient.get("t", NO_PENDING).fenced_epoch == -1


@row("ABORT-9 level 0", "ABORT-9 level 1", "ABORT-10 level 2")
def test_the_old_producer_while_the_abort_is_being_logged(row, make_rig):
    rig = make_rig(int(row[-1])).start()
    producer = open_transaction(rig)
    rig.log_of("t").hold = True
    answers = rig.begin(rig.coordinator.init_producer_id("t", 60_000))
    assert (answers, rig.state()[:3]) == ([], (*producer, S.ONGOING))
    assert rig.add("t", producer, BAR) is BUSY
    fenced = "ABORT-9" in row
    for commit in (True, False):
        assert rig.end("t", producer, commit).error is (FENCED if fenced else BUSY)
        assert rig.end("t", producer, commit, v2=True).error is BUSY
    verified = [FENCED, FENCED] if fenced else [E.NONE, E.TRANSACTION_ABORTABLE]
    assert rig.coordinator.verify("t", *producer, [FOO, BAR]) == verified
    rig.turns.event(rig.log_of("t").release)
    assert answers[0].error is BUSY
    assert rig.state()[:3] == (PID, 1, S.COMPLETE_ABORT)
    assert rig.end("t", producer, False).error is FENCED
    assert rig.coordinator.verify("t", *producer, [FOO]) == [FENCED]


@row("INIT-1 waits", "INIT-1 waits in vain", "ADD-5 waits", "ADD-5 waits in vain")
def test_requests_wait_for_the_markers_of_their_id(row, make_rig):
    """A marker is tried again after 20 ms; requests wait for 50."""
    rig = make_rig(waits=True).start()
    producer = open_transaction(rig)
    rig.sink.answers[FOO] = [E.NOT_LEADER_OR_FOLLOWER] * (9 if "vain" in row else 1)
    assert rig.end("t", producer).error is E.NONE
    adds = row.startswith("ADD")
    asked = rig.coordinator.add_partitions("t", *producer, [BAR]) if adds else rig.coordinator.init_producer_id("t", 9)
    answers = rig.begin(asked)
    rig.clock.advance(19)
    assert (answers, rig.state().status) == ([], S.PREPARE_COMMIT)
    rig.clock.advance(1)
    if "vain" in row:
        rig.clock.advance(29)
        assert answers == []
        rig.clock.advance(1)
        assert (answers[0] if adds else answers[0].error) is BUSY
        assert rig.state().status is S.PREPARE_COMMIT
    else:
        assert (answers[0] if adds else answers[0].error) is E.NONE
        assert rig.state()[1:3] == ((0, S.ONGOING) if adds else (1, S.EMPTY))
    assert rig.shard_of().waiting == {}
    assert rig.clock.armed == 2 + ("vain" in row)  # housekeeping has two timers; the markers are tried again
