"""Ottla, kfake and Apache Kafka in one run: the CPU of each broker, the floor, and how a request's cost grows. shell

    python benchmarks/speed.py                               about ten minutes
    python benchmarks/speed.py --only table --write docs/measured.md
    python benchmarks/speed.py --form before=../before --form now=.     two states of Ottla, instead of this one
    python benchmarks/speed.py --form plain=. --form c=build/form --form "c, PGO"=build/form:/usr/bin/python3
    python benchmarks/speed.py --rounds 1 --megabytes 16 --seconds 0.5 --connections 20 --most 100   half a minute

The brokers take turns in each round. A form is a label, a directory that contains the package `ottla` (a checkout, or
the site-packages of an environment), and the Python that runs it, by default this one. What is compiled there is used:
the engine in the `build/form` of `make test-compiled`, the walk in a checkout, nothing in a new git worktree. The last
table has the ratios to the first form. kfake needs Go, Apache Kafka needs Java 17 and Maven. A broker that cannot run
is left out, and the table says so. Growth is measured for the first form.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from parts import processes, warm_memory
from parts.descriptors import all_descriptors, room_for_connections
from parts.floors import CASES
from parts.options import parse_amount, parse_count
from parts.speed import growth, table
from parts.speed.columns import THIS, Column, Compared, compare, parse_form
from parts.speed.measure import measure_broker
from parts.speed.rows import FLOOR, FLOORS, Sizes, ratios_of
from parts.speed.setting import describe_run

from lab.usage import command_line

PARTS = ("table", "growth")
Found = dict[str, dict[str, list[float]]]


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def floors(megabytes: int) -> dict[str, float]:
    with tempfile.TemporaryFile(prefix="ottla-floor-") as file:
        warm_memory.bring(megabytes * 1_000_000)
        return {
            FLOORS[name]: case(megabytes * 1_000_000, file.fileno()) / (megabytes / 1000)
            for name, case in CASES.items()
        }


def rounds_of(columns: list[Column], rounds: int, sizes: Sizes) -> Found:
    """Return the figures of each round by column and key. Each round begins with another broker."""
    found: Found = defaultdict(lambda: defaultdict(list))
    with contextlib.ExitStack() as stack:
        brokers = {column.name: stack.enter_context(column.start()) for column in columns}
        names = list(brokers)
        for name in names:
            tell(f"warming up {name} ...")
            measure_broker(brokers[name], sizes.smaller())
        for number in range(rounds):
            first = number % len(names)
            for name in (FLOOR, *names[first:], *names[:first]):
                tell(f"round {number + 1} of {rounds}: {name} ...")
                figures = floors(sizes.megabytes) if name == FLOOR else measure_broker(brokers[name], sizes)
                for key, value in figures.items():
                    found[name][key].append(value)
    return found


def grown(column: Column, rounds: int, requests: int, most: int) -> growth.Growth:
    found = growth.Growth(column.start, rounds, requests)
    room = room_for_connections()
    found.connections(sorted({min(size, room) for size in growth.up_to(most, growth.CONNECTIONS)}))
    found.partitions(growth.up_to(most, growth.PARTITIONS))
    found.open_transactions(growth.up_to(10 * most, growth.OPEN))
    return found


def table_text(chosen: Compared, found: Found, connections: int) -> str:
    names = [column.name for column in chosen.columns]
    ours = [column.name for column in chosen.columns if column.ours]
    notes = "\n".join(f"- {note}" for note in chosen.notes)
    tables = table.of_brokers(found, names, ours, connections), table.of_floors(found)
    ratios = [table.of_ratios(found, names, connections)] if len(names) > 1 else []
    return "\n\n".join([notes, *tables, *ratios])


def fill_page(path: Path, texts: dict[str, str]) -> str:
    """Return the content of the page with these texts between its markers."""
    page = path.read_text(encoding="utf-8")
    for name, text in texts.items():
        page = table.between_markers(page, name, text)
    return page


def parse() -> argparse.Namespace:
    parser = command_line(__doc__)
    parser.add_argument(
        "--form", action="append", type=parse_form, metavar="LABEL=DIR[:PYTHON]", help="Ottla to measure; default: this"
    )
    parser.add_argument("--without", action="append", default=[], choices=["kfake", "kafka"])
    parser.add_argument("--only", choices=PARTS, action="append", help="one part instead of both")
    parser.add_argument("--rounds", type=parse_count, default=3)
    parser.add_argument(
        "--megabytes", type=parse_count, default=512, help="of records of 1 KiB, a quarter of it of 100 bytes"
    )
    parser.add_argument(
        "--seconds", type=parse_amount, default=3, help="of transactions, with one and with 16 producers"
    )
    parser.add_argument("--connections", type=parse_count, default=1_000)
    parser.add_argument(
        "--most", type=parse_count, default=10_000, help="connections and partitions; open transactions: tenfold"
    )
    parser.add_argument("--requests", type=parse_count, default=2_000, help="for each figure of growth")
    parser.add_argument(
        "--write", type=Path, metavar="PAGE", help="replace the tables of a page, such as docs/measured.md"
    )
    parser.add_argument("--format", choices=["text", "json"], default="text")
    default = Path(os.environ.get("KAFKA_SCRIPT", processes.KAFKA_SCRIPT))
    parser.add_argument("--kafka-script", type=Path, default=default, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    labels = [form.label for form in asked.form or ()]
    if len(labels) > len(set(labels)):
        parser.error("two forms have the same label")
    if asked.write:
        try:
            fill_page(asked.write, dict.fromkeys(asked.only or PARTS, ""))
        except (OSError, ValueError) as error:
            parser.error(f"--write {asked.write}: {error}")
    return asked


def main() -> None:
    asked = parse()
    all_descriptors()
    machine = processes.machine()
    parts = asked.only or PARTS
    document: dict[str, Any] = {"machine": machine}
    texts: dict[str, str] = {}
    sizes = Sizes(asked.megabytes, asked.seconds, max(1, asked.requests // 2), asked.connections, 3)
    with tempfile.TemporaryDirectory(prefix="ottla-speed-") as scratch:
        chosen = compare(asked.form or [THIS], asked.without, asked.kafka_script, Path(scratch))
        document["notes"] = chosen.notes
        if "table" in parts:
            found = rounds_of(chosen.columns, asked.rounds, sizes)
            document["table"] = found
            document["ratios"] = ratios_of(found, chosen.columns[0].name)
            texts["table"] = table_text(chosen, found, asked.connections)
        if "growth" in parts:
            tell(f"growth of {chosen.columns[0].name} ...")
            document["growth"] = grown(chosen.columns[0], asked.rounds, asked.requests, asked.most).found
            texts["growth"] = f"{chosen.columns[0].name}.\n\n{table.of_growth(document['growth'])}"
    stands_on = describe_run(machine["load_1_min"], asked.rounds)
    texts = {name: f"{stands_on}.\n\n{text}" for name, text in texts.items()}
    if asked.write:
        asked.write.write_text(fill_page(asked.write, texts), encoding="utf-8")
    print(json.dumps(document, indent=2) if asked.format == "json" else "\n\n".join(texts.values()))


if __name__ == "__main__":
    main()
