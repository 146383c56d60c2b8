"""Operations from requests and replies: attempts of one operation, certain results, transactions of a request."""

import pytest

from ottla.protocol.batch import build_marker
from ottla.protocol.batch_header import assign_offsets
from ottla.protocol.errors import ErrorCode
from ottla.testkit.history import checker_lines, entry_from_json, entry_to_json
from tests.unit.testkit.history.passing import Passing, batch


@pytest.fixture
def passing():
    return Passing()


def list_lines(passing, f):
    """Return (type, line) of each line of an operation."""
    return [(line["type"], line) for line in checker_lines(passing.entries()) if line["f"] == f]


def kinds(passing, f):
    return [kind for kind, _ in list_lines(passing, f)]


def test_a_send_that_is_answered_has_its_offsets(passing):
    passing.send(b"a", b"b", offset=40)
    (_, asked), (_, answer) = list_lines(passing, "send")
    assert asked["mops"] == [["send", "in/0", "a"], ["send", "in/0", "b"]]
    assert (asked["txn"], asked["pid"], asked["epoch"], asked["proc"]) == ("tx/1", 5, 0, "tx")
    assert answer["mops"] == [["send", "in/0", "a", 40], ["send", "in/0", "b", 41]]


def test_a_batch_that_is_sent_again_is_one_send(passing):
    passing.send(b"a", lost=True, peer="peer:1")
    passing.send(b"a", offset=3, peer="peer:2")
    assert kinds(passing, "send") == ["invoke", "ok"]


def test_a_send_whose_reply_was_lost_is_unknown(passing):
    passing.send(b"a", lost=True)
    assert kinds(passing, "send") == ["invoke"]


def test_a_send_that_is_in_flight_is_unknown(passing):
    passing.begin_send(b"a")
    assert kinds(passing, "send") == ["invoke"]


@pytest.mark.parametrize(
    ("error", "certain"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, True),
        (ErrorCode.CONCURRENT_TRANSACTIONS, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.REQUEST_TIMED_OUT, False),
        (ErrorCode.NOT_ENOUGH_REPLICAS, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, False),
        (999, False),
    ],
)
def test_an_error_is_a_failure_only_if_it_rules_out_a_write(passing, error, certain):
    passing.send(b"a", error=error)
    assert kinds(passing, "send") == (["invoke", "fail"] if certain else ["invoke"])


