"""A client over its quota receives a throttle time, and its connection is not served for that time."""

import pytest

from ottla.broker.costs import REQUEST_US
from ottla.broker.quotas.quotas import Throttled
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode as E
from ottla.testkit.in_memory.furnish import message
from ottla.testkit.in_memory.schedule import START_MS
from tests.api.guests import Guest, lone_with_logins
from tests.lone import Lone

PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"
REQUESTS, MUTATIONS = "request_percentage", "controller_mutation_rate"
CLIENT = (("client-id", "client"),)


@pytest.fixture
def lone():
    made = Lone(transaction_partition_verification_enable=False)
    made.create_topic("ledger")
    return made


def _limit(lone, key, value, entity=CLIENT):
    lone.assembly.broker.quotas.set(entity, key, value)


def _produce(size_bytes=10_000, acks=1):
    batch = bytes(build_batch([(b"k", bytes(size_bytes))], timestamp_ms=START_MS))
    topics = [{"name": "ledger", "partition_data": [{"index": 0, "records": batch}]}]
    return {"transactional_id": None, "acks": acks, "timeout_ms": 1, "topic_data": topics}


def _fetch(offset=0, max_bytes=1 << 20, max_wait_ms=0, min_bytes=1):
    partitions = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
    body = {"max_wait_ms": max_wait_ms, "min_bytes": min_bytes, "max_bytes": max_bytes, "isolation_level": 0}
    return body | {"topics": [{"topic": "ledger", "partitions": partitions}]}


def _ask(lone, client, key, version, **fields):
    """Send a request and return the response, without a time limit."""
    before = len(client.replies)
    client.send(key, version, **fields)
    while len(client.replies) == before:
        lone.rest(10.0)
    assert lone.bugs == []
    return client.replies[-1]


def _records(reply):
    return sum(len(row.records or b"") for topic in reply.responses for row in topic.partitions)


# --- bytes produced ---------------------------------------------------------------------------------------------------


def test_who_produces_within_the_quota_is_not_throttled(lone):
    _limit(lone, PRODUCER, 1_100.0)
    assert _ask(lone, lone.client(), K.PRODUCE, 9, **_produce()).throttle_time_ms == 0


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_who_produces_too_much_is_told_for_how_long_it_waits(lone, version):
    _limit(lone, PRODUCER, 500.0)
    reply = _ask(lone, lone.client(), K.PRODUCE, version, **_produce())
    assert reply.responses[0].partition_responses[0].error_code == E.NONE
    assert 10_000 < reply.throttle_time_ms < 11_000


def test_nothing_is_served_to_who_is_throttled_until_its_time_is_over(lone):
    _limit(lone, PRODUCER, 500.0)
    client = lone.client()
    throttle_ms = _ask(lone, client, K.PRODUCE, 9, **_produce()).throttle_time_ms
    client.send(K.API_VERSIONS, 0)
    lone.rest(throttle_ms - 100)
    assert len(client.replies) == 1
    lone.rest(101)
    assert len(client.replies) == 2 and not client.closed


def test_others_are_served_meanwhile(lone):
    _limit(lone, PRODUCER, 500.0)
    client = lone.client()
    _ask(lone, client, K.PRODUCE, 9, **_produce())
    other = lone.client()
    other.send(K.API_VERSIONS, 0)
    assert len(other.replies) == 1


def test_who_is_not_answered_is_throttled_too(lone):
    _limit(lone, PRODUCER, 500.0)
    client = lone.client()
    client.post(K.PRODUCE, 9, **_produce(acks=0))
    client.send(K.API_VERSIONS, 0)
    assert client.replies == []
    lone.rest(11_000)
    assert len(client.replies) == 1


def test_connections_of_one_client_id_have_one_quota(lone):
    _limit(lone, PRODUCER, 1_100.0)
    assert _ask(lone, lone.client(), K.PRODUCE, 9, **_produce()).throttle_time_ms == 0
    assert _ask(lone, lone.client(), K.PRODUCE, 9, **_produce()).throttle_time_ms > 0


def test_the_user_counts_where_its_quota_is_set(lone):
    _limit(lone, PRODUCER, 500.0, (("user", "ANONYMOUS"),))
    assert _ask(lone, lone.client(), K.PRODUCE, 9, **_produce()).throttle_time_ms > 0
    _limit(lone, PRODUCER, 5_000.0, (("client-id", "client"), ("user", "ANONYMOUS")))
    assert _ask(lone, lone.client(), K.PRODUCE, 9, **_produce()).throttle_time_ms == 0


