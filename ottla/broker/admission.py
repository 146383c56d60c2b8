"""Admission of new connections: accept, delay or refuse each one. pure

`max.connections` and `max.connection.creation.rate` let new connections wait in the listener's queue. An address with
more than `max.connections.per.ip` connections is refused. All this is as in Kafka (`SocketServer.ConnectionQuotas`).
Ottla adds one limit: connections beyond the descriptors that are left for them (`ports/descriptors.py`) are refused, so
that the logs keep their own. They do not wait, because no user chose that limit: the client must see an error.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

FOR_EVER: Final = float("inf")
_UNLIMITED: Final = 2**31 - 1


class Limits(NamedTuple):
    """Limits of connections: in all, for each address, for single addresses, new ones each second, and by
    descriptors."""

    most: int
    most_per_ip: int
    overrides: Mapping[str, int]
    per_second: int
    descriptors: int


class Admission:
    """The connections of one broker, by address."""

    def __init__(self, limits: Limits) -> None:
        self._by_ip: Counter[str] = Counter()
        self.count = 0
        self.change(limits)

    def change(self, limits: Limits) -> None:
        """Use other limits from the next connection on. Existing connections stay."""
        self._limits = limits
        self._tokens = float(limits.per_second)
        self._tokens_at_ms: float | None = None

    def wait_ms(self, now_ms: float) -> float:
        """Return the milliseconds that the next connection has to wait: 0, some time, or `FOR_EVER` until another one
        ends."""
        limits = self._limits
        if self.count >= limits.most:
            return FOR_EVER
        if limits.per_second >= _UNLIMITED:
            return 0.0
        if not limits.per_second:
            return FOR_EVER
        if self._tokens_at_ms is not None:
            earned = (now_ms - self._tokens_at_ms) * limits.per_second / 1000
            self._tokens = min(float(limits.per_second), self._tokens + earned)
        self._tokens_at_ms = now_ms
        return 0.0 if self._tokens >= 1 else (1 - self._tokens) * 1000 / limits.per_second

    def enter(self, ip: str) -> str | None:
        """Count a new connection and return None, or return the reason why it is refused."""
        limits = self._limits
        if limits.per_second < _UNLIMITED:
            self._tokens -= 1
        if self.count >= limits.descriptors:
            return f"all {limits.descriptors} file descriptors for connections are in use (RLIMIT_NOFILE, `ulimit -n`)"
        most = limits.overrides.get(ip, limits.most_per_ip)
        if self._by_ip[ip] >= most:
            return f"{ip} has {most} connections, which is its limit (max.connections.per.ip)"
        self._by_ip[ip] += 1
        self.count += 1
        return None

    def remove_connection(self, ip: str) -> None:
        """Remove a connection that has ended from the count."""
        self.count -= 1
        self._by_ip[ip] -= 1
        if not self._by_ip[ip]:
            del self._by_ip[ip]
