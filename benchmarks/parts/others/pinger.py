"""Client that sends small requests, one after another, and reports how long it waited. shell

    python benchmarks/parts/others/pinger.py HOST:PORT TOPIC PID

It is a separate program, so that it imports nothing of Ottla. It prints `ready`, begins to count at the line `go`, and
ends at the line `end` with its figures as JSON. A wait has two lengths: wall time, and the CPU time that the broker's
process (and its first thread, which runs the event loop) used meanwhile. CPU time does not depend on other load on the
machine. Another program runs it with `Pinger`.
"""

import contextlib
import itertools
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from crc32c import crc32c

PAUSE_S = 0.002
ANSWER_TIMEOUT_S = 120.0
RECONNECT_S = 0.05
RECONNECTS = 200
PRODUCE = "Produce"
OF_PARTITION = ("ListOffsets", PRODUCE)


class Pinger:
    """Context manager that runs this program in the background; `figures` are complete after the `with` block."""

    def __init__(self, bootstrap: str, topic: str, pid: int | None) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), bootstrap, topic, str(pid or 0)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.figures: dict[str, Any] = {}

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise SystemExit("the pinger did not get ready")
        self._say("go")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._say("end")
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if line:
            self.figures = json.loads(line)
        elif kind is None:
            raise SystemExit("the pinger ended without figures: see its error above")

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()


class Spent:
    """CPU time of the broker so far, in ns: that of its process, and that of its first thread."""

    def __init__(self, pid: int) -> None:
        self._clock = (~pid << 3) | 2
        self._of_thread = -1
        if pid:
            with contextlib.suppress(OSError):
                time.clock_gettime_ns(self._clock)
                self._of_thread = os.open(f"/proc/{pid}/task/{pid}/schedstat", os.O_RDONLY)

    def read(self) -> tuple[int, int]:
        """Return both times; zeros if the system does not provide them, or the broker has ended."""
        if self._of_thread < 0:
            return 0, 0
        try:
            return time.clock_gettime_ns(self._clock), int(os.pread(self._of_thread, 64, 0).split()[0])
        except OSError:
            return 0, 0


def questions(topic: str) -> list[tuple[str, bytes]]:
    """Return (name, frame) of ApiVersions 0, and Metadata 1, ListOffsets 1 and Produce 3 (acks=all) of a partition."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    batch = one_record()
    bodies = {
        "ApiVersions": (18, 0, b""),
        "Metadata": (3, 1, struct.pack(">i", 1) + name),
        "ListOffsets": (2, 1, struct.pack(">ii", -1, 1) + name + struct.pack(">iiq", 1, 0, -1)),
        PRODUCE: (0, 3, struct.pack(">hhii", -1, -1, 30_000, 1) + name + struct.pack(">iii", 1, 0, len(batch)) + batch),
    }
    asked = []
    for title, (key, version, body) in bodies.items():
        frame = struct.pack(">hhih", key, version, 7, -1) + body
        asked.append((title, struct.pack(">i", len(frame)) + frame))
    return asked


def one_record() -> bytes:
    """Return a batch of one record without a key and with a value of four bytes."""
    record = b"\x14\x00\x00\x00\x01\x08ping\x00"  # length 10, attributes, deltas, no key, value, no headers
    now_ms = time.time_ns() // 1_000_000
    body = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + record
    return struct.pack(">qiibI", 0, 9 + len(body), -1, 2, crc32c(body)) + body


class Waits:
    """Sums of the waits so far, and the longest wait; that of Produce also separately."""

    def __init__(self) -> None:
        self.ms: list[float] = []
        self.cpu_ms = 0.0
        self.loop_ms = 0.0
        self.longest_for = ""
        self.produce_ms: list[float] = []
        self.produce_cpu_ms = 0.0
        self.errors = 0
        self.lost = 0

    def add(self, name: str, ms: float, cpu_ms: float, loop_ms: float) -> None:
        self.ms.append(ms)
        if cpu_ms >= self.cpu_ms:
            self.longest_for = name
        if name == PRODUCE:
            self.produce_ms.append(ms)
            self.produce_cpu_ms = max(self.produce_cpu_ms, cpu_ms)
        self.cpu_ms = max(self.cpu_ms, cpu_ms)
        self.loop_ms = max(self.loop_ms, loop_ms)

    def figures(self) -> dict[str, Any]:
        waits = sorted(self.ms) or [0.0]
        produced = sorted(self.produce_ms) or [0.0]
        return {
            "pings": len(self.ms),
            "p50_ms": waits[len(waits) // 2],
            "p99_ms": waits[len(waits) * 99 // 100],
            "longest_ms": waits[-1],
            "longest_cpu_ms": self.cpu_ms,
            "longest_loop_ms": self.loop_ms,
            "longest_for": self.longest_for,
            "produce_p99_ms": produced[len(produced) * 99 // 100],
            "produce_longest_cpu_ms": self.produce_cpu_ms,
            "errors": self.errors,
            "lost": self.lost,
        }


def connect(bootstrap: str) -> socket.socket:
    host, _, port = bootstrap.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=ANSWER_TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def reconnect(bootstrap: str) -> socket.socket:
    for _ in range(RECONNECTS):
        with contextlib.suppress(OSError):
            return connect(bootstrap)
        time.sleep(RECONNECT_S)
    raise SystemExit("the broker takes no connections")


def answer_of(connection: socket.socket, frame: bytes) -> bytes:
    connection.sendall(frame)
    return exactly(connection, int.from_bytes(exactly(connection, 4), "big"))


def exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionError("closed by the broker")
        data += piece
    return data


def is_error(name: str, topic: str, answer: bytes) -> bool:
    """Return whether the answer for the partition is an error: its log could not be read or written."""
    return name in OF_PARTITION and answer[18 + len(topic) : 20 + len(topic)] != b"\0\0"


def first_in_line() -> None:
    """Raise this process's priority, so that it runs as soon as a reply arrives, before the broker's next work."""
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        return
    with contextlib.suppress(OSError):
        os.nice(-15)


def ping(bootstrap: str, topic: str, pid: int) -> None:
    spent, waits = Spent(pid), Waits()
    connection = connect(bootstrap)
    asked = questions(topic)
    for _, frame in asked:
        answer_of(connection, frame)
    first_in_line()
    print("ready", flush=True)
    for name, frame in itertools.cycle(asked):
        if select.select([sys.stdin], [], [], PAUSE_S)[0]:
            if sys.stdin.readline() != "go\n":
                break
            waits = Waits()
        (cpu_ns, loop_ns), began = spent.read(), time.perf_counter()
        try:
            waits.errors += is_error(name, topic, answer_of(connection, frame))
        except OSError:
            waits.lost += 1
            connection.close()
            connection = reconnect(bootstrap)
        ms, (cpu_end_ns, loop_end_ns) = (time.perf_counter() - began) * 1000, spent.read()
        waits.add(name, ms, (cpu_end_ns - cpu_ns) / 1e6, (loop_end_ns - loop_ns) / 1e6)
    print(json.dumps(waits.figures()), flush=True)


if __name__ == "__main__":
    ping(sys.argv[1], sys.argv[2], int(sys.argv[3]))
