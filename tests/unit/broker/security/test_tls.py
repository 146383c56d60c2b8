"""From options to the settings of OpenSSL: stores of every kind, and the errors of invalid ones."""

import ssl
from contextlib import suppress

import pytest

from ottla.broker.config import from_flags, from_properties, load_config
from ottla.broker.config.listener_options import listener_config
from ottla.broker.security.stores import TlsError, key_store, read_ca_certificates
from ottla.broker.security.tls import openssl_name, server_tls
from tests.certificates import PASSWORD


def settings(*flags, **given):
    flags = [*flags, *(f"ssl.{name.replace('_', '.')}={value}" for name, value in given.items())]
    config = load_config(from_flags(["listeners=SSL://127.0.0.1:0", *flags])).config
    return listener_config(config, "SSL")


def subject(certificates, context, **client):
    """Return the names in the certificate that this context shows to a client, in memory."""
    ours = ssl.create_default_context(cafile=certificates.ca)
    for name, value in client.items():
        setattr(ours, name, value)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(to_server, to_client, server_side=True)
    wrapped = ours.wrap_bio(to_client, to_server, server_hostname="localhost")
    for _ in range(4):
        for side in (wrapped, server):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return wrapped.getpeercert()["subjectAltName"], wrapped.version()


NAMES = (("DNS", "localhost"), ("IP Address", "127.0.0.1"), ("IP Address", "0:0:0:0:0:0:0:1"))


def test_a_file_of_pem(certificates):
    found = settings(keystore_type="PEM", keystore_location=certificates.broker)
    assert subject(certificates, server_tls(found).context) == (NAMES, "TLSv1.3")


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_pkcs12_whether_it_is_called_jks_or_not(certificates, kind):
    """Java's keystores are PKCS12 since version 9, and Java reads them under either name."""
    store = certificates.pkcs12()
    found = settings(keystore_type=kind, keystore_location=store, keystore_password=PASSWORD)
    assert subject(certificates, server_tls(found).context) == (NAMES, "TLSv1.3")


@pytest.mark.parametrize("line", ["{}", "\\\n  {}"])
def test_pem_in_the_options_themselves(certificates, line):
    """Properties files and variables have PEM in one line, with blanks for line ends or with `\\n`."""
    for end in (" ", "\\n"):
        key = certificates.encrypted_key().strip().replace("\n", end)
        chain = certificates.chain_pem.strip().replace("\n", end)
        text = (
            f"listeners=SSL://127.0.0.1:0\nssl.keystore.type=PEM\nssl.keystore.key={line.format(key)}\n"
            f"ssl.keystore.certificate.chain={line.format(chain)}\nssl.key.password={PASSWORD}\n"
        )
        found = listener_config(load_config(from_properties(text, "file")).config, "SSL")
        assert subject(certificates, server_tls(found).context) == (NAMES, "TLSv1.3")


def test_a_truststore_of_pkcs12_holds_what_one_of_pem_holds(certificates):
    of_pem = settings(truststore_type="PEM", truststore_location=certificates.ca)
    of_pkcs12 = settings(truststore_type="PKCS12", truststore_location=certificates.pkcs12(with_key=False))
    assert read_ca_certificates(of_pem) == read_ca_certificates(of_pkcs12) == certificates.ca.read_text()
    assert read_ca_certificates(settings()) == ""


def test_versions_are_those_that_are_enabled(certificates):
    store = {"keystore_type": "PEM", "keystore_location": certificates.broker}
    older = server_tls(settings(**store, enabled_protocols="TLSv1.2")).context
    assert subject(certificates, older)[1] == "TLSv1.2"
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    chosen = server_tls(settings(**store, cipher_suites=f"{suite},TLS_AES_128_GCM_SHA256")).context
    assert subject(certificates, chosen, maximum_version=ssl.TLSVersion.TLSv1_2)[1] == "TLSv1.2"
    assert "ECDHE-ECDSA-AES128-GCM-SHA256" in [cipher["name"] for cipher in chosen.get_ciphers()]
    assert "ECDHE-ECDSA-AES256-GCM-SHA384" not in [cipher["name"] for cipher in chosen.get_ciphers()]
    newer = server_tls(settings(**store, cipher_suites="TLS_AES_256_GCM_SHA384")).context
    with pytest.raises(ssl.SSLError):
        subject(certificates, newer, maximum_version=ssl.TLSVersion.TLSv1_2)


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_cipher_suites_have_two_names(java, openssl):
    assert openssl_name(java) == openssl
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(openssl)
    assert openssl in [cipher["name"] for cipher in context.get_ciphers()]


def test_a_wrong_tls_setting_is_reported_with_its_reason(certificates, other_certificates, tmp_path):
    jks = tmp_path / "old.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    locked = tmp_path / "locked.pem"
    locked.write_text(certificates.encrypted_key() + certificates.chain_pem)
    other = tmp_path / "other.pem"
    other.write_text(certificates.key_pem + other_certificates.chain_pem)
    empty = tmp_path / "empty.pem"
    empty.write_text(certificates.key_pem)
    pem = {"keystore_type": "PEM"}
    told = {
        "a listener with SSL needs ssl.keystore.location": {},
        "ssl.keystore.location /no/such: No such file": {**pem, "keystore_location": "/no/such"},
        "this is JKS, which only Java reads. Convert it: keytool -importkeystore": {"keystore_location": jks},
        "this is not PKCS12, or ssl.keystore.password is wrong": {"keystore_location": certificates.pkcs12()},
        "this is not PEM; if it is PKCS12, set": {**pem, "keystore_location": certificates.pkcs12()},
        "set ssl.key.password": {**pem, "keystore_location": locked},
        "ssl.key.password is wrong": {**pem, "keystore_location": locked, "key_password": "guessed"},
        "its key and its certificate do not match": {**pem, "keystore_location": other},
        "expected a CERTIFICATE in PEM, found 0": {**pem, "keystore_location": empty},
        "expected one PRIVATE KEY in PEM": {**pem, "keystore_location": certificates.ca},
        "are both set": {**pem, "keystore_location": certificates.broker, "keystore_key": "x"},
        "OpenSSL has none of TLS_NULL": {
            **pem, "keystore_location": certificates.broker, "cipher_suites": "TLS_NULL"
        },
        "ssl.truststore.location /no/such: No such file": {
            **pem, "keystore_location": certificates.broker, "client_auth": "required",
            "truststore_location": "/no/such",
        },
    }  # fmt: skip
    for words, given in told.items():
        with pytest.raises(TlsError) as refused:
            server_tls(settings(**given))
        assert words in str(refused.value), (words, str(refused.value))
        assert PASSWORD not in str(refused.value) and "guessed" not in str(refused.value)


def test_loading_a_key_leaves_no_temporary_file(certificates, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    server_tls(settings(keystore_type="PEM", keystore_location=certificates.broker))
    assert list(tmp_path.iterdir()) == []
    assert key_store(settings(keystore_type="PEM", keystore_location=certificates.broker)).password == ""