def test_without_the_quota_nobody_is_throttled_any_more(lone):
    _limit(lone, PRODUCER, 500.0)
    _limit(lone, PRODUCER, None)
    assert not lone.assembly.broker.quotas.enabled
    assert _ask(lone, lone.client(), K.PRODUCE, 9, **_produce()).throttle_time_ms == 0


def test_what_was_throttled_is_counted(lone):
    _limit(lone, PRODUCER, 500.0)
    reply = _ask(lone, lone.client(), K.PRODUCE, 9, **_produce())
    counted = lone.assembly.broker.quotas.throttled
    assert isinstance(counted[CONSUMER], Throttled) and not counted[CONSUMER].times
    assert (counted[PRODUCER].times, counted[PRODUCER].ms) == (1, reply.throttle_time_ms)


# --- connections that are throttled -----------------------------------------------------------------------------------


def test_who_hangs_up_while_it_is_throttled_is_let_go(lone):
    _limit(lone, PRODUCER, 1.0)
    client = lone.client()
    _ask(lone, client, K.PRODUCE, 9, **_produce())
    client.hang_up()
    lone.rest(10.0)
    assert client._connection not in lone.assembly.connections
    lone.rest(20_000.0)
    assert lone.bugs == []


def test_much_that_is_sent_while_throttled_is_not_read(lone):
    _limit(lone, PRODUCER, 100.0)
    client = lone.client()
    _ask(lone, client, K.PRODUCE, 9, **_produce())
    for _ in range(200):
        client.post(K.PRODUCE, 9, **_produce(acks=0))
    lone.rest(10.0)
    connection = client._connection
    assert connection._paused_reading


def test_a_broker_that_drains_does_not_wait_for_who_is_throttled(lone):
    _limit(lone, PRODUCER, 1.0)
    client = lone.client()
    _ask(lone, client, K.PRODUCE, 9, **_produce())
    connection = client._connection
    lone.turns.event(connection.drain)
    lone.rest(1.0)
    assert client.closed


def test_who_is_throttled_for_long_is_not_taken_for_idle(lone):
    _limit(lone, PRODUCER, 1.0)
    client = lone.client()
    _ask(lone, client, K.PRODUCE, 9, **_produce())
    connection = client._connection
    for _ in range(10):
        lone.turns.event(lambda: connection.sweep(4))
    assert not client.closed


# --- bytes fetched ----------------------------------------------------------------------------------------------------


def _fill(lone, batches=4):
    for _ in range(batches):
        lone.call(K.PRODUCE, 9, **_produce())


def test_who_fetches_too_much_gets_nothing_and_waits_and_then_goes_on(lone):
    _fill(lone)
    _limit(lone, CONSUMER, 2_000.0)
    client = lone.client()
    first = _ask(lone, client, K.FETCH, 12, **_fetch())
    assert first.throttle_time_ms == 0 and 10_000 < _records(first) <= 20_000
    before = lone.assembly.broker.metrics.bytes_out
    second = _ask(lone, client, K.FETCH, 12, **_fetch(offset=1))
    assert second.throttle_time_ms > 0 and second.responses == [] and second.error_code == E.NONE
    assert lone.assembly.broker.metrics.bytes_out == before
    replies = [_ask(lone, client, K.FETCH, 12, **_fetch(offset=1)) for _ in range(3)]
    assert any(_records(reply) for reply in replies)


def test_no_more_is_fetched_at_once_than_the_quota_has_room_for(lone):
    _fill(lone)
    _limit(lone, CONSUMER, 2_500.0)
    reply = _ask(lone, lone.client(), K.FETCH, 12, **_fetch(min_bytes=1 << 20, max_wait_ms=60_000))
    assert reply.throttle_time_ms == 0
    assert 20_000 < _records(reply) <= 25_000


def test_a_batch_larger_than_the_quota_is_read_and_waited_for(lone):
    _fill(lone, 2)
    _limit(lone, CONSUMER, 100.0)
    client = lone.client()
    reply = _ask(lone, client, K.FETCH, 12, **_fetch())
    assert 10_000 < _records(reply) < 11_000
    assert reply.throttle_time_ms > 90_000
    assert _records(_ask(lone, client, K.FETCH, 12, **_fetch(offset=1))) > 10_000


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "version"), [(K.API_VERSIONS, 0), (K.API_VERSIONS, 4), (K.METADATA, 12)])
def test_who_takes_too_much_of_the_time_is_throttled_for_a_second_at_most(lone, key, version):
    fields = {"topics": None} if key == K.METADATA else {}
    if version == 4:
        fields = {"client_software_name": "a", "client_software_version": "1"}
    _limit(lone, REQUESTS, 0.01)
    client = lone.client()
    times = []
    for _ in range(100):
        client.send(key, version, **fields)
        if len(client.replies) < len(times) + 1:
            break
        times.append(getattr(client.replies[-1], "throttle_time_ms", None))
    assert 1 < len(times) <= 10_000 / REQUEST_US
    lone.rest(1_000)
    assert len(client.replies) == len(times) + 1
    if version:
        assert 0 < times[-1] <= 1_000 and set(times[:-1]) == {0}


