"""The scenario with four client libraries, against Ottla and, when asked for, against Apache Kafka 4.3.1.

Ottla plays it at `transaction.version` 2, its default; at 0 and 1, which clients see and their requests follow, when
asked for.
"""

import pytest
from clients import lacks
from scenario import STEPS, StepContext

CLIENTS = [
    *("kafka-python", "aiokafka", "confluent-kafka"),
    pytest.param("java", marks=pytest.mark.maven),
    *(pytest.param(name, marks=pytest.mark.conformance) for name in ("kafkajs", "confluent-kafka-javascript")),
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
@pytest.mark.parametrize("client_name", CLIENTS)
@pytest.mark.parametrize(
    "target",
    ["ottla", *(pytest.param(name, marks=pytest.mark.conformance) for name in ("ottla-v1", "ottla-v0", "apache"))],
)
def test_scenario(ensemble, target, client_name, step):
    if reason := lacks(client_name):
        pytest.skip(reason)
    client = ensemble.client(target, client_name)
    if step.needs in client.missing:
        pytest.skip(f"{client_name} {client.version}: {client.missing[step.needs]}")
    step(StepContext(client, step.__name__.replace("_", "-")))
