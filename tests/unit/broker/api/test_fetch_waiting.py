"""Fetches that wait for more, and what ends the wait."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.broker.api.context import Request
from ottla.broker.api.table import TABLE
from ottla.broker.config import Config, Listener
from ottla.broker.server import Server
from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.produced import check_produced_batch
from ottla.testkit.metadata import create_topic

VERSION = 4


def append(partition):
    data = memoryview(build_batch([(b"k", b"v")], timestamp_ms=1_700_000_000_000))
    assert not partition.append_produced(check_produced_batch(data), data).error


def body(offset):
    request = codec.request_class(ApiKey.FETCH)
    row = request.FetchTopic.FetchPartition(
        version=VERSION, partition=0, fetch_offset=offset, partition_max_bytes=10_000
    )
    topic = request.FetchTopic(version=VERSION, topic="ledger", partitions=[row])
    return request(
        version=VERSION,
        replica_id=-1,
        max_wait_ms=600_000,
        min_bytes=100_000,
        max_bytes=100_000,
        isolation_level=0,
        topics=[topic],
    )


@pytest.fixture
def fetch(tmp_path):
    """What a fetch from `offset` gets that waits for more than there is while `meanwhile` happens to its partition."""

    async def live(offset, meanwhile, claim):
        server = Server(Config(log_dirs=str(tmp_path / "data"), listeners=(Listener("PLAINTEXT", "127.0.0.1", 0),)))
        await server.start()
        broker = server.broker
        create_topic(broker.cluster, "ledger", 1)
        partition = broker.cluster.partition("ledger", 0)
        for _ in range(4):
            append(partition)
        replies = []
        request = Request(ApiKey.FETCH, VERSION, 1, "", "10.0.0.1:4711", body(offset), claim)
        handler = TABLE[ApiKey.FETCH].handle(broker, request)
        broker.turns.event(lambda: broker.turns.start(handler, replies.append, replies.append))
        assert replies == []
        broker.turns.event(lambda: meanwhile(partition))
        await server.stop()
        return replies

    def fetch(offset, meanwhile, claim=None):
        (reply,) = asyncio.run(live(offset, meanwhile, claim))
        _, message = codec.decode_response(ApiKey.FETCH, VERSION, b"".join(map(bytes, reply.buffers))[4:])
        return message.responses[0].partitions[0]

    return fetch


@pytest.mark.parametrize("offset", [0, 2, 3])
def test_a_log_start_that_is_raised_above_a_waiting_fetch_ends_its_wait(fetch, offset):
    row = fetch(offset, lambda partition: partition.raise_log_start(offset + 1))
    assert row.error_code == E.OFFSET_OUT_OF_RANGE


def test_a_log_start_below_a_waiting_fetch_is_nothing_to_it(fetch):
    def meanwhile(partition):
        partition.raise_log_start(2)
        assert partition.offline is None

    # The stop of the broker ends it.
    assert fetch(2, meanwhile).error_code == E.KAFKA_STORAGE_ERROR


def test_a_large_fetch_that_waits_holds_nothing_of_its_request(fetch):
    released = []

    def meanwhile(partition):
        assert released == [True]

    fetch(2, meanwhile, SimpleNamespace(release=lambda: released.append(True)))
