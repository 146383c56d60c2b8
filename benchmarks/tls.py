"""Cost of TLS for a broker: bytes, handshakes, idle connections, and other clients during a flood. shell

    python benchmarks/tls.py                          our broker: two minutes
    python benchmarks/tls.py --against kafka          beside Apache Kafka (Java 17 and Maven; its jars are cached)

CPU is the broker's user and system time. Plain and encrypted rounds take turns on one broker with a listener for each,
so that other load affects both alike. Figures are medians of the rounds. Compare ratios.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from parts import processes
from parts.broker.runs import create_topics, run
from parts.options import parse_count
from parts.others.pinger import Pinger
from parts.processes import Broker
from parts.tls.certificates import Stores, make_stores

from lab.usage import command_line

HANDS: Final = Path(__file__).resolve().parent / "parts" / "tls" / "hands.py"
KINDS: Final = ("ecdsa", "rsa")
FLOOD: Final = 500
IDLE: Final = 1000


class Bench(NamedTuple):
    """A broker with a plain listener and one for each kind of key."""

    broker: Broker
    ports: dict[str, int]
    stores: Stores

    @property
    def bootstrap(self) -> str:
        """Address of the encrypted ECDSA listener."""
        return f"localhost:{self.ports['ecdsa']}"

    @property
    def options(self) -> dict[str, str]:
        """Options of a client of the encrypted listener."""
        return {"security.protocol": "ssl", "ssl.ca.location": str(self.stores.ca)}


def options_of(stores: Stores, ports: dict[str, int]) -> dict[str, str]:
    names = {"PLAINTEXT": "plain"} | {kind.upper(): kind for kind in KINDS}
    options = {"listeners": ",".join(f"{name}://127.0.0.1:{ports[key]}" for name, key in names.items())}
    protocols = [f"{kind.upper()}:SSL" for kind in KINDS]
    options["listener.security.protocol.map"] = ",".join(["PLAINTEXT:PLAINTEXT", *protocols])
    for kind in KINDS:
        options[f"listener.name.{kind}.ssl.keystore.type"] = "PEM"
        options[f"listener.name.{kind}.ssl.keystore.location"] = str(stores.of[kind])
    return options


@contextlib.contextmanager
def ottla(stores: Stores) -> Iterator[Bench]:
    ports = dict(zip(("plain", *KINDS), processes.free_ports(3), strict=True))
    overrides = [f"{key}={value}" for key, value in options_of(stores, ports).items()]
    with processes.ottla(overrides=overrides, listen=False) as broker:
        yield Bench(broker, ports, stores)


@contextlib.contextmanager
def kafka(stores: Stores) -> Iterator[Bench]:
    ports = dict(zip(KINDS, processes.free_ports(2), strict=True))

    def options(port: int) -> str:
        ports["plain"] = port
        found = options_of(stores, ports)
        found["advertised.listeners"] = found["listeners"]
        found["listeners"] += f",CONTROLLER://127.0.0.1:{port + 1}"
        found["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
        return "".join(f"{key}={value}\n" for key, value in found.items())

    with processes.apache_kafka(processes.KAFKA_SCRIPT, options=options) as broker:
        yield Bench(broker, ports, stores)


def of_bytes(bench: Bench, megabytes: int, rounds: int) -> dict[str, float]:
    """Return the CPU seconds for a GB, plain and encrypted, after one round that is not counted."""
    ways: dict[str, tuple[Broker, dict[str, str]]] = {
        "plain": (bench.broker, {}),
        "tls": (Broker(bench.broker.name, bench.bootstrap, bench.broker.pid), bench.options),
    }
    samples: dict[str, list[float]] = {}
    count = megabytes * 1_000_000 // 1024
    for number in range(rounds + 1):
        topic = f"bytes-{os.getpid()}-{number}"
        create_topics(bench.broker, {f"{topic}-{name}": 1 for name in ways})
        for name, (broker, options) in ways.items():
            given: dict[str, Any] = {"topic": f"{topic}-{name}", **options}
            sent = run(broker, "produce", megabytes=megabytes, batch_size_bytes=1_000_000, linger_ms=50, **given)
            read = run(broker, "consume", count=count, **given)
            if number:
                samples.setdefault(f"produce_{name}", []).append(sent["cpu_s"] * 1e9 / sent["bytes"])
                samples.setdefault(f"consume_{name}", []).append(read["cpu_s"] * 1e9 / read["bytes"])
    return {name: statistics.median(found) for name, found in samples.items()}


class Hands:
    """Process that makes TLS handshakes with one listener (`parts/tls/hands.py`)."""

    def __init__(self, bench: Bench, kind: str) -> None:
        command = [sys.executable, str(HANDS), "127.0.0.1", str(bench.ports[kind]), str(bench.stores.ca)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._broker = bench.broker
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def shake(self, what: str, count: int) -> float:
        """Make `count` handshakes and return the CPU seconds that they take of the broker."""
        assert self._process.stdin is not None and self._process.stdout is not None
        before = self._broker.cpu_s()
        self._process.stdin.write(f"{what} {count}\n")
        self._process.stdin.flush()
        if not self._process.stdout.readline():
            raise SystemExit("the handshakes failed")
        after = self._broker.cpu_s()
        assert before is not None and after is not None
        return after - before

    def end(self) -> None:
        """End the process, and with it all its connections."""
        self._process.communicate()


def of_handshakes(bench: Bench, count: int) -> dict[str, float]:
    """Return the CPU milliseconds of a handshake, one after another, and another client's wait during a flood."""
    figures = {}
    for kind in KINDS:
        hands = Hands(bench, kind)
        hands.shake("one", count)
        figures[f"handshake_{kind}_ms"] = hands.shake("one", count) * 1000 / count
        hands.end()
    hands = Hands(bench, "rsa")
    create_topics(bench.broker, {f"ping-{os.getpid()}": 1})
    with Pinger(bench.broker.bootstrap, f"ping-{os.getpid()}", bench.broker.pid) as pinger:
        hands.shake("burst", FLOOD)
    hands.end()
    figures["flood_wait_cpu_ms"] = pinger.figures["longest_cpu_ms"]
    figures["flood_wait_p50_ms"] = pinger.figures["p50_ms"]
    return figures


