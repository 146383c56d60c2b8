"""Decisions of the coordinator against markers: matched by producer, epoch and time."""

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

import numpy as np

from ottla.audit.checks import clocks, history, torn
from ottla.audit.checks.hanging import SETTLED_MS
from ottla.protocol.internal_topics.transaction_records import (
    TransactionValue,
    encode_transaction_value,
    transaction_key,
)

BEGAN_MS = 1_700_000_000_000
NOW_MS = BEGAN_MS + 10_000_000
PLACE = ("ledger", 0)
COMMIT, ABORT = 1, 0


def decide(*decisions, epoch=0, producer_id=7, complete=True, gaps=(), cleaned_below=0, open_ms=1):
    """History of one id: (kind, ms after the beginning) each, open for `open_ms`; offsets named in `gaps` are left out
    before it."""
    decoder = history.HistoryDecoder(0, cleaned_below)
    offset = 0
    for at, (kind, ms) in enumerate(decisions):
        offset += 5 if at in gaps else 0
        value = TransactionValue(
            producer_id, epoch, 60_000, 2 if kind else 3, (("ledger", (0,)),), BEGAN_MS + ms, BEGAN_MS + ms - open_ms
        )
        steps = [value, value._replace(status=4 if kind else 5, partitions=(), last_update_ms=BEGAN_MS + ms + 1)]
        for step in steps if complete else steps[:1]:
            decoder.add(offset, transaction_key("order-1"), encode_transaction_value(step))
            offset += 1
    return history.merge([decoder.result()], {0: cleaned_below}, {0: 0})


def marker(kind, ms, offset, epoch=0, producer_id=7, first=0):
    row = np.full(torn.MARKER_COLUMNS, -1, dtype=np.int64)
    row[[torn.PRODUCER_ID, torn.EPOCH, torn.FATE, torn.END_MS]] = producer_id, epoch, kind, BEGAN_MS + ms
    row[[torn.MARKER_OFFSET, torn.FIRST_OFFSET, torn.SEGMENT, torn.POSITION]] = offset, first, 0, 100 * offset
    return row


def check(
    known, *markers, cut=(), open_from=None, known_from=0, first_batch_ms=BEGAN_MS, lacks_offsets=False, created_ms=-1
):
    """The findings; `cut` splits the markers into ranges."""
    decisions = known.for_place(PLACE)
    ranges = []
    for part in np.split(np.array(markers, dtype=np.int64).reshape(-1, torn.MARKER_COLUMNS), list(cut)):
        matcher = torn.MarkerMatcher(decisions, known_from)
        matcher.add(part)
        ranges.append(matcher.result())
    if len(doubts := clocks.find_doubtful_keys(decisions, ranges)):
        every = np.array(markers, dtype=np.int64).reshape(-1, torn.MARKER_COLUMNS)
        chosen = every[np.isin(torn.keys(every[:, torn.PRODUCER_ID], every[:, torn.EPOCH]), doubts)]
        ranges = clocks.matched_again(decisions, ranges, chosen)
    more = open_from or {}, lacks_offsets, created_ms
    part = torn.Partition(PLACE, "/log/ledger-0", known_from, first_batch_ms, *more)
    return torn.judge(part, ranges, known, NOW_MS - SETTLED_MS).findings


ALTERNATING = [(COMMIT, 10_000), (ABORT, 10_010), (COMMIT, 10_020), (ABORT, 10_030)]
SOUND = [marker(kind, ms + 1, offset) for offset, (kind, ms) in enumerate(ALTERNATING)]


@pytest.mark.parametrize("cut", [(), (1,), (2, 3)])
def test_markers_later_than_their_decisions_are_sound_for_any_split(cut):
    assert check(decide(*ALTERNATING), *SOUND, cut=cut) == []


@pytest.mark.parametrize("cut", [(), (1,), (2,)])
def test_one_lost_marker_is_one_finding_and_does_not_shift_the_others(cut):
    (finding,) = check(decide(*ALTERNATING), SOUND[0], SOUND[2], SOUND[3], cut=cut)
    assert (finding.check, finding.severity, finding.topic, finding.partition) == ("torn", "error", "ledger", 0)
    assert "decided ABORT for order-1 (producer 7, epoch 0)" in finding.message


