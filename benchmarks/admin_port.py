"""Cost of the admin port for the broker's clients: closed, open, scraped each second, and with the page open. shell

    python benchmarks/admin_port.py                   a minute
    python benchmarks/admin_port.py --rounds 3        sooner

Four brokers run, each with a producer; the producers take turns. The figure is the broker's CPU time for a transaction:
the lower quartile of the rounds, because other load on the machine only adds to it. The open page is simulated by its
requests: the stream of events, and the lists that it reads every two seconds.
"""

import contextlib
import http.client
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from parts import processes, raw
from parts.figures import Figures, Row, machine, show
from parts.options import parse_count
from parts.processes import Broker
from parts.side_by_side import each_ms

from lab.usage import command_line

IDS: Final = 20
SCRAPED: Final = ("/metrics",)
LOOKED_AT: Final = ("/v1/transactions?state=open&limit=300", "/v1/partitions?limit=200")

ROWS = (
    Row("closed_ms", "one-record transaction V2, no admin port", "ms"),
    Row("open_ms", "  the port is open, and nobody asks", "ms"),
    Row("scraped_ms", "  /metrics is asked each second", "ms"),
    Row("page_ms", "  the page is open", "ms"),
    Row("open_ratio", "an open port, to none", "x", 1.1),
    Row("page_share", "the page beside 1,000 transactions/s, to an open port", "%core", 2),
)


class Visitor:
    """Thread that requests paths of an admin port again and again, and reads a stream to its end."""

    def __init__(self, port: int, paths: Sequence[str], every_s: float) -> None:
        self._port, self._paths, self._every_s = port, paths, every_s
        self._left = threading.Event()
        threading.Thread(target=self._ask, daemon=True).start()

    def leave(self) -> None:
        self._left.set()

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            while not self._left.wait(self._every_s if connection.sock is not None else 0):
                for path in self._paths:
                    self._read(connection, path)
        except (OSError, http.client.HTTPException):
            if not self._left.is_set():  # the broker has not been stopped
                raise

    def _read(self, connection: http.client.HTTPConnection, path: str) -> None:
        connection.request("GET", path)
        reply = connection.getresponse()
        if reply.status != 200:
            raise SystemExit(f"GET {path} was answered {reply.status}")
        if reply.chunked:
            while not self._left.is_set() and reply.read1(65_536):
                pass
        else:
            reply.read()


@contextlib.contextmanager
def run_broker(port: int | None) -> Iterator[tuple[Broker, Callable[[], None]]]:
    """Yield a broker, with an admin port if `port` is given, and a function that runs a transaction on it."""
    if port is None:
        os.environ.pop("OTTLA_ADMIN_LISTEN", None)
    else:
        os.environ["OTTLA_ADMIN_LISTEN"] = f"127.0.0.1:{port}"
    with processes.ottla() as broker, raw.open_connection(broker.bootstrap) as connection:
        raw.create_topic(connection, "ledger")
        producers = [
            raw.Transactional(connection, f"order-processor-{each:02}", "ledger", v2=True) for each in range(IDS)
        ]
        turn = 0

        def transact() -> None:
            nonlocal turn
            producers[turn % IDS].transact()
            turn += 1

        yield broker, transact


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def measure(rounds: int, transactions: int) -> Figures:
    names = ("closed", "open", "scraped", "page")
    with contextlib.ExitStack() as stack:
        ports = {name: None if name == "closed" else free_port() for name in names}
        works = [stack.enter_context(run_broker(ports[name])) for name in names]
        assert ports["scraped"] is not None and ports["page"] is not None
        for visitor in (
            Visitor(ports["scraped"], SCRAPED, 1.0),
            Visitor(ports["page"], ("/v1/events",), 1.0),
            Visitor(ports["page"], LOOKED_AT, 2.0),
        ):
            stack.callback(visitor.leave)
        time.sleep(1.0)
        samples = [[each_ms(broker, transactions, work) for broker, work in works] for _ in range(rounds + 1)]
    found = [sorted(column)[len(column) // 4] for column in zip(*samples[1:], strict=True)]
    figures = {f"{name}_ms": ms for name, ms in zip(names, found, strict=True)}
    figures["open_ratio"] = figures["open_ms"] / figures["closed_ms"]
    figures["page_share"] = 100 * max(0.0, figures["page_ms"] - figures["open_ms"])
    return figures


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=parse_count, default=20)
    parser.add_argument("--transactions", type=parse_count, default=300, help="of each broker in a round")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    asked = parser.parse_args()
    stands_on = machine()
    show(ROWS, measure(asked.rounds, asked.transactions), stands_on, asked.format)


if __name__ == "__main__":
    main()
