"""The TLS context of one listener, from its options. shell

Source: `DefaultSslEngineFactory` and `SslConfigs` of Kafka 4.3.1.
"""

import re
import ssl
from typing import Final, NamedTuple

from ottla.broker.config import Config
from ottla.broker.ports.handshakes import ServerContext
from ottla.broker.ports.key_files import as_file
from ottla.broker.security.certificates import CertificateEntry, certificate_entry
from ottla.broker.security.stores import KeyStore, TlsError, key_store, read_ca_certificates

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENTS: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_OF_13: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
_JAVA: Final = re.compile("TLS_(?:RSA|(.+))_WITH_(.+)")


class ServerTls(NamedTuple):
    """The context of a listener, and the names in the broker's certificate."""

    context: ssl.SSLContext
    entry: CertificateEntry


def server_tls(config: Config) -> ServerTls:
    """Load the context for these options. Raises TlsError with the wrong option and the reason."""
    store = key_store(config)
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[name] for name in config.ssl_enabled_protocols.split(",")]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_IGNORE_UNEXPECTED_EOF
    _choose_ciphers(context, [name for name in config.ssl_cipher_suites.split(",") if name])
    _load_key(context, store)
    context.verify_mode = _CLIENTS[config.ssl_client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        _load_truststore(context, config)
    return ServerTls(context, _entry(store))


def _load_key(context: ssl.SSLContext, store: KeyStore) -> None:
    def password() -> str:
        if not store.password:
            raise TlsError("the broker's key is encrypted: set ssl.key.password")
        return store.password

    try:
        with as_file(store.pem) as name:
            context.load_cert_chain(name, password=password)
    except ssl.SSLError as error:
        reason = "ssl.key.password is wrong, or " if store.password else ""
        raise TlsError(
            f"The keystore cannot be used: {reason}its key and its certificate do not match ({error})"
        ) from None


def _entry(store: KeyStore) -> CertificateEntry:
    try:
        return certificate_entry(ssl.PEM_cert_to_DER_cert(store.certificate))
    except ValueError as error:
        raise TlsError(f"The keystore cannot be used: the names in its certificate cannot be read ({error})") from None


def _load_truststore(context: ssl.SSLContext, config: Config) -> None:
    certificates = read_ca_certificates(config)
    if not certificates:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    try:
        context.load_verify_locations(cadata=certificates)
    except ssl.SSLError as error:
        raise TlsError(f"The truststore cannot be used: {error}") from None


def _choose_ciphers(context: ssl.SSLContext, names: list[str]) -> None:
    if not names:
        return
    older = [name for name in names if name not in _OF_13]
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    try:
        context.set_ciphers(":".join(map(openssl_name, older)))
    except ssl.SSLError:
        raise TlsError(f"ssl.cipher.suites: OpenSSL has none of {', '.join(older)}") from None


def openssl_name(name: str) -> str:
    """Return OpenSSL's name of a TLS 1.2 cipher suite that has its name in Java and the IANA registry."""
    found = _JAVA.fullmatch(name)
    if found is None:
        return name
    exchange, cipher = found[1], re.sub("(AES|ARIA|CAMELLIA)_([0-9]+)", r"\1\2", found[2])
    cipher = cipher.replace("_CBC", "").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    return "-".join(part.replace("_", "-") for part in (exchange, cipher) if part)
