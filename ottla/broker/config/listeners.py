"""Listener lists, `PLAINTEXT://host:port,...`, and the choice of those that a broker opens. pure

Source: `SocketServerConfigs`, `AbstractKafkaConfig.listenerListToEndPoints` and `KafkaConfig.validateValues` of Kafka
4.3.1.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple

PROTOCOLS: Final = frozenset({"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"})
ENCRYPTED: Final = frozenset({"SSL", "SASL_SSL"})
WITH_LOGIN: Final = frozenset({"SASL_PLAINTEXT", "SASL_SSL"})
DEFAULT_PROTOCOL_MAP: Final = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
LISTENER_RANGE: Final = "NAME://HOST:PORT with a port from 0 to 65535, comma separated"

_LISTENER: Final = re.compile(r"([^:/,]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([0-9A-Za-z._-]*)):([0-9]{1,5})")


class Listener(NamedTuple):
    """A listener. An empty host is every interface; port 0 takes a free one. Names are upper case, as in Kafka."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://[{self.host}]:{self.port}" if ":" in self.host else "{}://{}:{}".format(*self)


def parse_listeners(text: str) -> tuple[Listener, ...]:
    """Return the listeners of a comma-separated list; ValueError with the range for a malformed one or a name twice."""
    found = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        match = _LISTENER.fullmatch(item)
        if match is None or int(match[4]) > 65535:
            raise ValueError(LISTENER_RANGE)
        found.append(Listener(match[1].upper(), match[2] or match[3], int(match[4])))
    if len({listener.name for listener in found}) < len(found):
        raise ValueError("listeners with different names")
    return tuple(found)


def parse_protocol_map(text: str) -> dict[str, str]:
    """Return `NAME:PROTOCOL,...` as a mapping; ValueError with the range if it is malformed."""
    found = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, separator, protocol = (part.strip().upper() for part in item.partition(":"))
        if not name or not separator or protocol not in PROTOCOLS:
            raise ValueError(f"NAME:PROTOCOL, comma separated, with a protocol of {', '.join(sorted(PROTOCOLS))}")
        found[name] = protocol
    return found


def parse_connections_per_ip(text: str) -> dict[str, int]:
    """Return `HOST:NUMBER,...` as a mapping; ValueError with the range if it is malformed."""
    found = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        host, separator, number = item.rpartition(":")
        if not host or not separator or not number.isdecimal():
            raise ValueError("HOST:NUMBER, comma separated")
        found[host.strip("[]")] = int(number)
    return found


def broker_listeners(
    listeners: Sequence[Listener], controller_names: str, protocols: Mapping[str, str]
) -> tuple[Listener, ...]:
    """Return the listeners that are not a controller's; ValueError if there is none, or for a port twice."""
    _refuse_shared_ports(listeners)
    controllers = listener_names(controller_names)
    found = tuple(listener for listener in listeners if listener.name not in controllers)
    for listener in found:
        protocol = protocols.get(listener.name)
        if protocol is None:
            raise ValueError(
                f"listeners with a protocol in listener.security.protocol.map, and {listener.name} has none"
            )
    if not found:
        raise ValueError("at least one listener besides those of the controller")
    return found


def listener_names(text: str) -> frozenset[str]:
    """Return the names of a comma-separated list, in upper case."""
    return frozenset(name.strip().upper() for name in text.split(",") if name.strip())


def _refuse_shared_ports(listeners: Iterable[Listener]) -> None:
    """Raise ValueError if two listeners share a port. One IPv4 and one IPv6 address may share it."""
    by_port: dict[int, list[str]] = {}
    for listener in listeners:
        if listener.port:
            by_port.setdefault(listener.port, []).append(listener.host)
    for port, hosts in by_port.items():
        if len(hosts) > 1 and sorted(map(_ip_version, hosts)) != [4, 6]:
            raise ValueError(
                f"listeners with different ports, or an IPv4 and an IPv6 address on one ({port} occurs twice)"
            )


def _ip_version(host: str) -> int:
    """Return 4 or 6; 0 if the host is a name."""
    try:
        return ip_address(host).version
    except ValueError:
        return 0
