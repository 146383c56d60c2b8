"""Clients that read slowly, late or never, on real sockets: they get whole replies and use no memory meanwhile."""

import contextlib
import os
import socket
import struct
import sys
import time

import pytest
from served import Served, create, fetch, produce, read_exactly, resident_mb

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from tests.timeout import EVENT_TIMEOUT_S

RECORD = os.urandom(900_000)
RECORDS = 24
VERSION = 11


def fill(served, topic):
    with contextlib.closing(served.connect()) as connection:
        create(connection, topic)
        for _ in range(RECORDS):
            assert produce(connection, topic, RECORD).error_code == 0


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A broker with a log of 21.6 MB."""
    served = Served(tmp_path_factory.mktemp("slow") / "data").ready()
    fill(served, "large")
    yield served
    code = served.end()
    _, log = served.process.communicate()
    assert (code, "Traceback" in log) == (0, False)


def encode_fetch(correlation_id=1, offset=0, topic="large"):
    message = fetch(topic, offset, max_bytes=55 * 1024 * 1024)
    return codec.encode_request(message, VERSION, correlation_id, "slow")


def connect(served, receive_buffer=None):
    client = socket.socket()
    if receive_buffer is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.settimeout(EVENT_TIMEOUT_S)
    client.connect(("127.0.0.1", served.port))
    return client


def read_reply(client, **how):
    (size_bytes,) = struct.unpack(">i", read_exactly(client, 4))
    return codec.decode_response(ApiKey.FETCH, VERSION, read_exactly(client, size_bytes, **how))


def records_of(reply):
    return bytes(reply[1].responses[0].partitions[0].records)


@pytest.mark.slow
def test_a_reply_from_files_is_whole_for_who_reads_it_slowly(log):
    with connect(log) as quick, connect(log, receive_buffer=20_000) as slow:
        quick.sendall(encode_fetch(1))
        wanted = records_of(read_reply(quick))
        assert wanted.count(RECORD[:100]) == RECORDS
        slow.sendall(encode_fetch(2) + encode_fetch(3, offset=20))
        assert records_of(read_reply(slow, pause_s=0.0005)) == wanted
        correlation_id, _ = reply = read_reply(slow)
        assert correlation_id == 3
        assert wanted.endswith(records_of(reply))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc for the memory of a process")
def test_clients_that_never_read_use_no_memory_and_block_no_other(log):
    before_mb = resident_mb(log)
    with contextlib.ExitStack() as stack:
        for number in range(40):
            stack.enter_context(connect(log, receive_buffer=20_000)).sendall(encode_fetch(number) * 3)
        time.sleep(0.5)
        with contextlib.closing(log.connect()) as healthy:
            assert produce(healthy, "large", b"small").error_code == 0
        assert resident_mb(log) - before_mb < 40  # a reply has 21.6 MB


def test_connections_reset_within_a_reply_do_no_harm(log):
    for number in range(20):
        client = connect(log, receive_buffer=20_000)
        client.sendall(encode_fetch(number))
        read_exactly(client, 100_000)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    with connect(log) as client:
        client.sendall(encode_fetch(99))
        assert len(records_of(read_reply(client))) > RECORDS * len(RECORD)


def test_a_half_closed_connection_gets_the_whole_reply(log):
    with connect(log, receive_buffer=20_000) as client:
        client.sendall(encode_fetch(1))
        time.sleep(0.1)
        client.shutdown(socket.SHUT_WR)
        assert len(records_of(read_reply(client))) > RECORDS * len(RECORD)
        assert client.recv(1) == b""


def test_a_fetch_reply_is_completed_after_its_topic_is_deleted(log):
    fill(log, "deleted")
    with connect(log, receive_buffer=20_000) as client, contextlib.closing(log.connect()) as other:
        client.sendall(encode_fetch(1, topic="deleted"))
        read_exactly(client, 4)
        request = codec.request_class(ApiKey.DELETE_TOPICS)
        other.send(request(topic_names=["deleted"], timeout_ms=1000), version=3)
        rest = read_exactly(client, RECORDS * len(RECORD))
        assert rest.count(RECORD[:100]) == RECORDS
