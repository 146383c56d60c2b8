"""The fate of a batch by the aborted transactions that a broker names, and by the markers that follow."""

import pytest

from ottla.fates import AbortedTransactions, Answer, Fate, MarkersAhead
from ottla.protocol.batch import build_batch, build_marker
from ottla.protocol.batch_header import assign_offsets, iter_batches

ONE, TWO = 1001, 1002


def answer_of(*batches, first=0, aborted=()):
    """Return an answer with a batch at each offset from `first` on: ("data", producer) or (commit?, producer)."""
    log = bytearray()
    for offset, (what, producer_id) in enumerate(batches, first):
        if what == "data":
            transactional = producer_id is not None
            batch = build_batch(
                [(b"k", b"v")],
                producer_id=producer_id if transactional else -1,
                producer_epoch=0,
                base_sequence=0,
                transactional=transactional,
            )
        else:
            batch = build_marker(producer_id, 0, 0, what, 0)
        assign_offsets(batch, offset, 0)
        log += batch
    return Answer(memoryview(log), tuple(iter_batches(log)), tuple(aborted))


def list_no_open():
    raise AssertionError("the open transactions were listed")


def test_below_the_stable_offset_what_no_broker_names_is_committed():
    batches = [("data", ONE), ("data", TWO), ("data", None), (False, ONE), ("data", ONE), (True, TWO), (True, ONE)]
    answer = answer_of(*batches, aborted=[(ONE, 0)])
    aborted = AbortedTransactions(answer)
    fates = [aborted.pass_batch(*each) for each in answer.batches]
    assert [fates[at] for at in (0, 1, 2, 4)] == [Fate.ABORTED, Fate.COMMITTED, Fate.NONE, Fate.COMMITTED]


def test_an_abort_of_an_earlier_answer_concerns_the_next_one_too():
    first, second = ("data", ONE), ("data", ONE)
    for number, each in enumerate((first, second)):
        answer = answer_of(each, first=number, aborted=[(ONE, 0)])
        assert AbortedTransactions(answer).pass_batch(*answer.batches[0]) is Fate.ABORTED


def test_an_aborted_transaction_begins_at_its_first_offset():
    answer = answer_of(("data", ONE), (True, ONE), ("data", ONE), (False, ONE), aborted=[(ONE, 2)])
    aborted = AbortedTransactions(answer)
    fates = [aborted.pass_batch(*each) for each in answer.batches]
    assert (fates[0], fates[2]) == (Fate.COMMITTED, Fate.ABORTED)


def test_above_the_stable_offset_the_next_marker_of_the_producer_decides():
    batches = [("data", ONE), ("data", TWO), (True, ONE), ("data", ONE), ("data", None), (False, ONE), ("data", ONE)]
    answer = answer_of(*batches)
    markers = MarkersAhead([answer], list_no_open)
    fates = [markers.pass_batch(header) for _, header in answer.batches]
    assert [fates[at] for at in (0, 1, 3, 4, 6)] == [
        Fate.COMMITTED,
        Fate.OPEN,
        Fate.ABORTED,
        Fate.NONE,
        Fate.OPEN,
    ]


def test_markers_are_read_only_as_far_as_a_batch_needs_them():
    def answers():
        yield answer_of(("data", ONE), (True, ONE))
        raise AssertionError("more was read than the batch needs")

    (_, header), _ = answer_of(("data", ONE), (True, ONE)).batches
    assert MarkersAhead(answers(), list_no_open).pass_batch(header) is Fate.COMMITTED


@pytest.mark.parametrize(("opened", "fate"), [({ONE: 0}, Fate.OPEN), ({ONE: 1}, Fate.UNKNOWN), ({}, Fate.UNKNOWN)])
def test_a_marker_after_too_many_others_is_replaced_by_the_state_of_the_leader(opened, fate):
    calls = []

    def list_open():
        calls.append(1)
        return opened

    answers = [answer_of(("data", ONE), (True, TWO)), answer_of((True, TWO), (True, ONE), first=2)]
    markers = MarkersAhead(iter(answers), list_open, most=1)
    (_, header), _ = answers[0].batches
    assert [markers.pass_batch(header) for _ in range(2)] == [fate, fate]
    assert calls == [1]


def test_markers_that_were_passed_make_room_for_later_ones():
    batches = [each for _ in range(5) for each in (("data", ONE), (False, ONE))]
    answers = [answer_of(*batches[at : at + 2], first=at) for at in range(0, len(batches), 2)]
    markers = MarkersAhead(iter(answers), list_no_open, most=1)
    data = [header for answer in answers for _, header in answer.batches if not header.is_control]
    assert [markers.pass_batch(header) for header in data] == [Fate.ABORTED] * 5
