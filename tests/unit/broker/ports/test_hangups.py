"""Clients that hang up while their socket is not read."""

import socket

import pytest

from ottla.broker.ports.hangups import has_hung_up, unread_bytes


@pytest.fixture
def pair():
    listener = socket.create_server(("127.0.0.1", 0))
    theirs = socket.create_connection(listener.getsockname())
    ours, _ = listener.accept()
    with listener, theirs, ours:
        yield ours, theirs


def test_an_open_connection_has_not_hung_up(pair):
    ours, theirs = pair
    theirs.sendall(b"x" * 100)
    assert not has_hung_up(ours.fileno(), 1_000)


@pytest.mark.parametrize("end", [socket.socket.close, lambda theirs: theirs.shutdown(socket.SHUT_WR)])
@pytest.mark.parametrize(("needed_bytes", "expected"), [(101, True), (100, False), (99, False)])
def test_a_hangup_is_detected_unless_all_needed_bytes_have_arrived(pair, end, needed_bytes, expected):
    ours, theirs = pair
    theirs.sendall(b"x" * 100)
    while unread_bytes(ours.fileno()) < 100:
        pass
    end(theirs)
    while ours.recv(1, socket.MSG_PEEK) != b"x":
        pass
    waited = [has_hung_up(ours.fileno(), needed_bytes) for _ in range(10_000)]
    assert waited[-1] is expected


def test_a_reset_is_detected_as_a_hangup(pair):
    ours, theirs = pair
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    theirs.close()
    assert [has_hung_up(ours.fileno(), 1) for _ in range(10_000)][-1]


def test_a_transport_without_a_socket_has_not_hung_up():
    assert not has_hung_up(-1, 1)
