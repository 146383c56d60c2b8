"""Cost of the log: recovery, look-ups in a long log, appends, thousands of partitions. free

    python benchmarks/storage.py                 about three minutes
    python benchmarks/storage.py --only recovery --only lookup --format json

Recovery, look-ups and appends run in this process. Requests run on a broker in a separate process. Times are CPU times,
except in rows that say wall. The long log is sparse: 100 segments of a GiB with an index entry per 4 KiB, and batches
only at the places that are looked up. `flush.py` measures the cost of flushes.
"""

import contextlib
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from parts import processes, raw
from parts.figures import Figures, Row, machine, show
from parts.options import parse_count
from parts.side_by_side import medians_ms, watch_broker

from lab.usage import command_line
from ottla.broker.log.loaded import LoadedLog
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_loader import Start, load_log, new_log
from ottla.broker.log.parallel_recovery import WORTH_BYTES, LogToRecover, recover_in_processes
from ottla.broker.log.segments.log_segments import LogSegments
from ottla.broker.ports.disk import RealDisk
from ottla.broker.ports.side_by_side import processors
from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import assign_offsets, read_header, seal, write_header
from ottla.protocol.indexes import OFFSET_ENTRY, TIME_ENTRY
from ottla.protocol.snapshot import encode_snapshot
from ottla.protocol.steps import to_the_end
from ottla.wire.connection import BlockingConnection

NOW_MS = 1_700_000_000_000
SETTINGS = LogConfig()
SEGMENTS = 100
SEGMENT_BYTES = 1 << 30
BATCH_BYTES = 4096
RECORDS_PER_BATCH = 10
BATCHES = SEGMENT_BYTES // BATCH_BYTES - 1
OFFSETS = BATCHES * RECORDS_PER_BATCH
LOOKUPS = 20
IDLE_AFTER_S = 180


ROWS = (
    Row("recovery_14k", "recovery, batches of 14 KB", "GiB/s", 1.0, True),
    Row("recovery_14k_wall", "  wall", "GiB/s"),
    Row("recovery_1k", "recovery, batches of 1 KB", "GiB/s", 0.5, True),
    Row("recovery_1k_wall", "  wall", "GiB/s"),
    Row("recovery_14k_beside_wall", "recovery of a log per processor side by side, 14 KB, wall", "GiB/s", 1.0, True),
    Row("recovery_1k_beside_wall", "  1 KB", "GiB/s", 0.5, True),
    Row("lookup_first_ms", "find an offset in 100 GiB, segment not touched before", "ms", 0.2),
    Row("lookup_ms", "  touched before", "ms", 0.2),
    Row("lookup_wall_ms", "  wall, the tenth slowest of 2,000", "ms"),
    Row("append_ratio", "append to 100 segments, to one that is alone", "x", 1.1),
    Row("created_s", "10,000 partitions: from the first CreateTopics to the last directory, wall", "s"),
    Row("created_cpu_s", "  CPU", "s"),
    Row("create_turn_ms", "  longest turn (a CreateTopics of 1,000 partitions)", "ms"),
    Row("create_produce_ms", "  Produce meanwhile, wall, 99th percentile", "ms"),
    Row("stop_s", "  clean stop, wall", "s"),
    Row("ready_s", "  ready after a clean stop, wall", "s", 5),
    Row("ready_cpu_s", "  CPU", "s"),
    Row("ready_mb", "  resident memory", "MB", 250),
    Row("opened_mb", "  resident memory, all open", "MB", 250),
    Row("descriptors", "  descriptors", ""),
    Row("opening_turn_ms", "  longest turn while they open and checkpoints are written", "ms", 10),
    Row("produce_ratio", "  produce, to a broker of one partition", "x", 1.1),
    Row("stop_again_s", "  clean stop of what has not changed, wall", "s"),
    Row("killed_ready_s", "  ready after kill -9, nothing to scan, wall", "s"),
    Row("killed_ready_cpu_s", "  CPU", "s"),
    Row("killed_few_ready_s", "ready after kill -9, 10 partitions, nothing to scan, wall", "s", 1),
)


@contextlib.contextmanager
def temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ottla-storage-") as directory:
        yield Path(directory)