def test_time_that_a_handler_waits_is_not_taken(lone):
    _limit(lone, REQUESTS, 0.05)
    client = lone.client()
    for _ in range(3):
        assert _ask(lone, client, K.FETCH, 12, **_fetch(max_wait_ms=500)).throttle_time_ms == 0


def test_what_others_take_meanwhile_is_theirs(lone):
    _limit(lone, REQUESTS, 0.05)
    client = lone.client()
    client.send(K.FETCH, 12, **_fetch(max_wait_ms=500))
    lone.assembly.broker.turns.charge(100_000)
    lone.rest(600)
    assert client.replies[0].throttle_time_ms == 0


# --- users ------------------------------------------------------------------------------------------------------------


def test_a_login_is_held_against_nobodys_quota_and_what_follows_against_the_users():
    lone = lone_with_logins()
    _limit(lone, REQUESTS, 0.0001, (("user", None),))
    _limit(lone, REQUESTS, 0.0001)
    guest = Guest(lone)
    assert guest.versions(4).throttle_time_ms == 0
    assert guest.log_in()
    _limit(lone, REQUESTS, 1_000.0, (("user", "alice"),))
    assert guest.versions(4).throttle_time_ms == 0
    _limit(lone, REQUESTS, None, (("user", "alice"),))
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


def test_topics_beyond_the_quota_are_refused(lone):
    _limit(lone, MUTATIONS, 2.0)
    client = lone.client()
    reply = _ask(lone, client, K.CREATE_TOPICS, 7, **_topics("a", "b", "c", "d"))
    assert _errors(reply.topics) == [E.NONE, E.NONE, E.NONE, E.THROTTLING_QUOTA_EXCEEDED]
    assert 3_000 < reply.throttle_time_ms <= 4_000
    reply = _ask(lone, client, K.CREATE_TOPICS, 7, **_topics("d"))
    assert (_errors(reply.topics), reply.throttle_time_ms) == ([E.NONE], 0)


def test_old_versions_are_only_throttled(lone):
    _limit(lone, MUTATIONS, 2.0)
    reply = _ask(lone, lone.client(), K.CREATE_TOPICS, 5, **_topics("a", "b", "c", "d"))
    assert set(_errors(reply.topics)) == {E.NONE}
    assert 8_000 < reply.throttle_time_ms <= 9_000


def test_partitions_and_deletions_count_as_well(lone):
    lone.create_topic("many", 30)
    _limit(lone, MUTATIONS, 2.0)
    client = lone.client()
    asked = {"topics": [{"name": "ledger", "count": 24, "assignments": None}], "timeout_ms": 1}
    reply = _ask(lone, client, K.CREATE_PARTITIONS, 3, **asked, validate_only=False)
    assert (_errors(reply.results), reply.throttle_time_ms) == ([E.NONE], 0)
    topics = {"topics": [{"name": "many", "topic_id": None}, {"name": "ledger", "topic_id": None}], "timeout_ms": 1}
    reply = _ask(lone, client, K.DELETE_TOPICS, 6, **topics)
    assert _errors(reply.responses) == [E.THROTTLING_QUOTA_EXCEEDED] * 2
    lone.rest(1_000)
    reply = _ask(lone, client, K.DELETE_TOPICS, 6, **topics)
    assert _errors(reply.responses) == [E.NONE, E.THROTTLING_QUOTA_EXCEEDED]


def test_a_topic_that_is_made_by_asking_for_it_counts(lone):
    _limit(lone, MUTATIONS, 0.1)
    client = lone.client()
    found = []
    for name in ("a", "b", "c", "d"):
        asked = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
        found.append(_ask(lone, client, K.METADATA, 9, **asked).topics[0].error_code)
    assert found.count(E.NONE) >= 2 and E.UNKNOWN_TOPIC_OR_PARTITION in found


def test_a_broker_without_quotas_asks_nothing(lone):
    assert lone.ask(K.API_VERSIONS, 0, message(K.API_VERSIONS, 0)).error_code == E.NONE
    assert not lone.assembly.broker.quotas.enabled
