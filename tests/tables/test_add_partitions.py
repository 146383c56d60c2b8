"""AddPartitionsToTxn and AddOffsetsToTxn: the tables ADD, VERIFY, ADDREQ, ADDOFF, FIND and CODE."""

from copy import deepcopy
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from ottla.broker.api import add_offsets_to_txn
from ottla.broker.api.request import Request
from ottla.broker.security.session import Session
from ottla.broker.txn.machine import check_step, decide_add_partitions, verify_partitions
from ottla.broker.txn.states import TransactionStatus as S
from ottla.broker.txn.values import NO_PENDING, TransactionState, TransientState
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.errors import ProtocolError
from ottla.protocol.requests import codec
from ottla.protocol.values import TopicPartition
from tests.broker_stub import broker_of
from tests.tables.rows import (
    BEGAN,
    BUSY,
    EPOCH,
    FENCED,
    LOADING,
    LOGGED,
    MAPPING,
    NOW,
    PENDING,
    PID,
    PLACES,
    PREPARED,
    RESTING,
    build_state,
    row,
    rows,
)

INIT, ADD, OFFSETS, END, DESCRIBE = 22, 24, 25, 26, 65
NEW = ("foo", 3)


class Case(NamedTuple):
    row: str
    state: TransactionState | None
    error: E
    producer: tuple[int, int] = (PID, 5)
    transient: TransientState = NO_PENDING
    places: tuple[TopicPartition, ...] = (NEW,)
    record: TransactionState | None = None
    version: int = 0


def begun(*places, began=NOW, version=0):
    return TransactionState(PID, 5, S.ONGOING, 60_000, dict.fromkeys(places), began, NOW, PID, -1, version)


ADDED = [
    Case("ADD-4", None, MAPPING),
    *[Case(f"ADD-5 {s.wire_name}", build_state(s), BUSY, transient=PENDING) for s in LOGGED],
    Case("ADD-5 another producer id", build_state(S.ONGOING), BUSY, (9, 5), PENDING),
    Case("ADD-5 another epoch", build_state(S.ONGOING), BUSY, (PID, 4), PENDING),
    Case("ADD-5 an id that is being created", None, BUSY, (9, 0), PENDING),
    *[Case(f"ADD-6 {s.wire_name}", build_state(s), MAPPING, (9, 5)) for s in LOGGED],
    *[Case(f"ADD-7 {s.wire_name}, epoch {e}", build_state(s), FENCED, (PID, e)) for s in LOGGED for e in (4, 6)],
    Case("ADD-7 fenced in memory", build_state(S.ONGOING), FENCED, transient=TransientState(fenced_epoch=6)),
    *[Case(f"ADD-8 {s.wire_name}", build_state(s), BUSY) for s in PREPARED],
    Case("ADD-9 all", build_state(S.ONGOING), E.NONE, places=tuple(PLACES)),
    Case("ADD-9 one", build_state(S.ONGOING), E.NONE, places=(("bar", 0),)),
    Case("ADD-9 none", build_state(S.ONGOING), E.NONE, places=()),
    Case("ADD-10", build_state(S.ONGOING), E.NONE, record=begun(*PLACES, NEW, began=BEGAN)),
    Case(
        "ADD-10 one of two",
        build_state(S.ONGOING),
        E.NONE,
        places=(("bar", 0), NEW),
        record=begun(*PLACES, NEW, began=BEGAN),
    ),
    *[Case(f"ADD-11 {s.wire_name}", build_state(s), E.NONE, record=begun(NEW)) for s in RESTING],
    Case("ADD-11 no partitions", build_state(S.EMPTY), E.NONE, places=(), record=begun()),
    Case(
        "ADD-11 keeps the last epoch",
        build_state(S.EMPTY),
        E.NONE,
        transient=TransientState(last_epoch=4),
        record=begun(NEW),
    ),
    Case("ADD-12 by a broker", build_state(S.EMPTY), E.NONE, record=begun(NEW, version=2), version=2),
    Case("ADD-12 by a client behind V2", build_state(S.COMPLETE_COMMIT, version=2), E.NONE, record=begun(NEW)),
]


