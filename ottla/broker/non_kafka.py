"""Detect TLS and HTTP clients by their first bytes. pure"""

from typing import Final

_TLS_HANDSHAKE: Final = b"\x16\x03"
_HTTP: Final = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC", b"PRI ")


def describe_non_kafka(first: bytes) -> str | None:
    """Return the protocol that the bytes begin, with advice; None for Kafka's. No Kafka frame has such a size."""
    if first.startswith(_TLS_HANDSHAKE):
        return (
            "a TLS handshake arrived on a listener without TLS: give the client security.protocol=PLAINTEXT, or the "
            "address of a listener with SSL"
        )
    if first.startswith(_HTTP):
        return "an HTTP request arrived on a listener of the Kafka protocol: this port is for Kafka clients"
    return None


def describe_non_tls(first: bytes) -> str:
    """Return the protocol, other than TLS, that the bytes begin, with advice."""
    if first.startswith(_HTTP):
        return "an HTTP request arrived on a listener with SSL: this port is for Kafka clients"
    return (
        "it does not use TLS on a listener with SSL: give the client security.protocol=SSL, or the address of a "
        "listener with PLAINTEXT"
    )
