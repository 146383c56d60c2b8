"""Fetch in sessions and by topic id: what happens while a Fetch waits, quotas, bounds. Scripts recorded from Kafka
(`test_three_kafkas.py`) have the rules."""

from uuid import UUID

import pytest

from ottla.broker.fetch_sessions import PARTITION_BYTES
from ottla.broker.turns import SHARE_US
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from ottla.testkit.in_memory.wire import message
from tests.api.callers import LEDGER, ORDERS, batch, produce
from tests.memory_broker import MemoryBroker

VERSIONS = 12, 17
MANY = 5_000
WAIT_MS = 30_000


class Reader:
    """A client with a session, which fetches in one version."""

    def __init__(self, broker, version):
        self.broker, self.version = broker, version
        self.client = broker.client()
        self.session, self.epoch = 0, 0

    def topic(self, name, *rows):
        key = {"topic": name}
        if self.version >= 13:
            key = {"topic_id": UUID(bytes=self.broker.assembly.broker.cluster.topics[name].topic_id)}
        return key | {"partitions": [*rows]}

    def fields(self, *topics, wait_ms=0, forgotten=(), **more):
        limits = {"max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0}
        session = {"session_id": self.session, "session_epoch": self.epoch}
        return limits | session | {"topics": [*topics], "forgotten_topics_data": [*forgotten], "rack_id": ""} | more

    def send(self, *topics, **more):
        self.client.replies.clear()
        self.client.send(K.FETCH, self.version, **self.fields(*topics, **more))

    def reply(self):
        """Return the reply, if there is one, and continue the session as clients do."""
        if not self.client.replies:
            return None
        (reply,) = self.client.replies
        if not reply.error_code:
            self.session, self.epoch = reply.session_id, self.epoch + 1 if reply.session_id else 0
        return reply

    def fetch(self, *topics, **more):
        self.send(*topics, **more)
        self.broker.advance()
        return self.reply()


def row(index=0, offset=0):
    return {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20} | {
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
    }


def rows_of(reply):
    """Return {partition: (error, offset after its records)}."""
    return {
        row.partition_index: (E(row.error_code), row.high_watermark)
        for topic in reply.responses
        for row in topic.partitions
    }


@pytest.fixture(params=VERSIONS)
def reader(request):
    broker = MemoryBroker()
    broker.create_topic(LEDGER, 3)
    return Reader(broker, request.param)


def recreate(broker):
    broker.call(K.DELETE_TOPICS, 5, topic_names=[LEDGER], timeout_ms=1_000)
    broker.create_topic(LEDGER, 3)


def test_a_fetch_of_a_session_waits_on_all_its_partitions(reader):
    reader.fetch(reader.topic(LEDGER, *map(row, range(3))))
    reader.send(wait_ms=WAIT_MS)
    reader.broker.advance(WAIT_MS / 2)
    assert reader.reply() is None
    produce(reader.broker, batch(), partition=2)
    assert rows_of(reader.reply()) == {2: (E.NONE, 1)}


def test_a_fetch_of_a_session_without_news_has_no_rows(reader):
    reader.fetch(reader.topic(LEDGER, row()))
    reader.send(wait_ms=WAIT_MS)
    reader.broker.advance(WAIT_MS + 1)
    assert rows_of(reader.reply()) == {} and reader.session


def test_a_session_begins_after_the_wait(reader):
    reader.send(reader.topic(LEDGER, row()), wait_ms=WAIT_MS)
    reader.broker.advance()
    sessions = reader.broker.assembly.broker.fetch_sessions
    assert len(sessions) == 0
    produce(reader.broker, batch())
    assert reader.reply().session_id and len(sessions) == 1


def test_a_duplicate_that_comes_while_a_fetch_waits_ends_both(reader):
    """The client of the first request has gone, or repeats it: the answer of one is lost to the other."""
    reader.fetch(reader.topic(LEDGER, row()))
    reader.send(wait_ms=WAIT_MS)
    reader.broker.advance()
    other = Reader(reader.broker, reader.version)
    other.session, other.epoch = reader.session, reader.epoch
    assert other.fetch().error_code == E.INVALID_FETCH_SESSION_EPOCH
    other.epoch += 1
    assert rows_of(other.fetch()) == {}
    produce(reader.broker, batch())
    late = reader.reply()
    assert (late.error_code, late.session_id, late.responses) == (E.INVALID_FETCH_SESSION_EPOCH, other.session, [])


def test_a_topic_that_is_created_again_ends_a_wait_and_is_not_read(reader):
    produce(reader.broker, batch(5))
    reader.fetch(reader.topic(LEDGER, row(0, 5)))
    reader.send(wait_ms=WAIT_MS)
    reader.broker.advance()
    recreate(reader.broker)
    assert rows_of(reader.reply()) == {0: (E.UNKNOWN_TOPIC_OR_PARTITION, -1)}
    produce(reader.broker, batch(9))
    by_name = {0: (E.NONE, 9)}  # a name is all that there is before version 13
    assert rows_of(reader.fetch()) == (by_name if reader.version < 13 else {0: (E.INCONSISTENT_TOPIC_ID, -1)})


@pytest.mark.parametrize("known", [True, False])
def test_an_unknown_topic_lets_others_wait_and_is_answered_at_once_alone(reader, known):
    unknown = {"topic": "absent", "topic_id": UUID(int=7), "partitions": [row()]}
    unknown.pop("topic" if reader.version >= 13 else "topic_id")
    known_too = [reader.topic(LEDGER, row())] * known
    reader.send(unknown, *known_too, wait_ms=WAIT_MS)
    reader.broker.advance(WAIT_MS / 2)
    assert (reader.reply() is None) is known
    reader.broker.advance(WAIT_MS)
    error = E.UNKNOWN_TOPIC_ID if reader.version >= 13 else E.UNKNOWN_TOPIC_OR_PARTITION
    errors = [E(row.error_code) for topic in reader.reply().responses for row in topic.partitions]
    assert errors == [E.NONE] * known + [error]


def test_an_answer_that_a_quota_suppresses_is_sent_later(reader):
    entity = [{"entity_type": "client-id", "entity_name": None}]
    ops = [{"key": "consumer_byte_rate", "value": 100.0, "remove": False}]
    entries = [{"entity": entity, "ops": ops}]
    produce(reader.broker, batch(100))
    reader.broker.call(K.ALTER_CLIENT_QUOTAS, 1, entries=entries, validate_only=False)
    first = reader.fetch(reader.topic(LEDGER, row()))
    assert first.throttle_time_ms > 0 and rows_of(first)
    while not reader.session:  # a throttled full request begins no session
        reader.broker.advance(10_000)
        reader.fetch(reader.topic(LEDGER, row(0, 100)))
    produce(reader.broker, batch(100))
    replies = []
    while not replies or not replies[-1].responses:
        reader.broker.advance(2_000)
        replies.append(reader.fetch())
        assert len(replies) < 1_000
    assert all(reply.session_id == reader.session for reply in replies)
    assert rows_of(replies[-1]) == {0: (E.NONE, 200)}


def test_sessions_hold_a_sixteenth_of_the_memory_and_then_there_are_none():
    broker = MemoryBroker(queued_max_request_bytes=16 * PARTITION_BYTES * 100)
    broker.create_topic(LEDGER, 60)
    readers = [Reader(broker, 17) for _ in range(3)]
    for reader in readers:
        reader.fetch(reader.topic(LEDGER, *map(row, range(40))))
    assert [bool(reader.session) for reader in readers] == [True, True, False]
    grown = readers[0].fetch(readers[0].topic(LEDGER, *map(row, range(40, 60))))
    assert (grown.error_code, grown.session_id) == (E.FETCH_SESSION_ID_NOT_FOUND, 0)
    readers[2].fetch(readers[2].topic(LEDGER, *map(row, range(40))))
    assert readers[2].session


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_of_many_partitions_is_served_in_shares(version):
    broker = MemoryBroker()
    broker.create_topic(LEDGER, MANY)
    reader = Reader(broker, version)
    reader.fetch(reader.topic(LEDGER, *map(row, range(MANY))))
    assert reader.session
    numbers = [*range(MANY)]
    forgotten = reader.topic(LEDGER) | {"partitions": numbers[1:]}
    for asked in (
        reader.fields(),
        reader.fields(reader.topic(LEDGER, *map(row, numbers))),
        reader.fields(forgotten=[forgotten]),
    ):
        asked["session_epoch"] = reader.epoch
        weight = broker.weigh(message(K.FETCH, version, **asked), version)
        assert weight.us < 2 * SHARE_US and weight.uncharged_calls < MANY / 5
        reader.epoch += 1
    assert broker.assembly.broker.fetch_sessions.partition_count == 1 and broker.bugs == []


def test_each_broker_has_its_own_sessions_and_forgets_them_when_it_stops():
    broker = MemoryBroker(brokers=2)
    broker.create_topic(LEDGER)
    first = Reader(broker.ask_broker(1), 12)
    asked = first.fields(first.topic(LEDGER, row()))
    session = broker.call(K.FETCH, 12, **asked).session_id
    assert session
    following = asked | {"topics": [], "session_id": session, "session_epoch": 1}
    errors = [broker.ask_broker(node_id).call(K.FETCH, 12, **following).error_code for node_id in (2, 1)]
    assert errors == [E.FETCH_SESSION_ID_NOT_FOUND, E.NONE]
    broker.complete(broker.assembly.stop_broker(1))
    broker.complete(broker.assembly.start_broker(1))
    following |= {"session_epoch": 2}
    assert broker.ask_broker(1).call(K.FETCH, 12, **following).error_code == E.FETCH_SESSION_ID_NOT_FOUND


def test_a_right_that_is_taken_away_ends_the_reading_of_a_session(reader):
    reader.broker.create_topic(ORDERS)
    reader.fetch(reader.topic(LEDGER, row()), reader.topic(ORDERS, row()))
    parts = reader.broker.assembly.broker

    class OnlyOrders:
        def authorize(self, session, need, name):
            return name == ORDERS

    parts.authorizer = OnlyOrders()
    denied = reader.fetch()
    assert rows_of(denied) == {0: (E.TOPIC_AUTHORIZATION_FAILED, -1)}
    parts.authorizer = None
    assert rows_of(reader.fetch()) == {0: (E.NONE, 0)}
