"""Cost of a flush per commit with 1, 16 and 64 transactional producers and as many dirty files. free

    python benchmarks/flush.py                          about a minute
    TMPDIR=/another/disk python benchmarks/flush.py --format json

Wall times on the disk that holds the temporary directory. Three brokers take turns in slices of a second: one without
flushes, one with `log.flush.interval.messages=1`, and the same without group commit (`parts/one_by_one.py`), which
syncs each append by itself, as Kafka does. The rates are medians of the slices. A transaction V2 of one record has five
appends, each after the other: the added partition, the batch, PrepareCommit, the marker, CompleteCommit. Each producer
writes to its own partition and sends the next request as soon as the reply arrives.
"""

import contextlib
import os
import selectors
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from parts import processes, raw
from parts.figures import Figures, Row, machine, show
from parts.options import parse_amount, parse_count

from lab.usage import command_line
from ottla.broker.ports.syncs import SyncThreads
from ottla.protocol.errors import ErrorCode

ONE_BY_ONE = Path(__file__).resolve().parent / "parts" / "one_by_one.py"
COUNTS = (1, 16, 64)
FLUSHED = "log.flush.interval.messages=1"
BATCH_BYTES = 250
SYNC_ROUNDS = 30


def rows_of(count: int) -> tuple[Row, ...]:
    most = count == max(COUNTS)
    return (
        Row(f"unflushed_{count}", f"{count} producers and partitions, not flushed", "/s"),
        Row(f"flushed_{count}", "  with a flush per commit", "/s"),
        Row(f"one_by_one_{count}", "  with one fdatasync after the other", "/s"),
        Row(f"of_one_by_one_{count}", "  flushed, to one by one", "x", 5 if most else None, True),
        Row(f"of_unflushed_{count}", "  flushed, to not flushed", "x", 0.6 if most else None, True),
        Row(f"unflushed_cpu_ms_{count}", "  broker CPU of a transaction, not flushed", "ms"),
        Row(f"flushed_cpu_ms_{count}", "  broker CPU of a transaction, flushed", "ms"),
    )


ROWS = (
    *(
        row
        for count in COUNTS
        for row in (
            Row(f"sync_each_ms_{count}", f"{count} dirty files, one fdatasync after the other", "ms"),
            Row(f"sync_ms_{count}", f"{count} dirty files by the threads of a disk", "ms"),
        )
    ),
    *(row for count in COUNTS for row in rows_of(count)),
    Row("one_file_64", "64 producers of one partition, with a flush per commit", "/s"),
)


@contextlib.contextmanager
def temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ottla-flush-") as directory:
        yield Path(directory)


def syncs(root: Path) -> Figures:
    """Return the times that the device itself takes for syncs."""
    threads, data = SyncThreads(), os.urandom(BATCH_BYTES)
    opened = [os.open(root / str(number), os.O_RDWR | os.O_CREAT | os.O_APPEND) for number in range(max(COUNTS))]

    def each(descriptors: Sequence[int]) -> None:
        for descriptor in descriptors:
            os.fdatasync(descriptor)

    def at_once(descriptors: Sequence[int]) -> None:
        error = threads.sync(descriptors)
        if error is not None:
            raise error

    ways: dict[str, Callable[[Sequence[int]], None]] = {"sync_each_ms": each, "sync_ms": at_once}
    times_ms: dict[str, list[float]] = {f"{way}_{count}": [] for count in COUNTS for way in ways}
    for _ in range(SYNC_ROUNDS):
        for count in COUNTS:
            for way, sync in ways.items():
                for descriptor in opened[:count]:
                    os.write(descriptor, data)
                began = time.perf_counter()
                sync(opened[:count])
                times_ms[f"{way}_{count}"].append((time.perf_counter() - began) * 1000)
    for descriptor in opened:
        os.close(descriptor)
    threads.stop()
    return {key: statistics.median(values) for key, values in times_ms.items()}


