"""InitProducerId: unique ids, epochs that fence older producers, and the producer that a client may claim to be."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, TXN, Producer, coordinating

VERSIONS = range(6)
WITH_EXPECTATION = range(3, 6)
MOST_TIMEOUT_MS = 900_000


def init(broker, version, name=TXN, timeout_ms=60_000, **expected):
    """Send InitProducerId and return (error, producer id, epoch)."""
    asked = {"transactional_id": name, "transaction_timeout_ms": timeout_ms}
    reply = broker.call(K.INIT_PRODUCER_ID, version, **asked, **expected)
    return E(reply.error_code), reply.producer_id, reply.producer_epoch


def expecting(producer_id, epoch):
    return {"producer_id": producer_id, "producer_epoch": epoch}


@pytest.mark.parametrize("version", VERSIONS)
def test_each_idempotent_producer_gets_a_new_id_and_epoch_0(broker, version):
    more = expecting(7, 3) if version in WITH_EXPECTATION else {}
    given = [init(broker, version, None, timeout_ms, **more) for timeout_ms in (60_000, 0, -1, 2**31 - 1)]
    assert len({producer_id for _, producer_id, _ in given}) == 4
    assert {(error, epoch) for error, _, epoch in given} == {(E.NONE, 0)}


@pytest.mark.parametrize("version", VERSIONS)
def test_each_instance_of_a_transactional_id_has_the_next_epoch_of_its_producer_id(broker, version):
    error, producer_id, epoch = init(broker, version)
    assert (error, epoch) == (E.NONE, 0)
    assert init(broker, version) == (E.NONE, producer_id, 1)
    assert init(broker, version, "another")[1] != producer_id


@pytest.mark.parametrize(
    ("name", "timeout_ms", "error"),
    [
        ("", 60_000, E.INVALID_REQUEST),
        (TXN, 0, E.INVALID_TRANSACTION_TIMEOUT),
        (TXN, -1, E.INVALID_TRANSACTION_TIMEOUT),
        (TXN, MOST_TIMEOUT_MS + 1, E.INVALID_TRANSACTION_TIMEOUT),
        (TXN, MOST_TIMEOUT_MS, E.NONE),
        (TXN, 1, E.NONE),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_id_or_a_timeout_out_of_range_is_refused(broker, version, name, timeout_ms, error):
    found = init(broker, version, name, timeout_ms)
    assert found[0] is error and (found[1:] == (-1, -1)) == bool(error)


@pytest.mark.parametrize("half", [{"producer_id": 7}, {"producer_epoch": 7}], ids=str)
@pytest.mark.parametrize("name", [None, "", TXN])
@pytest.mark.parametrize("version", WITH_EXPECTATION)
def test_a_producer_is_named_by_both_numbers_or_none(broker, version, name, half):
    assert init(broker, version, name, **half) == (E.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize("version", WITH_EXPECTATION)
def test_a_repeated_epoch_bump_gets_the_same_epoch(broker, version):
    """KIP-360: a repeated request with the same id and epoch gets the same answer until another one bumps the epoch."""
    _, producer_id, epoch = init(broker, version)
    assert init(broker, version, **expecting(producer_id, epoch)) == (E.NONE, producer_id, 1)
    assert init(broker, version, **expecting(producer_id, epoch)) == (E.NONE, producer_id, 1)
    assert init(broker, version) == (E.NONE, producer_id, 2)


FENCED = [(3, E.INVALID_PRODUCER_EPOCH), (4, E.PRODUCER_FENCED), (5, E.PRODUCER_FENCED)]


@pytest.mark.parametrize(("version", "error"), FENCED)
@pytest.mark.parametrize("other", [(1, 0), (0, 1), (0, -1)], ids=["another id", "a later epoch", "an older epoch"])
def test_a_wrong_id_or_epoch_is_fenced_with_the_error_of_its_version(broker, version, error, other):
    for _ in range(3):
        _, producer_id, epoch = init(broker, version)
    assert init(broker, version, **expecting(producer_id + other[0], epoch + other[1])) == (error, -1, -1)
    assert init(broker, version, **expecting(producer_id, epoch)) == (E.NONE, producer_id, epoch + 1)


@pytest.mark.parametrize("version", range(3))
def test_an_expected_id_and_epoch_are_ignored_before_version_3(broker, version):
    _, producer_id, _ = init(broker, version)
    assert init(broker, version, **expecting(producer_id + 9, 9)) == (E.NONE, producer_id, 1)


@pytest.mark.parametrize("wait_ms", [0, 50])
@pytest.mark.parametrize("version", VERSIONS)
def test_an_open_transaction_is_aborted_first(version, wait_ms):
    """The abort bumps the epoch, and so does the new instance, which may have to send its request again."""
    broker = coordinating(transaction_markers_wait_ms=wait_ms)
    producer = Producer(broker)
    producer.begin(0)
    if not wait_ms:
        assert init(broker, version) == (E.CONCURRENT_TRANSACTIONS, -1, -1)
        broker.advance(100.0)
    assert init(broker, version) == (E.NONE, producer.producer_id, producer.epoch + 2)
    partition = broker.assembly.broker.cluster.partition(LEDGER, 0)
    assert partition.log_end_offset == partition.last_stable_offset == 2, "the record and its marker"
    assert producer.produce(1)[0] is E.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", VERSIONS)
def test_the_timeout_is_that_of_the_last_instance(broker, version):
    for timeout_ms in (5_000, 7_000):
        assert init(broker, version, timeout_ms=timeout_ms)[0] is E.NONE
    (row,) = broker.call(K.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[TXN]).transaction_states
    assert row.transaction_timeout_ms == 7_000


@pytest.mark.parametrize("version", [1, 5])
def test_an_epoch_is_handed_out_when_it_is_on_the_device(flushing, version):
    flushing.broker.call_when_ready(K.FIND_COORDINATOR, 1, key=TXN, key_type=1)
    asked = {"transactional_id": TXN, "transaction_timeout_ms": 60_000}
    flushing.broker.call_when_ready(K.INIT_PRODUCER_ID, version, **asked)
    assert flushing.ask(K.INIT_PRODUCER_ID, version, **asked).producer_epoch == 1
