"""TLS of one listener while it runs: certificates that are renewed, handshakes that wait, log lines of failures."""

import shutil
import ssl
from pathlib import Path

import pytest

from ottla.broker.config import Listener, from_flags, load_config
from ottla.broker.log_limiter import LogLimiter
from ottla.broker.security.listeners import CHECK_MS, ListenerTls
from ottla.broker.security.stores import TlsError
from tests.memory_broker import MemoryBroker

LISTENER = Listener("SSL", "127.0.0.1", 0)


@pytest.fixture
def broker():
    return MemoryBroker()


@pytest.fixture
def keystore(tmp_path, certificates):
    return shutil.copy(certificates.broker, tmp_path / "broker.pem")


def config(keystore, *flags):
    given = ["listeners=SSL://127.0.0.1:0", "ssl.keystore.type=PEM", f"ssl.keystore.location={keystore}", *flags]
    return load_config(from_flags(given)).config


def made(broker, keystore):
    return ListenerTls(config(keystore), LISTENER, broker.turns, broker.clock, LogLimiter())


def replace(keystore, other):
    """Replace a file as a tool does that renews certificates."""
    shutil.copy(other, f"{keystore}.new")
    Path(f"{keystore}.new").replace(keystore)


def test_a_renewed_keystore_is_loaded_at_the_next_check(broker, keystore, other_certificates, caplog):
    caplog.set_level("INFO")
    tls = made(broker, keystore)
    before = tls.current_context()
    replace(keystore, other_certificates.broker)
    broker.advance(CHECK_MS - 1)
    assert tls.current_context() is before
    broker.advance(1)
    after = tls.current_context()
    assert after is not before and isinstance(after, ssl.SSLContext)
    broker.advance(CHECK_MS)
    assert tls.current_context() is after
    assert caplog.messages == ["Listener SSL uses its new keystore"]


def test_a_half_written_keystore_is_not_loaded_and_logged_once(broker, keystore, certificates, caplog):
    tls = made(broker, keystore)
    before = tls.current_context()
    keystore.write_text(certificates.key_pem)
    for _ in range(3):
        broker.advance(CHECK_MS)
        assert tls.current_context() is before
    (told,) = caplog.messages
    assert told.startswith("Listener SSL: ssl.keystore.location") and "stays in use" in told
    replace(keystore, certificates.broker)
    broker.advance(CHECK_MS)
    assert tls.current_context() is not before


def test_a_change_that_cannot_be_is_known_before_and_passed_over(broker, keystore, other_certificates):
    tls = made(broker, keystore)
    before = tls.current_context()
    wrong = config("/no/such")
    assert "ssl.keystore.location /no/such" in tls.problem(wrong)
    tls.change(wrong)
    assert tls.current_context() is before
    assert tls.problem(config(keystore)) == ""
    right = config(other_certificates.broker)
    assert tls.problem(right) == ""
    tls.change(right)
    assert tls.current_context() is not before
    with pytest.raises(TlsError, match=r"Listener SSL: ssl\.keystore\.location /no/such"):
        made(broker, "/no/such")


def test_a_certificate_of_another_name_needs_leave(broker, keystore, certificates, caplog):
    """Kafka's `SslFactory` has the same rule, whichever way the keystore is replaced."""
    tls = made(broker, keystore)
    before = tls.current_context()
    assert "DistinguishedName does not match" in tls.problem(config(certificates.client))
    replace(keystore, certificates.client)
    tls.take()
    broker.advance(CHECK_MS)
    assert tls.current_context() is before
    (told,) = caplog.messages
    assert "new={DN=CN=client}" in told and told.endswith("stays in use")
    leave = "ssl.allow.dn.changes=true", "listener.name.ssl.ssl.allow.san.changes=true"
    assert "SubjectAltNames do not match" in tls.problem(config(keystore, leave[0]))
    assert tls.problem(config(keystore, *leave)) == ""
    tls.change(config(keystore, *leave))
    assert tls.current_context() is not before


def test_take_reloads_the_keystore_at_once(broker, keystore, caplog):
    caplog.set_level("INFO")
    tls = made(broker, keystore)
    before = tls.current_context()
    tls.take()
    assert tls.current_context() is not before
    assert caplog.messages == ["Listener SSL uses its new keystore"]


def test_handshakes_begin_one_after_the_other_and_others_go_ahead(broker, keystore):
    tls = made(broker, keystore)
    begun = []
    for number in range(100):
        tls.begin(lambda number=number: begun.append(number))
    assert begun == []
    most = 0
    while len(begun) < 100:
        before = len(begun)
        broker.schedule.run_next()
        most = max(most, len(begun) - before)
    assert begun == [*range(100)] and most <= 2


def test_tls_errors_of_clients_are_explained_and_logged_once_per_kind(broker, keystore, caplog):
    tls = made(broker, keystore)
    for _ in range(1000):
        tls.report_failure("10.0.0.1:5", "[SSL: PEER_DID_NOT_RETURN_A_CERTIFICATE] peer did not return a certificate")
        tls.report_non_tls("10.0.0.1:5", b"\x00\x00\x00\x10")
    assert len(caplog.messages) == 2
    assert "it presents no certificate, and ssl.client.auth is required" in caplog.messages[0]
    assert "it does not use TLS on a listener with SSL" in caplog.messages[1]
