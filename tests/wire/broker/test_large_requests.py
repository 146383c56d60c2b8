"""Clients that send much, in small pieces, or half of it, on real sockets."""

import contextlib
import socket
import struct
import sys
import threading

import pytest
from served import Served, create, produce, read_exactly, resident_mb

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from tests.timeout import EVENT_TIMEOUT_S

MIB = 1 << 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    data_dir = tmp_path_factory.mktemp("large") / "data"
    broker = Served(data_dir, "--override", f"queued.max.request.bytes={16 * MIB}").ready()
    yield broker
    code = broker.end()
    _, log = broker.process.communicate()
    assert (code, "Traceback" in log) == (0, False)


def connect(broker):
    return socket.create_connection(("127.0.0.1", broker.port), timeout=EVENT_TIMEOUT_S)


def large_produce(size_bytes):
    """A Produce whose one batch is none: it is answered with an error when all of it has arrived."""
    partition = struct.pack(">ii", 0, size_bytes) + bytes(size_bytes)
    body = struct.pack(">hhi", -1, -1, 1000) + struct.pack(">ih", 1, 5) + b"large" + struct.pack(">i", 1) + partition
    payload = struct.pack(">hhih", ApiKey.PRODUCE, 3, 7, -1) + body
    return struct.pack(">i", len(payload)) + payload


def asks(number):
    return codec.encode_request(codec.request_class(ApiKey.API_VERSIONS)(), 0, number, "test")


def reply_number(client):
    (size_bytes,) = struct.unpack(">i", read_exactly(client, 4))
    return struct.unpack(">i", read_exactly(client, size_bytes)[:4])[0]


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc for the memory of a process")
def test_large_requests_wait_for_memory_and_are_all_answered(broker):
    with contextlib.closing(broker.connect()) as healthy:
        create(healthy, "large")
        before_mb = resident_mb(broker)
        request = large_produce(10 * MIB)
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(connect(broker)) for _ in range(20)]
            for client in clients:
                client.sendall(request[: 60 * 1024])
            rest = [threading.Thread(target=client.sendall, args=(request[60 * 1024 :],)) for client in clients]
            for thread in rest:
                thread.start()
            assert produce(healthy, "large", b"small").error_code == 0
            assert [reply_number(client) for client in clients] == [7] * 20
            for thread in rest:
                thread.join()
            assert resident_mb(broker) - before_mb < 60  # all of them have 200 MB


@pytest.mark.slow
def test_thousands_of_pipelined_requests_are_answered_in_order(broker):
    with connect(broker) as client:
        sender = threading.Thread(target=client.sendall, args=(b"".join(map(asks, range(5000))),))
        sender.start()
        assert [reply_number(client) for _ in range(5000)] == list(range(5000))
        sender.join()


def test_200_half_frames_do_not_block_another_client(broker):
    with contextlib.ExitStack() as stack:
        for number in range(200):
            client = stack.enter_context(connect(broker))
            client.sendall(asks(number)[: 1 + number % 12])
        other = stack.enter_context(connect(broker))
        other.sendall(asks(9))
        assert reply_number(other) == 9
