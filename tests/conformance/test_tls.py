"""Apache Kafka's Java client over TLS, with stores of PEM and of PKCS12; a broker with a keystore that Java made."""

import subprocess

import pytest
from clients import DriverError, lacks, start_client
from scenario import StepContext, catch_refusal
from targets import OttlaByOptions

from tests.certificates import PASSWORD


def keytool(*arguments):
    subprocess.run(["keytool", *map(str, arguments)], check=True, capture_output=True, timeout=120)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("java-tls")


def start(directory, **options):
    given = {f"ssl.{name.replace('_', '.')}": str(value) for name, value in options.items()}
    return OttlaByOptions(directory, {"listeners": "SSL://127.0.0.1:0", **given}).start()


@pytest.fixture(scope="module")
def broker(directory, certificates):
    """Return a broker that asks every client for a certificate."""
    broker = start(
        directory / "pem",
        keystore_type="PEM",
        keystore_location=certificates.broker,
        truststore_type="PEM",
        truststore_location=certificates.ca,
        client_auth="required",
    )
    yield broker
    assert broker.stop() == 0


def java(broker, directory, **options):
    if reason := lacks("java"):
        pytest.skip(reason)
    given = {f"ssl.{name.replace('_', '.')}": value for name, value in options.items()}
    return start_client("java", broker.addresses["SSL"], directory, {"security.protocol": "SSL"} | given)


def play(client, name):
    """A transaction that commits and one that aborts, offsets in a transaction, a member of a group."""
    context = StepContext(client, name)
    topic = context.topics("ledger")
    with context.producer("writer") as producer:
        producer.begin()
        producer.send(topic, "kept", b"v" * 500_000)
        producer.send_offsets(context.name("group"), topic, {0: 1})
        producer.commit()
        producer.begin()
        producer.send(topic, "dropped")
        producer.abort()
    assert [len(record.value) for record in client.read([topic])] == [4, 500_000]
    assert client.fetch_offsets(context.name("group"), topic, isolation="read_committed") == [1]


def test_the_java_client_with_pem(broker, directory, certificates):
    client = java(
        broker,
        directory,
        truststore_type="PEM",
        truststore_location=certificates.ca,
        keystore_type="PEM",
        keystore_location=certificates.client,
    )
    play(client, "pem")
    client.close()


def test_the_java_client_with_pkcs12(broker, directory, certificates):
    trusted, own = directory / "ca.p12", directory / "client.p12"
    keytool(
        *("-importcert", "-noprompt", "-alias", "ca", "-file", certificates.ca),
        *("-keystore", trusted, "-storetype", "PKCS12", "-storepass", PASSWORD),
    )
    subprocess.run(
        ["openssl", "pkcs12", "-export", "-in", certificates.client, "-out", own, "-passout", f"pass:{PASSWORD}"],
        check=True,
        timeout=120,
    )
    client = java(
        broker,
        directory,
        truststore_type="PKCS12",
        truststore_location=trusted,
        truststore_password=PASSWORD,
        keystore_type="PKCS12",
        keystore_location=own,
        keystore_password=PASSWORD,
        key_password=PASSWORD,
    )
    play(client, "pkcs12")
    client.close()


def test_a_keystore_that_java_made(directory):
    store, certificate = directory / "java.p12", directory / "java.pem"
    stored = ("-keystore", store, "-storetype", "PKCS12", "-storepass", PASSWORD, "-alias", "broker")
    names = ("-dname", "CN=broker, O=Java", "-ext", "san=dns:localhost,ip:127.0.0.1")
    keytool("-genkeypair", *stored, *names, "-keyalg", "RSA", "-keysize", "2048", "-validity", "30")
    keytool("-exportcert", *stored, "-rfc", "-file", certificate)
    broker = start(directory / "p12", keystore_type="PKCS12", keystore_location=store, keystore_password=PASSWORD)
    try:
        client = java(broker, directory, truststore_type="PEM", truststore_location=certificate)
        play(client, "made-by-java")
        client.close()
    finally:
        assert broker.stop() == 0


def test_the_java_client_without_a_certificate_is_refused(broker, directory, certificates):
    client = java(broker, directory, truststore_type="PEM", truststore_location=certificates.ca)
    told = catch_refusal(client.topics)
    assert isinstance(told, DriverError) and "Ssl" in told.kind + told.message, told
    client.close()
    assert "it presents no certificate, and ssl.client.auth is required" in broker.log_tail()
