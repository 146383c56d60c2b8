"""Rate at which transactions are resolved without reading: generated header rows, walked in Spark tasks. free

    python benchmarks/resolve.py [--batches 100000000] [--partitions 64] [--ranges 4] [--cores 2] [--rounds 2]

Each partition has 2,000 transactional producers that write in turns; every tenth batch of each is a marker, every
tenth marker an abort. Partitions are cut into ranges as those of a directory are: a first pass finds the states at the
end of each range, a second starts with them and ends every transaction. The results are compared with the generated
rows. The figures are wall time, CPU of all processes, and bytes sent between tasks: states to the driver and back, and
totals.
"""

import os
import pickle
import resource
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402
from parts.options import parse_count  # noqa: E402

from lab.usage import command_line  # noqa: E402
from ottla.scan import events, headers, states  # noqa: E402
from ottla.scan.compiled.kernels import expect, kernel  # noqa: E402
from ottla.scan.needs import check_worker  # noqa: E402

PRODUCERS = 2_000
STRIDE = 7_919  # coprime to PRODUCERS, so that consecutive batches are of different producers
TURNS = 10  # batches of a producer in a cycle: nine of data, then a marker
ABORTED_EVERY = 10
RECORDS = 10
BATCH_BYTES = 2_161
START_MS = 1_700_000_000_000
CHUNK = 8_192

# Goals on two cores.
SECONDS = 10.0
SHUFFLED_MB = 50.0


@kernel
def make_rows(first, rows):
    """Fill `rows` with the headers of batches from `first` on. A batch's base offset is its number times RECORDS."""
    for index in range(rows.shape[0]):
        number = first + index
        producer, turn = number * STRIDE % PRODUCERS, number // PRODUCERS
        phase = turn + producer
        is_marker = phase % TURNS == TURNS - 1
        markers_before = phase // TURNS - producer // TURNS
        rows[index, headers.POSITION] = index * BATCH_BYTES
        rows[index, headers.BASE_OFFSET] = number * RECORDS
        rows[index, headers.SIZE] = BATCH_BYTES
        rows[index, headers.ATTRIBUTES] = 0x30 if is_marker else 0x10
        rows[index, headers.LAST_OFFSET] = number * RECORDS + RECORDS - 1
        rows[index, headers.BASE_TIMESTAMP] = START_MS + number
        rows[index, headers.MAX_TIMESTAMP] = START_MS + number
        rows[index, headers.PRODUCER_ID] = producer
        rows[index, headers.PRODUCER_EPOCH] = 0
        rows[index, headers.BASE_SEQUENCE] = -1 if is_marker else (turn - markers_before) * RECORDS % 2**31
        rows[index, headers.RECORD_COUNT] = 1 if is_marker else RECORDS
        rows[index, headers.CONTROL_TYPE] = headers.NOT_CONTROL
        rows[index, headers.COORDINATOR_EPOCH] = headers.NO_EPOCH
        rows[index, headers.LEADER_EPOCH] = 0
        if is_marker:
            rows[index, headers.CONTROL_TYPE] = 0 if phase // TURNS % ABORTED_EVERY == 0 else 1
            rows[index, headers.COORDINATOR_EPOCH] = 0