@rows(ADDED)
def test_adding(case):
    before = deepcopy(case.state)
    given = (case.state, case.transient, *case.producer, case.places, NOW, case.version)
    decision = decide_add_partitions(*given)
    assert case.state == before
    assert (decision.error, decision.producer_id, decision.producer_epoch) == (case.error, -1, -1)
    assert decision.record == case.record
    if decision.record is not None:
        assert list(decision.record.partitions) == list(case.record.partitions)
        assert decision.last_epoch == case.transient.last_epoch
        check_step(case.state, decision.record)


VERIFIED = [
    Case("VERIFY-2", None, MAPPING),
    *[Case(f"VERIFY-3 {s.wire_name}", build_state(s), MAPPING, (9, 5)) for s in LOGGED],
    *[Case(f"VERIFY-4 {s.wire_name}, epoch {e}", build_state(s), FENCED, (PID, e)) for s in LOGGED for e in (4, 6)],
    *[Case(f"VERIFY-5 {s.wire_name}", build_state(s), BUSY, places=(("foo", 1),)) for s in PREPARED],
    *[Case(f"VERIFY-6 {place[0]}", build_state(S.ONGOING), E.NONE, places=(place,)) for place in PLACES],
    *[Case(f"VERIFY-7 {s.wire_name}", build_state(s), E.TRANSACTION_ABORTABLE) for s in (S.ONGOING, *RESTING)],
]


@pytest.mark.parametrize("transient", [NO_PENDING, PENDING], ids=["calm", "pending"])
@rows(VERIFIED)
def test_verifying(case, transient):
    assert verify_partitions(case.state, transient, *case.producer, case.places) == [case.error]


@row("VERIFY-6 beside VERIFY-7")
def test_each_partition_is_verified_for_itself(row):
    found = verify_partitions(build_state(S.ONGOING), NO_PENDING, PID, 5, [("foo", 1), NEW, ("bar", 0)])
    assert found == [E.NONE, E.TRANSACTION_ABORTABLE, E.NONE]


# ---- the request


def add(ask, version, producer, *topics, name="t"):
    """Send a request of versions 0-3; return {(topic, partition): error}."""
    struct = codec.request_class(ADD).AddPartitionsToTxnTopic
    answer = ask(
        ADD,
        version,
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[struct(version=version, name=n, partitions=list(p)) for n, p in topics],
    )
    return errors_of(answer.results_by_topic_v3_and_below)


def errors_of(topics):
    return {
        (topic.name, each.partition_index): E(each.partition_error_code)
        for topic in topics
        for each in topic.results_by_partition
    }


def of_broker(ask, version, *transactions):
    """Versions 4-5: (id, producer, verify only, topics) each; (error, [(id, {(topic, partition): error})])."""
    struct = codec.request_class(ADD).AddPartitionsToTxnTransaction
    topic = struct.AddPartitionsToTxnTopic
    answer = ask(
        ADD,
        version,
        transactions=[
            struct(
                version=version,
                transactional_id=name,
                producer_id=producer[0],
                producer_epoch=producer[1],
                verify_only=verify_only,
                topics=[topic(version=version, name=n, partitions=list(p)) for n, p in topics],
            )
            for name, producer, verify_only, topics in transactions
        ],
    )
    found = [(each.transactional_id, errors_of(each.topic_results)) for each in answer.results_by_transaction]
    return E(answer.error_code), found


@row("ADD-1 version 4", "ADD-1 version 5")
def test_a_null_id_cannot_be_read(row):
    version = int(row[-1])
    struct = codec.request_class(ADD).AddPartitionsToTxnTransaction
    asked = struct(version=version, transactional_id="t", producer_id=1, producer_epoch=0, verify_only=False, topics=[])
    sound = codec.encode_request(codec.request_class(ADD)(version=version, transactions=[asked]), version, 7, "")[15:]
    assert sound[:3] == b"\x02\x02t"  # one transaction; an id of one letter
    codec.decode_request(ADD, version, sound)
    with pytest.raises(ProtocolError):
        codec.decode_request(ADD, version, sound[:1] + b"\x00" + sound[3:])


