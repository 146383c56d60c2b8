"""The raw connection against a scripted peer."""

import asyncio
import socket
import struct
import threading

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.requests import codec, frames
from ottla.wire import connection as connection_module
from ottla.wire.connection import BlockingConnection, Exchange
from ottla.wire.login import LoginRefused
from tests.async_connection import AsyncConnection
from tests.wire.messages import framed_by_library

SERVED = {
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.END_TXN: (0, 4),
    ApiKey.FIND_COORDINATOR: (0, 3),
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.SASL_AUTHENTICATE: (0, 1),
}
PLAIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "alice",
    "sasl_plain_password": "in wonderland",
}


class Peer(threading.Thread):
    """A broker of three APIs on one connection. It sends `break_after` valid answers, then `last_words`, and closes."""

    def __init__(self, break_after=100, last_words=b""):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.break_after = break_after
        self.last_words = last_words
        self.headers = []
        self.session_ms, self.login_errors = 0, []
        self.start()

    def run(self):
        connection, _ = self.listener.accept()
        buffer = frames.ReceiveBuffer()
        with connection, self.listener:
            while received := connection.recv_into(buffer.get_buffer()):
                buffer.commit(received)
                while (frame := buffer.next_frame()) is not None:
                    if len(self.headers) == self.break_after:
                        connection.sendall(self.last_words)
                        return
                    connection.sendall(self.answer(frame))
                    buffer.release()

    def answer(self, frame):
        header, body = frames.parse_request_header(frame)
        self.headers.append(header)
        key, version, correlation_id, _ = header
        response = codec.response_class(key)
        if key == ApiKey.API_VERSIONS:
            low, high = SERVED[key]
            if version > high:
                return codec.encode_unsupported_api_versions(correlation_id, low, high)
            rows = [response.ApiVersion(api_key=k, min_version=v[0], max_version=v[1]) for k, v in SERVED.items()]
            return framed_by_library(response(version=version, api_keys=rows), key, version, correlation_id)
        request = codec.decode_request(key, version, body)
        if key == ApiKey.SASL_HANDSHAKE:
            return framed_by_library(response(version=version, mechanisms=["PLAIN"]), key, version, correlation_id)
        if key == ApiKey.SASL_AUTHENTICATE:
            error = self.login_errors.pop(0) if self.login_errors else 0
            message = response(version=version, error_code=error, auth_bytes=b"", session_lifetime_ms=self.session_ms)
            return framed_by_library(message, key, version, correlation_id)
        if request.producer_epoch == 99:  # acts as a request without a response
            return b""
        message = response(version=version, error_code=request.producer_epoch)
        return framed_by_library(message, key, version, correlation_id)


def end_txn(epoch=0):
    return codec.request_class(ApiKey.END_TXN)(
        transactional_id="t", producer_id=1, producer_epoch=epoch, committed=True
    )


def test_a_request_uses_the_highest_common_version():
    peer = Peer()
    with BlockingConnection("127.0.0.1", peer.port, client_id="me") as connection:
        assert connection.send(end_txn(47)).error_code == 47
    assert [(h.api_key, h.api_version) for h in peer.headers] == [(18, 4), (18, 3), (26, 4)]
    assert {header.client_id for header in peer.headers} == {"me"}


@pytest.fixture
def clock(monkeypatch):
    """Return a list with the time of connections in seconds."""
    time_s = [1_000.0]
    monkeypatch.setattr(connection_module.time, "monotonic", lambda: time_s[0])
    return time_s


@pytest.mark.parametrize(
    ("session_ms", "logins"),
    [(0, [1, 1, 1, 1, 1, 1]), (60_000, [1, 1, 2, 2, 3, 4]), (1, [1, 2, 3, 4, 5, 6])],
    ids=["no limit", "a minute", "too short"],
)
def test_a_connection_logs_in_again_before_its_session_ends(clock, session_ms, logins):
    peer = Peer()
    peer.session_ms = session_ms
    with BlockingConnection("127.0.0.1", peer.port, security=PLAIN) as connection:
        found = []
        for passed_s in (0, 50, 52, 101, 104, 4_000):
            clock[0] = 1_000.0 + passed_s
            assert connection.send(end_txn(47)).error_code == 47
            found.append([header.api_key for header in peer.headers].count(ApiKey.SASL_AUTHENTICATE))
    assert found == logins
    assert [header.api_key for header in peer.headers][:4] == [18, 18, 17, 36]


def test_a_login_is_not_mixed_with_answers_on_their_way(clock):
    peer = Peer()
    peer.session_ms = 60_000
    with BlockingConnection("127.0.0.1", peer.port, security=PLAIN) as connection:
        connection.post(end_txn(1))
        clock[0] += 60
        connection.post(end_txn(2))
        assert [connection.receive().error_code for _ in range(2)] == [1, 2]
        assert connection.send(end_txn(3)).error_code == 3
    assert [header.api_key for header in peer.headers][4:] == [26, 26, 17, 36, 26]


def test_a_refused_second_login_closes_the_connection(clock):
    peer = Peer()
    peer.session_ms, peer.login_errors = 60_000, [0, int(ErrorCode.SASL_AUTHENTICATION_FAILED)]
    connection = BlockingConnection("127.0.0.1", peer.port, security=PLAIN)
    clock[0] += 60
    with pytest.raises(LoginRefused, match="SASL_AUTHENTICATION_FAILED"):
        connection.send(end_txn())
    assert connection.fileno() == -1


