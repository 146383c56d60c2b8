"""The read-only APIs: the tables DESC, LIST and PROD."""

from types import SimpleNamespace

from ottla.broker.txn.machine import append_began, dead
from ottla.broker.txn.values import NO_PENDING
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests import codec
from tests.tables.rows import LOADING, PID, row

PRODUCERS, DESCRIBE, LIST = 61, 65, 66
FOO, BAR = ("foo", 1), ("bar", 0)


def describe(ask, name="t"):
    """Return (error, state, producer id, epoch, timeout, start, topics)."""
    (each,) = ask(DESCRIBE, 0, transactional_ids=[name]).transaction_states
    assert each.transactional_id == name
    topics = [(topic.topic, topic.partitions) for topic in each.topics]
    producer = each.producer_id, each.producer_epoch
    times = each.transaction_timeout_ms, each.transaction_start_time_ms
    return E(each.error_code), each.transaction_state, *producer, *times, topics


def in_error(error):
    return (error, "", 0, 0, 0, 0, [])


@row("DESC-3")
def test_the_empty_id(row, ask):
    assert describe(ask, "") == in_error(E.INVALID_REQUEST)


@row("DESC-4 loading", "DESC-4 offline")
def test_a_failed_lookup(row, ask, rig):
    rig.producer()
    if "loading" in row:
        rig.coordinator.states.shards.clear()
        rig.coordinator.states.loading.update(range(5))
        assert describe(ask) == in_error(LOADING)
    else:
        rig.log_of("t").offline = "no space left"
        assert describe(ask) == in_error(E.NOT_COORDINATOR)


def being_forgotten(rig):
    """Put "t" in the state while its tombstone is being logged (EXPIRE-6)."""
    rig.shard_of().set_transient("t", append_began(NO_PENDING, dead(rig.state())))


@row("DESC-5 unknown", "DESC-5 being forgotten")
def test_an_id_that_is_not_there(row, ask, rig):
    if "forgotten" in row:
        rig.producer()
        assert describe(ask)[0] is E.NONE
        being_forgotten(rig)
    assert describe(ask) == in_error(E.TRANSACTIONAL_ID_NOT_FOUND)


@row("DESC-6 Empty", "DESC-6 Ongoing", "DESC-6 CompleteCommit", "DESC-6 CompleteAbort")
def test_a_known_id(row, ask, rig):
    status = row.split()[1]
    producer = rig.producer(timeout_ms=5_000)
    began_ms, topics = -1, []
    if status != "Empty":
        rig.clock.advance(100)
        began_ms = rig.clock.now_ms()
        rig.add("t", producer, FOO, BAR, ("foo", 0))
        rig.clock.advance(100)
    if status == "Ongoing":
        topics = [("foo", [1, 0]), ("bar", [0])]
    elif status != "Empty":
        rig.end("t", producer, status == "CompleteCommit")
    assert describe(ask) == (E.NONE, status, *producer, 5_000, began_ms, topics)


@row("DESC-7 PrepareCommit", "DESC-7 PrepareAbort")
def test_a_prepared_id_shows_whose_marker_is_missing(row, ask, rig):
    status = row.split()[1]
    producer = rig.producer()
    rig.add("t", producer, FOO, BAR, ("foo", 2))
    rig.sink.answers[BAR] = [E.NOT_LEADER_OR_FOLLOWER] * 9
    rig.end("t", producer, status == "PrepareCommit")
    assert rig.state().partitions.keys() == {FOO, BAR, ("foo", 2)}
    found = describe(ask)
    assert (found[:2], found[-1]) == ((E.NONE, status), [("bar", [0])])


def list_transactions(ask, version=2, states=(), producer_ids=(), **more):
    """Return (error, {id: (producer id, state)}, states that do not exist)."""
    answer = ask(LIST, version, state_filters=list(states), producer_id_filters=list(producer_ids), **more)
    rows = {each.transactional_id: (each.producer_id, each.transaction_state) for each in answer.transaction_states}
    return E(answer.error_code), rows, answer.unknown_state_filters


@row("LIST-1 version 0", "LIST-1 version 1", "LIST-1 version 2")
def test_list_transactions_is_refused_while_a_partition_loads(row, ask, rig):
    rig.producer()
    rig.coordinator.states.loading.add(3)
    assert list_transactions(ask, int(row[-1]), ["Sleeping"]) == (LOADING, {}, [])


def three(rig):
    """Create ids that are Empty, Ongoing and CompleteCommit."""
    for name in ("a", "b", "c"):
        producer = rig.producer(name)
        if name != "a":
            rig.add(name, producer, FOO)
        rig.clock.advance(100)
    rig.end("c", (PID + 2, 0))
    return {"a": (PID, "Empty"), "b": (PID + 1, "Ongoing"), "c": (PID + 2, "CompleteCommit")}


