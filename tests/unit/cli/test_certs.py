"""`ottla certs dev`: the files that it writes. It overwrites none."""

import shutil
import ssl
import stat
import subprocess
import sys

import pytest
from click.testing import CliRunner

from ottla.broker.config import from_properties, load_config
from ottla.broker.config.listener_options import listener_config
from ottla.broker.security.tls import server_tls
from ottla.cli.certs import certs
from tests.certificates import Certificates


def test_a_broker_takes_its_properties(certificates):
    text = certificates.properties.read_text()
    found = load_config(from_properties(text, "server.properties"))
    assert found.notes() == []
    context = server_tls(listener_config(found.config, "SSL")).context
    assert context.verify_mode is ssl.CERT_OPTIONAL


def test_only_its_owner_reads_what_it_writes(certificates):
    for file in (certificates.broker, certificates.client):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "PRIVATE KEY" not in certificates.ca.read_text()


def test_certs_dev_prints_the_settings_of_each_client(certificates):
    for words in ("ssl_cafile=", "ssl.ca.location=", "ssl.truststore.location="):
        assert f"{words}" in certificates.told
    assert str(certificates.client) in certificates.told


def test_hosts_are_names_and_addresses(tmp_path):
    out = tmp_path / "c"
    done = CliRunner().invoke(certs, ["dev", "--out", str(out), "--host", "kafka.test", "--host", "10.1.2.3"])
    assert done.exit_code == 0
    from cryptography import x509

    (certificate,) = x509.load_pem_x509_certificates((out / "broker.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "kafka.test"]
    assert [*map(str, names.get_values_for_type(x509.IPAddress))] == ["127.0.0.1", "::1", "10.1.2.3"]


def test_certs_dev_overwrites_no_file(tmp_path):
    first = Certificates(tmp_path / "c")
    before = first.broker.read_bytes()
    first.client.unlink()
    done = CliRunner().invoke(certs, ["dev", "--out", str(tmp_path / "c")])
    assert done.exit_code == 1 and "already there; nothing was written" in done.output
    assert first.broker.read_bytes() == before and not first.client.exists()


def test_a_missing_cryptography_library_names_the_package_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    done = CliRunner().invoke(certs, ["dev", "--out", str(tmp_path / "c")])
    assert done.exit_code == 1 and "pip install 'ottla[tls]'" in done.output
    assert not (tmp_path / "c").exists()


def test_openssl_finds_nothing_wrong_with_them(certificates):
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl on the path")
    for file in (certificates.broker, certificates.client):
        command = [openssl, "verify", "-x509_strict", "-CAfile", certificates.ca, file]
        subprocess.run(command, check=True, capture_output=True)
