"""`transaction.markers.wait.ms` on the wire: requests pipelined after EndTxn in one piece of bytes."""

import itertools

import pytest
from rig import FIND_COORDINATOR, Rig
from targets import TARGETS

from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests import codec

INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN = 22, 24, 25, 26
VERSIONS = {FIND_COORDINATOR: 2, INIT_PRODUCER_ID: 4, ADD_PARTITIONS: 3, ADD_OFFSETS: 3, END_TXN: 3}
NOT_YET = (E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR)
NAMES = (f"phase-{number}" for number in itertools.count())


@pytest.fixture(scope="module", params=["0", "50"])
def waiting(request, tmp_path_factory):
    """Yield (a running broker, whether its requests wait)."""
    directory = tmp_path_factory.mktemp(f"wait-{request.param}")
    rig = Rig(TARGETS["ottla"](directory, {"transaction.markers.wait.ms": request.param}).start())
    yield rig, request.param != "0"
    rig.stop()


def request_of(api_key, name, producer, rig):
    owner = {"producer_id": producer[0], "producer_epoch": producer[1]}
    if api_key == INIT_PRODUCER_ID:
        fields = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    elif api_key == ADD_PARTITIONS:
        topic = codec.request_class(ADD_PARTITIONS).AddPartitionsToTxnTopic(name=rig.topic, partitions=[0])
        owner = {f"v3_and_below_{key}": value for key, value in {**owner, "transactional_id": name}.items()}
        return codec.request_class(api_key)(**owner, v3_and_below_topics=[topic])
    elif api_key == ADD_OFFSETS:
        fields = {**owner, "group_id": "g"}
    else:
        fields = {**owner, "committed": True}
    return codec.request_class(api_key)(transactional_id=name, **fields)


def error_of(reply):
    for topic in getattr(reply, "results_by_topic_v3_and_below", ()):
        return E(topic.results_by_partition[0].partition_error_code)
    return E(reply.error_code)


def together(rig, *requests):
    """Send requests at once on one connection and return their errors."""
    with rig.connect() as peer:
        frames = (codec.encode_request(message, VERSIONS[key], 7, "") for key, message in requests)
        peer.send(b"".join(map(bytes, frames)))
        return [peer.reply(key, VERSIONS[key]) for key, _ in requests]


def open_transaction(rig, name):
    while True:
        together(rig, (FIND_COORDINATOR, codec.request_class(FIND_COORDINATOR)(key=name, key_type=1)))
        (reply,) = together(rig, (INIT_PRODUCER_ID, request_of(INIT_PRODUCER_ID, name, (-1, -1), rig)))
        if reply.error_code not in NOT_YET:
            break
    producer = reply.producer_id, reply.producer_epoch
    (added,) = together(rig, (ADD_PARTITIONS, request_of(ADD_PARTITIONS, name, producer, rig)))
    assert error_of(added) is E.NONE
    return producer


@pytest.mark.slow
@pytest.mark.parametrize("next_request", [ADD_PARTITIONS, ADD_OFFSETS, INIT_PRODUCER_ID])
def test_a_request_pipelined_after_end_txn_waits_if_configured(waiting, next_request):
    rig, waits = waiting
    name = next(NAMES)
    producer = open_transaction(rig, name)
    requests = [(key, request_of(key, name, producer, rig)) for key in (END_TXN, next_request)]
    ended, then = map(error_of, together(rig, *requests))
    assert (ended, then) == (E.NONE, E.NONE if waits else E.CONCURRENT_TRANSACTIONS)


def test_a_second_end_txn_gets_concurrent_transactions(waiting):
    """The repeated EndTxn never waits, with any setting: the markers are written after both."""
    rig, _ = waiting
    name = next(NAMES)
    end = END_TXN, request_of(END_TXN, name, open_transaction(rig, name), rig)
    assert [error_of(reply) for reply in together(rig, end, end)] == [E.NONE, E.CONCURRENT_TRANSACTIONS]
