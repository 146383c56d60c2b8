"""The scenario with four client libraries, against Ottla and, when asked for, against Apache Kafka 4.3.1."""

import pytest
from scenario import STEPS, Stage

CLIENTS = ["kafka-python", "aiokafka", "confluent-kafka", pytest.param("java", marks=pytest.mark.maven)]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
@pytest.mark.parametrize("client_name", CLIENTS)
@pytest.mark.parametrize("target", ["ottla", pytest.param("apache", marks=pytest.mark.conformance)])
def test_scenario(ensemble, target, client_name, step):
    client = ensemble.client(target, client_name)
    if step.needs in client.missing:
        pytest.skip(f"{client_name} {client.version}: {client.missing[step.needs]}")
    step(Stage(client, step.__name__.replace("_", "-")))
