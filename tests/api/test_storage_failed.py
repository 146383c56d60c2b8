"""Answers of each API after the log directory goes offline, and the lines of the log about it."""

import asyncio
import errno
import logging

import pytest

from lab.metadata import create_internal_topic, create_topic
from ottla.broker.api.request import Request
from ottla.broker.api.table import TABLE
from ottla.broker.config import Config, Listener
from ottla.broker.ports.disk import RealFile
from ottla.broker.security.session import Session
from ottla.broker.server import Server
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests import codec
from ottla.protocol.requests.produced import check_produced_batch
from tests.replies import message_of

# A transaction log is there before the failure, an offsets topic is not.
TOPICS = ("ledger", "doomed")


async def answer(broker, key, version, body):
    replies = []
    request = Request(key, version, 1, "", Session(peer="10.0.0.1:4711"), body)
    broker.turns.event(
        lambda: broker.turns.start(
            TABLE[key].handle(broker, request), replies.append, lambda error: replies.append(error)
        )
    )
    while not replies:  # it gives way to others
        await asyncio.sleep(0)
    (reply,) = replies
    if isinstance(reply, Exception):
        raise reply
    return reply


def append(partition):
    data = memoryview(build_batch([(b"k", b"v")], timestamp_ms=1_700_000_000_000))
    return partition.append_from_client(check_produced_batch(data), data)


@pytest.fixture
def ask(tmp_path, monkeypatch, caplog):
    """Send a request three times to a broker whose disk filled up while it ran; no topic may appear or disappear."""

    def full(file, buffers):
        raise OSError(errno.ENOSPC, "No space left on device")

    async def live(key, version, body):
        config = Config(log_dirs=str(tmp_path / "data"), listeners=(Listener("PLAINTEXT", "127.0.0.1", 0),))
        server = Server(config)
        await server.start()
        broker = server.broker
        for name in TOPICS:
            create_topic(broker.cluster, name, 1)
        create_internal_topic(broker.cluster, "__transaction_state")
        with monkeypatch.context() as patch:
            patch.setattr(RealFile, "append", full)
            assert append(broker.cluster.partition("ledger", 0)).error is E.KAFKA_STORAGE_ERROR
        before = [*broker.cluster.topics]
        try:
            reply = [await answer(broker, key, version, body()) for _ in range(3)][-1]
            assert [*broker.cluster.topics] == before
            return reply
        finally:
            await server.stop()

    def ask(key, version, body):
        reply = asyncio.run(live(key, version, body))
        # One line for the partition with the error and one for the directory; none for later errors.
        # Of this broker: a client of an earlier test may still be looking for its own.
        mine = [record for record in caplog.records if record.name.startswith("ottla")]
        said = [record.getMessage() for record in mine if record.levelno >= logging.WARNING]
        assert len(said) == 2 and "No space left on device; free or repair the storage" in said[1], caplog.text
        return message_of(reply, key, version)

    return ask


def test_topics_are_not_created(ask):
    def body():
        request = codec.request_class(ApiKey.CREATE_TOPICS)
        topic = request.CreatableTopic(
            version=5, name="new", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        return request(version=5, topics=[topic], timeout_ms=1000, validate_only=False)

    (row,) = ask(ApiKey.CREATE_TOPICS, 5, body).topics
    assert row.error_code == E.KAFKA_STORAGE_ERROR and "metadata log" in row.error_message


def test_auto_creation_by_metadata_gets_a_storage_error(ask):
    def body():
        request = codec.request_class(ApiKey.METADATA)
        topic = request.MetadataRequestTopic(version=5, name="new")
        return request(version=5, topics=[topic], allow_auto_topic_creation=True)

    (row,) = ask(ApiKey.METADATA, 5, body).topics
    assert row.error_code == E.KAFKA_STORAGE_ERROR


def test_topics_are_not_deleted(ask):
    def body():
        return codec.request_class(ApiKey.DELETE_TOPICS)(version=5, topic_names=["doomed"], timeout_ms=1000)

    (row,) = ask(ApiKey.DELETE_TOPICS, 5, body).responses
    assert row.error_code == E.KAFKA_STORAGE_ERROR and "metadata log" in row.error_message


def test_coordinators_whose_log_cannot_be_made_are_not_available(ask):
    def body():
        return codec.request_class(ApiKey.FIND_COORDINATOR)(version=1, key="group", key_type=0)

    found = ask(ApiKey.FIND_COORDINATOR, 1, body)
    assert (found.error_code, found.node_id) == (E.COORDINATOR_NOT_AVAILABLE, -1)


def test_no_producer_id_is_given(ask):
    def body():
        return codec.request_class(ApiKey.INIT_PRODUCER_ID)(
            version=1, transactional_id=None, transaction_timeout_ms=1000
        )

    reply = ask(ApiKey.INIT_PRODUCER_ID, 1, body)
    assert reply.error_code == E.COORDINATOR_LOAD_IN_PROGRESS


def test_transactions_have_no_coordinator(ask):
    def body():
        return codec.request_class(ApiKey.INIT_PRODUCER_ID)(
            version=1, transactional_id="t", transaction_timeout_ms=1000
        )

    reply = ask(ApiKey.INIT_PRODUCER_ID, 1, body)
    assert reply.error_code == E.NOT_COORDINATOR


@pytest.mark.parametrize("timestamp", [-1, -2, 5])
def test_no_offset_is_known(ask, timestamp):
    def body():
        request = codec.request_class(ApiKey.LIST_OFFSETS)
        row = request.ListOffsetsTopic.ListOffsetsPartition(version=1, partition_index=0, timestamp=timestamp)
        topic = request.ListOffsetsTopic(version=1, name="ledger", partitions=[row])
        return request(version=1, replica_id=-1, topics=[topic])

    (row,) = ask(ApiKey.LIST_OFFSETS, 1, body).topics[0].partitions
    assert row.error_code == E.KAFKA_STORAGE_ERROR


def test_fetch_gets_a_storage_error(ask):
    def body():
        request = codec.request_class(ApiKey.FETCH)
        row = request.FetchTopic.FetchPartition(version=4, partition=0, fetch_offset=0, partition_max_bytes=1000)
        topic = request.FetchTopic(version=4, topic="ledger", partitions=[row])
        return request(
            version=4, replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=1000, isolation_level=0, topics=[topic]
        )

    reply = ask(ApiKey.FETCH, 4, body)
    assert reply.responses[0].partitions[0].error_code == E.KAFKA_STORAGE_ERROR
