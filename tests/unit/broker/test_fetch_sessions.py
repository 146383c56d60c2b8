"""Fetch sessions: slots, memory, and which session ends for a new one (Kafka's `FetchSessionCacheTest`)."""

from itertools import count
from types import SimpleNamespace

import pytest

from ottla.broker.fetch_sessions import (
    EVICTION_MS,
    FINAL_EPOCH,
    NO_SESSION,
    PARTITION_BYTES,
    SCAN_PAUSE_MS,
    FetchSession,
    FetchSessions,
    next_epoch,
)
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests.fetch_wire import FetchPartitionData

NAME = "t"
ROW_BYTES = PARTITION_BYTES + len(NAME)
OLD_MS = EVICTION_MS + 1
PLACE = NAME, 0


def row(index=0, offset=0):
    return SimpleNamespace(
        partition=index,
        fetch_offset=offset,
        partition_max_bytes=1,
        current_leader_epoch=-1,
        last_fetched_epoch=-1,
    )


def new_session(size=1, *, is_of_replica=False, name=NAME):
    session = FetchSession(uses_ids=False, is_of_replica=is_of_replica)
    for index in range(size):
        session.put(name, name, row(index))
    return session


def make(most=2, rows=100, ids=None):
    ids = ids or count(1)
    return FetchSessions(most, rows * ROW_BYTES, lambda: next(ids))


def answer(high_watermark=0, error=E.NONE, records=b"", start=0):
    return FetchPartitionData(0, error, high_watermark, high_watermark, start, None, records)


def test_ids_are_drawn_until_one_is_free():
    sessions = make(ids=iter([0, 5, 5, 0, 6]))
    assert [sessions.add(new_session(), 0), sessions.add(new_session(), 0)] == [5, 6]


def test_a_full_table_gives_no_session():
    sessions = make()
    for _ in range(2):
        sessions.add(new_session(5), 0)
    assert sessions.add(new_session(9), EVICTION_MS) == NO_SESSION
    assert (len(sessions), sessions.partition_count, sessions.evictions) == (2, 10, 0)


def test_without_slots_there_are_no_sessions():
    assert make(most=0).add(new_session(), 0) == NO_SESSION


def test_the_session_that_was_not_used_for_the_longest_time_ends_first():
    sessions = make()
    first, second = new_session(), new_session()
    sessions.add(first, 0)
    sessions.add(second, 0)
    assert sessions.keep(first, 1)
    assert sessions.add(new_session(), OLD_MS) == 3
    assert sessions.resume(second.id, 1, uses_ids=False) is E.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.resume(first.id, 1, uses_ids=False) is first
    assert sessions.evictions == 1


@pytest.mark.parametrize(("size", "found"), [(3, NO_SESSION), (4, 3)])
def test_an_old_session_in_use_ends_for_a_larger_one_only(size, found):
    sessions = make()
    for session in (new_session(3), new_session(7)):
        sessions.add(session, 0)
        sessions.keep(session, OLD_MS)
    assert sessions.add(new_session(size), OLD_MS) == found


def test_a_replica_takes_the_place_of_a_new_client():
    sessions = make()
    for _ in range(2):
        sessions.add(new_session(9), 0)
    assert sessions.add(new_session(is_of_replica=True), 0) == 3
    assert sessions.add(new_session(is_of_replica=True), SCAN_PAUSE_MS) == 4
    assert sessions.add(new_session(is_of_replica=True), 2 * SCAN_PAUSE_MS) == NO_SESSION


def test_smaller_sessions_are_looked_for_once_a_second():
    sessions = make(most=1)
    small = new_session()
    sessions.add(small, 0)
    sessions.keep(small, OLD_MS)
    assert sessions.add(new_session(), OLD_MS) == NO_SESSION
    assert sessions.add(new_session(2), OLD_MS + SCAN_PAUSE_MS - 1) == NO_SESSION
    assert sessions.add(new_session(2), OLD_MS + SCAN_PAUSE_MS) == 2


def test_partitions_and_names_take_memory():
    sessions = make(most=9, rows=10)
    assert sessions.add(new_session(11), 0) == NO_SESSION
    assert sessions.add(new_session(1, name="x" * 11 * ROW_BYTES), 0) == NO_SESSION
    assert sessions.add(new_session(6), 0)
    assert sessions.add(new_session(5), 0) == NO_SESSION
    assert sessions.add(new_session(4), 0) and sessions.held_bytes == 10 * ROW_BYTES
    assert sessions.add(new_session(11), OLD_MS) == NO_SESSION and len(sessions) == 2


def test_a_session_that_outgrows_the_memory_ends():
    sessions = make(rows=10)
    session = new_session(9)
    session_id = sessions.add(session, 0)
    session.put(NAME, NAME, row(9))
    assert sessions.keep(session, 0)
    session.put(NAME, NAME, row(10))
    assert not sessions.keep(session, 0)
    assert sessions.resume(session_id, 1, uses_ids=False) is E.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.held_bytes == 0


def test_forgotten_partitions_release_their_memory_and_the_last_one_ends_the_session():
    sessions = make()
    session = new_session(2)
    sessions.add(session, 0)
    for index in (1, 1, 7):
        session.forget(NAME, index)
    assert sessions.keep(session, 0) and sessions.held_bytes == ROW_BYTES
    session.forget(NAME, 0)
    assert not sessions.keep(session, 0) and (len(sessions), sessions.held_bytes) == (0, 0)


def test_a_session_that_has_ended_is_not_kept():
    sessions = make()
    session = new_session()
    sessions.add(session, 0)
    sessions.clear()
    assert not sessions.keep(session, 0) and sessions.held_bytes == 0


@pytest.mark.parametrize(("epoch", "following"), [(0, 1), (1, 2), (2**31 - 2, 2**31 - 1), (2**31 - 1, 1)])
def test_the_epoch_after_the_last_one_is_1(epoch, following):
    assert next_epoch(epoch) == following != FINAL_EPOCH


def test_an_answer_without_news_is_left_out():
    sessions, session = make(), new_session(2)
    assert session.take_answer(PLACE, answer())
    sessions.add(session, 0)
    news = [
        (answer(), False),
        (answer(1), True),
        (answer(1), False),
        (answer(1, start=1), True),
        (answer(1, records=b"r", start=1), True),
        (answer(1, records=b"r", start=1), True),
        (answer(1, start=1), False),
        (answer(-1, E.OFFSET_OUT_OF_RANGE, start=-1), True),
        (answer(-1, E.OFFSET_OUT_OF_RANGE, start=-1), True),
        (answer(1, start=1), True),
        (answer(1, start=1)._replace(diverging_epoch=(1, 2)), True),
    ]
    assert [session.take_answer(PLACE, each) for each, _ in news] == [has_news for _, has_news in news]
    session.repeat_answers()
    assert session.take_answer(PLACE, answer(1, start=1))
    session.forget(*PLACE)
    assert not session.take_answer(PLACE, answer(9))


def test_a_partition_with_records_is_read_last_in_the_next_fetch():
    sessions, session = make(), new_session(3)
    session.take_answer((NAME, 0), answer(records=b"r"))
    sessions.add(session, 0)
    assert [index for _, index in session.partitions] == [0, 1, 2]
    session.take_answer((NAME, 0), answer(records=b"r"))
    session.take_answer((NAME, 1), answer(5))
    assert [index for _, index in session.partitions] == [1, 2, 0]