def test_a_missing_abort_marker_is_reported_with_the_abort_command():
    (finding,) = check(decide(*ALTERNATING), *SOUND[:3], open_from={7: 6})
    assert finding.offset == 6
    assert "abort --topic ledger --partition 0 --start-offset 6" in finding.action


def test_a_lost_commit_marker_is_reported_with_a_warning_not_to_abort():
    swallowing = marker(ABORT, 10_031, 3, first=2)
    (finding,) = check(decide(*ALTERNATING), *SOUND[:2], swallowing)
    assert "do not abort" in finding.action
    assert finding.offset == 2
    assert "its records ended with the next transaction, as ABORT" in finding.message


def test_many_lost_with_their_offsets_are_one_finding():
    many = [(at % 2, 10_000 + 10 * at) for at in range(40)]
    (finding,) = check(decide(*many), lacks_offsets=True)
    assert (finding.severity, "40 decided transactions" in finding.message) == ("error", True)
    assert len(check(decide(*many))) == 40


def test_opposite_marker_is_torn_at_its_place():
    (finding,) = check(decide(*ALTERNATING), SOUND[0], SOUND[1], marker(ABORT, 10_021, 2), SOUND[3])
    assert (finding.severity, finding.offset, finding.position) == ("error", 2, 200)
    assert finding.file == "/log/ledger-0/00000000000000000000.log"
    assert "decided COMMIT" in finding.message and "has ABORT" in finding.message


def test_repeated_marker_is_what_a_restarted_coordinator_sends():
    assert check(decide((COMMIT, 10_000)), marker(COMMIT, 10_001, 3), marker(COMMIT, 10_900, 4, first=-1)) == []


def test_marker_that_came_late_and_ended_the_next_transaction_is_torn():
    late = marker(COMMIT, 10_900, 6, first=4)
    (finding,) = check(
        decide((COMMIT, 10_000), (ABORT, 30_000)), marker(COMMIT, 10_001, 3), late, marker(ABORT, 30_001, 9)
    )
    assert (finding.severity, finding.offset, finding.position) == ("error", 6, 600)
    assert "COMMIT for order-1 (producer 7, epoch 0) again" in finding.message
    assert "from offset 4 on" in finding.message
    (by_hand,) = check(decide((ABORT, 10_000)), marker(ABORT, 10_001, 3), marker(ABORT, 99_000, 6, first=4))
    assert by_hand.severity == "warning"


def test_a_marker_stamped_before_its_decision_is_matched_to_it():
    assert check(decide((COMMIT, 10_000)), marker(COMMIT, 9_000, 3)) == []
    behind = [marker(kind, ms - 5, offset) for offset, (kind, ms) in enumerate(ALTERNATING)]
    assert check(decide(*ALTERNATING), *behind) == []


@pytest.mark.parametrize("cut", [(), (1,), (500,), (3, 400, 1_999)])
@pytest.mark.parametrize("behind_ms", [5, 900])
def test_early_stamped_markers_of_many_decisions_are_all_matched(cut, behind_ms):
    """In twenty seconds of commits, each marker seems to belong to the decision before its own."""
    row = [(COMMIT, 10_000 + 10 * at) for at in range(2_000)]
    markers = [marker(kind, ms - behind_ms, at) for at, (kind, ms) in enumerate(row)]
    assert check(decide(*row), *markers, cut=cut) == []
    changing = [(COMMIT if at % 7 else ABORT, ms) for at, (_, ms) in enumerate(row)]
    markers = [marker(kind, ms - behind_ms, at) for at, (kind, ms) in enumerate(changing)]
    assert check(decide(*changing), *markers, cut=cut) == []


