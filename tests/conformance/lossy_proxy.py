"""A TCP proxy in front of a broker that loses the acknowledgement of a Produce request.

The broker's answer arrives here, goes no further, and the connection breaks: the client must send the batch again.

Clients stay behind the proxy because it replaces the broker's port by its own wherever an answer names the broker
(Metadata, FindCoordinator): the host string followed by an int32 port, in every version of both.
"""

import contextlib
import socket
import struct
import threading

PRODUCE = 0


def _frame(sock):
    """One length-prefixed frame without its prefix, or None at the end of the stream."""
    head = _exactly(sock, 4)
    return None if head is None else _exactly(sock, struct.unpack(">i", head)[0])


def _exactly(sock, size):
    data = bytearray()
    while len(data) < size:
        try:
            chunk = sock.recv(size - len(data))
        except OSError:
            return None
        if not chunk:
            return None
        data += chunk
    return bytes(data)


class LossyProxy:
    """Listens on `bootstrap`. After `lose_acknowledgement_of(marker)`, the answer to the next Produce request whose
    bytes contain `marker` is swallowed; `seen` counts all Produce requests that contain it."""

    def __init__(self, upstream):
        host, _, port = upstream.rpartition(":")
        self._upstream = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        own_port = self._listener.getsockname()[1]
        self.bootstrap = f"{host}:{own_port}"
        self._real_address = host.encode() + struct.pack(">i", int(port))
        self._own_address = host.encode() + struct.pack(">i", own_port)
        self._marker, self._armed = None, False
        self.seen = self.lost = 0
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_acknowledgement_of(self, marker):
        self._marker, self._armed, self.seen, self.lost = marker, True, 0, 0

    def close(self):
        for sock in self._sockets:
            _shut(sock)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._upstream)
            except OSError:
                return
            self._sockets += [client, broker]
            doomed = set()
            threading.Thread(target=self._requests, args=(client, broker, doomed), daemon=True).start()
            threading.Thread(target=self._answers, args=(client, broker, doomed), daemon=True).start()

    def _requests(self, client, broker, doomed):
        while (frame := _frame(client)) is not None:
            api_key, _, correlation_id = struct.unpack_from(">hhi", frame)
            if api_key == PRODUCE and self._marker is not None and self._marker in frame:
                self.seen += 1
                if self._armed:
                    self._armed = False
                    doomed.add(correlation_id)
            if not _send(broker, frame):
                break
        _shut(client, broker)

    def _answers(self, client, broker, doomed):
        while (frame := _frame(broker)) is not None:
            if struct.unpack_from(">i", frame)[0] in doomed:
                self.lost += 1
                break
            if not _send(client, frame.replace(self._real_address, self._own_address)):
                break
        _shut(client, broker)


def _send(sock, frame):
    try:
        sock.sendall(struct.pack(">i", len(frame)) + frame)
    except OSError:
        return False
    return True


def _shut(*sockets):
    for sock in sockets:
        with contextlib.suppress(OSError):  # already closed by the other side
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()
