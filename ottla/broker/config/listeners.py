"""Listener lists, `PLAINTEXT://host:port,...`, and which of them a broker opens. pure"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

PROTOCOLS: Final = frozenset({"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"})
LISTENER_RANGE: Final = "NAME://HOST:PORT with a port from 0 to 65535, comma separated"

_LISTENER = re.compile(r"([^:/,]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([0-9A-Za-z._-]*)):([0-9]{1,5})")


class Listener(NamedTuple):
    """One address. An empty host is every interface; port 0 takes a free one."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://[{self.host}]:{self.port}" if ":" in self.host else "{}://{}:{}".format(*self)


def parse_listeners(text: str) -> tuple[Listener, ...]:
    """The listeners of a comma-separated list; ValueError with the range if one is none or two share name or port."""
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
    """`NAME:PROTOCOL,...` as a mapping; ValueError with the range if it is none."""
    found = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, separator, protocol = (part.strip().upper() for part in item.partition(":"))
        if not name or not separator or protocol not in PROTOCOLS:
            raise ValueError(f"NAME:PROTOCOL, comma separated, with a protocol of {', '.join(sorted(PROTOCOLS))}")
        found[name] = protocol
    return found


def parse_connections_per_ip(text: str) -> dict[str, int]:
    """`HOST:NUMBER,...` as a mapping; ValueError with the range if it is none."""
    found = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        host, separator, number = item.rpartition(":")
        if not host or not separator or not number.isdecimal():
            raise ValueError("HOST:NUMBER, comma separated")
        found[host.strip("[]")] = int(number)
    return found


def broker_listeners(
    listeners: Iterable[Listener], controller_names: str, protocols: Mapping[str, str]
) -> tuple[Listener, ...]:
    """The listener that is not the controller's; ValueError if there is none, or two, or one that is not PLAINTEXT."""
    controllers = {name.strip().upper() for name in controller_names.split(",")}
    found = tuple(listener for listener in listeners if listener.name not in controllers)
    for listener in found:
        protocol = protocols.get(listener.name, listener.name)
        if protocol not in PROTOCOLS:
            raise ValueError(f"a protocol for the listener {listener.name} in listener.security.protocol.map")
        if protocol != "PLAINTEXT":
            raise ValueError(f"PLAINTEXT listeners ({protocol} is not yet supported)")
    if len(found) != 1:
        raise ValueError("one listener beside the controller's (several are not yet supported)")
    return found
