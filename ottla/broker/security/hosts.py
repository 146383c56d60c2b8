"""Addresses as entries name them. pure"""

from functools import lru_cache
from typing import Final

_REMEMBERED: Final = 1_024


def canonical_host(host: str) -> str:
    """An address in one spelling: Java writes IPv6 in full, others do not, and what is mapped from IPv4 is IPv4.

    What is no address stays as it is.
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
