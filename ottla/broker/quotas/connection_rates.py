"""Limit the connection rate of client addresses. pure

Source: `SocketServer.ConnectionQuotas` of Kafka 4.3.1 (`recordIpConnectionMaybeThrottle`), KIP-612.
"""

from ipaddress import IPv6Address, ip_address

from ottla.broker.quotas.limits import CLIENT_ID, DEFAULT, NO_NAME
from ottla.broker.quotas.managers import Sensors
from ottla.broker.quotas.rates import Rate, Window


class ConnectionRates:
    """Connection rates by address, with a limit for each address or the default limit."""

    __slots__ = ("_sensors", "throttled")

    def __init__(self, window: Window) -> None:
        # An address takes the place of a client id without a user.
        self._sensors: Sensors[Rate] = Sensors(lambda: Rate(window))
        self.throttled = 0
        """Connections that were refused."""

    def __len__(self) -> int:
        return len(self._sensors)

    def set(self, address: str | None, limit: float | None) -> None:
        """Set the limit of an address, or the default limit if `address` is None; a limit of None removes it.

        Ignored if `address` is not an IP address.
        """
        known = DEFAULT if address is None else normal_address(address)
        if known != NO_NAME:
            self._sensors.set({CLIENT_ID: known}, limit)

    def enter(self, address: str, now_ms: float) -> bool:
        """Count a new connection and return True, or return False if it exceeds the limit of its address."""
        if not self._sensors.limited:
            return True
        found = self._sensors.find_sensor(NO_NAME, normal_address(address), now_ms)
        if found is None:
            return True
        rate, limit = found
        rate.record(1.0, now_ms)
        if rate.throttle_ms(limit, now_ms):
            rate.record(-1.0, now_ms)
            self.throttled += 1
            return False
        return True


def normal_address(text: str) -> str:
    """Return the canonical text of an IP address, or an empty string if `text` is none."""
    try:
        address = ip_address(text)
    except ValueError:
        return ""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