@pytest.mark.parametrize(("behind_ms", "sound"), [(torn.SKEW_MS, True), (torn.SKEW_MS + 1, False)])
def test_a_marker_seems_older_than_its_decision_by_no_more_than_clocks_differ(behind_ms, sound):
    found = check(decide((COMMIT, 10_000)), marker(COMMIT, 10_000 - behind_ms, 3))
    assert [one.severity for one in found] == ([] if sound else ["error", "error"])


@pytest.mark.parametrize(("after_ms", "sound"), [(torn.SKEW_MS, True), (torn.SKEW_MS + 1, False)])
def test_a_second_marker_of_a_decision_may_be_that_of_the_next_as_far_as_clocks_differ(after_ms, sound):
    known = decide((COMMIT, 10_000), (COMMIT, 10_100 + after_ms))
    ended = [marker(COMMIT, ms, offset, first=offset - 2) for ms, offset in ((10_001, 2), (10_100, 6))]
    found = check(known, *ended, marker(COMMIT, 10_101 + after_ms, 9, first=-1))
    assert [(one.severity, one.offset) for one in found] == ([] if sound else [("error", 6)])


def test_an_early_marker_of_another_producer_epoch_or_kind_is_unmatched():
    for other in ({"producer_id": 8}, {"epoch": 1}):
        found = check(decide((COMMIT, 10_000)), marker(COMMIT, 9_000, 3, **other))
        assert len(found) == 2, other
    assert len(check(decide((COMMIT, 10_000)), marker(ABORT, 9_000, 3))) == 2


def test_one_marker_lost_from_a_long_row_is_missed_once():
    row = [(COMMIT, 10_000 + 10 * at) for at in range(2_000)]
    for behind_ms in (-1, 5):
        markers = [marker(kind, ms - behind_ms, at) for at, (kind, ms) in enumerate(row) if at != 700]
        assert [one.severity for one in check(decide(*row), *markers)] == ["error"]


def test_decision_that_is_pending_or_young_has_no_marker_yet():
    assert check(decide((COMMIT, 10_000), complete=False)) == []
    assert check(decide((COMMIT, NOW_MS - BEGAN_MS - 1_000))) == []


def test_an_undecided_abort_is_a_warning_and_an_undecided_commit_an_error():
    (aborted,) = check(decide((COMMIT, 10_000)), marker(COMMIT, 10_001, 3), marker(ABORT, 99_000, 9, first=5))
    assert (aborted.severity, aborted.offset) == ("warning", 9)
    (committed,) = check(decide((ABORT, 10_000)), marker(ABORT, 10_001, 3), marker(COMMIT, 99_000, 9, first=5))
    assert (committed.severity, committed.offset) == ("error", 9)


@pytest.mark.parametrize("cut", [(), (1,)])
@pytest.mark.parametrize("epoch", [0, 1], ids=["V1", "V2"])
def test_an_abort_by_hand_before_the_commit_tears_the_transaction(cut, epoch):
    known = decide((COMMIT, 10_000), epoch=epoch, open_ms=5_000)
    (finding,) = check(known, marker(ABORT, 9_000, 3), marker(COMMIT, 10_001, 4, epoch, first=-1), cut=cut)
    assert (finding.severity, finding.offset, finding.transactional_id) == ("error", 3, "order-1")
    assert "from offset 0 on; then the coordinator decided COMMIT" in finding.message


@pytest.mark.parametrize(
    ("kind", "open_ms", "ended_from"),
    [(COMMIT, 500, -1), (COMMIT, 5_000, 4), (ABORT, 5_000, -1)],
    ids=["before the transaction", "with records after it", "of what is aborted"],
)
def test_an_abort_by_hand_that_tears_nothing_is_a_warning(kind, open_ms, ended_from):
    known = decide((kind, 10_000), open_ms=open_ms)
    (finding,) = check(known, marker(ABORT, 9_000, 3), marker(kind, 10_001, 5, first=ended_from))
    assert (finding.severity, finding.offset) == ("warning", 3)
    assert "nothing is wrong" in finding.action


