"""Cost of transactions for the broker, alone and with a million idle transactional ids. shell

    python benchmarks/transactions.py                 about five minutes
    python benchmarks/transactions.py --ids 100000    sooner
    python benchmarks/transactions.py --only idle --format json

The clients speak the protocol themselves. The broker runs in a separate process and reports its longest turn and
garbage collection (parts/watched.py). Times are CPU times of the broker, medians of rounds, unless the row says wall.
"""

import contextlib
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parts import populate, processes, raw
from parts.figures import Figures, Row, machine, show
from parts.options import parse_count
from parts.processes import Broker
from parts.raw import cpu_s
from parts.side_by_side import medians_ms, spent, watch_broker

from lab.usage import command_line
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.wire.connection import BlockingConnection

PIPELINED = 64
MINUTE_MS = 60_000


ROWS = (
    Row("v1_ms", "one-record transaction V1 (3 requests)", "ms", 0.45),
    Row("v2_ms", "one-record transaction V2 (2 requests)", "ms", 0.35),
    Row("load_wall_s", "idle ids: loaded from the log after, wall", "s", 20),
    Row("load_s", "  CPU", "s"),
    Row("load_turn_ms", "  longest turn meanwhile", "ms", 20),
    Row("idle_mb", "  resident memory", "MB", 1000),
    Row("list_state_s", "ListTransactions by state", "s", 1),
    Row("list_producer_s", "  by producer id", "s", 1),
    Row("list_duration_s", "  by duration", "s", 1),
    Row("list_pattern_s", "  by pattern", "s", 1),
    Row("list_wall_s", "  the slowest of these, wall", "s"),
    Row("list_all_s", "  unfiltered", "s"),
    Row("list_turn_ms", "  longest turn meanwhile", "ms", 20),
    Row("describe_ratio", "DescribeTransactions, to that of a few ids", "x", 1.1),
    Row("idle_v1_ratio", "transaction V1, to that of a few ids", "x", 1.1),
    Row("idle_v2_ratio", "transaction V2, to that of a few ids", "x", 1.1),
    Row("gc_load_ms", "longest garbage collection while loading", "ms", 20),
    Row("gc_ms", "  while ids, errors and connections come and go", "ms", 20),
    Row("grow_turn_ms", "  longest turn meanwhile", "ms", 20),
    Row("open_ratio", "Produce beside 100,000 open transactions of its partition, to none", "x", 1.1),
    Row("producers_ratio", "Produce beside 1,000,000 producers of its partition, to a few", "x", 1.1),
    Row("expiry_turn_ms", "  longest turn while those are looked through for expiry", "ms"),
    Row("roll_turn_ms", "  longest turn while a segment rolls", "ms"),
)


def transactions_of(connection: BlockingConnection) -> list[Callable[[], None]]:
    """Return two functions that run a transaction, one of V1 and one of V2."""
    topic = f"transactions-{time.time_ns()}"
    raw.create_topic(connection, topic, 2)
    return [
        raw.Transactional(connection, f"{topic}-{index}", topic, v2=index == 1, partition=index).transact
        for index in (0, 1)
    ]


def describe_of(connection: BlockingConnection, name: str) -> Callable[[], Any]:
    return lambda: raw.ask(connection, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[name])


def plain_cost(rounds: int) -> Figures:
    with watch_broker() as (broker, _), raw.open_connection(broker.bootstrap) as connection:
        v1, v2 = transactions_of(connection)
        v1_ms, v2_ms = medians_ms(rounds, 500, (broker, v1), (broker, v2))
    return {"v1_ms": v1_ms, "v2_ms": v2_ms}


def compare_with_few(many: Broker, connection: BlockingConnection, described: str, rounds: int) -> Figures:
    """Return the ratios of the time of a broker with many ids to that of one with few, which take turns."""
    figures: Figures = {}
    with watch_broker() as (few, _), raw.open_connection(few.bootstrap) as beside:
        raw.Transactional(beside, "described", "", v2=True)
        works = {
            name: ((many, ours), (few, theirs))
            for name, ours, theirs in zip(
                ("idle_v1_ratio", "idle_v2_ratio", "describe_ratio"),
                (*transactions_of(connection), describe_of(connection, described)),
                (*transactions_of(beside), describe_of(beside, "described")),
                strict=True,
            )
        }
        for name, pair in works.items():
            many_ms, few_ms = medians_ms(2 * rounds, 300, *pair)
            figures[name] = many_ms / few_ms
    return figures


