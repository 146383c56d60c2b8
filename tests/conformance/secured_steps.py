"""The steps of the scenario that need a broker with TLS, logins and an authorizer."""

from contextlib import suppress

from clients import DriverError, eventually_equal
from scenario import ACLS, SCRAM, TLS, TRANSACTIONS, catch_refusal, step

from tests.logins import USER

SECURED_STEPS = []
PROTOCOLS = {TLS: "SSL", SCRAM: "SASL_SSL", ACLS: "SASL_SSL"}
"""The protocol of the features that need a broker with logins."""
REFUSALS = {29, 3}  # TOPIC_AUTHORIZATION_FAILED; kafka-go calls a topic unknown that it may not describe


@step(TLS, "tls", steps=SECURED_STEPS)
def records_and_transactions_over_tls(context):
    _write_and_read(context, context.topics("ledger"))


@step(SCRAM, "scram", steps=SECURED_STEPS)
def records_and_transactions_after_a_login(context):
    topic = context.name("ledger")
    context.administrator.create_topic(topic)
    context.administrator.allow(USER, context.prefix)
    _write_and_read(context, topic)


@step(ACLS, "scram", steps=SECURED_STEPS)
def a_topic_needs_an_entry(context):
    readable, closed = context.name("readable"), f"closed.{context.name('ledger')}"
    for topic in (readable, closed):
        context.administrator.create_topic(topic)
    context.administrator.allow(USER, context.prefix)
    with context.producer() as producer:
        producer.send(readable, "allowed")
        eventually_equal(lambda: _values(context, readable), ["allowed"])
        error = catch_refusal(producer.send, closed, "denied")
        assert error.code in REFUSALS or "uthoriz" in str(error), error
    with suppress(DriverError):  # confluent-kafka returns nothing instead
        assert context.client.read([closed]) == []
    assert context.administrator.read(closed) == []


def _values(context, topic):
    """Return the values of a topic; None after an error, because kafka-go does not know a new topic for some time."""
    try:
        return context.client.values([topic])
    except DriverError:
        return None


def _write_and_read(context, topic):
    with context.producer() as producer:
        producer.send(topic, "plain")
    if TRANSACTIONS not in context.client.missing:
        with context.producer("writer") as producer:
            producer.begin()
            producer.send(topic, "aborted")
            producer.abort()
    assert context.client.values([topic]) == ["plain"]
