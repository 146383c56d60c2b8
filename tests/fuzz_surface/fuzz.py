"""A run of hostile visits next to a valid client, and the faults of the broker after it."""

import itertools
import socket
import threading
import time
from collections import Counter

from tests.fuzz_surface import frames
from tests.fuzz_surface.visits import EVENT_TIMEOUT_S, FORBIDDEN, Visit
from tests.fuzz_surface.watched import Watched

HELD = 30
"""Connections that a hostile client leaves open."""
LOOK_EVERY_S = 1.0
MOST_WAIT_MS = 20.0
"""Maximum delay of other clients by a client without a login, in ms of the broker's event loop."""
MOST_GROWTH_MB = 16.0
WARM_VISITS = 500


class Sound:
    """A client that asks on the plain listener and logs in on listeners with SASL."""

    def __init__(self, broker):
        self._broker = broker
        self._connection = self._connect("PLAINTEXT")
        self.asked, self.longest_ms = 0, 0.0

    def _connect(self, name):
        return socket.create_connection(("127.0.0.1", self._broker.door(name).port), EVENT_TIMEOUT_S)

    def ask(self):
        """Send a request, read the answer, and measure the event loop's time meanwhile."""
        before = self._broker.loop_ms()
        answer(self._connection, frames.api_versions())
        self.longest_ms = max(self.longest_ms, self._broker.loop_ms() - before)
        self.asked += 1

    def log_in(self):
        with self._connect("SASL_PLAINTEXT") as connection:
            answer(connection, frames.handshake("PLAIN"))
            told = answer(connection, frames.authenticate(frames.plain_login(), 1))
            assert told[4:6] == b"\0\0", told

    def topics(self):
        """Return all topics of the broker."""
        asked = frames.encode(frames.header(3, 4, False) + b"\xff\xff\xff\xff\0")
        return answer(self._connection, asked)


def answer(connection, frame):
    connection.sendall(frame)
    size = int.from_bytes(exactly(connection, 4), "big")
    return exactly(connection, size)


def exactly(connection, size):
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("closed")
        data += piece
    return data


class Fuzz:
    """A run of `visits` visits, or of as many as fit in `seconds`."""

    def __init__(self, directory, seed, visits=None, seconds=None, clients=8, most_wait_ms=MOST_WAIT_MS):
        self.seed, self._visits, self._seconds, self._clients = seed, visits, seconds, clients
        self._most_wait_ms = most_wait_ms
        self.broker = Watched(directory)
        self.kinds = Counter()
        self.figures, self.findings = {}, []
        self._numbers = itertools.count()
        self._over = threading.Event()
        self._warm = threading.Event()

    def run(self):
        broker, sound = self.broker, Sound(self.broker)
        sound.ask()
        sound.log_in()
        sockets = broker.sockets()
        began = time.monotonic()
        visitors = [threading.Thread(target=self._visit_on, daemon=True) for _ in range(self._clients)]
        for visitor in visitors:
            visitor.start()
        memory = self._watch(sound, visitors, began)
        self._over.set()
        for visitor in visitors:
            visitor.join(EVENT_TIMEOUT_S * 2)
        self._judge(sound, sockets, memory, time.monotonic() - began)
        return self

    def _visit_on(self):
        held = []
        while not self._over.is_set():
            number = next(self._numbers)
            if self._visits is not None and number >= self._visits:
                break
            visit = Visit(self.seed, number, self.broker.doors)
            visit.play(held)
            self.kinds[visit.door.name, visit.kind.__name__] += 1
            if number > WARM_VISITS:
                self._warm.set()
            if len(held) > HELD:
                held.pop(0).close()
        for connection in held:
            connection.close()

    def _watch(self, sound, visitors, began):
        """Send valid requests until the visitors are done; return the memory of each second after the warm-up."""
        memory, looked = [], 0.0
        while any(visitor.is_alive() for visitor in visitors):
            if self._seconds is not None and time.monotonic() - began > self._seconds:
                break
            if self.broker.process.poll() is not None:
                break
            sound.ask()
            if time.monotonic() - looked > LOOK_EVERY_S:
                looked = time.monotonic()
                sound.log_in()
                if self._warm.is_set():
                    memory.append(self.broker.resident_mb())
            time.sleep(0.02)
        return memory

    def _judge(self, sound, sockets, memory, seconds):
        broker = self.broker
        if broker.process.poll() is not None:
            self.findings.append(f"the broker ended with {broker.process.returncode}")
        else:
            if FORBIDDEN.encode() in sound.topics():
                self.findings.append("somebody made a topic who had not logged in")
            left = broker.rested_sockets(sockets) - sockets
            if left > 0:
                self.findings.append(f"{left} sockets more than at the start")
        if sound.longest_ms > self._most_wait_ms:
            self.findings.append(f"another client waited {sound.longest_ms:.1f} ms of the broker's time")
        # All versions of requests have been met by then, and the clients hold as many connections as they may.
        warm = memory[len(memory) // 10 :]
        if warm and max(warm) - warm[0] > MOST_GROWTH_MB:
            self.findings.append(f"memory grew from {warm[0]:.0f} to {max(warm):.0f} MB")
        if broker.stop() != 0:
            self.findings.append(f"the stop ended with {broker.process.returncode}")
        self.findings += [f"in the log: {line}" for line in broker.unsound()[:20]]
        said = broker.count_log_lines()
        self.figures = {
            "seed": self.seed,
            "visits": sum(self.kinds.values()),
            "seconds": round(seconds),
            "asked": sound.asked,
            "longest_wait_ms": round(sound.longest_ms, 1),
            "memory_mb": [round(each, 1) for each in (memory[0], warm[0], max(warm), warm[-1])] if warm else [],
            "log_lines": sum(said.values()),
        }

    @property
    def lines(self):
        """Return each kind of line that the broker logged, the most frequent first."""
        return self.broker.count_log_lines().most_common()