class Crowd:
    """Producers of transactions V2 on one thread. Each sends its next request when the reply arrives."""

    def __init__(self, broker: processes.Broker, count: int, partitions: int) -> None:
        self._pid = broker.pid
        self._stack = contextlib.ExitStack()
        connections = [self._stack.enter_context(raw.open_connection(broker.bootstrap)) for _ in range(count)]
        topic = f"crowd-{time.time_ns()}"
        raw.create_topic(connections[0], topic, partitions)
        self._selector = self._stack.enter_context(selectors.DefaultSelector())
        self._ending: dict[raw.Transactional, bool] = {}
        for number, connection in enumerate(connections):
            producer = raw.Transactional(connection, f"{topic}-{number}", topic, v2=True, partition=number % partitions)
            self._ending[producer] = False
            self._selector.register(connection, selectors.EVENT_READ, producer)
        self.rates: list[float] = []
        self.cpus_ms: list[float] = []
        self._run(0.2)

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def measure(self, seconds: float) -> None:
        assert self._pid is not None
        cpu_s, began = raw.cpu_s(self._pid), time.perf_counter()
        count = self._run(seconds)
        self.rates.append(count / (time.perf_counter() - began))
        self.cpus_ms.append((raw.cpu_s(self._pid) - cpu_s) * 1000 / count)

    def _run(self, seconds: float) -> int:
        """Commit transactions for `seconds`, wait for the open ones, and return the number of commits."""
        for producer in self._ending:
            producer.connection.post(producer.send_request(), 12)
        until, busy, committed = time.perf_counter() + seconds, len(self._ending), 0
        while busy:
            for key, _ in self._selector.select():
                producer = key.data
                answer = producer.connection.receive()
                if not self._ending[producer]:
                    self._sent(producer, answer)
                    continue
                producer.take_next(answer)
                self._ending[producer] = False
                committed += 1
                if time.perf_counter() < until:
                    producer.connection.post(producer.send_request(), 12)
                else:
                    busy -= 1
        return committed

    def _sent(self, producer: raw.Transactional, answer: Any) -> None:
        error = answer.responses[0].partition_responses[0].error_code
        if raw.check(error, ErrorCode.CONCURRENT_TRANSACTIONS):
            # The broker still writes the markers of the last transaction: send the request again.
            producer.connection.post(producer.send_request(), 12)
        else:
            self._ending[producer] = True
            producer.connection.post(producer.end_request(), 5)


def flushes(root: Path, seconds: float, rounds: int) -> Figures:
    figures: Figures = {}
    one_by_one = [str(ONE_BY_ONE)]
    with (
        processes.ottla(root / "fast") as fast,
        processes.ottla(root / "safe", [FLUSHED]) as safe,
        processes.ottla(root / "slow", [FLUSHED], one_by_one) as slow,
    ):
        for count in COUNTS:
            with (
                Crowd(fast, count, count) as first,
                Crowd(safe, count, count) as second,
                Crowd(slow, count, count) as third,
            ):
                for _ in range(rounds):
                    for crowd in (first, second, third):
                        crowd.measure(seconds)
            unflushed, flushed, each = (statistics.median(crowd.rates) for crowd in (first, second, third))
            figures |= {
                f"unflushed_{count}": unflushed,
                f"flushed_{count}": flushed,
                f"one_by_one_{count}": each,
                f"of_one_by_one_{count}": flushed / each,
                f"of_unflushed_{count}": flushed / unflushed,
                f"unflushed_cpu_ms_{count}": statistics.median(first.cpus_ms),
                f"flushed_cpu_ms_{count}": statistics.median(second.cpus_ms),
            }
        with Crowd(safe, 64, 1) as crowd:
            for _ in range(rounds):
                crowd.measure(seconds)
        figures["one_file_64"] = statistics.median(crowd.rates)
    return figures


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=parse_amount, default=1.0, help="of each slice")
    parser.add_argument("--rounds", type=parse_count, default=5, help="slices of each broker")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    options = parser.parse_args()
    stands_on = machine()
    with temporary() as root:
        figures = syncs(root) | flushes(root, options.seconds, options.rounds)
    show(ROWS, figures, stands_on, options.format)


if __name__ == "__main__":
    main()