def test_given_version_needs_no_question():
    peer = Peer()
    with BlockingConnection("127.0.0.1", peer.port) as connection:
        connection.send(end_txn(), version=1)
    assert [(h.api_key, h.api_version) for h in peer.headers] == [(26, 1)]


def test_an_api_that_the_broker_lacks_fails_and_the_connection_stays_open():
    with BlockingConnection("127.0.0.1", Peer().port) as connection:
        with pytest.raises(ProtocolError, match="does not serve Metadata"):
            connection.send(codec.request_class(ApiKey.METADATA)())
        assert connection.send(end_txn(3)).error_code == 3


def test_pipelined_responses_are_received_in_order():
    with BlockingConnection("127.0.0.1", Peer().port) as connection:
        assert all(connection.post(end_txn(epoch), version=3) for epoch in range(5))
        with pytest.raises(RuntimeError):
            connection.send(end_txn())
        assert [connection.receive().error_code for _ in range(5)] == list(range(5))


def test_peer_that_closes_is_a_connection_error():
    with BlockingConnection("127.0.0.1", Peer(break_after=0).port) as connection, pytest.raises(ConnectionError):
        connection.send(end_txn(), version=3)


def test_silence_is_a_timeout():
    with BlockingConnection("127.0.0.1", Peer().port, timeout_s=0.05) as connection, pytest.raises(TimeoutError):
        connection.send(end_txn(99), version=3)


@pytest.mark.parametrize(
    "answer",
    [
        struct.pack(">i", 0),
        struct.pack(">i", -1),
        struct.pack(">ii", 4, 7) + bytes(4),  # another correlation id, no body
        struct.pack(">iiBihB", 12, 5, 0, 0, 0, 0),  # a sound response to something else
        struct.pack(">iiBihBB", 13, 0, 0, 0, 0, 0, 0),  # a byte too many
        struct.pack(">iiBih", 11, 0, 0, 0, 0),  # a byte too few
    ],
)
def test_broken_response_is_a_protocol_error(answer):
    peer = Peer(break_after=0, last_words=answer)
    with BlockingConnection("127.0.0.1", peer.port) as connection, pytest.raises(ProtocolError):
        connection.send(end_txn(), version=3)


def test_raw_bytes_go_out_as_they_are():
    request = frames.encode_request_header(frames.RequestHeader(18, 99, 5, "x"))
    with BlockingConnection("127.0.0.1", Peer().port) as connection:
        connection.write(struct.pack(">i", len(request)) + request)
        assert connection.read_frame() == struct.pack(">ihihhh", 5, ErrorCode.UNSUPPORTED_VERSION, 1, 18, 0, 3)


def test_produce_without_acks_expects_nothing():
    exchange = Exchange()
    request = codec.request_class(ApiKey.PRODUCE)(acks=0, timeout_ms=1, topic_data=[])
    assert exchange.request(request, 9)[1] is False
    assert exchange.pending == 0


def test_tasks_share_an_asyncio_connection():
    async def scenario():
        async with await AsyncConnection.open("127.0.0.1", Peer().port) as connection:
            assert (await connection.versions())[26] == (0, 4)
            return await asyncio.gather(*(connection.send(end_txn(epoch)) for epoch in range(20)))

    assert [response.error_code for response in asyncio.run(scenario())] == list(range(20))


def test_every_waiting_task_learns_that_the_peer_closed():
    async def scenario():
        async with await AsyncConnection.open("127.0.0.1", Peer(break_after=1).port) as connection:
            sends = [connection.send(end_txn(epoch), version=3) for epoch in range(3)]
            results = await asyncio.gather(*sends, return_exceptions=True)
            with pytest.raises(ConnectionError):
                await connection.send(end_txn(), version=3)
            return results

    first, *others = asyncio.run(scenario())
    assert first.error_code == 0
    assert [type(error) for error in others] == [ConnectionError, ConnectionError]


def test_broken_response_ends_an_asyncio_connection():
    async def scenario():
        peer = Peer(break_after=0, last_words=struct.pack(">i", -5))
        async with await AsyncConnection.open("127.0.0.1", peer.port) as connection:
            await connection.send(end_txn(), version=3)

    with pytest.raises(ProtocolError, match="frame size"):
        asyncio.run(scenario())


def test_cancelled_task_does_not_shift_the_responses_of_others():
    async def scenario():
        async with await AsyncConnection.open("127.0.0.1", Peer().port) as connection:
            await connection.versions()
            first = asyncio.ensure_future(connection.send(end_txn(1)))
            second = asyncio.ensure_future(connection.send(end_txn(2)))
            await asyncio.sleep(0)
            first.cancel()
            return (await second).error_code

    assert asyncio.run(scenario()) == 2


def test_silence_is_a_timeout_for_asyncio_too():
    async def scenario():
        async with await AsyncConnection.open("127.0.0.1", Peer().port, timeout_s=0.05) as connection:
            await connection.send(end_txn(99), version=3)

    with pytest.raises(TimeoutError):
        asyncio.run(scenario())
