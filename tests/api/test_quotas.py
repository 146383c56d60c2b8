"""A client over its quota receives a throttle time, and its connection is not served for that time."""

import pytest

from ottla.broker.costs import REQUEST_US
from ottla.broker.phases import AHEAD
from ottla.broker.quotas.quotas import Throttled
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode as E
from ottla.testkit.in_memory.schedule import START_MS
from tests.api.login_clients import Guest, lone_with_logins
from tests.memory_broker import MemoryBroker

PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"
REQUESTS, MUTATIONS = "request_percentage", "controller_mutation_rate"
CLIENT = (("client-id", "client"),)


@pytest.fixture
def broker():
    made = MemoryBroker(transaction_partition_verification_enable=False)
    made.create_topic("ledger")
    return made


def _limit(broker, key, value, entity=CLIENT):
    broker.assembly.broker.quotas.set(entity, key, value)


def _produce(size_bytes=10_000, acks=1):
    batch = bytes(build_batch([(b"k", bytes(size_bytes))], timestamp_ms=START_MS))
    topics = [{"name": "ledger", "partition_data": [{"index": 0, "records": batch}]}]
    return {"transactional_id": None, "acks": acks, "timeout_ms": 1, "topic_data": topics}


def _fetch(offset=0, max_bytes=1 << 20, max_wait_ms=0, min_bytes=1):
    partitions = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
    body = {"max_wait_ms": max_wait_ms, "min_bytes": min_bytes, "max_bytes": max_bytes, "isolation_level": 0}
    return body | {"topics": [{"topic": "ledger", "partitions": partitions}]}


def _ask(broker, client, key, version, **fields):
    """Send a request and return the response, without a time limit."""
    before = len(client.replies)
    client.send(key, version, **fields)
    while len(client.replies) == before:
        broker.advance(10.0)
    assert broker.bugs == []
    return client.replies[-1]


def _records(reply):
    return sum(len(row.records or b"") for topic in reply.responses for row in topic.partitions)


# --- bytes produced ---------------------------------------------------------------------------------------------------


def test_a_producer_within_its_quota_is_not_throttled(broker):
    _limit(broker, PRODUCER, 1_100.0)
    assert _ask(broker, broker.client(), K.PRODUCE, 9, **_produce()).throttle_time_ms == 0


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_producer_over_its_quota_gets_a_throttle_time(broker, version):
    _limit(broker, PRODUCER, 500.0)
    reply = _ask(broker, broker.client(), K.PRODUCE, version, **_produce())
    assert reply.responses[0].partition_responses[0].error_code == E.NONE
    assert 10_000 < reply.throttle_time_ms < 11_000


def test_a_throttled_client_is_not_served_before_its_throttle_time_ends(broker):
    _limit(broker, PRODUCER, 500.0)
    client = broker.client()
    throttle_ms = _ask(broker, client, K.PRODUCE, 9, **_produce()).throttle_time_ms
    client.send(K.API_VERSIONS, 0)
    broker.advance(throttle_ms - 100)
    assert len(client.replies) == 1
    broker.advance(101)
    assert len(client.replies) == 2 and not client.closed


def test_other_clients_are_served_while_one_is_throttled(broker):
    _limit(broker, PRODUCER, 500.0)
    client = broker.client()
    _ask(broker, client, K.PRODUCE, 9, **_produce())
    other = broker.client()
    other.send(K.API_VERSIONS, 0)
    assert len(other.replies) == 1


def test_a_producer_with_acks_0_is_throttled(broker):
    _limit(broker, PRODUCER, 500.0)
    client = broker.client()
    client.post(K.PRODUCE, 9, **_produce(acks=0))
    client.send(K.API_VERSIONS, 0)
    assert client.replies == []
    broker.advance(11_000)
    assert len(client.replies) == 1


def test_connections_of_one_client_id_have_one_quota(broker):
    _limit(broker, PRODUCER, 1_100.0)
    assert _ask(broker, broker.client(), K.PRODUCE, 9, **_produce()).throttle_time_ms == 0
    assert _ask(broker, broker.client(), K.PRODUCE, 9, **_produce()).throttle_time_ms > 0


def test_the_user_counts_where_its_quota_is_set(broker):
    _limit(broker, PRODUCER, 500.0, (("user", "ANONYMOUS"),))
    assert _ask(broker, broker.client(), K.PRODUCE, 9, **_produce()).throttle_time_ms > 0
    _limit(broker, PRODUCER, 5_000.0, (("client-id", "client"), ("user", "ANONYMOUS")))
    assert _ask(broker, broker.client(), K.PRODUCE, 9, **_produce()).throttle_time_ms == 0


