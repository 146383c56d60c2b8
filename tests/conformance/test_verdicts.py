"""The table of verdicts, played on Ottla and on Apache Kafka with StandardAuthorizer, as users with different rights.

No run calls a transaction that its coordinator holds forgotten, or prints an abort for it.
"""

import shutil
import time

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from transaction_states import (
    ALL_RIGHTS,
    CALM_MS,
    GONE,
    LONG_MS,
    ONE_DENIED,
    READ_ALONE,
    STATES,
    SUPER,
    BrokerInEachState,
    run_remedy,
)

from ottla.audit.pipeline import audit
from ottla.audit.request import Request
from ottla.audit.runner import ThreadRunner
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode
from ottla.testkit.in_memory.wire import message

BROKERS = ["ottla", pytest.param("apache", marks=[pytest.mark.conformance, pytest.mark.maven])]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    started = {}

    def get(target):
        if target not in started:
            started[target] = BrokerInEachState(target, tmp_path_factory.mktemp(target)).begin()
        return started[target]

    yield get
    for states in started.values():
        states.close()


@pytest.fixture
def states(request, brokers, monkeypatch):
    """The one that is overdue is so at once: without the time in which a coordinator looks at it."""
    monkeypatch.setattr("ottla.verdict.OVERDUE_AFTER_MS", 0)
    monkeypatch.setattr("ottla.wire.cluster.OVERDUE_AFTER_MS", 0)
    states = brokers(request.param)
    states.client.until(lambda: states.standing(SUPER, "overdue")[0] == "overdue")
    return states


def verdict_of(user, name):
    """Return the verdict that `why` must show to a user."""
    if user == READ_ALONE or (user == ONE_DENIED and name in (*GONE, "long")):
        return "unknown"
    return {"overdue": "overdue", "ending": "ending"}.get(name, "forgotten" if name in GONE else "in time")


@pytest.mark.parametrize("user", [ALL_RIGHTS, SUPER, READ_ALONE, ONE_DENIED])
@pytest.mark.parametrize("states", BROKERS, indirect=True)
def test_verdicts_depend_on_the_rights_of_the_user(states, user):
    for name in STATES:
        standing, said = states.standing(user, name)
        assert (name, standing) == (name, verdict_of(user, name)), said
        assert (standing == "forgotten") == ("abort --topic" in said), said
    code, document, said = states.ask(user, "orphans")
    if user in (ALL_RIGHTS, SUPER):
        assert (code, {row["topic"] for row in document["orphans"]}) == (1, {f"topic-{name}" for name in GONE})
    else:
        assert code == 2 and "orphans" not in document and "abort --topic" not in said
        assert "lacks DESCRIBE on " in said


@pytest.mark.parametrize("user", [ALL_RIGHTS, READ_ALONE, ONE_DENIED])
@pytest.mark.parametrize("states", BROKERS, indirect=True)
def test_abort_refuses_what_is_not_proved_to_be_forgotten(states, user):
    for name in STATES:
        standing, _ = states.standing(user, name)
        if standing == "forgotten":
            continue
        place = (f"topic-{name}", 0)
        (row,) = states.ask(user, "why", *map(str, place))[1]["open transactions"]
        code, document, said = states.ask(user, "abort", "--yes", *map(str, (*place, row["start_offset"])))
        assert (code, document["transaction"][0]["standing"]) == (1, standing), said
        assert states.client.last_stable_offset(*place) == row["start_offset"]


@pytest.mark.parametrize("states", BROKERS, indirect=True)
def test_a_transaction_shortly_past_its_timeout_is_in_time(states, monkeypatch):
    monkeypatch.setattr("ottla.verdict.OVERDUE_AFTER_MS", LONG_MS)
    monkeypatch.setattr("ottla.wire.cluster.OVERDUE_AFTER_MS", LONG_MS)
    standing, said = states.standing(SUPER, "overdue")
    assert standing == "in time" and "abort --topic" not in said


@pytest.mark.parametrize("states", BROKERS, indirect=True)
def test_a_copy_of_a_partition_alone_proves_nothing(states, tmp_path):
    for name in STATES:
        shutil.copytree(states.broker.data_dir / f"topic-{name}-0", tmp_path / f"topic-{name}-0")
    found = run_audit(tmp_path)
    assert [str(one.verdict) for one in found.open_transactions] == ["unverifiable"] * len(STATES)
    assert not found.at_least("warning")
    assert {one.action for one in found.findings} == {f"ottla txn why topic-{name} 0 -b HOST:PORT" for name in STATES}