# ---- many idle ids


def ask_for_list(connection: BlockingConnection, **filters: Any) -> tuple[int, int]:
    """Return (error, rows) of ListTransactions 2, read without creating objects for a million rows."""
    asked = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1, "transactional_id_pattern": None}
    request = codec.request_class(ApiKey.LIST_TRANSACTIONS)(**asked | filters)
    connection.write(codec.encode_request(request, 2, 0, "benchmark"))
    payload = connection.read_frame()
    (error,) = struct.unpack_from(">h", payload, 9)
    if payload[11] != 1:
        raise SystemExit("the broker does not know a state")
    count = shift = 0
    for byte in payload[12:]:
        count |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return error, count - 1


def wait_until_loaded(connection: BlockingConnection) -> None:
    while ask_for_list(connection, state_filters=["Ongoing"])[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        time.sleep(0.05)


def measure_lists(broker: Broker, connection: BlockingConnection, ids: int, rounds: int) -> Figures:
    filters: dict[str, dict[str, Any]] = {
        "state": {"state_filters": ["Empty"]},
        "producer": {"producer_id_filters": [populate.FIRST_PRODUCER_ID + 5]},
        "duration": {"duration_filter": populate.DAY_MS - MINUTE_MS},
        "pattern": {"transactional_id_pattern": "payments-[a-z]+-0*[1-9][0-9]?"},
    }
    figures: Figures = {"list_wall_s": 0.0}
    for name, chosen in filters.items():
        samples, walls = [], []
        for _ in range(rounds):
            began = time.perf_counter()
            samples.append(spent(broker, lambda chosen=chosen: ask_for_list(connection, **chosen)))
            walls.append(time.perf_counter() - began)
        figures[f"list_{name}_s"] = statistics.median(samples)
        figures["list_wall_s"] = max(figures["list_wall_s"], statistics.median(walls))
    found: list[tuple[int, int]] = []
    figures["list_all_s"] = spent(broker, lambda: found.append(ask_for_list(connection)))
    if found[0][0] or found[0][1] < ids:
        raise SystemExit(f"ListTransactions told of {found[0][1]} ids, error {found[0][0]}")
    return figures


def grow(broker: Broker, connection: BlockingConnection, ids: int) -> None:
    """Make new ids, transactions, errors and broken connections, which leave live objects and reference cycles."""
    topic = f"grow-{broker.pid}"
    raw.create_topic(connection, topic)
    producer = raw.Transactional(connection, topic, topic, v2=True)
    request = codec.request_class(ApiKey.INIT_PRODUCER_ID)
    for start in range(0, ids, PIPELINED):
        for number in range(start, start + PIPELINED):
            message = request(
                transactional_id=f"new-{number}", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
            )
            connection.post(message, 4)
        for _ in range(PIPELINED):
            raw.check(connection.receive().error_code)
        producer.transact(commit=start % 128 == 0)
        with raw.open_connection(broker.bootstrap) as broken:
            raw.ask(broken, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[topic, "unknown"])
            broken.write(b"\0\0\0\x0c\0\0\0\x07broken..")
            with contextlib.suppress(ConnectionError):
                broken.read_frame()


def idle_ids(ids: int, rounds: int) -> Figures:
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="ottla-idle-") as directory:
        data_dir = Path(directory)
        with processes.ottla(data_dir) as broker:
            populate.prepare(broker, data_dir)
        print("writing the log ...", file=sys.stderr, flush=True)
        populate.write_idle_ids(data_dir, ids)
        with processes.ottla(data_dir):
            pass  # it makes the indexes again, and closes
        began = time.perf_counter()
        with watch_broker(data_dir) as (broker, watch), raw.open_connection(broker.bootstrap) as connection:
            assert broker.pid is not None
            watch.reset()  # pauses before it was ready delayed no client
            wait_until_loaded(connection)
            figures["load_wall_s"] = time.perf_counter() - began
            figures["load_s"] = cpu_s(broker.pid)
            figures["load_turn_ms"], figures["gc_load_ms"] = watch.read()["turn_ms"], watch.read()["gc_ms"]
            figures["idle_mb"] = broker.resident_mb() or 0.0
            watch.reset()
            figures |= measure_lists(broker, connection, ids, rounds)
            figures["list_turn_ms"] = watch.read()["turn_ms"]
            figures |= compare_with_few(broker, connection, populate.idle_id(ids // 2), rounds)
            watch.reset()
            grow(broker, connection, ids // 10)
            figures["gc_ms"], figures["grow_turn_ms"] = watch.read()["gc_ms"], watch.read()["turn_ms"]
    return figures


# ---- many open transactions, many producers


def open_transactions(count: int, rounds: int) -> Figures:
    with (
        watch_broker(None, "transaction.partition.verification.enable=false") as (broker, _),
        raw.open_connection(broker.bootstrap) as connection,
    ):
        raw.create_topic(connection, "open", 2)
        for start in range(0, count, PIPELINED):
            for number in range(start, start + PIPELINED):
                connection.post(raw.produce_request("open", 1, 1_000_000 + number, 0, 0, "nobody", True), 11)
            for _ in range(PIPELINED):
                raw.check_produce(connection.receive())
        none_ms, many_ms = compare_produce(broker, connection, "open", rounds)
    return {"open_ratio": many_ms / none_ms}


def compare_produce(broker: Broker, connection: BlockingConnection, topic: str, rounds: int) -> list[float]:
    """Return the times of a Produce to partition 0 and to partition 1, in ms, by idempotent producers."""
    sequences = [0, 0]

    def send(partition: int) -> None:
        raw.check_produce(connection.send(raw.produce_request(topic, partition, 7, 0, sequences[partition]), 11))
        sequences[partition] += 1

    return medians_ms(2 * rounds, 1000, (broker, lambda: send(0)), (broker, lambda: send(1)))


def many_producers(count: int, rounds: int) -> Figures:
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="ottla-producers-") as directory:
        data_dir = Path(directory)
        with processes.ottla(data_dir) as broker, raw.open_connection(broker.bootstrap) as connection:
            raw.create_topic(connection, "many", 2, **{"segment.bytes": "2000000"})
            for partition in (0, 1):
                raw.check_produce(connection.send(raw.produce_request("many", partition, 5, 0, 0), 11))
        populate.write_producers(data_dir / "many-1", count)
        with watch_broker(data_dir, "producer.id.expiration.check.interval.ms=2000") as (_, watch):
            watch.reset()
            time.sleep(3)
            figures["expiry_turn_ms"] = watch.read()["turn_ms"]
        with watch_broker(data_dir) as (broker, watch), raw.open_connection(broker.bootstrap) as connection:
            few_ms, many_ms = compare_produce(broker, connection, "many", rounds)
            figures["producers_ratio"] = many_ms / few_ms
            watch.reset()
            for sequence in range(12_000):  # more than a segment
                raw.check_produce(connection.send(raw.produce_request("many", 1, 8, 0, sequence), 11))
            figures["roll_turn_ms"] = watch.read()["turn_ms"]
    return figures


# ---- output


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--ids", type=parse_count, default=1_000_000, help="idle ids, and producers of a partition")
    parser.add_argument("--open", type=parse_count, default=100_000, help="open transactions of one partition")
    parser.add_argument("--rounds", type=parse_count, default=5)
    parser.add_argument("--only", choices=["cpu", "idle", "open", "producers"], action="append")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    options = parser.parse_args()
    parts = options.only or ["cpu", "idle", "open", "producers"]
    stands_on = machine()
    figures: Figures = {}
    if "cpu" in parts:
        figures |= plain_cost(options.rounds)
    if "idle" in parts:
        figures |= idle_ids(options.ids, options.rounds)
    if "open" in parts:
        figures |= open_transactions(options.open, options.rounds)
    if "producers" in parts:
        figures |= many_producers(options.ids, options.rounds)
    show(ROWS, figures, stands_on, options.format)


if __name__ == "__main__":
    main()