def test_a_removed_quota_no_longer_throttles(broker):
    _limit(broker, PRODUCER, 500.0)
    _limit(broker, PRODUCER, None)
    assert not broker.assembly.broker.quotas.enabled
    assert _ask(broker, broker.client(), K.PRODUCE, 9, **_produce()).throttle_time_ms == 0


def test_throttled_requests_and_their_throttle_times_are_counted(broker):
    _limit(broker, PRODUCER, 500.0)
    reply = _ask(broker, broker.client(), K.PRODUCE, 9, **_produce())
    counted = broker.assembly.broker.quotas.throttled
    assert isinstance(counted[CONSUMER], Throttled) and not counted[CONSUMER].times
    assert (counted[PRODUCER].times, counted[PRODUCER].ms) == (1, reply.throttle_time_ms)


# --- connections that are throttled -----------------------------------------------------------------------------------


def test_a_throttled_client_that_disconnects_is_removed(broker):
    _limit(broker, PRODUCER, 1.0)
    client = broker.client()
    _ask(broker, client, K.PRODUCE, 9, **_produce())
    client.hang_up()
    broker.advance(10.0)
    assert client._connection not in broker.assembly.connections
    broker.advance(20_000.0)
    assert broker.bugs == []


def test_much_that_is_sent_while_throttled_is_not_read(broker):
    _limit(broker, PRODUCER, 100.0)
    client = broker.client()
    _ask(broker, client, K.PRODUCE, 9, **_produce())
    for _ in range(200):
        client.post(K.PRODUCE, 9, **_produce(acks=0))
    broker.advance(10.0)
    connection = client._connection
    assert connection.pause_reason == AHEAD


def test_a_broker_that_drains_does_not_wait_for_who_is_throttled(broker):
    _limit(broker, PRODUCER, 1.0)
    client = broker.client()
    _ask(broker, client, K.PRODUCE, 9, **_produce())
    connection = client._connection
    broker.turns.event(connection.drain)
    broker.advance(1.0)
    assert client.closed


def test_a_throttled_connection_is_not_closed_as_idle(broker):
    _limit(broker, PRODUCER, 1.0)
    client = broker.client()
    _ask(broker, client, K.PRODUCE, 9, **_produce())
    connection = client._connection
    for _ in range(10):
        broker.turns.event(lambda: connection.sweep(4))
    assert not client.closed


# --- bytes fetched ----------------------------------------------------------------------------------------------------


def _fill(broker, batches=4):
    for _ in range(batches):
        broker.call(K.PRODUCE, 9, **_produce())


def test_a_fetch_over_the_quota_is_empty_until_its_throttle_time_ends(broker):
    _fill(broker)
    _limit(broker, CONSUMER, 2_000.0)
    client = broker.client()
    first = _ask(broker, client, K.FETCH, 12, **_fetch())
    assert first.throttle_time_ms == 0 and 10_000 < _records(first) <= 20_000
    before = broker.assembly.broker.metrics.bytes_out
    second = _ask(broker, client, K.FETCH, 12, **_fetch(offset=1))
    assert second.throttle_time_ms > 0 and second.responses == [] and second.error_code == E.NONE
    assert broker.assembly.broker.metrics.bytes_out == before
    replies = [_ask(broker, client, K.FETCH, 12, **_fetch(offset=1)) for _ in range(3)]
    assert any(_records(reply) for reply in replies)


def test_a_fetch_returns_no_more_than_the_quota_allows(broker):
    _fill(broker)
    _limit(broker, CONSUMER, 2_500.0)
    reply = _ask(broker, broker.client(), K.FETCH, 12, **_fetch(min_bytes=1 << 20, max_wait_ms=60_000))
    assert reply.throttle_time_ms == 0
    assert 20_000 < _records(reply) <= 25_000


def test_a_batch_larger_than_the_quota_is_read_and_waited_for(broker):
    _fill(broker, 2)
    _limit(broker, CONSUMER, 100.0)
    client = broker.client()
    reply = _ask(broker, client, K.FETCH, 12, **_fetch())
    assert 10_000 < _records(reply) < 11_000
    assert reply.throttle_time_ms > 90_000
    assert _records(_ask(broker, client, K.FETCH, 12, **_fetch(offset=1))) > 10_000


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "version"), [(K.API_VERSIONS, 0), (K.API_VERSIONS, 4), (K.METADATA, 12)])
def test_a_client_over_its_request_quota_is_throttled_for_at_most_1_s(broker, key, version):
    fields = {"topics": None} if key == K.METADATA else {}
    if version == 4:
        fields = {"client_software_name": "a", "client_software_version": "1"}
    _limit(broker, REQUESTS, 0.01)
    client = broker.client()
    times = []
    for _ in range(100):
        client.send(key, version, **fields)
        if len(client.replies) < len(times) + 1:
            break
        times.append(getattr(client.replies[-1], "throttle_time_ms", None))
    assert 1 < len(times) <= 10_000 / REQUEST_US
    broker.advance(1_000)
    assert len(client.replies) == len(times) + 1
    if version:
        assert 0 < times[-1] <= 1_000 and set(times[:-1]) == {0}


