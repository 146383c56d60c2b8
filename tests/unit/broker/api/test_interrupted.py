"""Handlers that rest, and what others have changed when they go on."""

from uuid import UUID

import pytest

from ottla.broker import assembly
from ottla.broker.api import fetch, produce
from ottla.broker.api.context import Request
from ottla.broker.log.partition import Partition
from ottla.broker.log.settings import PartitionSettings
from ottla.broker.turns import SHARE_US
from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.produce_wire import ProduceBody
from ottla.protocol.produced import check_produced_batch
from ottla.testkit.crash.script import Script
from ottla.testkit.metadata import create_topic
from ottla.testkit.simulation import wire

from .conftest import SYNC_MS

VERSION = 13


@pytest.fixture
def life(begin_life):
    """A broker whose appends are not flushed, with room for large changes of the metadata."""
    life = begin_life(flushing=False)
    # A topic of many partitions does not fit the small segments of a crash script.
    life.assembly.broker.cluster.metadata_log.partition.settings = PartitionSettings()
    return life


def metadata(*asked):
    request = codec.request_class(ApiKey.METADATA)
    topics = [request.MetadataRequestTopic(version=10, name=name, topic_id=topic_id) for name, topic_id in asked]
    return wire.Ask(ApiKey.METADATA, 10, request(version=10, topics=topics, allow_auto_topic_creation=True))


def test_a_topic_that_is_asked_for_by_two_ids_is_created_once(life):
    reply = life.call(metadata(("new", UUID(int=7)), ("new", UUID(int=8))))
    cluster = life.assembly.broker.cluster
    topic = cluster.topics["new"]
    assert {row.error_code for row in reply.topics} == {E.NONE}
    assert [*cluster.topics_by_id.values()] == [topic]
    assert cluster.partition("new", topic.partition_count) is None


def resting(handler):
    """Drive a handler to where it rests or waits; nobody wakes it but `finished`."""
    assert handler.send(None) is not None
    return handler


def finished(life, handler):
    """The reply, a while later."""
    for _ in range(100):
        try:
            handler.send(None)
        except StopIteration as end:
            _, message = codec.decode_response(ApiKey.PRODUCE, VERSION, b"".join(map(bytes, end.value.buffers))[4:])
            return message
        life.rest(2 * SYNC_MS)
    raise AssertionError("it waits for somebody")


def batch():
    return memoryview(build_batch([(b"k", b"v")], timestamp_ms=1))


@pytest.mark.parametrize("made_again", [False, True])
def test_what_was_sent_to_a_topic_id_is_not_appended_to_the_next_topic_of_the_name(life, monkeypatch, made_again):
    script = Script.on(life)
    script.make_topic(("scratch", 3))
    cluster = life.assembly.broker.cluster
    topic_id = cluster.topics["scratch"].topic_id
    rows = [(index, batch()) for index in range(3)]
    body = ProduceBody(None, -1, 1000, [("", rows)], [topic_id], 0)
    with monkeypatch.context() as slow:
        slow.setattr(produce, "ROW_US", SHARE_US)
        handler = resting(produce.handle(life.assembly.broker, Request(ApiKey.PRODUCE, VERSION, 1, "", "", body)))
    if made_again:
        life.call(deletion("scratch"))
        script.make_topic(("scratch", 3))
    reply = finished(life, handler)
    errors = [row.error_code for row in reply.responses[0].partition_responses]
    ends = [cluster.partition("scratch", index).log_end_offset for index in range(3)]
    if made_again:
        assert errors == [E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID, E.UNKNOWN_TOPIC_ID] and ends == [0, 0, 0]
    else:
        assert errors == [E.NONE] * 3 and ends == [1, 1, 1]


def deletion(name):
    request = codec.request_class(ApiKey.DELETE_TOPICS)
    return wire.Ask(ApiKey.DELETE_TOPICS, 4, request(version=4, topic_names=[name], timeout_ms=1000))


def fetches(name, count, max_wait_ms):
    ask = wire.fetch(name, 0, 0, committed=False, max_wait_ms=max_wait_ms)
    (topic,) = ask.message.topics
    (row,) = topic.partitions
    kind = type(row)
    topic.partitions = [
        kind(version=ask.version, partition=index, fetch_offset=0, partition_max_bytes=1 << 20, log_start_offset=-1)
        for index in range(count)
    ]
    return ask


@pytest.mark.parametrize("comes_behind", [None, fetch.ROWS_AT_ONCE - 1, fetch.ROWS_AT_ONCE])
def test_a_fetch_of_many_partitions_meets_what_comes_while_it_looks_at_them(life, monkeypatch, comes_behind):
    many, max_wait_ms = 2 * fetch.ROWS_AT_ONCE, 5_000
    Script.on(life).make_topic(("wide", many))
    first = life.assembly.broker.cluster.partition("wide", 0)
    look = Partition.bytes_available

    def append():
        data = batch()
        assert not first.append_produced(check_produced_batch(data), data).error

    def looked(partition, *more):
        nonlocal comes_behind
        if partition.index == comes_behind:
            comes_behind = None
            life.clock.next_turn(append)
        return look(partition, *more)

    monkeypatch.setattr(Partition, "bytes_available", looked)
    monkeypatch.setattr(fetch, "ROW_US", SHARE_US / 10)
    began_ms, comes = life.schedule.now_ms, comes_behind is not None
    reply = life.call(fetches("wide", many, max_wait_ms))
    assert bool(reply.responses[0].partitions[0].records) is comes
    assert (life.schedule.now_ms - began_ms < max_wait_ms) is comes


def test_broker_configs_give_a_topic_that_was_made_again_nothing_of_the_one_before(life, monkeypatch):
    cluster = life.assembly.broker.cluster
    create_topic(cluster, "scratch", 1, {"retention.ms": "1234"})
    assert cluster.partition("scratch", 0).settings.retention_ms == 1234
    with monkeypatch.context() as slow:
        slow.setattr(assembly, "CONFIGURE_US", SHARE_US)
        walk = resting(life.assembly._reconfigure())
    life.call(deletion("scratch"))
    Script.on(life).make_topic(("scratch", 1))
    retention_ms = cluster.partition("scratch", 0).settings.retention_ms
    with pytest.raises(StopIteration):
        walk.send(None)
    assert cluster.partition("scratch", 0).settings.retention_ms == retention_ms != 1234
