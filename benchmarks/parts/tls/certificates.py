"""Temporary CAs, and keystores of a broker with a key of each kind. shell"""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


class Stores(NamedTuple):
    """PEM files: the certificates of the CAs, and the keystores by the kind of the key."""

    ca: Path
    of: dict[str, Path]


def make_stores(directory: Path) -> Stores:
    """Write keystores for localhost, one with an ECDSA P-256 key and one with RSA 2048, signed by CAs of that kind."""
    keys: dict[str, Any] = {"ecdsa": lambda: ec.generate_private_key(ec.SECP256R1())}
    keys["rsa"] = lambda: rsa.generate_private_key(65537, 2048)
    authorities, found = b"", {}
    for kind, make in keys.items():
        authority, key = make(), make()
        authorities += _certificate(f"{kind} CA", authority, f"{kind} CA", authority, is_authority=True)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        found[kind] = directory / f"{kind}.pem"
        found[kind].write_bytes(pem + _certificate("broker", key, f"{kind} CA", authority, is_authority=False))
    ca = directory / "ca.pem"
    ca.write_bytes(authorities)
    return Stores(ca, found)


def _certificate(name: str, key: Any, issuer: str, signer: Any, *, is_authority: bool) -> bytes:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(_build_name(name)).issuer_name(_build_name(issuer))
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    if not is_authority:
        names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signer, SHA256()).public_bytes(Encoding.PEM)


def _build_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