@pytest.mark.parametrize("version", range(6))
@row("ADD-2")
def test_the_empty_id_cannot_be_added_to(row, ask, rig, version):
    if version < 4:
        assert add(ask, version, (PID, 0), ("foo", [0]), name="") == {("foo", 0): E.INVALID_REQUEST}
    else:
        asked = [("", (PID, 0), verify_only, [("foo", [0])]) for verify_only in (False, True)]
        assert of_broker(ask, version, *asked) == (E.NONE, [("", {("foo", 0): E.INVALID_REQUEST})] * 2)
    assert all(log.batches == [] for log in rig.cluster.logs)


def unready(rig, row):
    """Make the lookup fail as the row says; return its error."""
    if "loading" in row:
        rig.coordinator.states.shards.clear()
        rig.coordinator.states.loading.update(range(5))
        return LOADING
    if "offline" in row:
        rig.log_of("t").offline = "no space left"
    else:
        rig.coordinator.states.shards.clear()
        rig.cluster.partition = lambda topic, index: None
    return E.NOT_COORDINATOR


@row("ADD-3 loading", "ADD-3 offline", "ADD-3 not here", "VERIFY-1 loading", "VERIFY-1 offline", "VERIFY-1 not here")
def test_a_failed_lookup(row, ask, rig):
    producer = rig.producer()
    logged = len(rig.log_of("t").batches)
    error = unready(rig, row)
    if row.startswith("VERIFY"):
        assert of_broker(ask, 5, ("t", producer, True, [("foo", [0, 1])])) == (
            E.NONE,
            [("t", {("foo", 0): error, ("foo", 1): error})],
        )
    else:
        assert add(ask, 3, producer, ("foo", [0])) == {("foo", 0): error}
        assert of_broker(ask, 4, ("t", producer, False, [("foo", [0])])) == (E.NONE, [("t", {("foo", 0): error})])
    assert len(rig.log_of("t").batches) == logged


@row("FIND-1 loading", "FIND-2 offline", "FIND-2 not here")
def test_requests_are_refused_while_the_id_cannot_be_looked_up(row, ask, rig):
    producer = rig.producer()
    error = unready(rig, row)
    assert rig.init().error is error
    assert add(ask, 3, producer, ("foo", [0])) == {("foo", 0): error}
    assert add_offsets(ask, 3, producer) is error
    assert end(ask, 3, producer) is error
    assert end(ask, 5, producer) is error
    assert rig.coordinator.verify("t", *producer, [("foo", 0)]) == [error]
    assert rig.coordinator.describe("t").error is error


@row("FIND-3")
def test_requests_for_an_unknown_id_are_refused_and_create_no_id(row, ask, rig):
    assert add(ask, 3, (PID, 0), ("foo", [0])) == {("foo", 0): MAPPING}
    assert add_offsets(ask, 3, (PID, 0)) is MAPPING
    assert (end(ask, 3, (PID, 0)), end(ask, 5, (PID, 0))) == (MAPPING, MAPPING)
    assert rig.coordinator.verify("t", PID, 0, [("foo", 0)]) == [MAPPING]
    assert rig.coordinator.describe("t").error is E.TRANSACTIONAL_ID_NOT_FOUND
    assert rig.durable() == {}
    assert rig.producer() == (PID, 0)
    assert set(rig.durable()) == {"t"}


@row("FIND-4")
def test_an_id_that_is_known(row, ask, rig):
    producer = rig.producer()
    assert add(ask, 3, producer, ("foo", [0])) == {("foo", 0): E.NONE}
    assert rig.coordinator.describe("t").state.status is S.ONGOING


@pytest.mark.parametrize("version", range(4))
@row("ADDREQ-3")
def test_clients_add_no_internal_topic(row, ask, rig, version):
    producer = rig.producer()
    for name in ("__consumer_offsets", "__transaction_state"):
        found = add(ask, version, producer, (name, [0]), ("foo", [0]))
        assert found == {(name, 0): E.TOPIC_AUTHORIZATION_FAILED, ("foo", 0): E.OPERATION_NOT_ATTEMPTED}
    assert rig.state().status is S.EMPTY


