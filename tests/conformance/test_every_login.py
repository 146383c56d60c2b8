"""Clients by each way in: topics, transactions, offsets in them, members of groups. CI runs Java's only."""

import itertools

import pytest
from clients import lacks, start_client
from scenario import StepContext, eventually_equal
from targets import OttlaByOptions

from tests.logins import PASSWORD, USER, WAYS, Keys, make_user, of_java, options

ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed"
KEPT = ["one", "two", "three"]
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("java-ways")


@pytest.fixture(scope="module")
def token_file(directory):
    return directory / "token"


@pytest.fixture(scope="module")
def broker(directory, certificates, token_file):
    pytest.importorskip("joserfc")
    keys = Keys()
    jwks_file = directory / "jwks.json"
    jwks_file.write_text(keys.jwks())
    token_file.write_text(keys.token())
    broker = OttlaByOptions(directory / "broker", options(certificates, jwks_file)).start()
    make_user(broker.addresses["PLAINTEXT"])
    yield broker
    assert broker.stop() == 0, broker.log_tail()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_the_java_client_works_over_every_protocol_and_login(broker, directory, certificates, token_file, way):
    if reason := lacks("java"):
        pytest.skip(reason)
    allowed = {f"{ALLOWED}.files": str(token_file), f"{ALLOWED}.urls": f"file://{token_file}"}
    options = of_java(way, certificates, token_file) | allowed
    client = start_client("java", broker.addresses[way.protocol], directory, options)
    use(client, way)


@pytest.mark.conformance
@pytest.mark.parametrize("way", [way for way in WAYS if way.mechanism != "OAUTHBEARER"], ids=lambda way: way.name)
@pytest.mark.parametrize(
    "name", ["java", "kafka-python", "aiokafka", "confluent-kafka", "kafkajs", "confluent-kafka-javascript"]
)
def test_every_driver_takes_its_security_as_an_argument(broker, directory, certificates, name, way):
    if reason := lacks(name):
        pytest.skip(reason)
    ca = str(certificates.ca) if way.protocol.endswith("SSL") else None
    security = {"mechanism": way.mechanism, "username": USER, "password": PASSWORD, "ca": ca}
    use(start_client(name, broker.addresses[way.protocol], directory, security=security), way)


def use(client, way):
    """Create a topic, send and read its records and offsets in transactions, join a group, and close the client."""
    context = StepContext(client, f"{next(NUMBERS)}.{way.name}")
    topic = context.topics("ledger")
    with context.producer("writer") as producer:
        for values, ending in ((["dropped"], producer.abort), (KEPT, producer.commit)):
            producer.begin()
            producer.send(topic, *values)
            producer.send_offsets(context.name("sent"), topic, {0: len(values)})
            ending()
    member = client.member(context.name("readers"), [topic])
    eventually_equal(lambda: [record.value.decode() for record in member.records()], KEPT)
    member.close()
    sent = context.name("sent")
    eventually_equal(lambda: client.fetch_offsets(sent, topic, isolation="read_committed"), [len(KEPT)])
    assert client.fetch_offsets(context.name("readers"), topic)[0] >= 5
    assert topic in client.topics()
    client.close()