def test_time_that_a_handler_waits_is_not_taken(broker):
    _limit(broker, REQUESTS, 0.05)
    client = broker.client()
    for _ in range(3):
        assert _ask(broker, client, K.FETCH, 12, **_fetch(max_wait_ms=500)).throttle_time_ms == 0


def test_a_waiting_fetch_is_not_charged_for_time_used_by_others(broker):
    _limit(broker, REQUESTS, 0.05)
    client = broker.client()
    client.send(K.FETCH, 12, **_fetch(max_wait_ms=500))
    broker.assembly.broker.turns.charge(100_000)
    broker.advance(600)
    assert client.replies[0].throttle_time_ms == 0


# --- users ------------------------------------------------------------------------------------------------------------


def test_a_login_is_held_against_nobodys_quota_and_what_follows_against_the_users():
    broker = lone_with_logins()
    _limit(broker, REQUESTS, 0.0001, (("user", None),))
    _limit(broker, REQUESTS, 0.0001)
    guest = Guest(broker)
    assert guest.versions(4).throttle_time_ms == 0
    assert guest.log_in()
    _limit(broker, REQUESTS, 1_000.0, (("user", "alice"),))
    assert guest.versions(4).throttle_time_ms == 0
    _limit(broker, REQUESTS, None, (("user", "alice"),))
    assert guest.versions(4).throttle_time_ms > 0


# --- topics that come and go ------------------------------------------------------------------------------------------


def _topics(*names, partitions=10):
    rows = [
        {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
        for name in names
    ]
    return {"topics": rows, "timeout_ms": 1, "validate_only": False}


def _errors(rows):
    return [row.error_code for row in rows]


def test_topics_beyond_the_quota_are_refused(broker):
    _limit(broker, MUTATIONS, 2.0)
    client = broker.client()
    reply = _ask(broker, client, K.CREATE_TOPICS, 7, **_topics("a", "b", "c", "d"))
    assert _errors(reply.topics) == [E.NONE, E.NONE, E.NONE, E.THROTTLING_QUOTA_EXCEEDED]
    assert 3_000 < reply.throttle_time_ms <= 4_000
    reply = _ask(broker, client, K.CREATE_TOPICS, 7, **_topics("d"))
    assert (_errors(reply.topics), reply.throttle_time_ms) == ([E.NONE], 0)


def test_old_versions_are_only_throttled(broker):
    _limit(broker, MUTATIONS, 2.0)
    reply = _ask(broker, broker.client(), K.CREATE_TOPICS, 5, **_topics("a", "b", "c", "d"))
    assert set(_errors(reply.topics)) == {E.NONE}
    assert 8_000 < reply.throttle_time_ms <= 9_000


def test_partitions_and_deletions_count_as_well(broker):
    broker.create_topic("many", 30)
    _limit(broker, MUTATIONS, 2.0)
    client = broker.client()
    asked = {"topics": [{"name": "ledger", "count": 24, "assignments": None}], "timeout_ms": 1}
    reply = _ask(broker, client, K.CREATE_PARTITIONS, 3, **asked, validate_only=False)
    assert (_errors(reply.results), reply.throttle_time_ms) == ([E.NONE], 0)
    topics = {"topics": [{"name": "many", "topic_id": None}, {"name": "ledger", "topic_id": None}], "timeout_ms": 1}
    reply = _ask(broker, client, K.DELETE_TOPICS, 6, **topics)
    assert _errors(reply.responses) == [E.THROTTLING_QUOTA_EXCEEDED] * 2
    broker.advance(1_000)
    reply = _ask(broker, client, K.DELETE_TOPICS, 6, **topics)
    assert _errors(reply.responses) == [E.NONE, E.THROTTLING_QUOTA_EXCEEDED]


def test_a_topic_that_is_made_by_asking_for_it_counts(broker):
    _limit(broker, MUTATIONS, 0.1)
    client = broker.client()
    found = []
    for name in ("a", "b", "c", "d"):
        asked = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
        found.append(_ask(broker, client, K.METADATA, 9, **asked).topics[0].error_code)
    assert found.count(E.NONE) >= 2 and E.UNKNOWN_TOPIC_OR_PARTITION in found
