"""Keys and certificates from PEM and PKCS12, as files and as text, in the form that OpenSSL reads. shell

Source: `DefaultSslEngineFactory` of Kafka 4.3.1 and KIP-651.
"""

import re
from typing import Final, NamedTuple

from ottla.broker.config import Config
from ottla.broker.ports import key_files

_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\s*([A-Za-z0-9+/=\s]+?)\s*-----END \1-----")
_KEY: Final = re.compile("(ENCRYPTED |RSA |EC )?PRIVATE KEY")
_JKS: Final = b"\xfe\xed\xfe\xed"
_LINE_CHARACTERS: Final = 64


class TlsError(OSError):
    """An unusable store. The message names the option and holds no secret."""


class KeyStore(NamedTuple):
    """A key with its certificates, as PEM; the password is that of the key, or empty."""

    pem: str
    password: str

    @property
    def certificate(self) -> str:
        """The broker's own certificate, as PEM."""
        return next(found[0] for found in _BLOCK.finditer(self.pem) if found[1] == "CERTIFICATE")


def key_store(config: Config) -> KeyStore:
    """Read the broker's key and certificates. Raises TlsError."""
    if config.ssl_keystore_key or config.ssl_keystore_certificate_chain:
        if config.ssl_keystore_location:
            raise TlsError("ssl.keystore.location and ssl.keystore.key are both set: set one of them")
        key = _blocks(config.ssl_keystore_key, "ssl.keystore.key", keys=True)
        chain = _blocks(config.ssl_keystore_certificate_chain, "ssl.keystore.certificate.chain", keys=False)
        return KeyStore(key + chain, config.ssl_key_password)
    option, location = "ssl.keystore.location", config.ssl_keystore_location
    content, where = _read(location, option), f"{option} {location}"
    if config.ssl_keystore_type == "PEM":
        text = _text(content, where)
        return KeyStore(_blocks(text, where, keys=True) + _blocks(text, where, keys=False), config.ssl_key_password)
    return KeyStore(_from_pkcs12(content, config.ssl_keystore_password, option, location), "")


def read_ca_certificates(config: Config) -> str:
    """Return the CA certificates for clients as PEM; empty text selects those of this machine. Raises TlsError."""
    if config.ssl_truststore_certificates:
        return _blocks(config.ssl_truststore_certificates, "ssl.truststore.certificates", keys=False)
    option, location = "ssl.truststore.location", config.ssl_truststore_location
    if not location:
        return ""
    content, where = _read(location, option), f"{option} {location}"
    if config.ssl_truststore_type == "PEM":
        return _blocks(_text(content, where), where, keys=False)
    return _from_pkcs12(content, config.ssl_truststore_password, option, location, keys=False)


def _read(location: str, option: str) -> bytes:
    if not location:
        raise TlsError(f"a listener with SSL needs {option}, or ssl.keystore.key and ssl.keystore.certificate.chain")
    try:
        return key_files.read(location)
    except OSError as error:
        raise TlsError(f"{option} {location}: {error.strerror}") from error


def _text(content: bytes, where: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise TlsError(
            f"{where}: this is not PEM; if it is PKCS12, set ssl.keystore.type or ssl.truststore.type"
        ) from None


def _blocks(text: str, where: str, *, keys: bool) -> str:
    """Return the blocks of one kind in the form of OpenSSL. In a variable or a properties file a block is often one
    line."""
    found = [
        f"-----BEGIN {kind}-----\n{_wrap_lines(base64)}\n-----END {kind}-----\n"
        for kind, base64 in _BLOCK.findall(text)
        if (_KEY.fullmatch(kind) is not None if keys else kind == "CERTIFICATE")
    ]
    if not found or (keys and len(found) > 1):
        expected = "one PRIVATE KEY" if keys else "a CERTIFICATE"
        raise TlsError(f"{where}: expected {expected} in PEM, found {len(found)}")
    return "".join(found)


def _wrap_lines(base64: str) -> str:
    joined = "".join(base64.split())
    return "\n".join(joined[at : at + _LINE_CHARACTERS] for at in range(0, len(joined), _LINE_CHARACTERS))


def _from_pkcs12(content: bytes, password: str, option: str, location: str, *, keys: bool = True) -> str:
    """Return key and certificates of a PKCS12 file, or only certificates, as PEM without password. Raises TlsError."""
    where = f"{option} {location}"
    if content.startswith(_JKS):
        raise TlsError(
            f"{where}: this is JKS, which only Java reads. Convert it: keytool -importkeystore -srckeystore {location} "
            f"-destkeystore {location}.p12 -deststoretype PKCS12"
        )
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise TlsError(f"{where}: PKCS12 needs a library: pip install 'ottla[tls]'; PEM needs none") from None
    try:
        found = pkcs12.load_pkcs12(content, password.encode())
    except ValueError:
        which = option.replace("location", "password")
        raise TlsError(f"{where}: this is not PKCS12, or {which} is wrong") from None
    certificates = [one.certificate for one in (found.cert, *found.additional_certs) if one is not None]
    if not certificates or (keys and found.key is None):
        raise TlsError(f"{where}: it contains no {'key with a certificate' if keys else 'certificate'}")
    pem = "".join(one.public_bytes(Encoding.PEM).decode() for one in certificates)
    if not keys or found.key is None:
        return pem
    return found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode() + pem
