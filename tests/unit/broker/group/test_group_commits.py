"""Committed offsets: the members that may commit, the stored values, and the results of a fetch."""

import pytest

from ottla.broker.group.commits import CommitRow
from ottla.broker.group.members import Caller
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import ProducerIdAndEpoch
from tests.fetching import fetch

NONE, UNKNOWN, FENCED = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID
OLD_GENERATION = ErrorCode.ILLEGAL_GENERATION
ROW = CommitRow("t", 0, 5, 3, "m")
PRODUCER = ProducerIdAndEpoch(7, 0)
NOBODY = Caller("g")


def commit(rig, caller=NOBODY, rows=(ROW,), producer=None):
    return rig.commits.commit(caller, rows, producer)


def offset(rig, *, stable=False, group_id="g", key=("t", 0)):
    error, ((_, ((_, row),)),) = fetch(rig.commits, group_id, [(key[0], [key[1]])], stable)
    assert not error
    return row


@pytest.mark.parametrize("producer", [None, PRODUCER])
def test_generation_of_a_group_that_does_not_exist_is_illegal(rig, producer):
    assert commit(rig, Caller("g", 0, "who"), producer=producer) == [OLD_GENERATION]
    assert not rig.known


@pytest.mark.parametrize(
    ("who", "plain", "transactional"),
    [
        (lambda m: Caller("g", 1, m), NONE, NONE),
        (lambda m: Caller("g", 1, m, "i"), NONE, NONE),
        (lambda m: Caller("g", 0, m), OLD_GENERATION, OLD_GENERATION),
        (lambda m: Caller("g", -1, m), OLD_GENERATION, OLD_GENERATION),
        (lambda m: Caller("g", 1, "who"), UNKNOWN, UNKNOWN),
        (lambda m: Caller("g", 1, ""), UNKNOWN, UNKNOWN),
        (lambda m: Caller("g", 1, "who", "i"), FENCED, FENCED),
        (lambda m: Caller("g", 1, m, "j"), UNKNOWN, UNKNOWN),
        (lambda m: Caller("g", -1, "", "i"), FENCED, FENCED),
        (lambda m: Caller("g"), UNKNOWN, NONE),
    ],
)
def test_commit_to_a_stable_group(rig, who, plain, transactional):
    (reply,) = rig.stable(1, ["i"])
    assert commit(rig, who(reply.member_id)) == [plain]
    assert commit(rig, who(reply.member_id), producer=PRODUCER) == [transactional]


@pytest.mark.parametrize("producer", [None, PRODUCER])
def test_commit_to_an_empty_group_needs_no_member(rig, producer):
    (reply,) = rig.stable()
    rig.leave((reply.member_id, None))
    assert commit(rig, producer=producer) == [NONE]
    assert commit(rig, Caller("g", -1, "who", "j"), producer=producer) == [NONE]
    assert commit(rig, Caller("g", 2, reply.member_id), producer=producer) == [UNKNOWN]


def test_plain_commit_between_join_and_assignment_is_refused(rig):
    waiting = rig.join()
    rig.clock.advance()
    caller = Caller("g", 1, waiting[0].member_id)
    assert commit(rig, caller) == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert commit(rig, caller, producer=PRODUCER) == [NONE]


def test_commit_while_others_join_is_taken(rig):
    (reply,) = rig.stable()
    rig.join()
    assert commit(rig, Caller("g", 1, reply.member_id)) == [NONE]


@pytest.mark.parametrize(("producer", "alive"), [(None, True), (PRODUCER, False)])
def test_plain_commit_prolongs_the_session(rig, producer, alive):
    (reply,) = rig.stable()
    rig.clock.advance(9_000)
    commit(rig, Caller("g", 1, reply.member_id), producer=producer)
    rig.clock.advance(5_000)
    assert rig.heartbeat(reply) is (NONE if alive else UNKNOWN)


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ("x" * 10, NONE),
        ("x" * 11, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("é" * 10, NONE),
        ("\U0001f600" * 5, NONE),
        ("\U0001f600" * 6, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_metadata_is_counted_in_utf_16_units(rig, metadata, error):
    rows = [ROW._replace(metadata=metadata), ROW._replace(partition=1)]
    assert commit(rig, rows=rows) == [error, NONE]
    assert offset(rig).offset == (-1 if error else 5)


def test_commit_of_too_long_metadata_alone_makes_the_group_all_the_same(rig):
    assert commit(rig, rows=[ROW._replace(metadata="x" * 11)]) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert set(rig.known) == {"g"} and not rig.log_of().batches
    assert commit(rig, Caller("g", 0, "who")) == [ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_log_errors_are_returned_as_coordinator_errors(rig, refused, told):
    rig.log_of().refuse = refused
    too_long = ROW._replace(partition=1, metadata="x" * 11)
    assert commit(rig, rows=[ROW, too_long]) == [told, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert not rig.known


def test_group_that_only_an_aborted_transaction_made_is_known_also_after_a_restart(rig):
    commit(rig, producer=PRODUCER)
    rig.mark(7, commit=False)
    for _ in range(2):
        assert set(rig.known) == {"g"}
        assert commit(rig, Caller("g", 0, "who"), producer=PRODUCER) == [ErrorCode.UNKNOWN_MEMBER_ID]
        rig.restart()


def test_deleted_topic_takes_committed_and_pending_offsets_along(rig):
    for group_id in ("g", "h"):
        commit(rig, Caller(group_id), [ROW, ROW._replace(topic="u")])
        commit(rig, Caller(group_id), [ROW._replace(partition=1)], PRODUCER)
    (gone,) = rig.cluster.on_topic_deleted
    gone(type("Topic", (), {"name": "t"}))
    rig.mark(7)
    rig.mark(7, group_id="h")
    for group_id in ("g", "h"):
        assert fetch(rig.commits, group_id, None, True) == (NONE, [("u", [(0, (NONE, 5, 3, "m"))])])
    rig.restart()
    assert fetch(rig.commits, "g", None, True) == (NONE, [("u", [(0, (NONE, 5, 3, "m"))])])


def test_group_with_committed_offsets_outlives_its_members_and_the_cleaning(rig):
    (reply,) = rig.stable()
    commit(rig, Caller("g", 1, reply.member_id))
    rig.leave((reply.member_id, None))
    rig.clock.advance(700_000)
    assert offset(rig).offset == 5
