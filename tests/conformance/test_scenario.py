"""The scenario with every client library, against Ottla and, when asked for, against Apache Kafka 4.3.1.

Ottla plays it at `transaction.version` 2, its default; at 0 and 1, which clients see and their requests follow, when
asked for. Each test is recorded as part of a cell of docs/compatibility.md.
"""

import pytest
from clients import GO_LIBRARIES, JAVA_NEXT, PROGRAMS, MissingError, lacks
from long_steps import LONG_STEPS
from scenario import STEPS, TRANSACTIONS
from secured_steps import PROTOCOLS, SECURED_STEPS

CLIENTS = [
    *("kafka-python", "aiokafka", "confluent-kafka"),
    pytest.param("java", marks=pytest.mark.maven),
    *(pytest.param(name, marks=pytest.mark.conformance) for name in (JAVA_NEXT, *GO_LIBRARIES, *PROGRAMS)),
]
ALL_STEPS = [*STEPS, *(pytest.param(each, marks=pytest.mark.conformance) for each in LONG_STEPS)]
OF_TRANSACTIONS = [each for each in STEPS if each.feature == TRANSACTIONS]


def other_than_ottla(*names):
    return [pytest.param(name, marks=pytest.mark.conformance) for name in names]


def play(ensemble, record_property, target, client_name, step, protocol=None):
    name, _, level = target.partition("-")
    if not level or (level == "v1" and step.feature == TRANSACTIONS):
        record_property("cell", f"{name}|{client_name}|{step.feature}{', V1' if level else ''}")
    if reason := lacks(client_name):
        pytest.skip(reason)
    client = ensemble.client(target, client_name, protocol)
    record_property("version", client.version)
    try:
        for needed in (step.feature, *step.needs):
            client.require(needed)
        step(ensemble.context(target, client, step.__name__.replace("_", "-"), protocol))
    except MissingError as missing:
        pytest.skip(f"not offered: {missing}")


@pytest.mark.parametrize("step", ALL_STEPS, ids=lambda step: step.__name__)
@pytest.mark.parametrize("client_name", CLIENTS)
@pytest.mark.parametrize("target", ["ottla", *other_than_ottla("ottla-v1", "ottla-v0", "apache")])
def test_scenario(ensemble, record_property, target, client_name, step):
    play(ensemble, record_property, target, client_name, step)


@pytest.mark.parametrize("step", OF_TRANSACTIONS, ids=lambda step: step.__name__)
@pytest.mark.parametrize("client_name", CLIENTS)
@pytest.mark.parametrize("target", other_than_ottla("apache-v1"))
def test_transactions_at_version_1(ensemble, record_property, target, client_name, step):
    play(ensemble, record_property, target, client_name, step)


@pytest.mark.conformance
@pytest.mark.parametrize("step", SECURED_STEPS, ids=lambda step: step.__name__)
@pytest.mark.parametrize("client_name", CLIENTS)
@pytest.mark.parametrize("target", ["ottla", "apache"])
def test_secured(ensemble, record_property, target, client_name, step):
    play(ensemble, record_property, target, client_name, step, PROTOCOLS[step.feature])
