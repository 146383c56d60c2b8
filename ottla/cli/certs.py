"""`ottla certs dev`: a throwaway certificate authority for tests of TLS. shell"""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from ottla.cli.output import fail

if TYPE_CHECKING:
    from cryptography import x509

REFUSED: Final = 1
DAYS: Final = 30
_AUTHORITY: Final = "Ottla throwaway CA"
_SLACK: Final = timedelta(hours=1)
"""Tolerance for clocks that differ."""


class _Signed(NamedTuple):
    key: Any
    certificate: "x509.Certificate"


@click.group()
def certs() -> None:
    """Write certificates for tests of TLS."""


@certs.command()
@click.option("--out", metavar="DIR", required=True, type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--host", "hosts", metavar="NAME", multiple=True, help="Another name or address of the broker; may repeat."
)
def dev(out: Path, hosts: tuple[str, ...]) -> None:
    """Write a throwaway CA, and certificates of a broker and a client.

    DIR then contains ca.pem (the CA that clients trust), broker.pem and client.pem (each a key with its certificates),
    and server.properties for `ottla serve`, whose ssl lines are for Apache Kafka too. The certificates are valid for
    thirty days, on localhost, 127.0.0.1, ::1 and every --host. The key of the CA is not stored, so no further
    certificate can be signed.

    Exit codes: 0 written, 1 one of the files exists already or the library is missing, 2 usage.
    """
    names = ["localhost", "127.0.0.1", "::1", *hosts]
    files = [out / name for name in ("ca.pem", "broker.pem", "client.pem", "server.properties")]
    there = [str(file) for file in files if file.exists()]
    if there:
        fail(REFUSED, f"{', '.join(there)}: already there; nothing was written")
    try:
        import cryptography  # noqa: F401
    except ImportError:
        fail(REFUSED, "the library for certificates is missing: pip install 'ottla[tls]'")
    authority = _authority()
    broker = _issue(authority, "broker", names)
    client = _issue(authority, "client", [])
    try:
        out.mkdir(parents=True, exist_ok=True)
        for file, text in zip(files, [_pem(authority), _store(broker), _store(client), _properties(out)], strict=True):
            file.touch(mode=0o600)
            file.write_text(text)
    except OSError as error:
        fail(REFUSED, f"{error.filename}: {error.strerror}")
    ca, _, own, config = files
    click.echo(_INSTRUCTIONS.format(out=out, days=DAYS, config=config, ca=ca, client=own), nl=False)


_INSTRUCTIONS: Final = """\
Written to {out}, valid for {days} days:

  ottla serve {config}

kafka-python (aiokafka in its ssl_context):
  security_protocol="SSL", ssl_cafile="{ca}", ssl_certfile="{client}", ssl_keyfile="{client}"
librdkafka:
  security.protocol=ssl
  ssl.ca.location={ca}
  ssl.certificate.location={client}
  ssl.key.location={client}
Java:
  security.protocol=SSL
  ssl.truststore.type=PEM
  ssl.truststore.location={ca}
  ssl.keystore.type=PEM
  ssl.keystore.location={client}
"""


def _properties(out: Path) -> str:
    directory = out.absolute()
    return f"""\
listeners=SSL://127.0.0.1:9093
ssl.keystore.type=PEM
ssl.keystore.location={directory / "broker.pem"}
ssl.truststore.type=PEM
ssl.truststore.location={directory / "ca.pem"}
# Clients without a certificate are accepted; `required` refuses them.
ssl.client.auth=requested
"""


def _authority() -> _Signed:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_AUTHORITY, key).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
    return _Signed(key, _sign(builder, _AUTHORITY, key))


def _issue(authority: _Signed, name: str, hosts: list[str]) -> _Signed:
    """Issue a certificate for a broker, or for a client without hosts."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = ec.generate_private_key(ec.SECP256R1())
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = _builder(name, key).add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(digital_signature=True), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    builder = builder.add_extension(issuer, critical=False)
    if hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return _Signed(key, _sign(builder, _AUTHORITY, authority.key))


def _usage(**given: bool) -> "x509.KeyUsage":
    from cryptography import x509

    names = "digital_signature content_commitment key_encipherment data_encipherment key_agreement key_cert_sign"
    every = dict.fromkeys((*names.split(), "crl_sign", "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(**(every | given))


def _builder(name: str, key: Any) -> "x509.CertificateBuilder":
    from cryptography import x509

    now = datetime.now(UTC)
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name(name))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLACK)
        .not_valid_after(now + timedelta(days=DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _sign(builder: "x509.CertificateBuilder", issuer: str, key: Any) -> "x509.Certificate":
    from cryptography.hazmat.primitives.hashes import SHA256

    return builder.issuer_name(_common_name(issuer)).sign(key, SHA256())


def _common_name(name: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(host: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(signed: _Signed) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return signed.certificate.public_bytes(Encoding.PEM).decode()


def _store(signed: _Signed) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = signed.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return str(key) + _pem(signed)
