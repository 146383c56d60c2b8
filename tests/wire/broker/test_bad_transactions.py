"""Transactional requests that no correct producer sends, and coordinators that do not exist."""

import itertools
import struct

import pytest
from hostile import Case, batch, cases, produce, sound
from rig import FIND_COORDINATOR, INIT_PRODUCER_ID, PRODUCE

from ottla.protocol.batch_header import TRANSACTIONAL
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec

ADD_PARTITIONS, END_TXN, WRITE_MARKERS = 24, 26, 27
NAMES = (f"hostile-{number}" for number in itertools.count())
SOME_PRODUCER = (900_000_000_000, 0)
COORDINATOR_MOVES = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
on_both = cases(Case("", b""))


class Transactions:
    """Raw transactional requests on one connection; answers are error codes."""

    def __init__(self, peer):
        self._peer = peer

    def send(self, api_key, version, **fields):
        self._peer.send(sound(api_key, version, **fields))
        return self._peer.reply(api_key, version)

    def init(self, name, timeout_ms=60_000, producer=(-1, -1), version=4):
        """Return (error, producer id, epoch); the first call creates the coordinator's topic."""
        while True:
            reply = self.send(
                INIT_PRODUCER_ID,
                version,
                transactional_id=name,
                transaction_timeout_ms=timeout_ms,
                producer_id=producer[0],
                producer_epoch=producer[1],
            )
            if reply.error_code not in COORDINATOR_MOVES:
                return ErrorCode(reply.error_code), (reply.producer_id, reply.producer_epoch)
            if reply.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                self.find(name or "k", 1)

    def find(self, key, kind, version=2):
        reply = self.send(FIND_COORDINATOR, version, key=key, key_type=kind, coordinator_keys=[key])
        return ErrorCode((reply.coordinators[0] if version >= 4 else reply).error_code)

    def end(self, name, producer, version, committed=True):
        while True:
            fields = {"transactional_id": name, "producer_id": producer[0], "producer_epoch": producer[1]}
            error = ErrorCode(self.send(END_TXN, version, **fields, committed=committed).error_code)
            if error not in COORDINATOR_MOVES:
                return error

    def add(self, name, producer, places, version=3):
        """Add partitions and return {(topic, partition): error}."""
        topic = codec.request_class(ADD_PARTITIONS).AddPartitionsToTxnTopic
        topics = [
            topic(name=t, partitions=[p for u, p in places if u == t]) for t in dict.fromkeys(t for t, _ in places)
        ]
        while True:
            reply = self.send(
                ADD_PARTITIONS,
                version,
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=topics,
            )
            errors = {
                (topic.name, row.partition_index): ErrorCode(row.partition_error_code)
                for topic in reply.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            }
            if not set(errors.values()) & set(COORDINATOR_MOVES):
                return errors

    def produce(self, topic, name, producer, sequence=0):
        records = batch(
            attributes=TRANSACTIONAL, producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence
        )
        self._peer.send(produce((topic, [(0, records)]), transactional_id=name))
        return ErrorCode(self._peer.reply(PRODUCE, 9).responses[0].partition_responses[0].error_code)


@pytest.fixture
def transactions(rig):
    with rig.connect() as peer:
        yield Transactions(peer)


@pytest.fixture
def name():
    return next(NAMES)


