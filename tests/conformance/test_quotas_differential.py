"""Quotas of Ottla and of Apache Kafka 4.3.1: the same changes are answered alike, the same load is throttled alike."""

import math
import time

import pytest
from targets import ApacheKafka, Ottla
from test_graduation import GraduatedKafka, graduate

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests import codec
from ottla.testkit.in_memory.wire import message
from ottla.wire.connection import BlockingConnection
from tests.timeout import EVENT_TIMEOUT_S

pytestmark = [pytest.mark.conformance, pytest.mark.maven]

PRODUCER, CONSUMER, RATE = "producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"
EXACT, DEFAULT, SPECIFIED = range(3)
BATCH = bytes(build_batch([(b"k", bytes(4_800))], timestamp_ms=1_700_000_000_000))

CHANGES = [
    ({"user": "ada"}, {PRODUCER: 1024.0, "request_percentage": 12.5}),
    ({"user": "ada", "client-id": "app"}, {CONSUMER: 5.0}),
    ({"user": None}, {"controller_mutation_rate": 0.5}),
    ({"client-id": "app"}, {PRODUCER: None}),
    ({"ip": "10.0.0.1"}, {RATE: 3.0}),
    ({"ip": None}, {RATE: 30.0}),
    ({}, {PRODUCER: 1.0}),
    ({"group": "g"}, {PRODUCER: 1.0}),
    ({"user": ""}, {PRODUCER: 1.0}),
    ({"ip": "10.0.0.2", "user": "ada"}, {RATE: 1.0}),
    ({"ip": "10.0.0.3"}, {PRODUCER: 1.0}),
    ({"user": "bob"}, {"bogus": 1.0}),
    ({"user": "bob"}, {"bogus": None}),
    ({"user": "bob"}, {RATE: 1.0}),
    ({"user": "bob"}, {PRODUCER: 0.0}),
    ({"user": "bob"}, {PRODUCER: -1.0}),
    ({"user": "bob"}, {PRODUCER: 1.5}),
    ({"user": "bob"}, {CONSUMER: 1e19}),
    ({"ip": None}, {RATE: 3e9}),
    ({"user": "bob"}, {"request_percentage": 1e300}),
]
FILTERS = [
    ([], False),
    ([], True),
    ([("user", EXACT, "ada")], False),
    ([("user", EXACT, "ada")], True),
    ([("user", DEFAULT, None)], False),
    ([("user", SPECIFIED, None)], True),
    ([("client-id", SPECIFIED, None)], False),
    ([("ip", SPECIFIED, None)], True),
    ([("user", EXACT, "nobody")], False),
    ([("", EXACT, "a")], False),
    ([("user", EXACT, "a")] * 2, False),
    ([("group", EXACT, "a")], False),
    ([("user", EXACT, None)], False),
    ([("user", DEFAULT, "a")], False),
    ([("user", SPECIFIED, "a")], False),
    ([("user", 9, None)], False),
    ([("ip", SPECIFIED, None), ("user", SPECIFIED, None)], False),
]


class QuotaClients:
    """A broker and its clients."""

    def __init__(self, broker):
        host, _, port = broker.bootstrap.rpartition(":")
        self._address = host, int(port)
        self._names = 0

    def connect(self, client_id=""):
        """A client of this id, or of one that was never used."""
        self._names += 1
        client_id = client_id or f"client-{self._names}"
        return BlockingConnection(*self._address, client_id=client_id, timeout_s=EVENT_TIMEOUT_S)

    def ask(self, key, version, /, **fields):
        with self.connect("admin") as connection:
            return connection.send(message(key, version, **fields), version)

    def create_topic(self):
        row = {"name": "ledger", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        self.ask(K.CREATE_TOPICS, 7, topics=[row], timeout_ms=10_000, validate_only=False)

    def alter(self, entity, ops, *, validate_only=False):
        rows = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops.items()]
        pairs = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
        entries = [{"entity": pairs, "ops": rows}]
        (row,) = self.ask(K.ALTER_CLIENT_QUOTAS, 1, entries=entries, validate_only=validate_only).entries
        return E(row.error_code).name, row.error_message

    def describe(self, components, strict):
        rows = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
        reply = self.ask(K.DESCRIBE_CLIENT_QUOTAS, 1, components=rows, strict=strict)
        entries = None
        if reply.entries is not None:
            entries = sorted(
                (
                    sorted((pair.entity_type, str(pair.entity_name)) for pair in row.entity),
                    sorted((each.key, each.value) for each in row.values),
                )
                for row in reply.entries
            )
        return E(reply.error_code).name, reply.error_message, entries

    def set_default(self, key, value):
        assert self.alter({"client-id": None}, {key: value}) == ("NONE", None)

    def wait_for_throttling(self, act):
        """Run `act` with new clients until the quota is in effect: Kafka's brokers get it later from the controller."""
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        acts = False
        while True:
            with self.connect() as connection:
                found = act(connection)
            if any(found) and acts:
                return found
            acts = any(found)  # perhaps since the middle of it
            assert time.monotonic() < deadline


@pytest.fixture(scope="module")
def desks(tmp_path_factory):
    brokers = [kind(tmp_path_factory.mktemp(kind.__name__)).start() for kind in (Ottla, ApacheKafka)]
    desks = [QuotaClients(broker) for broker in brokers]
    for clients in desks:
        clients.create_topic()
    yield desks
    for broker in brokers:
        broker.stop()