@row("LIST-2 one", "LIST-2 two", "LIST-2 unknown", "LIST-2 unknown-alone", "LIST-2 none")
def test_by_state(row, ask, rig):
    all_of_them = three(rig)
    wanted, names, unknown = {
        "one": (["Ongoing"], "b", []),
        "two": (["CompleteCommit", "Empty", "CompleteCommit"], "ac", []),
        "unknown": (["Ongoing", "Sleeping", "ongoing", "Sleeping"], "b", ["Sleeping", "ongoing"]),
        "unknown-alone": (["Sleeping"], "", ["Sleeping"]),
        "none": ([], "abc", []),
    }[row.split()[1]]
    for version in range(3):
        assert list_transactions(ask, version, wanted) == (E.NONE, {name: all_of_them[name] for name in names}, unknown)


@row("LIST-3")
def test_by_producer_id(row, ask, rig):
    all_of_them = three(rig)
    for version in range(3):
        found = list_transactions(ask, version, (), [PID + 2, 7, PID])
        assert found == (E.NONE, {name: all_of_them[name] for name in "ac"}, [])
        assert list_transactions(ask, version, ["Empty"], [PID + 2]) == (E.NONE, {}, [])


@row("LIST-4 version 1", "LIST-4 version 2")
def test_by_duration(row, ask, rig):
    three(rig)
    version = int(row[-1])
    # b began 200 ms ago, c 100 ms ago, and a never: a passes every duration.
    cases = [(-1, "abc"), (0, "abc"), (99, "abc"), (100, "ab"), (199, "ab"), (200, "a"), (2**62, "")]
    for duration_ms, names in cases:
        error, found, _ = list_transactions(ask, version, duration_filter=duration_ms)
        assert (error, "".join(sorted(found))) == (E.NONE, names), duration_ms


@row("LIST-5")
def test_by_pattern(row, ask, rig):
    for name in ("orders-1", "orders-20", "orders"):
        rig.producer(name)
    cases = [
        (None, {"orders-1", "orders-20", "orders"}),
        ("", {"orders-1", "orders-20", "orders"}),
        ("orders", {"orders"}),
        (r"orders-\d", {"orders-1"}),
        ("orders-.*", {"orders-1", "orders-20"}),
        ("rders", set()),
    ]
    for pattern, names in cases:
        error, found, _ = list_transactions(ask, transactional_id_pattern=pattern)
        assert (error, found.keys()) == (E.NONE, names), pattern


@row("LIST-6 a parenthesis", "LIST-6 a bracket", "LIST-6 a lookahead")
def test_by_a_pattern_that_is_none(row, ask, rig):
    rig.producer()
    pattern = {"parenthesis": "t(", "bracket": "[t", "lookahead": "(?=t)t"}[row.split()[-1]]
    assert list_transactions(ask, transactional_id_pattern=pattern) == (E.INVALID_REGULAR_EXPRESSION, {}, [])


@row("LIST-7")
def test_ids_that_are_being_forgotten_are_not_listed(row, ask, rig):
    rig.producer()
    assert list_transactions(ask)[1].keys() == {"t"}
    being_forgotten(rig)
    assert list_transactions(ask) == (E.NONE, {}, [])


def producers(parts, name, index):
    topic = SimpleNamespace(name=name, partition_indexes=[index])
    (reply,) = parts.begin(PRODUCERS, 0, SimpleNamespace(topics=[topic]))
    _, message = codec.decode_response(PRODUCERS, 0, b"".join(reply.buffers)[4:])
    ((answered,),) = [each.partitions for each in message.topics]
    assert answered.partition_index == index
    return E(answered.error_code), [
        (
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        )
        for each in answered.active_producers
    ]


@row("PROD-2 no such topic", "PROD-2 no such partition")
def test_a_partition_that_does_not_exist(row, parts):
    name, index = ("nowhere", 0) if "topic" in row else ("ledger", 9)
    assert producers(parts, name, index) == (E.UNKNOWN_TOPIC_OR_PARTITION, [])


@row("PROD-4 open", "PROD-4 ended", "PROD-4 nobody")
def test_the_producers_of_a_partition(row, parts):
    place = ("ledger", 1)
    if "nobody" in row:
        assert producers(parts, *place) == (E.NONE, [])
        return
    answer = parts.ask(parts.coordinator.init_producer_id("t", 60_000))
    producer = (answer.producer_id, answer.producer_epoch)
    assert parts.ask(parts.coordinator.add_partitions("t", *producer, [place])) is E.NONE
    for sequence in (0, 1):
        assert parts.write(producer, sequence, place).error is E.NONE
    wrote_ms = parts.clock.now_ms()
    if "open" in row:
        assert producers(parts, *place) == (E.NONE, [(*producer, 1, wrote_ms, -1, 0)])
        return
    parts.clock.advance(500)
    assert parts.ask(parts.coordinator.end("t", *producer, True, v2=False)).error is E.NONE
    assert producers(parts, *place) == (E.NONE, [(*producer, 1, wrote_ms + 500, 0, -1)])
