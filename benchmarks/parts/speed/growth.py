"""Cost of one request on a broker with many connections, partitions or open transactions, and with few. shell

Two brokers take turns, so that other load affects both alike: one has few, the other has more and more.
"""

import contextlib
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from ottla.wire.connection import BlockingConnection
from parts import raw
from parts.processes import Broker
from parts.side_by_side import each_ms
from parts.speed.crowd import Crowd, frame_of

CONNECTIONS = (1, 100, 1_000, 10_000)
PARTITIONS = (10, 100, 1_000, 10_000)
OPEN = (1, 100, 1_000, 10_000, 100_000)
MOST_AT_ONCE = 1_000
PIPELINED = 64
TURNS = 8

Pairs = list[tuple[float, float]]
Start = Callable[[], AbstractContextManager[Broker]]


def up_to(most: int, sizes: Sequence[int]) -> list[int]:
    """Return the sizes that are not above `most`; always the first."""
    return [size for size in sizes if size <= max(most, sizes[0])]


class Growth:
    """Measurements of the growth. `start` starts a broker. Each round's figure is the mean of `requests` requests."""

    def __init__(self, start: Start, rounds: int, requests: int) -> None:
        self._start = start
        self._rounds = rounds
        self._requests = requests
        self.found: dict[str, dict[int, Pairs]] = {}

    def connections(self, sizes: Sequence[int]) -> None:
        with self._both() as (few, many):
            for broker in (few, many):
                _create(broker, "grown", 1)
            frame = frame_of("grown", 0)
            with Crowd(few.bootstrap, 1, [frame]) as one, Crowd(many.bootstrap, 1, [frame]) as crowd:
                for size in sizes:
                    _tell(size, "connections")
                    crowd.grow(size)
                    self._note("Produce, on each of so many connections in turn", size, few, one, many, crowd)

    def partitions(self, sizes: Sequence[int]) -> None:
        with self._both() as (few, many), contextlib.ExitStack() as stack:
            frames: list[bytes] = []
            _create(few, "few", sizes[0])
            here = [frame_of("few", partition) for partition in range(sizes[0])]
            one_few = stack.enter_context(Crowd(few.bootstrap, 1, here[:1]))
            all_few = stack.enter_context(Crowd(few.bootstrap, 1, here))
            for size in sizes:
                _tell(size, "partitions")
                frames += _partitions(many, len(frames), size)
                with Crowd(many.bootstrap, 1, frames[:1]) as one, Crowd(many.bootstrap, 1, frames) as every:
                    for _ in frames:
                        every.one_by_one()  # opens what the first use opens
                    self._note("Produce to one of so many partitions", size, few, one_few, many, one)
                    self._note("Produce to each of so many partitions in turn", size, few, all_few, many, every)

    def open_transactions(self, sizes: Sequence[int]) -> None:
        with self._both() as (few, many), contextlib.ExitStack() as stack:
            sides = [stack.enter_context(_side(broker)) for broker in (few, many)]
            transactional = [raw.Transactional(connection, "beside", "open", v2=True) for connection, _ in sides]
            count = 0
            _open_more(sides[0][0], 0, 1)
            for size in sizes:
                _tell(size, "open transactions")
                _open_more(sides[1][0], count, size)
                count = size
                self._note(
                    "Produce beside so many open transactions of its partition",
                    size,
                    few,
                    sides[0][1],
                    many,
                    sides[1][1],
                )
                self._add(
                    "a transaction of one record beside them",
                    size,
                    (few, transactional[0].transact),
                    (many, transactional[1].transact),
                )

    @contextlib.contextmanager
    def _both(self) -> Iterator[tuple[Broker, Broker]]:
        with self._start() as few, self._start() as many, _apart(few, many):
            yield few, many

    def _note(self, label: str, size: int, few: Broker, ours: Crowd, many: Broker, theirs: Crowd) -> None:
        self._add(label, size, (few, ours.one_by_one), (many, theirs.one_by_one))

    def _add(self, label: str, size: int, *works: tuple[Broker, Callable[[], Any]]) -> None:
        """Measure the works. They also take turns within a round, because other load varies. Skip the first round."""
        count = max(1, self._requests // TURNS)
        rounds = []
        for _ in range(self._rounds + 1):
            turns = [[each_ms(broker, count, work) * 1000 for broker, work in works] for _ in range(TURNS)]
            rounds.append([statistics.mean(column) for column in zip(*turns, strict=True)])
        self.found.setdefault(label, {})[size] = [(few, many) for few, many in rounds[1:]]


@contextlib.contextmanager
def _apart(*brokers: Broker) -> Iterator[None]:
    """Bind the brokers to one processor and this process to the others.

    A broker that wakes on another processor than its client takes a third more for a request than one that shares the
    client's. Without the binding, the scheduler would place two equal brokers differently.
    """
    if not hasattr(os, "sched_setaffinity") or len(processors := sorted(os.sched_getaffinity(0))) < 2:
        yield
        return
    *ours, theirs = processors
    for broker in brokers:
        assert broker.pid is not None
        os.sched_setaffinity(broker.pid, {theirs})
    os.sched_setaffinity(0, ours)
    try:
        yield
    finally:
        os.sched_setaffinity(0, processors)


def _tell(size: int, what: str) -> None:
    print(f"  {size:,} {what} ...", file=sys.stderr, flush=True)


def _create(broker: Broker, topic: str, partitions: int) -> None:
    with raw.open_connection(broker.bootstrap) as connection:
        raw.create_topic(connection, topic, partitions)


def _partitions(broker: Broker, had: int, wanted: int) -> list[bytes]:
    """Create the missing partitions and return a frame for each new one."""
    frames = []
    for first in range(had, wanted, MOST_AT_ONCE):
        count = min(MOST_AT_ONCE, wanted - first)
        _create(broker, f"many-{first}", count)
        frames += [frame_of(f"many-{first}", partition) for partition in range(count)]
    return frames


@contextlib.contextmanager
def _side(broker: Broker) -> Iterator[tuple[BlockingConnection, Crowd]]:
    _create(broker, "open", 1)
    with (
        raw.open_connection(broker.bootstrap) as connection,
        Crowd(broker.bootstrap, 1, [frame_of("open", 0)]) as crowd,
    ):
        yield connection, crowd


def _open_more(connection: BlockingConnection, had: int, wanted: int) -> None:
    """Open transactions with a record in the partition, each with its own transactional id, and leave them open."""
    request = codec.request_class(ApiKey.INIT_PRODUCER_ID)
    for start in range(had, wanted, PIPELINED):
        names = [f"open-{number}" for number in range(start, min(start + PIPELINED, wanted))]
        for name in names:
            message = request(
                transactional_id=name,
                transaction_timeout_ms=raw.NEVER_TIMES_OUT_MS,
                producer_id=-1,
                producer_epoch=-1,
            )
            connection.post(message, 5)
        answers = [connection.receive() for _ in names]
        for name, answer in zip(names, answers, strict=True):
            raw.check(answer.error_code)
            producer = answer.producer_id, answer.producer_epoch
            connection.post(raw.produce_request("open", 0, *producer, 0, name, True), 12)
        for _ in names:
            raw.check_produce(connection.receive())
