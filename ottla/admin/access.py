"""Access to the admin port: no web page of another site, and only clients with the token if there is one. pure

A web page can make a browser send requests to any address. So the port checks two things of each request: the host name
in the request (else a page could point its own name at this machine: DNS rebinding), and the site whose page sends it.
Programs that are no browsers send neither `Origin` nor `Sec-Fetch-Site`. A public route shows at most whether the
broker serves. It is answered without the token, and a link on any site may open its entry page.
"""

import secrets
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

from ottla.admin.routes import AdminError

LOCALHOST: Final = "localhost"
_FROM_HERE: Final = frozenset(("same-origin", "none"))
_ONCE: Final = (
    b"host",
    b"origin",
    b"authorization",
    b"content-type",
    b"sec-fetch-site",
    b"sec-fetch-mode",
    b"sec-fetch-dest",
)


class Access(NamedTuple):
    """The host that the port is bound to (an empty host or a wildcard address is every interface), and its token."""

    host: str
    token: str | None

    def check(self, headers: Mapping[bytes, bytes], *, is_public: bool = False, is_entry: bool = False) -> None:
        """Raise AdminError 400, 401 or 403 if the sender of these headers (from `single`) has no access.

        `is_public`: the route needs no token. `is_entry`: a page that any site may link to.
        """
        host = headers.get(b"host", b"").decode("latin-1")
        if b"host" in headers and not self._is_ours(_host_of(host)):
            raise AdminError(
                403, f"The Host header {host} is not a name of this port: send requests to {self._names()}"
            )
        origin = headers.get(b"origin")
        site = headers.get(b"sec-fetch-site")
        if origin is not None and origin.decode("latin-1").lower() != f"http://{host.lower()}":
            raise AdminError(403, f"A web page of {origin.decode('latin-1')} may not send requests to this port")
        is_elsewhere = site is not None and site.decode("latin-1").lower() not in _FROM_HERE
        if is_elsewhere and not (is_entry and _opens_a_page(headers)):
            raise AdminError(403, "A web page of another site may not send requests to this port")
        if self.token is not None and not is_public and not _is_token(headers.get(b"authorization", b""), self.token):
            challenge = (("WWW-Authenticate", 'Bearer realm="ottla"'),)
            raise AdminError(401, "The token is missing or wrong: send Authorization: Bearer TOKEN", challenge)

    def _is_ours(self, host: str) -> bool:
        # On every interface, any host name may lead here. A token is required then, which pages of other sites lack.
        return is_every_interface(self.host) or is_loopback(host) or _same(host, self.host)

    def _names(self) -> str:
        return LOCALHOST if is_loopback(self.host) else f"{LOCALHOST} or {self.host}"


def single(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the headers by their names in lower case. AdminError 400 if a header of `_ONCE` is there twice."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in found and name in _ONCE:
            raise AdminError(400, f"The header {name.decode('latin-1')} occurs twice")
        found[name] = value
    return found


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach this host. A name is known to be local only if it is `localhost`."""
    address = _address(host)
    return host.lower().rstrip(".") == LOCALHOST if address is None else address.is_loopback


def is_every_interface(host: str) -> bool:
    """Return whether listening on this host is listening on every address of the machine."""
    address = _address(host)
    return not host if address is None else address.is_unspecified


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """Return an IP address, IPv4 if it is mapped into IPv6; None for a name."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _host_of(authority: str) -> str:
    """Return the host of `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0]


def _same(host: str, other: str) -> bool:
    address = _address(host)
    if address is None:
        return host.lower().rstrip(".") == other.lower().rstrip(".")
    return address == _address(other)


def _opens_a_page(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a browser fetches a page to show it in a window: no script of another page can read that."""
    return headers.get(b"sec-fetch-mode") == b"navigate" and headers.get(b"sec-fetch-dest") == b"document"


def _is_token(authorization: bytes, token: str) -> bool:
    scheme, _, given = authorization.partition(b" ")
    return scheme.lower() == b"bearer" and secrets.compare_digest(given.strip(), token.encode())