@pytest.mark.parametrize("version", [4, 5])
@row("ADDREQ-5")
def test_brokers_ask_for_several_transactions(row, ask, rig, version):
    one, two = rig.producer("one"), rig.producer("two")
    rig.add("two", two, ("foo", 1))
    found = of_broker(
        ask,
        version,
        ("one", one, False, [("foo", [0]), ("__consumer_offsets", [3])]),
        ("two", two, True, [("foo", [1, 2])]),
        ("two", (two[0], 1), True, [("foo", [1])]),
        ("two", (77, 0), True, [("foo", [1])]),
        ("", one, False, [("foo", [0])]),
        ("nobody", one, False, [("foo", [0])]),
    )
    assert found == (
        E.NONE,
        [
            ("one", {("foo", 0): E.NONE, ("__consumer_offsets", 3): E.NONE}),
            ("two", {("foo", 1): E.NONE, ("foo", 2): E.TRANSACTION_ABORTABLE}),
            ("two", {("foo", 1): FENCED}),
            ("two", {("foo", 1): MAPPING}),
            ("", {("foo", 0): E.INVALID_REQUEST}),
            ("nobody", {("foo", 0): MAPPING}),
        ],
    )
    assert (rig.state("one").client_version, rig.state("two").client_version) == (2, 0)
    assert list(rig.state("one").partitions) == [("foo", 0), ("__consumer_offsets", 3)]
    assert list(rig.state("two").partitions) == [("foo", 1)]


@pytest.mark.parametrize("version", range(6))
@row("ADDREQ-6", "ADDREQ-7")
def test_one_bad_partition_spoils_its_transaction(row, ask, rig, version):
    verify_only = row == "ADDREQ-7"
    producer = rig.producer()
    topics = [("foo", [0, 4, -1]), ("nowhere", [0])]
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    expected = {
        ("foo", 0): E.OPERATION_NOT_ATTEMPTED,
        ("foo", 4): unknown,
        ("foo", -1): unknown,
        ("nowhere", 0): unknown,
    }
    if version >= 4:
        good = ("u", rig.producer("u"), False, [("foo", [0])])
        found = of_broker(ask, version, ("t", producer, verify_only, topics), good)
        assert found == (E.NONE, [("t", expected), ("u", {("foo", 0): E.NONE})])
    else:
        assert add(ask, version, producer, *topics) == expected
    assert rig.state().status is S.EMPTY


@pytest.mark.parametrize("version", range(6))
@row("ADDREQ-8 added", "ADDREQ-8 refused")
def test_the_answer_is_that_of_every_partition(row, ask, rig, version):
    producer = rig.producer()
    error = E.NONE if "added" in row else FENCED
    if error:
        producer = (PID, 1)
        error = EPOCH if version < 2 else FENCED
    places = [("foo", 0), ("foo", 3), ("bar", 0)]
    topics = [("foo", [0, 3]), ("bar", [0])]
    if version < 4:
        assert add(ask, version, producer, *topics) == dict.fromkeys(places, error)
    else:
        assert of_broker(ask, version, ("t", producer, False, topics)) == (
            E.NONE,
            [("t", dict.fromkeys(places, error))],
        )
    assert list(rig.state().partitions) == (places if error is E.NONE else [])


# ---- AddOffsetsToTxn


def add_offsets(ask, version, producer, group="four", name="t"):
    asked = {"producer_id": producer[0], "producer_epoch": producer[1], "group_id": group}
    return E(ask(OFFSETS, version, transactional_id=name, **asked).error_code)


@pytest.mark.parametrize("version", range(5))
@row("ADDOFF-3", "ADDOFF-5")
def test_offsets_join_with_the_partition_of_their_group(row, ask, rig, version):
    if row == "ADDOFF-3":
        del rig.cluster.topics["__consumer_offsets"]  # nobody looks whether it is there
    producer = rig.producer()
    assert add_offsets(ask, version, producer) is E.NONE
    state = rig.state()
    assert (state.status, list(state.partitions)) == (S.ONGOING, [("__consumer_offsets", 4)])
    assert state.client_version == 0


