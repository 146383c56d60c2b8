"""Well-behaved producer and group of two consumers, with an ordinary library, and their latencies. shell

    python benchmarks/healthy.py HOST:PORT TOPIC SECONDS       prints a line of JSON for each `WINDOW_S`, then ends

The producer sends `RATE` records a second, as an application does. Each record contains the time at which it was due,
so the latencies of the acknowledgement and of the group's reading include every wait.
"""

import json
import struct
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaError, Message, Producer

RATE = 2_000
STEP_S = 0.01
WINDOW_S = 5.0
MEMBERS = 2
VALUE_BYTES = 200
LOG_LEVEL = 0
_DUE = struct.Struct(">d")


class Window:
    """Figures since the last printed line."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._acknowledged: list[float] = []
        self._read: list[float] = []
        self._counts = {"failed": 0, "rebalances": 0}

    def add_acknowledgement(self, due: float) -> None:
        with self._lock:
            self._acknowledged.append(time.time() - due)

    def read(self, due: float) -> None:
        with self._lock:
            self._read.append(time.time() - due)

    def count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1

    def close(self, seconds: float) -> dict[str, float]:
        """Return the figures and begin the next window."""
        with self._lock:
            acknowledged, read, counts = sorted(self._acknowledged), sorted(self._read), self._counts
            self._begin()
        return {
            "acknowledged_per_s": len(acknowledged) / seconds,
            "acknowledged_p50_ms": _at(acknowledged, 50),
            "acknowledged_p99_ms": _at(acknowledged, 99),
            "read_per_s": len(read) / seconds,
            "read_p99_ms": _at(read, 99),
            **counts,
        }


def _at(ordered: list[float], percent: int) -> float:
    return 1000 * ordered[len(ordered) * percent // 100] if ordered else 0.0


def produce(bootstrap: str, topic: str, window: Window, ending: threading.Event) -> None:
    settings = {"bootstrap.servers": bootstrap, "log_level": LOG_LEVEL, "acks": "all", "linger.ms": 5}
    producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000})
    due = time.time()
    padding = bytes(VALUE_BYTES - _DUE.size)

    def count_delivery(error: KafkaError | None, message: Message) -> None:
        if error is None:
            window.add_acknowledgement(_DUE.unpack_from(message.value())[0])
        else:
            window.count("failed")

    while not ending.is_set():
        for _ in range(int(RATE * STEP_S)):
            producer.produce(topic, _DUE.pack(due) + padding, on_delivery=count_delivery)
        due += STEP_S
        producer.poll(0)
        while (early_s := due - time.time()) > 0:
            producer.poll(early_s)
    producer.flush(10)


def consume(bootstrap: str, topic: str, window: Window, ending: threading.Event) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": LOG_LEVEL,
            "group.id": f"{topic}-readers",
            "auto.offset.reset": "latest",
            "session.timeout.ms": 10_000,
            "auto.commit.interval.ms": 500,
        }
    )
    consumer.subscribe([topic], on_assign=lambda *_: window.count("rebalances"))
    while not ending.is_set():
        for message in consumer.consume(500, 0.1):
            if message.error() is None:
                window.read(_DUE.unpack_from(message.value())[0])
    consumer.close()


def main(bootstrap: str, topic: str, seconds: float) -> None:
    window, ending = Window(), threading.Event()
    works = [produce, *[consume] * MEMBERS]
    threads = [threading.Thread(target=work, args=(bootstrap, topic, window, ending), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    until, began = time.monotonic() + seconds, time.monotonic()
    while time.monotonic() < until:
        time.sleep(min(WINDOW_S, seconds))
        now = time.monotonic()
        print(json.dumps(window.close(now - began)), flush=True)
        began = now
    ending.set()
    for thread in threads:
        thread.join(20)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
