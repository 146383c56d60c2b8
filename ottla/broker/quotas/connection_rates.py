"""Limit the connection rate of client addresses. pure

Source: `SocketServer.ConnectionQuotas` of Kafka 4.3.1 (`recordIpConnectionMaybeThrottle`), KIP-612.
"""

from collections import OrderedDict
from ipaddress import IPv6Address, ip_address

from ottla.broker.quotas.managers import EXPIRY_MS, MOST_SENSORS
from ottla.broker.quotas.rates import Rate, Window


class ConnectionRates:
    """Connection rates by address, with a limit for each address or the default limit."""

    __slots__ = ("_by_address", "_default", "_limits", "_window", "throttled")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._limits: dict[str, float] = {}
        self._default: float | None = None
        self._by_address: OrderedDict[str, tuple[Rate, float]] = OrderedDict()
        self.throttled = 0
        """Connections that were refused."""

    def __len__(self) -> int:
        return len(self._by_address)

    def set(self, address: str | None, limit: float | None) -> None:
        """Set the limit of an address, or the default limit if `address` is None; a limit of None removes it.

        Ignored if `address` is not an IP address.
        """
        if address is None:
            self._default = limit
        else:
            known = normal_address(address)
            self._limits.pop(known, None)
            if limit is not None and known:
                self._limits[known] = limit
        if not self._limits and self._default is None:
            self._by_address.clear()

    def enter(self, address: str, now_ms: float) -> bool:
        """Count a new connection and return True, or return False if it exceeds the limit of its address."""
        if not self._limits and self._default is None:
            return True
        address = normal_address(address)
        limit = self._limits.get(address, self._default)
        if limit is None:
            return True
        found = self._by_address.pop(address, None)
        rate = Rate(self._window) if found is None else found[0]
        self._by_address[address] = rate, now_ms
        self._forget(now_ms)
        rate.record(1.0, now_ms)
        if rate.throttle_ms(limit, now_ms):
            rate.record(-1.0, now_ms)
            self.throttled += 1
            return False
        return True

    def _forget(self, now_ms: float) -> None:
        for _ in range(2):
            _, used_ms = next(iter(self._by_address.values()))
            if used_ms + EXPIRY_MS > now_ms and len(self._by_address) <= MOST_SENSORS:
                return
            self._by_address.popitem(last=False)


def normal_address(text: str) -> str:
    """Return the canonical text of an IP address, or an empty string if `text` is none."""
    try:
        address = ip_address(text)
    except ValueError:
        return ""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
