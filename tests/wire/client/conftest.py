"""The brokers under transaction(): Ottla, Apache Kafka, or any Kafka at OTTLA_TEST_BOOTSTRAP; and each library."""

import os
import uuid

import pytest

from ottla.demo.clients import Broker
from ottla.testkit.proxying import ProxyServer
from tests.conformance.targets import TARGETS
from tests.wire.client.libraries import EACH_LIBRARY, client
from tests.wire.client.rights import GUARD
from tests.wire.client.topics import make_topic

APACHE = pytest.param("apache", marks=(pytest.mark.maven, pytest.mark.conformance))
# A transactional id expires a second after its last transaction.
FORGETFUL = {
    "transactional.id.expiration.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}
BROKERS = ["given"] if "OTTLA_TEST_BOOTSTRAP" in os.environ else ["ottla", APACHE]


@pytest.fixture(scope="session", params=BROKERS)
def target(request):
    """The name of the broker that a test is played against."""
    return request.param


@pytest.fixture(scope="session")
def broker(target, tmp_path_factory):
    if target == "given":
        yield Broker(os.environ["OTTLA_TEST_BOOTSTRAP"], None)
        return
    broker = TARGETS[target](tmp_path_factory.mktemp(target)).start()
    yield broker
    broker.stop()


def start_with(target, tmp_path_factory, name, overrides):
    if target == "given":
        pytest.skip("OTTLA_TEST_BOOTSTRAP names a broker that is not this test's to configure")
    broker = TARGETS[target](tmp_path_factory.mktemp(f"{name}-{target}"), overrides).start()
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def forgetful(target, tmp_path_factory):
    yield from start_with(target, tmp_path_factory, "forgetful", FORGETFUL)


@pytest.fixture(scope="session")
def acl_broker(target, tmp_path_factory):
    yield from start_with(target, tmp_path_factory, "acl_broker", GUARD)


@pytest.fixture
def own_broker(target, tmp_path):
    """Return a function that starts a broker for this test alone. The test may kill and restart it."""
    if target == "given":
        pytest.skip("OTTLA_TEST_BOOTSTRAP names a broker that is not this test's to kill or to configure")
    started = []

    def start(**overrides):
        started.append(TARGETS[target](tmp_path / "broker", overrides).start())
        return started[-1]

    yield start
    for broker in started:
        broker.kill()


@pytest.fixture
def proxy(broker):
    with ProxyServer(broker.bootstrap) as proxy:
        yield proxy


@pytest.fixture(params=EACH_LIBRARY)
def kafka(request, proxy):  # the proxy stays until the clients behind it are closed
    face = client(request.param)
    yield face
    face.close()


@pytest.fixture
def topic(broker):
    return make_topic(broker)


@pytest.fixture
def name():
    return f"order-processor-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def kafka_python():
    face = client("kafka-python")
    yield face
    face.close()


@pytest.fixture
def confluent():
    face = client("confluent-kafka")
    yield face
    face.close()


@pytest.fixture
def aiokafka():
    face = client("aiokafka")
    yield face
    face.close()