def produce(connection, count, acks=1):
    """Throttle times of so many batches."""
    topics = [{"name": "ledger", "partition_data": [{"index": 0, "records": BATCH}]}]
    asked = message(K.PRODUCE, 9, transactional_id=None, acks=acks, timeout_ms=10_000, topic_data=topics)
    return [connection.send(asked, 9).throttle_time_ms for _ in range(count)]


def fetch(connection, offset):
    row = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 4_000}  # one batch
    topics = [{"topic": "ledger", "partitions": [row]}]
    asked = message(K.FETCH, 12, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, isolation_level=0, topics=topics)
    reply = connection.send(asked, 12)
    return reply.throttle_time_ms, sum(len(row.records or b"") for topic in reply.responses for row in topic.partitions)


def fetch_on(connection):
    """Fetch three batches. Return the third one's throttle time and whether it is empty; [] if it is not throttled."""
    for offset in range(2):
        fetch(connection, offset)
    throttle_ms, size_bytes = fetch(connection, 2)
    return [throttle_ms, not size_bytes] if throttle_ms else []


def near(ours, theirs):
    """Return whether both times are similar: on a busy machine some time passes between a request and its measure."""
    return math.isclose(ours, theirs, rel_tol=0.2, abs_tol=300)


def test_changes_are_answered_alike(desks):
    ours, theirs = [[clients.alter(*change) for change in CHANGES] for clients in desks]
    assert dict(enumerate(ours)) == dict(enumerate(theirs))
    found = [[clients.describe(*each) for each in FILTERS] for clients in desks]
    assert dict(enumerate(found[0])) == dict(enumerate(found[1]))
    for clients in desks:  # what would act on the other tests
        for entity, ops in CHANGES[:6]:
            assert clients.alter(entity, dict.fromkeys(ops)) == ("NONE", None)


def test_the_same_load_is_throttled_for_the_same_time(desks):
    times = []
    for clients in desks:
        clients.set_default(PRODUCER, 1_000.0)
        times.append(clients.wait_for_throttling(lambda connection: produce(connection, 3)))
        clients.set_default(PRODUCER, None)
    ours, theirs = times
    assert [bool(each) for each in ours] == [bool(each) for each in theirs] == [False, False, True]
    assert near(ours[2], theirs[2]), times


def test_the_next_request_waits_for_the_reported_throttle_time(desks):
    for clients in desks:
        clients.set_default(PRODUCER, 1_400.0)

        def act(connection):
            *_, throttle_ms = produce(connection, 3)
            began_s = time.monotonic()
            connection.send(codec.request_class(K.API_VERSIONS)(), 0)
            return [throttle_ms and (time.monotonic() - began_s) * 1_000 >= throttle_ms - 50]

        assert clients.wait_for_throttling(act) == [True]
        clients.set_default(PRODUCER, None)


def test_a_fetch_beyond_the_quota_is_empty_and_throttled_for_the_same_time(desks):
    found = []
    for clients in desks:
        with clients.connect("filler") as connection:
            produce(connection, 8)
        clients.set_default(CONSUMER, 1_100.0)
        found.append(clients.wait_for_throttling(fetch_on))
        clients.set_default(CONSUMER, None)
    assert [empty for _, empty in found] == [True, True]
    assert near(found[0][0], found[1][0]), found


def test_topics_beyond_the_quota_are_refused_alike(desks):
    found = []
    for clients in desks:
        clients.set_default("controller_mutation_rate", 2.0)

        def act(connection, clients=clients):
            def create(name, partitions):
                row = {"name": name, "num_partitions": partitions, "replication_factor": 1}
                row |= {"assignments": [], "configs": []}
                asked = message(K.CREATE_TOPICS, 7, topics=[row], timeout_ms=10_000, validate_only=True)
                reply = connection.send(asked, 7)
                return E(reply.topics[0].error_code).name, reply.topics[0].error_message, reply.throttle_time_ms

            first, second = create("first", 60), create("second", 1)
            return [(first[:2], first[2] > 0, *second)] if second[2] else []

        found.append(clients.wait_for_throttling(act)[0])
        clients.set_default("controller_mutation_rate", None)
    ours, theirs = found
    assert ours[:-1] == theirs[:-1]
    assert ours[2] == "THROTTLING_QUOTA_EXCEEDED"
    assert near(ours[-1], theirs[-1]), found


def begun(broker):
    return QuotaClients(broker.start())


def third_of_three(clients):
    """Return the throttle time of a new client after its third batch."""
    return clients.wait_for_throttling(lambda connection: produce(connection, 3))[2]


@pytest.mark.slow
def test_quotas_are_enforced_after_a_move_to_kafka_and_back(tmp_path):
    ottla = Ottla(tmp_path / "ottla")
    try:
        clients = begun(ottla)
        clients.create_topic()
        clients.set_default(PRODUCER, 1_000.0)
        of_ottla = third_of_three(clients)
    finally:
        assert ottla.stop() == 0
    kafka = GraduatedKafka(tmp_path / "kafka", ottla.data_dir)
    done = graduate(ottla.data_dir, kafka.properties)
    assert done.returncode == 0, done.stderr
    try:
        clients = begun(kafka)
        assert near(third_of_three(clients), of_ottla)
        clients.set_default(PRODUCER, 500.0)
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while third_of_three(clients) < 1.5 * of_ottla:
            assert time.monotonic() < deadline
        of_kafka = third_of_three(clients)
    finally:
        kafka.stop()
    try:
        assert near(third_of_three(begun(ottla)), of_kafka)
    finally:
        ottla.stop()
