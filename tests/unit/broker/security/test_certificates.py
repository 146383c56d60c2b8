"""Names of a certificate, read without a library, and the certificates that may replace it."""

import ssl
from contextlib import suppress
from datetime import UTC, datetime
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.security.certificates import CertificateEntry, certificate_entry, why_not
from tests.certificates import Certificates


def self_sign(attributes, names=()):
    """Return a certificate with these attributes and these alternative names, as DER."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(getattr(x509.NameOID, name), value) for name, value in attributes])
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    builder = builder.serial_number(2**150).not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
    builder = builder.not_valid_after(datetime(2060, 1, 1, tzinfo=UTC))
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def test_the_names_of_a_certificate():
    x509 = pytest.importorskip("cryptography.x509")
    attributes = [
        ("COUNTRY_NAME", "CZ"),
        ("ORGANIZATION_NAME", "Arbeiter-Unfall  Versicherung"),
        ("ORGANIZATIONAL_UNIT_NAME", "Žižkov"),
        ("COMMON_NAME", "broker-1"),
        ("GIVEN_NAME", "Ottla"),
    ]
    names = [
        x509.DNSName("broker-1.example.com"),
        x509.IPAddress(ip_address("10.0.0.1")),
        x509.IPAddress(ip_address("::1")),
        x509.UniformResourceIdentifier("spiffe://here/broker"),
        x509.RFC822Name("o@example.com"),
        x509.RegisteredID(x509.ObjectIdentifier("1.2.3")),
    ]
    entry = certificate_entry(self_sign(attributes, names))
    assert entry.dn == ("55042a=Ottla", "CN=broker-1", "OU=Žižkov", "O=Arbeiter-Unfall Versicherung", "C=CZ")
    shown = {"DNS:broker-1.example.com", "IP:10.0.0.1", "IP:::1", "URI:spiffe://here/broker", "email:o@example.com"}
    assert entry.san == shown | {"88:2a03"}
    assert certificate_entry(self_sign(attributes[:1])) == CertificateEntry(("C=CZ",), frozenset())


def test_a_truncated_certificate_raises_value_error(certificates):
    der = ssl.PEM_cert_to_DER_cert(certificates.chain_pem)
    assert certificate_entry(der).dn == ("CN=broker",)
    for size in range(len(der)):
        with pytest.raises(ValueError):
            certificate_entry(der[:size])


@given(st.binary(max_size=300))
def test_random_bytes_raise_only_value_errors(data):
    with suppress(ValueError):
        certificate_entry(data)


BROKER = CertificateEntry(("CN=broker",), frozenset({"DNS:a", "DNS:b"}))


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (BROKER, ""),
        (BROKER._replace(dn=("cn=BROKER",)), ""),
        (BROKER._replace(san=BROKER.san | {"DNS:c"}), ""),
        (BROKER._replace(dn=("CN=other",)), "Keystore DistinguishedName does not match: existing={DN=CN=broker}"),
        (BROKER._replace(dn=("CN=broker", "O=x")), "new={DN=CN=broker,O=x} (ssl.allow.dn.changes=true"),
        (BROKER._replace(san=frozenset({"DNS:a"})), "Keystore SubjectAltNames do not match: existing={SAN=['DNS:a'"),
    ],
)
def test_a_new_certificate_needs_the_same_dn_and_all_the_old_sans(after, told):
    assert told in why_not(BROKER, after, dn_may_change=False, san_may_change=False)
    assert bool(told) == bool(why_not(BROKER, after, dn_may_change=False, san_may_change=False))
    assert why_not(BROKER, after, dn_may_change=True, san_may_change=True) == ""


def test_each_option_allows_its_own_change():
    other = CertificateEntry(("CN=other",), frozenset())
    assert "SubjectAltNames" in why_not(BROKER, other, dn_may_change=True, san_may_change=False)
    assert "DistinguishedName" in why_not(BROKER, other, dn_may_change=False, san_may_change=True)


def test_a_certificate_made_by_the_command_is_read(tmp_path):
    made = Certificates(tmp_path / "made")
    entry = certificate_entry(ssl.PEM_cert_to_DER_cert(made.chain_pem))
    assert entry == CertificateEntry(("CN=broker",), frozenset({"DNS:localhost", "IP:127.0.0.1", "IP:::1"}))
