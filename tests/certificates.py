"""Certificates of `ottla certs dev`, and stores of other kinds made from them. The library is imported late."""

from pathlib import Path

import pytest

PASSWORD = "kept secret"


class Certificates:
    """A throwaway CA in a directory."""

    def __init__(self, directory: Path) -> None:
        from click.testing import CliRunner

        from ottla.cli.certs import certs

        self.directory = directory
        made = CliRunner().invoke(certs, ["dev", "--out", str(directory)], catch_exceptions=False)
        assert made.exit_code == 0, made.output
        self.told = made.output
        self.ca, self.broker, self.client, self.properties = (
            directory / name for name in ("ca.pem", "broker.pem", "client.pem", "server.properties")
        )

    @property
    def key_pem(self) -> str:
        """The broker's key alone."""
        return self.broker.read_text().partition("-----BEGIN CERTIFICATE")[0]

    @property
    def chain_pem(self) -> str:
        """The broker's certificate alone."""
        return self.broker.read_text().removeprefix(self.key_pem)

    def encrypted_key(self) -> str:
        from cryptography.hazmat.primitives.serialization import (
            BestAvailableEncryption,
            Encoding,
            PrivateFormat,
            load_pem_private_key,
        )

        key = load_pem_private_key(self.key_pem.encode(), None)
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode())).decode()

    def pkcs12(self, *, with_key: bool = True) -> Path:
        """A keystore of the broker, or a truststore with the CA."""
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import (
            BestAvailableEncryption,
            NoEncryption,
            load_pem_private_key,
            pkcs12,
        )

        path = self.directory / ("broker.p12" if with_key else "ca.p12")
        ca = x509.load_pem_x509_certificate(self.ca.read_bytes())
        key = certificate = None
        if with_key:
            key = load_pem_private_key(self.key_pem.encode(), None)
            certificate = x509.load_pem_x509_certificate(self.chain_pem.encode())
        kept = BestAvailableEncryption(PASSWORD.encode()) if with_key else NoEncryption()
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"one", key, certificate, [ca], kept))
        return path


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates") / "one")


@pytest.fixture(scope="session")
def other_certificates(tmp_path_factory):
    """Return certificates of another CA."""
    return Certificates(tmp_path_factory.mktemp("certificates") / "other")
