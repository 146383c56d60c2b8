"""The address of a cluster, `kafka://HOST:PORT,...`, and the connections that readers of this process share. shell

A reader borrows a `Cluster` with its open connections, and returns it for the next one. The limit of bytes per second
is one for all of them. The address can be sent to other processes: it has the path of a file with secrets, never one.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from ottla.wire import SCHEME
from ottla.wire.brokers import Address, parse_address
from ottla.wire.client_properties import RACK, client_options
from ottla.wire.cluster import Cluster
from ottla.wire.topology import Topology

CLIENT_ID: Final = "ottla-audit"
DEFAULT_TIMEOUT_S: Final = 30.0
CATCH_UP_S: Final = 0.1
LEAST_FETCH_BYTES: Final = 64 * 1024
FETCH_BYTES: Final = 2 * 1024 * 1024


class KafkaAddress(NamedTuple):
    """Bootstrap addresses, the path of a Java client's properties, a timeout, a limit (0 is none), and a client id."""

    bootstrap: tuple[Address, ...]
    properties: str = ""
    timeout_s: float = DEFAULT_TIMEOUT_S
    max_bytes_per_second: int = 0
    client_id: str = CLIENT_ID

    def __str__(self) -> str:
        return SCHEME + ",".join(f"[{host}]:{at}" if ":" in host else f"{host}:{at}" for host, at in self.bootstrap)


def parse_kafka_address(text: str) -> KafkaAddress:
    """Parse `kafka://HOST:PORT,...`. Raises ValueError, whose text has no secret."""
    hosts = text.removeprefix(SCHEME).rstrip("/")
    if "@" in hosts or "?" in hosts:
        raise ValueError(f"{SCHEME}...: an address has no user, secret or option; --command-config FILE has them")
    try:
        return KafkaAddress(tuple(parse_address(one) for one in hosts.split(",")))
    except ValueError as error:
        raise ValueError(f"{text}: {error}; an address is {SCHEME}HOST:PORT,HOST:PORT") from None


class ByteRate:
    """A limit of bytes per second over all threads; 0 is none.

    A reader that was late for `CATCH_UP_S` makes up for it, so that the limit is reached on a busy machine, too.
    """

    def __init__(self, bytes_per_second: int) -> None:
        self._bytes_per_second = bytes_per_second
        self._lock = threading.Lock()
        self._free_at_s = 0.0

    def spend(self, size_bytes: int) -> None:
        """Wait until the bytes that were received before these fit the limit."""
        if not self._bytes_per_second:
            return
        with self._lock:
            now_s = time.monotonic()
            begins_s = max(self._free_at_s, now_s - CATCH_UP_S)
            self._free_at_s = begins_s + size_bytes / self._bytes_per_second
        time.sleep(max(begins_s - now_s, 0))


def fetch_bytes(bytes_per_second: int) -> int:
    """Return the size to ask for in a request: at a low limit small answers, since each connection has one ahead."""
    if not bytes_per_second:
        return FETCH_BYTES
    return min(max(bytes_per_second // 20, LEAST_FETCH_BYTES), FETCH_BYTES)


class SharedConnections:
    """The idle connections of one address, its rate, and the client's rack: empty to read from leaders.

    It keeps the leaders of topics: each stream of a topic with a thousand partitions would ask for all of them.
    """

    def __init__(self, address: KafkaAddress) -> None:
        self._address = address
        options = client_options(Path(address.properties) if address.properties else None)
        self.rack = str(options.pop(RACK, ""))
        self._security = options
        self._lock = threading.Lock()
        self._idle: list[Cluster] = []
        self._topologies: dict[str, Topology] = {}
        self.rate = ByteRate(address.max_bytes_per_second)
        self.fetch_bytes = fetch_bytes(address.max_bytes_per_second)

    def keep(self, topology: Topology) -> None:
        """Keep the leaders of all topics of an answer, so that no stream asks for them."""
        with self._lock:
            self._topologies.update(dict.fromkeys(topology.topics, topology))

    @contextmanager
    def borrow(self) -> Iterator[Cluster]:
        """Yield a cluster that no other reader uses. Its connections stay open, except after an error."""
        with self._lock:
            cluster = self._idle.pop() if self._idle else None
        if cluster is None:
            cluster = Cluster(self._address.bootstrap, self._address.timeout_s, self._security, self._address.client_id)
            cluster.remedy = ""  # the message names the address
        try:
            yield cluster
        except BaseException:
            cluster.close()
            raise
        with self._lock:
            self._idle.append(cluster)

    def topology_of(self, topic: str, cluster: Cluster, outdated: Topology | None) -> tuple[Topology, bool]:
        """Return the brokers and the leaders of a topic, and whether they are new.

        They are those that were found last, unless these are `outdated`. Raises Unanswered.
        """
        with self._lock:
            known = self._topologies.get(topic)
        if known is not None and known is not outdated:
            return known, False
        found = cluster.topology([topic])
        with self._lock:
            self._topologies[topic] = found
        return found, True


@cache
def connections_to(address: KafkaAddress) -> SharedConnections:
    """Return the connections of this process. Raises ValueError for properties that cannot be used."""
    return SharedConnections(address)
