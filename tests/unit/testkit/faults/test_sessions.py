"""Faults about a topic fire for a Fetch that reads it in a session, whose requests do not name it."""

from uuid import UUID

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from ottla.protocol.requests.fetch_wire import encode_fetch_response
from ottla.testkit.faults import sessions as module
from ottla.testkit.faults.exchange import Exchange
from ottla.testkit.faults.sessions import Sessions
from ottla.testkit.in_memory.wire import message

IDS = {UUID(int=1): "ledger", UUID(int=2): "orders"}
VERSIONS = 7, 12, 17


def pass_fetch(sessions, version, asked, answered, *topics, forgotten=(), error=0):
    """Let a Fetch pass: (id, epoch) of the request, the id of the reply, and (topic number, partitions)."""

    def name(number):
        topic_id = UUID(int=number)
        return {"topic_id": topic_id} if version >= 13 else {"topic": IDS[topic_id]}

    def build(number, indexes):
        rows = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1} for index in indexes]
        return name(number) | {"partitions": rows}

    limits = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1, "isolation_level": 0, "replica_id": -1}
    fields = limits | {"session_id": asked[0], "session_epoch": asked[1]}
    fields |= {"topics": [build(number, indexes) for number, *indexes in topics]}
    fields |= {"forgotten_topics_data": [name(number) | {"partitions": indexes} for number, *indexes in forgotten]}
    frame = codec.encode_request(message(ApiKey.FETCH, version, **fields), version, 1, "client")
    exchange = Exchange(bytes(frame[4:]), IDS.get, session_of=sessions.places)
    reply = b"".join(map(bytes, encode_fetch_response((), version, 1, error, answered)))
    matched = {(topic, index) for topic, index in exchange.subject.partitions}
    assert all(exchange.answers_to("topic", topic) for topic, _ in matched)
    sessions.learn(exchange, reply[4:])
    return matched


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fetch_of_a_session_is_of_all_its_partitions(version):
    sessions = Sessions()
    pass_fetch(sessions, version, (0, 0), 5, (1, 0, 1))
    assert pass_fetch(sessions, version, (5, 1), 5) == {("ledger", 0), ("ledger", 1)}
    added = pass_fetch(sessions, version, (5, 2), 5, (2, 7), forgotten=[(1, 1)])
    assert added == {("ledger", 0), ("ledger", 1), ("orders", 7)}
    assert pass_fetch(sessions, version, (5, 3), 5) == {("ledger", 0), ("orders", 7)}
    assert pass_fetch(sessions, version, (6, 3), 0, error=70) == set()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("asked", "answered", "error"), [((5, -1), 0, 0), ((5, 0), 6, 0), ((5, 9), 0, 71)])
def test_a_session_that_has_ended_has_no_partitions(version, asked, answered, error):
    sessions = Sessions()
    pass_fetch(sessions, version, (0, 0), 5, (1, 0))
    pass_fetch(sessions, version, asked, answered, (2, 0), error=error)
    assert pass_fetch(sessions, version, (5, 1), 5) == set()
    assert pass_fetch(sessions, version, (6, 1), 6) == ({("orders", 0)} if answered else set())


def test_other_requests_and_broken_replies_begin_no_session():
    sessions = Sessions()
    frame = codec.encode_request(message(ApiKey.METADATA, 9, topics=[]), 9, 1, "client")
    sessions.learn(Exchange(bytes(frame[4:]), IDS.get), bytes(50))
    pass_fetch(sessions, 4, (0, 0), 5, (1, 0))
    frame = codec.encode_request(message(ApiKey.FETCH, 12, topics=[], forgotten_topics_data=[]), 12, 1, "client")
    sessions.learn(Exchange(bytes(frame[4:]), IDS.get), b"short")
    assert [*sessions.places(0), *sessions.places(5)] == []


def test_the_oldest_session_is_forgotten(monkeypatch):
    monkeypatch.setattr(module, "_MOST_SESSIONS", 2)
    sessions = Sessions()
    for number in (5, 6, 7):
        pass_fetch(sessions, 12, (0, 0), number, (1, 0))
    assert [len([*sessions.places(number)]) for number in (5, 6, 7)] == [0, 1, 1]