# ---- recovery


def write_segment(directory: Path, size_bytes: int, value_bytes: int) -> None:
    """Write a segment with batches of an idempotent producer."""
    directory.mkdir(parents=True)
    batch = build_batch(
        [(b"key", os.urandom(value_bytes))], timestamp_ms=NOW_MS, producer_id=7, producer_epoch=0, base_sequence=0
    )
    header = read_header(batch)
    with (directory / f"{0:020d}.log").open("wb", buffering=1 << 20) as file:
        for number in range(size_bytes // len(batch)):
            write_header(batch, header._replace(base_sequence=number))
            seal(batch)
            assign_offsets(batch, number, 0)
            file.write(batch)


def load(directory: Path, recovery_point: int, clean: bool) -> LoadedLog:
    loaded = load_log(RealDisk(), str(directory), SETTINGS, Start(recovery_point, 0, clean, False, NOW_MS))
    if loaded.damage is not None:
        raise SystemExit(loaded.damage)
    return loaded


def recovery(size_mib: int, rounds: int) -> Figures:
    figures: Figures = {}
    large = size_mib << 20
    for key, size_bytes, value_bytes in (("recovery_14k", large, 14_000), ("recovery_1k", large // 2, 950)):
        with temporary() as root:
            write_segment(root / "t-0", size_bytes, value_bytes)
            best_cpu_s = best_wall_s = float("inf")
            for _ in range(rounds):
                for path in (root / "t-0").iterdir():
                    if path.suffix != ".log":
                        path.unlink()
                wall_s, cpu_s = time.perf_counter(), time.process_time()
                load(root / "t-0", 0, clean=False).segments.close()
                best_cpu_s = min(best_cpu_s, time.process_time() - cpu_s)
                best_wall_s = min(best_wall_s, time.perf_counter() - wall_s)
            figures[key] = size_bytes / 2**30 / best_cpu_s
            figures[f"{key}_wall"] = size_bytes / 2**30 / best_wall_s
            if processors() > 1 and processors() * (size_bytes // 2) >= WORTH_BYTES:
                figures[f"{key}_beside_wall"] = side_by_side(root, size_bytes // 2, value_bytes, rounds)
    return figures


def side_by_side(root: Path, size_bytes: int, value_bytes: int, rounds: int) -> float:
    """Return the GiB/s of recovering one log per processor at the same time. It needs `WORTH_BYTES` in total."""
    start = Start(0, 0, False, False, NOW_MS)
    jobs = [LogToRecover(str(root / f"beside-{number}"), SETTINGS, start, size_bytes) for number in range(processors())]
    for job in jobs:
        write_segment(Path(job.directory), size_bytes, value_bytes)
    best_s = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        found = to_the_end(recover_in_processes(RealDisk(), jobs))
        best_s = min(best_s, time.perf_counter() - began)
        if len(found) < len(jobs):
            raise SystemExit("not every log was recovered")
    return len(jobs) * size_bytes / 2**30 / best_s


# ---- a long log


def write_long_log(directory: Path, chance: random.Random) -> list[int]:
    """Write the sparse log and return offsets that can be looked up in it."""
    directory.mkdir(parents=True)
    index = directory / "index"
    with index.open("wb") as file:
        for number in range(1, BATCHES):
            file.write(OFFSET_ENTRY.pack((number + 1) * RECORDS_PER_BATCH - 1, number * BATCH_BYTES))
    batch = build_batch([(None, b"x")] * RECORDS_PER_BATCH, timestamp_ms=NOW_MS)
    header = read_header(batch)._replace(batch_length=BATCH_BYTES - 12)
    offsets = []
    for segment in range(SEGMENTS):
        base = segment * OFFSETS
        wanted = [chance.randrange(1, BATCHES - 2) for _ in range(LOOKUPS)]
        offsets += [base + number * RECORDS_PER_BATCH + 3 for number in wanted]
        with (directory / f"{base:020d}.log").open("wb") as file:
            file.truncate(BATCHES * BATCH_BYTES)
            for number in {near for each in wanted for near in (each - 1, each, each + 1)} | {BATCHES - 1}:
                write_header(batch, header._replace(base_offset=base + number * RECORDS_PER_BATCH))
                file.seek(number * BATCH_BYTES)
                file.write(batch)
        os.link(index, directory / f"{base:020d}.index")
        (directory / f"{base:020d}.timeindex").write_bytes(TIME_ENTRY.pack(NOW_MS, OFFSETS - 1))
    end = SEGMENTS * OFFSETS
    (directory / f"{end:020d}.snapshot").write_bytes(encode_snapshot([]))
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    index.unlink()
    return offsets


def lookup() -> Figures:
    chance = random.Random(7)
    with temporary() as root:
        offsets = write_long_log(root / "t-0", chance)
        end = SEGMENTS * OFFSETS
        segments = load(root / "t-0", end, clean=True).segments
        if segments.end_offset != end:
            raise SystemExit(f"the log ends at {segments.end_offset} instead of {end}")
        firsts = offsets[::LOOKUPS]
        chance.shuffle(offsets)

        def find(offset: int) -> None:
            records, segment, position = segments.read(offset, end, 1, True)
            to_the_end(segments.collect_aborted_transactions(offset, segment, position + len(records)))
            if read_header(records).last_offset < offset or len(records) != BATCH_BYTES:
                raise SystemExit(f"offset {offset} was not found")

        began = time.process_time()
        for offset in firsts:
            find(offset)
        first_ms = (time.process_time() - began) * 1000 / len(firsts)
        walls_ms = []
        began = time.process_time()
        for offset in offsets:
            wall = time.perf_counter()
            find(offset)
            walls_ms.append((time.perf_counter() - wall) * 1000)
        warm_ms = (time.process_time() - began) * 1000 / len(offsets)
        ratio = append_ratio(segments, root)
        segments.close()
    slowest = sorted(walls_ms)[-10]
    return {"lookup_first_ms": first_ms, "lookup_ms": warm_ms, "lookup_wall_ms": slowest, "append_ratio": ratio}


def append_ratio(long: LogSegments, root: Path) -> float:
    """Return the CPU of appends to the end of the long log (rolled first) divided by that of a one-segment log."""
    (root / "alone-0").mkdir()
    alone = new_log(RealDisk(), str(root / "alone-0"), SETTINGS, 0, NOW_MS).segments
    long.roll(NOW_MS, SETTINGS)
    batch = build_batch([(None, bytes(100))], timestamp_ms=NOW_MS)
    samples: dict[int, list[float]] = {0: [], 1: []}
    for _ in range(15):
        for number, segments in enumerate((alone, long)):
            began = time.process_time()
            for _ in range(4_000):
                offset = segments.end_offset
                if segments.active.should_roll(len(batch), offset, NOW_MS, NOW_MS, SETTINGS):
                    raise SystemExit("a roll is due")
                segments.append(batch, len(batch), offset, NOW_MS)
            samples[number].append(time.process_time() - began)
    alone.close()
    return statistics.median(samples[1]) / statistics.median(samples[0])


# ---- many partitions


def resident_mb(broker: processes.Broker) -> float:
    return broker.resident_mb() or 0.0


def used_s(broker: processes.Broker) -> float:
    assert broker.pid is not None
    return raw.cpu_s(broker.pid)


def partitions(count: int, rounds: int) -> Figures:
    figures: Figures = {}
    with temporary() as root:
        data_dir = root / "many"
        figures |= creation(data_dir, count)
        overrides = ["replica.high.watermark.checkpoint.interval.ms=1000"]
        with watch_broker(data_dir, *overrides) as (broker, watch), raw.open_connection(broker.bootstrap) as connection:
            assert broker.ready_s is not None and broker.pid is not None
            figures["ready_s"], figures["ready_cpu_s"] = broker.ready_s, used_s(broker)
            figures["ready_mb"] = resident_mb(broker)
            watch.reset()
            wait_until_idle(broker)
            figures["opening_turn_ms"] = watch.read()["turn_ms"]
            figures["opened_mb"] = resident_mb(broker)
            if (descriptors := Path(f"/proc/{broker.pid}/fd")).exists():
                figures["descriptors"] = sum(1 for _ in descriptors.iterdir())
            with processes.ottla(root / "few") as few, raw.open_connection(few.bootstrap) as other:
                raw.create_topic(other, "few")
                few_ms, many_ms = medians_ms(
                    rounds, 1000, (few, produce_to(other, "few")), (broker, produce_to(connection, "many-3"))
                )
            figures["produce_ratio"] = many_ms / few_ms
            began = time.perf_counter()
        figures["stop_again_s"] = time.perf_counter() - began
        with processes.ottla(data_dir) as broker:
            assert broker.pid is not None
            os.kill(broker.pid, 9)
        with processes.ottla(data_dir) as broker:
            figures["killed_ready_s"], figures["killed_ready_cpu_s"] = broker.ready_s or 0.0, used_s(broker)
        figures["killed_few_ready_s"] = time_recovery(root / "ten")
    return figures


def creation(data_dir: Path, count: int) -> Figures:
    """Measure the creation of ten topics at once while a client produces to another topic."""
    figures: Figures = {}
    produced_ms = []
    with (
        watch_broker(data_dir) as (broker, watch),
        raw.open_connection(broker.bootstrap) as connection,
        raw.open_connection(broker.bootstrap) as beside,
    ):
        raw.create_topic(beside, "beside")
        produce = produce_to(beside, "beside")
        produce()
        watch.reset()
        began, before_s = time.perf_counter(), used_s(broker)
        for number in range(10):
            raw.create_topic(connection, f"many-{number}", -(-count // 10))
        are_there = False
        while not are_there:
            are_there = sum(1 for each in data_dir.iterdir() if each.name.startswith("many-")) >= count
            for _ in range(20):
                sent = time.perf_counter()
                produce()
                produced_ms.append((time.perf_counter() - sent) * 1000)
        figures["created_s"] = time.perf_counter() - began
        figures["created_cpu_s"] = used_s(broker) - before_s
        figures["create_turn_ms"] = watch.read()["turn_ms"]
        figures["create_produce_ms"] = sorted(produced_ms)[int(len(produced_ms) * 0.99)]
        began = time.perf_counter()
    figures["stop_s"] = time.perf_counter() - began
    return figures


def wait_until_idle(broker: processes.Broker) -> None:
    """Wait until the broker uses less than 0.04 CPU seconds in a second."""
    began = time.monotonic()
    while True:
        before_s = used_s(broker)
        time.sleep(1)
        spent_s = used_s(broker) - before_s
        if spent_s < 0.04:
            return
        if time.monotonic() - began > IDLE_AFTER_S:
            raise SystemExit(f"the broker still uses {spent_s:.2f} s of CPU in a second after {IDLE_AFTER_S} s")


def produce_to(connection: BlockingConnection, topic: str) -> Callable[[], None]:
    return lambda: raw.check_produce(connection.send(raw.produce_request(topic, 0), 11))


def time_recovery(data_dir: Path) -> float:
    """Return the time until a broker is ready after a kill -9 of one that had started from a clean shutdown."""
    with processes.ottla(data_dir) as broker, raw.open_connection(broker.bootstrap) as connection:
        raw.create_topic(connection, "ten", 10)
        for partition in range(10):
            raw.check_produce(connection.send(raw.produce_request("ten", partition), 11))
    with processes.ottla(data_dir) as broker:
        assert broker.pid is not None
        os.kill(broker.pid, 9)
    with processes.ottla(data_dir) as broker:
        return broker.ready_s or 0.0


# ---- output


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--size-mib", type=parse_count, default=512, help="of the log that is recovered")
    parser.add_argument("--partitions", type=parse_count, default=10_000)
    parser.add_argument("--rounds", type=parse_count, default=3)
    parser.add_argument("--only", choices=["recovery", "lookup", "partitions"], action="append")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    options = parser.parse_args()
    parts = options.only or ["recovery", "lookup", "partitions"]
    stands_on = machine()
    figures: Figures = {}
    if "recovery" in parts:
        figures |= recovery(options.size_mib, options.rounds)
    if "lookup" in parts:
        figures |= lookup()
    if "partitions" in parts:
        figures |= partitions(options.partitions, options.rounds)
    show(ROWS, figures, stands_on, options.format)


if __name__ == "__main__":
    main()
