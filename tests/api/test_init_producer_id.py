"""InitProducerId: the producers of a transactional id, and when they are handed out.

The decisions are tested in `tests/tables`.
"""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from ottla.testkit.in_memory.wire import message
from tests.api.callers import LEDGER, TXN, Producer, coordinating

VERSIONS = range(6)
TWO_PHASE_COMMIT = {"unstable_api_versions_enable": True, "transaction_two_phase_commit_enable": True}


def init(broker, version, name=TXN, **expected):
    """Send InitProducerId and return (error, producer id, epoch)."""
    asked = {"transactional_id": name, "transaction_timeout_ms": 60_000}
    reply = broker.call(K.INIT_PRODUCER_ID, version, **asked, **expected)
    return E(reply.error_code), reply.producer_id, reply.producer_epoch


@pytest.mark.parametrize("version", VERSIONS)
def test_each_instance_of_a_transactional_id_has_the_next_epoch_of_its_producer_id(broker, version):
    error, producer_id, epoch = init(broker, version)
    assert (error, epoch) == (E.NONE, 0)
    assert init(broker, version) == (E.NONE, producer_id, 1)
    assert init(broker, version, "another")[1] != producer_id


@pytest.mark.parametrize("version", range(3))
def test_an_expected_id_and_epoch_are_ignored_before_version_3(broker, version):
    _, producer_id, _ = init(broker, version)
    assert init(broker, version, producer_id=producer_id + 9, producer_epoch=9) == (E.NONE, producer_id, 1)


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


@pytest.mark.parametrize("version", [1, 5])
def test_an_epoch_is_handed_out_when_it_is_on_the_device(flushing, version):
    flushing.broker.call_when_ready(K.FIND_COORDINATOR, 1, key=TXN, key_type=1)
    asked = {"transactional_id": TXN, "transaction_timeout_ms": 60_000}
    flushing.broker.call_when_ready(K.INIT_PRODUCER_ID, version, **asked)
    assert flushing.ask(K.INIT_PRODUCER_ID, version, **asked).producer_epoch == 1


def test_version_6_is_served_and_listed_only_with_unstable_versions(broker):
    client = {"client_software_name": "test", "client_software_version": "1"}

    def highest(of):
        listed = of.call(K.API_VERSIONS, 3, **client).api_keys
        return next(row.max_version for row in listed if row.api_key == K.INIT_PRODUCER_ID)

    assert broker.serve(message(K.INIT_PRODUCER_ID, 6, transactional_id=TXN), 6) is None, "the connection was closed"
    unstable = coordinating(unstable_api_versions_enable=True)
    assert (highest(broker), highest(unstable)) == (5, 6)
    assert init(unstable, 6)[0] is E.NONE
    assert init(unstable, 6, enable2_pc=True) == (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1, -1)


@pytest.mark.slow
def test_no_time_ends_a_transaction_of_two_phase_commit():
    broker = coordinating(**TWO_PHASE_COMMIT)
    usual, lasting = Producer(broker, "usual"), Producer(broker, "lasting")
    assert init(broker, 6, "lasting", enable2_pc=True) == (E.NONE, lasting.producer_id, 1)
    lasting.epoch = 1
    usual.begin(0)
    lasting.begin(0)
    broker.advance(86_400_000.0)
    assert (usual.describe().transaction_state, lasting.describe().transaction_state) == ("CompleteAbort", "Ongoing")
    assert lasting.describe().transaction_timeout_ms == 2147483647
    broker.advance(30 * 86_400_000.0)
    assert lasting.end() is E.NONE


@pytest.mark.parametrize("two_phase_commit", [False, True])
def test_an_open_transaction_of_two_phase_commit_is_aborted_as_any_other(two_phase_commit):
    """`forceTerminateTransaction` of the admin client is this request, in a version without the flag."""
    broker = coordinating(transaction_markers_wait_ms=0, **TWO_PHASE_COMMIT)
    assert init(broker, 6, enable2_pc=True)[0] is E.NONE
    lasting = Producer(broker)
    assert init(broker, 6, enable2_pc=True)[2] == 2
    lasting.epoch = 2
    lasting.begin(0)
    assert init(broker, 6, keep_prepared_txn=True)[0] is E.UNSUPPORTED_VERSION
    assert lasting.describe().transaction_state == "Ongoing"
    asked = {"enable2_pc": True} if two_phase_commit else {}
    assert init(broker, 6, **asked)[0] is E.CONCURRENT_TRANSACTIONS
    broker.advance(100.0)
    assert lasting.describe().transaction_state == "CompleteAbort"
    assert init(broker, 6, **asked) == (E.NONE, lasting.producer_id, 4)
    assert lasting.describe().transaction_timeout_ms == (2147483647 if two_phase_commit else 60_000)