@pytest.mark.plain
@row(*[f"ADDOFF-4 {error.name}" for error in (E.NONE, E.INVALID_REQUEST, LOADING, MAPPING, BUSY, E.NOT_COORDINATOR)])
def test_offsets_are_added_as_any_partition_is(row):
    answer = E[row.split()[1]]
    asked = []

    async def add_partitions(*given, **more):
        asked.append((given, more.get("client_version", 0)))
        return answer

    broker = broker_of(
        transactions=SimpleNamespace(add_partitions=add_partitions),
        groups=SimpleNamespace(offsets=SimpleNamespace(partition_for={"g": 7}.get)),
    )
    body = SimpleNamespace(transactional_id="t", producer_id=PID, producer_epoch=3, group_id="g")
    handler = add_offsets_to_txn.handle(broker, Request(OFFSETS, 3, 9, "", Session(), body))
    with pytest.raises(StopIteration) as answered:
        handler.send(None)
    _, message = codec.decode_response(OFFSETS, 3, answered.value.value.buffers[0][4:])
    assert message.error_code == answer
    assert asked == [(("t", PID, 3, (("__consumer_offsets", 7),)), 0)]


@row("ADDOFF-6")
def test_offsets_are_never_answered_with_abortable(row, ask, rig):
    producer = rig.producer()
    cases = [((9, 0), "t", MAPPING), ((PID, 9), "t", FENCED), (producer, "", E.INVALID_REQUEST)]
    for asked, name, error in [*cases, (producer, "t", E.NONE)]:
        assert {add_offsets(ask, version, asked, name=name) for version in (3, 4)} == {error}


# ---- the code of a fenced producer


def end(ask, version, producer):
    asked = {"producer_id": producer[0], "producer_epoch": producer[1], "committed": True}
    return E(ask(END, version, transactional_id="t", **asked).error_code)


def of_brokers_both(ask, version, producer):
    """Return the error of adding and verifying, which must agree."""
    asked = [("t", producer, verify_only, [("foo", [0])]) for verify_only in (False, True)]
    (one,) = {each[("foo", 0)] for _, each in of_broker(ask, version, *asked)[1]}
    return one


def resume(ask, version, producer):
    asked = {"producer_id": 9, "producer_epoch": 0} if version >= 3 else {}
    return E(ask(INIT, version, transactional_id="t", transaction_timeout_ms=1000, **asked).error_code)


FENCED_BY_VERSION = [
    ("CODE-1 version 3", resume, 3, EPOCH),
    *[(f"CODE-2 version {v}", resume, v, FENCED) for v in (4, 5)],
    *[(f"CODE-3 version {v}", lambda *a: add(*a, ("foo", [0]))["foo", 0], v, EPOCH) for v in (0, 1)],
    *[(f"CODE-4 version {v}", lambda *a: add(*a, ("foo", [0]))["foo", 0], v, FENCED) for v in (2, 3)],
    *[(f"CODE-5 version {v}", of_brokers_both, v, FENCED) for v in (4, 5)],
    *[(f"CODE-6 version {v}", add_offsets, v, EPOCH) for v in (0, 1)],
    *[(f"CODE-7 version {v}", add_offsets, v, FENCED) for v in (2, 3, 4)],
    *[(f"CODE-8 version {v}", end, v, EPOCH) for v in (0, 1)],
    *[(f"CODE-9 version {v}", end, v, FENCED) for v in (2, 3, 4, 5)],
]


@rows(FENCED_BY_VERSION)
def test_the_code_of_a_fenced_producer(case, ask, rig):
    _, asking, version, code = case
    rig.cluster.level = 2
    old = rig.producer()
    for _ in range(2):
        rig.producer()
    before = rig.state()
    assert asking(ask, version, old) is code
    assert rig.state() == before
