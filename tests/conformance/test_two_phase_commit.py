"""Transactions of two-phase commit (KIP-939) on one directory, from Ottla to Apache Kafka 4.3.1 and back."""

import time

import pytest
from differential.two_phase_tables import OPTIONS
from open_transactions import Client
from targets import Ottla
from test_graduation import GraduatedKafka, graduate

from ottla.audit.pipeline import audit
from ottla.audit.request import Request
from ottla.audit.runner import ThreadRunner
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec

pytestmark = [pytest.mark.conformance, pytest.mark.maven]
TOPIC = "ledger"
TIMEOUT_MS, NEVER_MS = 1_500, 2**31 - 1
YEAR_MS = 365 * 86_400_000
OVERRIDES = OPTIONS["two-phase-commit"] | {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}


def describe(client, transactional_id):
    """Return (state, timeout) once the coordinator has loaded the id."""
    request = codec.request_class(ApiKey.DESCRIBE_TRANSACTIONS)(transactional_ids=[transactional_id])
    (row,) = client.until(
        lambda: [row for row in client.connection.send(request, 0).transaction_states if not row.error_code]
    )
    return row.transaction_state, row.transaction_timeout_ms


def begin_both(client, place):
    """Begin an ordinary transaction and one of two-phase commit, and let the time of the first pass."""
    client.begin(f"ordinary-{place}", [(TOPIC, place)], TIMEOUT_MS)
    producer = client.begin(f"lasting-{place}", [(TOPIC, place)], TIMEOUT_MS, two_phase=True)
    client.until(lambda: describe(client, f"ordinary-{place}") == ("CompleteAbort", TIMEOUT_MS))
    assert describe(client, f"lasting-{place}") == ("Ongoing", NEVER_MS)
    return producer


def explain(data_dir):
    """Return what an audit says in a year of the open transactions."""
    found = audit(ThreadRunner(1), Request((str(data_dir),), (), round(time.time() * 1000) + YEAR_MS))
    return [(one.transactional_id, one.explained) for one in found.open_transactions]


def test_each_broker_keeps_the_transactions_of_the_other_open(tmp_path):
    expected = "in time: it never times out (two-phase commit)"
    ottla = Ottla(tmp_path / "ottla", OVERRIDES).start()
    try:
        client = Client(ottla.bootstrap)
        client.create_topic(TOPIC, 2)
        first = begin_both(client, 0)
        client.close()
    finally:
        ottla.stop()
    assert explain(ottla.data_dir) == [("lasting-0", expected)]

    kafka = GraduatedKafka(tmp_path / "kafka", ottla.data_dir, OVERRIDES)
    done = graduate(ottla.data_dir, kafka.properties)
    assert done.returncode == 0, done.stderr
    kafka.start()
    try:
        client = Client(kafka.bootstrap)
        assert describe(client, "lasting-0") == ("Ongoing", NEVER_MS)
        second = begin_both(client, 1)
        client.end("lasting-0", *first, commit=True)
        client.until(lambda: describe(client, "lasting-0") == ("CompleteCommit", NEVER_MS))
        client.close()
    finally:
        kafka.stop()
    assert explain(ottla.data_dir) == [("lasting-1", expected)]

    ottla.start()
    try:
        client = Client(ottla.bootstrap)
        assert describe(client, "lasting-1") == ("Ongoing", NEVER_MS)
        client.end("lasting-1", *second, commit=True)
        client.until(lambda: describe(client, "lasting-1") == ("CompleteCommit", NEVER_MS))
        client.close()
    finally:
        ottla.stop()
    assert explain(ottla.data_dir) == []