def expect_counts(batches):
    """Return the number of (committed, aborted, open) transactions in a partition with this number of batches."""
    closed = np.zeros(2, dtype=np.int64)
    still_open = 0
    for producer in range(PRODUCERS):
        place = producer * pow(STRIDE, -1, PRODUCERS) % PRODUCERS
        turns = max(0, (batches - place + PRODUCERS - 1) // PRODUCERS)
        markers = np.arange(producer // TURNS, (turns + producer) // TURNS)
        # A producer whose first batch is a marker has no transaction that this marker could end.
        if producer % TURNS == TURNS - 1:
            markers = markers[1:]
        closed[1] += np.count_nonzero(markers % ABORTED_EVERY == 0)
        closed[0] += np.count_nonzero(markers % ABORTED_EVERY != 0)
        still_open += turns > 0 and (turns + producer) % TURNS != 0 and turns + producer > producer // TURNS * TURNS
    return int(closed[0]), int(closed[1]), int(still_open)


def walk(first, end, entering):
    """Walk batches [first, end) and return (follower, aborted transactions in the steps, anomalies, gaps)."""
    follower = events.Follower(entering, 0, states.DEFAULT_EXPIRATION_MS, has_sequences=True)
    rows = headers.header_rows(CHUNK)
    aborted = anomalies = gaps = 0
    for at in range(first, end, CHUNK):
        part = rows[: min(CHUNK, end - at)]
        expect(len(part))
        make_rows(at, part)
        ended, wrong, missing = follower.follow(part, 0, 0)
        is_aborted = (ended[:, events.ENDED_FATE] == 0) & (ended[:, events.ENDED_FIRST_OFFSET] >= 0)
        aborted += int(np.count_nonzero(is_aborted))
        anomalies += len(wrong)
        gaps += len(missing)
    return follower, aborted, anomalies, gaps


def read_usage():
    """Return (CPU seconds so far, largest resident MB) of this process."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime, own.ru_maxrss / 1024


def leave(task):
    """Return the states at the end of a range, the first pass."""
    check_worker()
    partition, ordinal, first, end = task
    before = read_usage()[0]
    leaving = walk(first, end, states.empty())[0].leaving()
    cpu, resident = read_usage()
    return (partition, ordinal), leaving, cpu - before, resident


def resolve(task):
    """Return the transactions of a range, the second pass."""
    check_worker()
    partition, first, end, entering = task
    before = read_usage()[0]
    follower, *found = walk(first, end, entering)
    still_open = len(follower.leaving().open_rows)
    cpu, resident = read_usage()
    return partition, end, follower.totals.tolist(), found, still_open, cpu - before, resident


def run(context, batches, partitions, ranges):
    """Run a round: (wall seconds, CPU seconds in tasks, bytes sent between tasks, largest resident MB of a worker)."""
    per_partition = batches // partitions
    edges = [per_partition * part // ranges for part in range(ranges + 1)]
    tasks = [(partition, part, *edges[part : part + 2]) for partition in range(partitions) for part in range(ranges)]
    began = time.monotonic()
    first = [task for task in tasks if task[1] < ranges - 1]
    left = context.parallelize(first, len(first)).map(leave).collect() if first else []
    travelled = len(pickle.dumps(left))
    leaving = {place: found for place, found, _, _ in left}
    entered = []
    for partition, part, start, end in tasks:
        before = [leaving[partition, earlier] for earlier in range(part)]
        entered.append((partition, start, end, states.enter(states.empty(), before)))
    travelled += len(pickle.dumps(entered))
    results = context.parallelize(entered, len(entered)).map(resolve).collect()
    travelled += len(pickle.dumps(results))
    wall = time.monotonic() - began
    expected = expect_counts(per_partition)
    for partition in range(partitions):
        mine = [result for result in results if result[0] == partition]
        totals = np.sum([result[2] for result in mine], axis=0)
        still_open = next(result[4] for result in mine if result[1] == per_partition)
        assert (totals[events.COMMITTED], totals[events.ABORTED], still_open) == expected, (partition, expected)
        assert sum(result[3][0] for result in mine) == expected[1]
        assert all(result[3][1:] == [0, 0] for result in mine), "a sound log has no anomalies and no gaps"
        assert totals[events.BATCHES] == per_partition
    cpu = sum(result[-2] for result in results) + sum(one[-2] for one in left)
    return wall, cpu, travelled, max([result[-1] for result in results] + [one[-1] for one in left])


def main():
    parser = command_line(__doc__)
    parser.add_argument("--batches", type=parse_count, default=100_000_000)
    parser.add_argument("--partitions", type=parse_count, default=64)
    parser.add_argument("--ranges", type=parse_count, default=4)
    parser.add_argument("--cores", type=parse_count, default=2)
    parser.add_argument("--rounds", type=parse_count, default=2)
    arguments = parser.parse_args()
    from scan import start_spark

    os.environ["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(ROOT / "benchmarks")))
    spark = start_spark(arguments.cores)
    run(spark.sparkContext, 1_000_000, arguments.cores, 2)  # workers start, kernels are compiled
    shape = f"{arguments.batches / 1e6:.0f} M batches, {arguments.partitions * arguments.ranges} ranges"
    for _ in range(arguments.rounds):
        wall, cpu, travelled, resident = run(
            spark.sparkContext, arguments.batches, arguments.partitions, arguments.ranges
        )
        print(
            f"{shape}: {wall:.1f} s (goal {SECONDS:.0f}), {cpu:.1f} s CPU in tasks, "
            f"{travelled / 1e6:.1f} MB between tasks (goal {SHUFFLED_MB:.0f}), workers up to {resident:.0f} MB"
        )
    spark.stop()


if __name__ == "__main__":
    # Import it as a module: Spark pickles functions of __main__ by value, and each task would link the kernel again.
    import resolve as importable

    importable.main()