@pytest.mark.parametrize("states", BROKERS, indirect=True)
def test_the_audit_gives_the_same_verdicts_as_the_why_command(states):
    found = run_audit(states.broker.data_dir)
    first = [one for one in found.open_transactions if one.partition == 0]
    told = {one.topic.removeprefix("topic-"): str(one.verdict) for one in first}
    assert told == {name: verdict_of(SUPER, name) for name in STATES}
    for one in found.findings:
        is_gone = one.topic is not None and one.topic.removeprefix("topic-") in GONE
        assert ("kafka-transactions.sh" in one.action) == is_gone, one


@pytest.mark.parametrize("states", BROKERS, indirect=True)
def test_an_abort_in_one_partition_tears_what_its_coordinator_holds(states):
    """Why nothing but what is forgotten has an abort: the producer's commit reaches the other partition."""
    topic = states.client.create_topic("topic-torn", 2)
    producer_id, epoch = states.client.begin("torn-1", [(topic, 0), (topic, 1)], CALM_MS)
    marker = {"producer_id": producer_id, "producer_epoch": epoch, "transaction_result": False, "coordinator_epoch": 0}
    marker["topics"] = [{"name": topic, "partition_indexes": [0]}]
    states.client.connection.send(message(K.WRITE_TXN_MARKERS, 1, markers=[marker]), 1)
    states.client.end("torn-1", producer_id, epoch, commit=True)
    states.client.until(lambda: [states.client.last_stable_offset(topic, each) for each in (0, 1)] == [3, 2])
    assert [aborted_producers(states.client, topic, each) for each in (0, 1)] == [[producer_id], []]
    found = run_audit(states.broker.data_dir, "torn", "reused").at_least("warning")
    (torn,) = [one for one in found if one.topic == topic]
    assert (torn.check, torn.severity, torn.partition, torn.transactional_id) == ("torn", "error", 0, "torn-1")
    assert "an administrator wrote it" in torn.action


def run_audit(directory, *checks):
    return audit(ThreadRunner(1), Request((str(directory),), (), round(time.time() * 1000), checks or ("hanging",)))


def aborted_producers(client, topic, partition):
    """Return the producers of the aborted transactions in a Fetch with read_committed."""
    row = {"partition": partition, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1}
    topics = [{"topic": topic, "partitions": [row | {"log_start_offset": -1, "partition_max_bytes": 1 << 20}]}]
    asked = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "isolation_level": 1}
    asked |= {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": ""}
    reply = client.connection.send(message(K.FETCH, 11, **asked, topics=topics), 11)
    return [each.producer_id for each in reply.responses[0].partitions[0].aborted_transactions or ()]


@pytest.mark.parametrize("states", BROKERS, indirect=True)
def test_zy_the_coordinator_repeats_a_marker_until_it_is_taken(states):
    """Until then the id begins no other transaction; "ending" is over after this test."""
    refused = states.refused_markers
    refused.wait_hit(refused.hits + 2)
    asked = message(K.INIT_PRODUCER_ID, 4, transactional_id="ending-1", transaction_timeout_ms=CALM_MS)
    assert states.client.connection.send(asked, 4).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert states.standing(SUPER, "ending")[0] == "ending"
    refused.remove()
    states.client.until(lambda: [states.client.last_stable_offset("topic-ending", each) for each in (0, 1)] == [2, 2])


@pytest.mark.parametrize("states", BROKERS, indirect=True)
def test_zz_the_remedies_end_what_they_are_for(states):
    """The last test of a broker: nothing is open after it that was forgotten or overdue."""
    for name in (*GONE, "overdue"):
        _, document, _ = states.ask(SUPER, "why", f"topic-{name}", "0")
        run_remedy(next(row["command"] for row in document["remedies"] if row["command"]))
        states.client.until(
            lambda name=name: (
                states.client.last_stable_offset(f"topic-{name}", 0) == states.client.end_offset(f"topic-{name}", 0)
            )
        )
    states.client.until(lambda: states.client.last_stable_offset("topic-overdue", 1) == 2)
    assert states.client.last_stable_offset("topic-in-time", 0) == 0