def test_other_epoch_is_another_transaction():
    (missing, foreign) = sorted(check(decide((COMMIT, 10_000)), marker(COMMIT, 10_001, 3, epoch=1)), key=repr)
    assert {missing.severity, foreign.severity} == {"error"}


def test_a_marker_of_a_compacted_decision_is_unverifiable():
    known = decide(*ALTERNATING, gaps=(2,), cleaned_below=8)
    early = marker(ABORT, 9_000, 0)
    (finding,) = check(known, early, *SOUND[2:], *SOUND[:2])
    assert (finding.severity, finding.message.split(":")[0]) == ("info", "unverifiable")
    assert "1 marker " in finding.message


@pytest.mark.parametrize(("appended_ms", "severity"), [(10_050, "info"), (10_039, "error")])
def test_a_marker_before_the_end_of_a_compacted_decision_is_unverifiable(appended_ms, severity):
    """The record of the end has an earlier time of its update: coordinators make it before they send the markers."""
    ended = TransactionValue(7, 0, 60_000, 4, (), BEGAN_MS + 10_000, BEGAN_MS)
    decoder = history.HistoryDecoder(0, 8)
    decoder.add(3, transaction_key("order-1"), encode_transaction_value(ended), BEGAN_MS + appended_ms)
    later = ended._replace(status=3, producer_id=8, last_update_ms=BEGAN_MS + 20_000)
    decoder.add(4, transaction_key("order-2"), encode_transaction_value(later), BEGAN_MS + 20_000)
    known = history.merge([decoder.result()], {0: 8}, {0: 0})
    (finding,) = check(known, marker(COMMIT, 10_040, 0))
    assert finding.severity == severity


def test_offsets_that_vanished_without_compaction_excuse_nothing():
    known = decide(*ALTERNATING, gaps=(2,))
    (finding,) = check(known, marker(ABORT, 9_000, 0, first=0), *SOUND)
    assert (finding.severity, finding.offset) == ("warning", 0)


def test_decisions_whose_markers_retention_deleted_are_unverifiable():
    found = check(decide(*ALTERNATING), *SOUND[2:], known_from=2)
    assert [one.severity for one in found] == ["info"]
    assert "2 decisions" in found[0].message


def test_a_lost_marker_is_not_attributed_to_a_later_open_transaction():
    known = decide((COMMIT, 10_000), (COMMIT, 10_020), (COMMIT, 10_040))
    markers = [marker(COMMIT, 10_001, 0), marker(COMMIT, 10_041, 5, first=2)]
    (finding,) = check(known, *markers, open_from={7: 6})
    assert finding.offset == 2
    assert "ended with the next transaction, as COMMIT" in finding.message


def test_decision_on_a_topic_that_was_created_later_is_unverifiable():
    (finding,) = check(decide((COMMIT, 10_000)), first_batch_ms=BEGAN_MS + 60_000)
    assert finding.severity == "info"


def test_decision_on_a_topic_that_was_deleted_and_created_again_at_once_is_unverifiable():
    found = check(decide((COMMIT, 10_000), (COMMIT, 10_020)), SOUND[2], created_ms=BEGAN_MS + 10_010)
    assert [(one.severity, "1 decision " in one.message) for one in found] == [("info", True)]


def test_without_the_coordinators_log_every_marker_is_unverifiable():
    (finding,) = check(history.merge([], {}, {}), *SOUND)
    assert (finding.severity, "4 markers" in finding.message) == ("info", True)
    assert "no __transaction_state" in finding.message


@pytest.mark.parametrize(
    ("ms", "given", "is_torn"),
    [
        (3_000, {}, False),
        (10_000, {}, True),
        (3_000, {"created_ms": BEGAN_MS}, True),
        (3_000, {"open_from": {7: 4}}, True),
        (3_000, {"lacks_offsets": True}, True),
    ],
)
def test_a_decision_may_be_on_a_topic_that_was_deleted_shortly_before_the_first_batch(ms, given, is_torn):
    found = check(decide((COMMIT, ms)), **given)
    assert [one.check for one in found if one.severity == "error"] == ["torn"] * is_torn
