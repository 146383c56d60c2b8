"""The proxy against a server that answers every request with its correlation id and a body of the test's choice."""

import socket
import struct
import threading

import pytest

from ottla.testkit.proxy import Proxy
from tests.patience import PATIENCE_S

PRODUCE, METADATA = 0, 3


class Broker:
    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.body = b"answer"
        self.seen = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with connection, connection.makefile("rwb") as stream:
            while size := stream.read(4):
                api_key, _, correlation_id = struct.unpack(">hhi", stream.read(struct.unpack(">i", size)[0])[:8])
                self.seen.append(api_key)
                reply = struct.pack(">i", correlation_id) + self.body
                stream.write(struct.pack(">i", len(reply)) + reply)
                stream.flush()


@pytest.fixture
def broker():
    broker = Broker()
    yield broker
    broker.listener.close()


@pytest.fixture
def proxy(broker):
    with Proxy("127.0.0.1", broker.port) as proxy:
        yield proxy


def connect(proxy):
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S)


def ask(client, api_key, correlation_id):
    request = struct.pack(">hhi", api_key, 9, correlation_id) + b"body"
    client.sendall(struct.pack(">i", len(request)) + request)


def read(client):
    head = client.recv(4, socket.MSG_WAITALL)
    return client.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL) if head else None


def test_frames_pass_both_ways(proxy, broker):
    with connect(proxy) as client:
        for number in range(3):
            ask(client, PRODUCE, number)
            assert read(client) == struct.pack(">i", number) + b"answer"
    assert broker.seen == [PRODUCE] * 3
    assert proxy.requests == {PRODUCE: 3}


def test_a_lost_response_was_carried_out_and_ends_the_connection(proxy, broker):
    fault = proxy.lose_response(PRODUCE)
    with connect(proxy) as client:
        ask(client, METADATA, 1)
        assert read(client) is not None
        assert not fault.happened.is_set()
        ask(client, PRODUCE, 2)
        assert read(client) is None
    assert fault.happened.is_set()
    assert broker.seen == [METADATA, PRODUCE]
    with connect(proxy) as client:
        ask(client, PRODUCE, 3)
        assert read(client) == struct.pack(">i", 3) + b"answer"


def test_a_response_can_be_lost_without_a_word(proxy):
    fault = proxy.lose_response(PRODUCE, disconnect=False)
    with connect(proxy) as client:
        ask(client, PRODUCE, 1)
        ask(client, PRODUCE, 2)
        assert read(client) == struct.pack(">i", 2) + b"answer"
    assert fault.happened.is_set()


def test_clients_learn_the_proxys_address_from_metadata_only(proxy, broker):
    broker.body = b"\x0a127.0.0.1" + struct.pack(">i", broker.port)
    with connect(proxy) as client:
        ask(client, METADATA, 1)
        assert read(client)[4:] == b"\x0a127.0.0.1" + struct.pack(">i", proxy.port)
        ask(client, PRODUCE, 2)
        assert read(client)[4:] == broker.body


def test_closing_the_proxy_ends_its_connections(broker):
    proxy = Proxy("127.0.0.1", broker.port)
    with connect(proxy) as client:
        ask(client, PRODUCE, 1)
        read(client)
        proxy.close()
        assert read(client) is None


def test_a_subclass_sees_what_passes_and_may_lose_it(broker):
    class Deaf(Proxy):
        def on_request(self, frame):
            return frame[-4:]

        def on_reply(self, frame, noted):
            seen.append((noted, frame[4:]))
            return None if len(seen) == 1 else frame

    seen = []
    with Deaf("127.0.0.1", broker.port) as proxy, connect(proxy) as client:
        ask(client, PRODUCE, 1)
        ask(client, PRODUCE, 2)
        assert read(client) == struct.pack(">i", 2) + b"answer"
    assert seen == [(b"body", b"answer")] * 2


def test_hanging_up_ends_all_connections_and_refuses_new_ones_for_a_while(proxy):
    with connect(proxy) as client:
        ask(client, PRODUCE, 1)
        read(client)
        proxy.hang_up(for_s=60)
        assert read(client) is None
    with connect(proxy) as client:
        assert read(client) is None
    proxy.hang_up()
    with connect(proxy) as client:
        ask(client, PRODUCE, 2)
        assert read(client) == struct.pack(">i", 2) + b"answer"
