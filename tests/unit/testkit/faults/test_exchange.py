"""The producer of a request, as the conditions of faults compare it."""

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.requests import codec
from ottla.testkit.faults.exchange import Exchange
from ottla.testkit.in_memory.wire import message


def exchange(api_key, version, **fields):
    frame = codec.encode_request(message(api_key, version, **fields), version, 1, "client")
    return Exchange(bytes(frame[4:]), lambda _: None)


def produce(*contents):
    rows = [{"index": index, "records": bytes(content)} for index, content in enumerate(contents)]
    topics = [{"name": "ledger", "partition_data": rows}]
    return exchange(ApiKey.PRODUCE, 9, transactional_id=None, acks=1, timeout_ms=1, topic_data=topics)


def batch(producer_id):
    return build_batch([(None, b"paid")], producer_id=producer_id, producer_epoch=0, base_sequence=0)


def test_a_produce_is_of_the_producers_of_its_batches():
    request = produce(batch(7), batch(8))
    assert [request.answers_to("producer_id", each) for each in (7, 8, 9)] == [True, True, False]


def test_a_batch_without_a_producer_id_adds_none_to_the_request():
    assert produce(build_batch([(None, b"paid")])).producer_ids == frozenset()


@pytest.mark.parametrize("content", [b"", b"no batch at all, but bytes"], ids=["none", "others"])
def test_a_produce_without_a_valid_batch_matches_by_topic_only(content):
    request = produce(content)
    assert not request.answers_to("producer_id", 7)
    assert request.answers_to("topic", "ledger")


def test_a_request_is_of_the_producer_id_that_it_carries():
    end = exchange(ApiKey.END_TXN, 3, transactional_id="tx", producer_id=7, producer_epoch=0, committed=True)
    assert end.answers_to("producer_id", 7)
    asked = {"transactional_id": "tx", "transaction_timeout_ms": 1}
    assert exchange(ApiKey.INIT_PRODUCER_ID, 3, **asked, producer_id=7, producer_epoch=0).answers_to("producer_id", 7)
    fresh = exchange(ApiKey.INIT_PRODUCER_ID, 3, **asked, producer_id=-1, producer_epoch=-1)
    assert fresh.producer_ids == frozenset()


def test_markers_of_an_administrator_are_of_their_producers():
    marker = {"producer_id": 7, "producer_epoch": 0, "transaction_result": False, "topics": [], "coordinator_epoch": 0}
    assert exchange(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker]).answers_to("producer_id", 7)
