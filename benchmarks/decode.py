"""Rate at which one core decodes records outside Spark, by columns and isolation, on a log of `make_log.py`. free

    python benchmarks/decode.py [--size-mib 512] [--rounds 7] [--only WORDS] [--directory DIR] [--format json]

Times are CPU time of this process, the best round. The cases take turns, so that other load disturbs all alike.
A read_committed read begins with the fates of the partitions, as a query does. `ratio` is its rate divided by that of
read_uncommitted, per record returned; `wall` is the CPU time of the whole read divided by that of the other.
"""

import json
import resource
import tempfile
import time
from pathlib import Path

from parts.log import make_log
from parts.options import check_chosen, parse_count

from lab.usage import command_line
from ottla.scan import schemas
from ottla.scan.damage_log import FAIL, DamageLog
from ottla.scan.listing import list_partitions
from ottla.scan.needs import check_worker

COLUMNS = {
    "offset": ("offset",),
    "offset and key": ("offset", "key"),
    "5 columns": ("key", "value", "partition", "offset", "timestamp"),
    "all columns": tuple(schemas.VIEWS[schemas.RECORDS]),
}
ISOLATIONS = ("read_uncommitted", "read_committed")


def read(root, columns, isolation):
    """Decode the log in this thread and return the number of records."""
    from ottla.scan.partitions import visible_partitions
    from ottla.scan.ranges import cut_partition
    from ottla.scan.records import RecordScan, uncommitted_visibility, visibility, visible_in

    logs = list_partitions(str(root))
    visible = [uncommitted_visibility(log.log_start) for log in logs]
    if isolation == "read_committed":
        fates = visible_partitions(logs, on_damage=FAIL, verify=False, threads=1)
        visible = [visibility(one, committed_only=True) for one in fates]
    scan = RecordScan(schemas.arrow_schema(schemas.RECORDS, [(name, True) for name in columns]), DamageLog(FAIL))
    records = 0
    for index, log in enumerate(logs):
        for part in cut_partition(index, log, 256 * 2**20):
            for batch in scan.read(part, visible_in(visible[index], part, log)):
                records += len(batch)
    return records


def measure(cases, root, rounds):
    """Return case -> [records, least CPU seconds, fewest page faults]. The cases take turns."""
    found = {}
    for turn in range(rounds + 1):
        for case in cases:
            before, start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.process_time()
            records = read(root, COLUMNS[case[0]], case[1])
            seconds = time.process_time() - start
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
            # The first round compiles and warms up.
            if turn == 1:
                found[case] = [records, seconds, faults]
            elif turn > 1:
                found[case][1:] = min(found[case][1], seconds), min(found[case][2], faults)
    return found


def rows_of(found):
    for columns in dict.fromkeys(name for name, _ in found):
        (all_, slow, faults), (some, fast, _) = (found[columns, isolation] for isolation in ISOLATIONS)
        yield {
            "columns": columns,
            "read_uncommitted": round(all_ / slow / 1e6, 2),
            "read_committed": round(some / fast / 1e6, 2),
            "ratio": round(some / fast / (all_ / slow), 3),
            "wall": round(fast / slow, 3),
            "faults_per_1000": round(faults / all_ * 1000, 1),
        }


def main():
    parser = command_line(__doc__)
    parser.add_argument("--size-mib", type=parse_count, default=512)
    parser.add_argument("--rounds", type=parse_count, default=7)
    parser.add_argument("--only", default="", help="the column sets whose name has this in it")
    parser.add_argument("--directory", help="keep the log here, and use it if it is there; default: a temporary one")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    check_worker()
    cases = [(name, isolation) for name in COLUMNS if arguments.only in name for isolation in ISOLATIONS]
    check_chosen(cases, arguments.only)
    with tempfile.TemporaryDirectory(prefix="ottla-decode-") as scratch:
        root = Path(arguments.directory or scratch) / "log"
        if not root.exists():
            make_log(root, arguments.size_mib * 2**20)
        found = measure(cases, root, arguments.rounds)
    if arguments.format == "text":
        print(f"{'M records/s of CPU':18} {'uncommitted':>12} {'committed':>10} {'ratio':>6} {'wall':>6}  faults/1000")
    for row in rows_of(found):
        columns, *numbers = row.values()
        text = (
            f"{columns:18} {numbers[0]:12.2f} {numbers[1]:10.2f} {numbers[2]:6.3f} {numbers[3]:6.3f} {numbers[4]:12.1f}"
        )
        print(json.dumps(row) if arguments.format == "json" else text)


if __name__ == "__main__":
    main()
