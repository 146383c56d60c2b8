"""Frames passed between clients and one broker by threads, so that a hook on a reply may stop the broker first.

Clients stay on it: the broker's address in Metadata, FindCoordinator and DescribeCluster responses is replaced by ours,
byte for byte of equal length, so the broker must advertise the host that is given here.
"""

import contextlib
import socket
import struct
import threading
import time
from functools import partial

_SIZE = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")  # api_key, api_version, correlation_id
_MAX_FRAME_BYTES = 128 * 1024 * 1024
_METADATA, _FIND_COORDINATOR, _DESCRIBE_CLUSTER = 3, 10, 60
_NAMES_BROKERS = frozenset({_METADATA, _FIND_COORDINATOR, _DESCRIBE_CLUSTER})


class Through:
    """Forwards 127.0.0.1:`port` to a broker, frame by frame. Close it, or use it as a context manager.

    A subclass looks at what passes, and loses some of it, in `on_request` and `on_reply`.
    """

    def __init__(self, broker_host, broker_port):
        self._broker = (broker_host, broker_port)
        self._lock = threading.Lock()
        self._sockets = set()
        self._closing = False
        self._away_until_s = 0.0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        host = broker_host.encode()
        self._old_address = host + _SIZE.pack(broker_port)
        self._new_address = host + _SIZE.pack(self.port)
        threading.Thread(target=self._accept, name="proxy-accept", daemon=True).start()

    @property
    def address(self):
        """Bootstrap server for the clients."""
        return f"{self._broker[0]}:{self.port}"

    def hang_up(self, for_s=0.0):
        """Close every connection, and every new one at once until `for_s` seconds have passed."""
        with self._lock:
            self._away_until_s = time.monotonic() + for_s
            sockets = list(self._sockets)
        for sock in sockets:
            _shut(sock)

    def on_request(self, frame):
        """A request is about to be passed on; what this returns comes back with its reply."""
        return None

    def on_reply(self, frame, noted):
        """The reply to pass on; None to lose it quietly; EOFError to lose it and the connection."""
        return frame

    def close(self):
        self._closing = True
        with self._lock:
            sockets = [self._listener, *self._sockets]
        for sock in sockets:
            _shut(sock)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def _accept(self):
        while not self._closing:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if time.monotonic() < self._away_until_s:
                _shut(client)
                continue
            try:
                broker = socket.create_connection(self._broker)
            except OSError:
                _shut(client)
                continue
            for sock in (client, broker):  # before a pump runs: it closes both when the client is gone already
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets |= {client, broker}
            asked = {}  # correlation id -> (api_key, what `on_request` returned)
            self._start(client, broker, partial(self._request, asked=asked))
            self._start(broker, client, partial(self._response, asked=asked))

    def _start(self, source, target, change):
        pump = threading.Thread(target=self._pump, args=(source, target, change), name="proxy-pump", daemon=True)
        pump.start()

    def _pump(self, source, target, change):
        with contextlib.suppress(OSError, EOFError):
            while True:
                (size,) = _SIZE.unpack(_read(source, 4))
                if not 0 <= size <= _MAX_FRAME_BYTES:
                    break
                frame = change(_read(source, size))
                if frame is not None:
                    target.sendall(_SIZE.pack(len(frame)) + frame)
        for sock in (source, target):
            _shut(sock)
        with self._lock:
            self._sockets -= {source, target}

    def _request(self, frame, asked):
        api_key, _version, correlation_id = _REQUEST.unpack_from(frame)
        asked[correlation_id] = api_key, self.on_request(frame)
        return frame

    def _response(self, frame, asked):
        api_key, noted = asked.pop(_SIZE.unpack_from(frame)[0], (None, None))
        if api_key in _NAMES_BROKERS:
            frame = frame.replace(self._old_address, self._new_address)
        return self.on_reply(frame, noted)


def _read(sock, size):
    buffer = bytearray(size)
    view, done = memoryview(buffer), 0
    while done < size:
        count = sock.recv_into(view[done:])
        if count == 0:
            raise EOFError
        done += count
    return bytes(buffer)


def _shut(sock):
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