def of_idle(bench: Bench) -> dict[str, float]:
    """Return the KB of memory of an idle connection."""
    hands = Hands(bench, "ecdsa")
    hands.shake("idle", 50)
    before = bench.broker.resident_mb()
    hands.shake("idle", IDLE)
    after = bench.broker.resident_mb()
    hands.end()
    assert before is not None and after is not None
    return {"idle_kb": (after - before) * 1000 / (IDLE - 50)}


ROWS: Final = (
    ("produce_plain", "produced without TLS, broker CPU", "s/GB"),
    ("produce_tls", "produced with TLS", "s/GB"),
    ("consume_plain", "consumed without TLS", "s/GB"),
    ("consume_tls", "consumed with TLS", "s/GB"),
    ("handshake_rsa_ms", "a handshake, RSA 2048", "ms"),
    ("handshake_ecdsa_ms", "a handshake, ECDSA P-256", "ms"),
    ("flood_wait_p50_ms", f"another client's wait while {FLOOD} shake hands, p50", "ms"),
    ("flood_wait_cpu_ms", "  the longest, in CPU time of the broker", "ms"),
    ("idle_kb", "an idle connection, resident memory", "KB"),
)


def as_text(results: dict[str, dict[str, float]], machine: dict[str, Any]) -> str:
    load = f"{machine['load_1_min']:.1f} before, {os.getloadavg()[0]:.1f} after"
    lines = [
        f"{machine['python']}; {machine['cores']} cores, load {load}",
        "",
        f"{'':60}" + "".join(f"{name:>10}" for name in results),
    ]
    for key, label, unit in ROWS:
        values = "".join(f"{figures[key]:10.2f}" for figures in results.values())
        lines.append(f"{label:60}{values} {unit}")
    return "\n".join(lines)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--against", choices=["kafka"], help="measure Apache Kafka too")
    parser.add_argument("--megabytes", type=parse_count, default=256, help="produced and consumed in each round")
    parser.add_argument("--rounds", type=parse_count, default=3)
    parser.add_argument("--handshakes", type=parse_count, default=500)
    parser.add_argument("--format", choices=["text", "json"], default="text")
    asked = parser.parse_args()
    machine = processes.machine()
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="ottla-tls-") as directory:
        stores = make_stores(Path(directory))
        for start in (ottla, *((kafka,) if asked.against else ())):
            with start(stores) as bench:
                print(f"measuring {bench.broker.name} ...", file=sys.stderr, flush=True)
                figures = of_idle(bench) | of_handshakes(bench, asked.handshakes)
                results[bench.broker.name] = figures | of_bytes(bench, asked.megabytes, asked.rounds)
    if asked.format == "json":
        print(json.dumps({"machine": machine, "brokers": results}, indent=2))
    else:
        print(as_text(results, machine))


if __name__ == "__main__":
    main()
