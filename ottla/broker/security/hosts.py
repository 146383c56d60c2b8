"""Addresses in the form that ACL entries use. pure"""

from functools import lru_cache
from typing import Final

_REMEMBERED: Final = 1_024


def canonical_host(host: str) -> str:
    """Return the canonical spelling of an address: Java writes IPv6 in full, other programs shorten it.

    An IPv6 address that is mapped from IPv4 becomes IPv4. Text that is not an address is returned unchanged.
    """
    return _canonical_ipv6(host) if ":" in host else host


@lru_cache(_REMEMBERED)
def _canonical_ipv6(host: str) -> str:
    from ipaddress import AddressValueError, IPv6Address

    try:
        address = IPv6Address(host.strip("[]"))
    except AddressValueError:
        return host
    return str(address.ipv4_mapped or address)