def test_a_refused_retry_of_what_was_lost_is_unknown(passing):
    passing.send(b"a", lost=True)
    passing.send(b"a", error=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert kinds(passing, "send") == ["invoke"]


def test_a_duplicate_that_the_broker_has_forgotten_the_offset_of_was_written(passing):
    passing.send(b"a", error=ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert list_lines(passing, "send")[1][1]["mops"] == [["send", "in/0", "a", -1]]


def test_a_batch_that_was_too_large_and_divided_is_the_parts(passing):
    passing.send(b"a", b"b", error=ErrorCode.MESSAGE_TOO_LARGE)
    passing.send(b"a", offset=0)
    passing.send(b"b", offset=1, sequence=1)
    assert [line["mops"] for kind, line in list_lines(passing, "send") if kind == "invoke"] == [
        [["send", "in/0", "a"]],
        [["send", "in/0", "b"]],
    ]


def test_a_producer_without_an_id_repeats_what_was_not_answered_only(passing):
    plain = {"pid": -1, "epoch": -1, "sequence": -1, "txn_id": None}
    passing.send(b"a", lost=True, **plain)
    passing.send(b"a", offset=1, **plain)
    passing.send(b"b", offset=2, **plain)
    passing.send(b"b", offset=3, **plain)  # acknowledged and sent again: a second record, impossible to distinguish
    lines = checker_lines(passing.entries())
    assert [line["mops"][0][2] for line in lines if line["f"] == "send" and line["type"] == "invoke"] == ["a"]
    assert [line["names"] for line in lines if line["f"] == "same"] == [["in/0#-1.-1.-1:b"]]


def test_equal_values_of_different_batches_get_different_names(passing):
    passing.send(b"x", offset=0)
    passing.send(b"x", offset=1, sequence=1)
    passing.send(b"x", offset=0, topic="out")
    passing.send(b"y", offset=2, sequence=2)
    lines = checker_lines(passing.entries())
    names = [line["mops"][0][2] for line in lines if line["f"] == "send" and line["type"] == "invoke"]
    assert names == ["in/0#5.0.0:x", "in/0#5.0.1:x", "out/0#5.0.0:x", "y"]
    assert [line["values"] for line in lines if line["f"] == "repeated"] == [["x"]]


def test_transactions_of_one_epoch_are_divided_by_their_ends(passing):
    passing.send(b"a", sequence=0)
    passing.end_txn()
    passing.send(b"b", sequence=1)
    passing.end_txn(commit=False)
    txns = [line["txn"] for kind, line in list_lines(passing, "send") if kind == "invoke"]
    assert txns == ["tx/1", "tx/2"]
    assert [(line["txn"], line["commit"]) for kind, line in list_lines(passing, "end") if kind == "invoke"] == [
        ("tx/1", True),
        ("tx/2", False),
    ]


def test_transactions_of_version_2_have_an_epoch_each(passing):
    passing.init()
    passing.send(b"a", epoch=0)
    passing.end_txn(epoch=0, version=5, told=(5, 1))
    passing.send(b"b", epoch=1)
    passing.end_txn(epoch=1, version=5, told=(5, 2))
    ends = [line for kind, line in list_lines(passing, "end") if kind == "ok"]
    assert [(line["pid"], line["epoch"]) for line in ends] == [(5, 1), (5, 2)]
    assert list_lines(passing, "init")[1][1]["txn_id"] == "tx"


def test_a_commit_and_its_retries_are_one_end(passing):
    passing.send(b"a")
    passing.end_txn(lost=True)
    passing.end_txn(error=ErrorCode.CONCURRENT_TRANSACTIONS)
    passing.end_txn()
    assert kinds(passing, "end") == ["invoke", "ok"]


def test_a_commit_that_was_refused_each_time_did_not_happen(passing):
    passing.send(b"a")
    passing.end_txn(error=ErrorCode.CONCURRENT_TRANSACTIONS)
    passing.end_txn(error=ErrorCode.PRODUCER_FENCED)
    assert kinds(passing, "end") == ["invoke", "fail"]


def test_a_commit_whose_reply_was_lost_is_unknown_though_it_is_fenced_then(passing):
    passing.send(b"a")
    passing.end_txn(lost=True)
    passing.end_txn(error=ErrorCode.PRODUCER_FENCED)
    assert kinds(passing, "end") == ["invoke"]


def test_an_abort_after_a_refused_commit_ends_the_same_transaction(passing):
    passing.send(b"a")
    passing.end_txn(error=ErrorCode.TRANSACTION_ABORTABLE)
    passing.end_txn(commit=False)
    assert [line["txn"] for kind, line in list_lines(passing, "end") if kind == "invoke"] == ["tx/1", "tx/1"]


def test_offsets_in_a_transaction_that_are_sent_again_are_one_commit(passing):
    passing.send(b"a")
    passing.commit_offsets(7, lost=True)
    passing.commit_offsets(7, error=ErrorCode.NOT_COORDINATOR)
    passing.commit_offsets(7)
    (_, asked), (kind, _) = list_lines(passing, "offsets")
    assert (asked["txn"], asked["group"], asked["mops"]) == ("tx/1", "g", [["offset", "in/0", 7]])
    assert kind == "ok"


def test_a_poll_has_the_records_from_its_fetch_offset(passing):
    passing.fetch(1, batch(b"a", b"b", b"c"))
    ((_, asked), (_, answer)) = list_lines(passing, "poll")
    assert asked["committed"]
    assert answer["mops"] == [["poll", "in/0", 1, 3, [[1, "b"], [2, "c"]]]]


def marker(commit, offset):
    made = build_marker(9, 0, 0, commit, 1)
    assign_offsets(made, offset, 0)
    return bytes(made)


def test_a_poll_that_reads_committed_is_without_what_was_aborted(passing):
    how = {"pid": 9, "epoch": 0, "sequence": 0, "transactional": True}
    records = batch(b"gone", offset=0, **how)
    records += marker(commit=False, offset=1)
    records += batch(b"kept", offset=2, **how)
    records += marker(commit=True, offset=3)
    passing.fetch(0, records, aborted=[(9, 0)])
    passing.fetch(0, records, isolation=0, aborted=[(9, 0)])
    answers = [line["mops"] for kind, line in list_lines(passing, "poll") if kind == "ok"]
    assert answers == [[["poll", "in/0", 0, 4, [[2, "kept"]]]], [["poll", "in/0", 0, 4, [[0, "gone"], [2, "kept"]]]]]


def test_a_session_remembers_where_it_reads(passing):
    passing.fetch(0, batch(b"a"), session=(0, 0), new_session=33)
    passing.fetch(1, batch(b"b", offset=1), session=(33, 1), new_session=33)
    passing.fetch(-1, batch(b"b", offset=1), session=(33, 2), new_session=33, partitions=False)
    answers = [line["mops"][0][2:4] for kind, line in list_lines(passing, "poll") if kind == "ok"]
    assert answers == [[0, 1], [1, 2], [1, 2]]


def test_a_batch_that_is_cut_short_is_for_the_next_poll(passing):
    passing.fetch(0, batch(b"a") + batch(b"b", offset=1)[:-1])
    passing.fetch(1, batch(b"b", offset=1)[:-1])
    assert [line["mops"] for kind, line in list_lines(passing, "poll") if kind == "ok"] == [
        [["poll", "in/0", 0, 1, [[0, "a"]]]]
    ]


def test_lines_are_in_the_order_of_requests_and_replies(passing):
    first = passing.begin_send(b"a")
    passing.send(b"b", sequence=1, offset=1)
    passing.end(first, {"responses": [], "throttle_time_ms": 0})
    passing.end_txn()
    lines = [(line["f"], line["type"]) for line in checker_lines(passing.entries()) if line["type"] != "note"]
    assert lines == [("send", "invoke"), ("send", "invoke"), ("send", "ok"), ("end", "invoke"), ("end", "ok")]
    numbers = [line["i"] for line in checker_lines(passing.entries())]
    assert numbers == list(range(len(numbers)))


def test_the_scope_begins_at_the_lowest_acknowledged_offset(passing):
    passing.send(b"x<in/0/3", offset=12)
    passing.send(b"y", offset=10, sequence=1)
    (scope,) = [line for line in checker_lines(passing.entries()) if line["f"] == "scope"]
    assert (scope["begins"], scope["sources"]) == ({"in/0": 10}, ["in/0"])


def test_entries_read_back_from_json_give_the_same_lines(passing):
    passing.send(b"a", lost=True)
    passing.send(b"a", offset=3)
    again = [entry_from_json(entry_to_json(entry)) for entry in passing.entries()]
    assert checker_lines(again) == checker_lines(passing.entries())