@cases(
    Case("empty-id", {"name": ""}, ErrorCode.INVALID_REQUEST),
    Case("timeout-minus-1", {"timeout_ms": -1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    Case("timeout-0", {"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    Case("timeout-above-the-limit", {"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    Case("timeout-highest", {"timeout_ms": 2**31 - 1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    Case("id-without-epoch", {"producer": (5, -1)}, ErrorCode.INVALID_REQUEST),
    Case("epoch-without-id", {"producer": (-1, 5)}, ErrorCode.INVALID_REQUEST),
)
def test_init_producer_id_refuses(rig, case, transactions, name):
    assert transactions.init(**({"name": name} | case.data)) == (case.answer, (-1, -1))


@on_both
def test_init_producer_id_with_foreign_producer_is_fenced(rig, case, transactions, name):
    _, (producer_id, epoch) = transactions.init(name)
    assert transactions.init(name, producer=(producer_id + 1, epoch))[0] == ErrorCode.PRODUCER_FENCED
    assert transactions.init(name, producer=(producer_id, epoch + 5))[0] == ErrorCode.PRODUCER_FENCED
    assert transactions.init(name)[1] == (producer_id, epoch + 1)


@on_both
def test_one_unknown_partition_refuses_all(rig, case, transactions, name):
    _, producer = transactions.init(name)
    places = [(rig.topic, 0), ("nowhere", 0), (rig.topic, 9)]
    assert transactions.add(name, producer, places) == {
        (rig.topic, 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (rig.topic, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert transactions.end(name, producer, 0) == ErrorCode.INVALID_TXN_STATE


@on_both
def test_internal_topic_never_joins_a_transaction(rig, case, transactions, name):
    _, producer = transactions.init(name)
    answer = transactions.add(name, producer, [("__transaction_state", 0)])
    assert answer == {("__transaction_state", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@on_both
def test_add_partitions_checks_transactional_id_producer_id_and_epoch(rig, case, transactions, name):
    _, (producer_id, epoch) = transactions.init(name)
    place = (rig.topic, 0)
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert transactions.add("nobody's", SOME_PRODUCER, [place]) == {place: mapping}
    assert transactions.add("", SOME_PRODUCER, [place]) == {place: ErrorCode.INVALID_REQUEST}
    assert transactions.add(name, (producer_id + 1, epoch), [place]) == {place: mapping}
    assert transactions.add(name, (producer_id, epoch + 1), [place]) == {place: ErrorCode.PRODUCER_FENCED}
    assert transactions.add(name, (producer_id, epoch + 1), [place], 1) == {place: ErrorCode.INVALID_PRODUCER_EPOCH}


@on_both
def test_end_txn_checks_transactional_id_producer_id_and_epoch(rig, case, transactions, name):
    _, (producer_id, epoch) = transactions.init(name)
    assert transactions.end("nobody's", SOME_PRODUCER, 2) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert transactions.end("", SOME_PRODUCER, 2) == ErrorCode.INVALID_REQUEST
    assert transactions.end(name, (producer_id + 1, epoch), 2) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert transactions.end(name, (producer_id, epoch + 1), 2) == ErrorCode.PRODUCER_FENCED
    assert transactions.end(name, (producer_id, epoch + 1), 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    for version in (0, 2):
        assert transactions.end(name, (producer_id, epoch), version) == ErrorCode.INVALID_TXN_STATE


@on_both
def test_transactional_batch_needs_its_partition_in_the_transaction(rig, case, transactions, name):
    topic = rig.new_topic()
    _, producer = transactions.init(name)
    assert transactions.produce(topic, name, producer) == ErrorCode.INVALID_TXN_STATE
    assert transactions.add(name, producer, [(topic, 0)]) == {(topic, 0): ErrorCode.NONE}
    assert transactions.produce(topic, "somebody-else's", producer) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert transactions.produce(topic, name, (producer[0], producer[1] + 1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert rig.end_offset(topic) == 0
    assert transactions.produce(topic, name, producer) == ErrorCode.NONE
    assert transactions.end(name, producer, 2) == ErrorCode.NONE


@on_both
def test_coordinator_of_unknown_type(rig, case, transactions):
    assert transactions.find("k", 9) == ErrorCode.INVALID_REQUEST
    assert transactions.find("k", -1, version=4) == ErrorCode.INVALID_REQUEST


@on_both
def test_marker_for_an_unknown_partition(rig, case, transactions):
    marker = codec.request_class(WRITE_MARKERS).WritableTxnMarker
    topics = [marker.WritableTxnMarkerTopic(name="nowhere", partition_indexes=[0, -1])]
    fields = {"producer_id": 5, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0}
    reply = transactions.send(WRITE_MARKERS, 1, markers=[marker(**fields, topics=topics)])
    rows = reply.markers[0].topics[0].partitions
    assert [row.error_code for row in rows] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


def test_ids_that_differ_only_in_invalid_bytes_are_never_the_same(rig):
    """Kafka decodes both as U+FFFD, so one id fences the other."""
    for raw in (b"\xff\xfe", b"\xc3\x28"):
        with rig.connect() as peer:
            peer.send(sound(INIT_PRODUCER_ID, 1, transactional_id="ab", transaction_timeout_ms=1).replace(b"ab", raw))
            assert peer.frame() is not None and len(rig.lines_about(peer)) == 1


def test_long_transactional_id_is_served_or_closed(rig, transactions):
    error, producer = transactions.init("x" * 32_767)
    assert error == ErrorCode.NONE and producer[0] >= 0
    with rig.connect() as peer:
        body = struct.pack(">h", -1) + struct.pack(">i", 2**31 - 1)
        peer.send(struct.pack(">ihhih", 10 + len(body), INIT_PRODUCER_ID, 1, 7, -1) + body)
        assert peer.reply(INIT_PRODUCER_ID, 1).error_code == ErrorCode.NONE
