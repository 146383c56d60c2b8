"""Rows of docs/audit-a-kafka.md#rights: what users see that lack one right each, by an audit and `ottla txn orphans`.

The brokers hold a transaction in each state. No row calls one that a coordinator holds forgotten or overdue.
"""

import time
from typing import NamedTuple

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from click.testing import CliRunner
from transaction_states import DENIED_ID, GONE, STATES, SUPER, BrokerInEachState

from ottla.audit.pipeline import audit
from ottla.audit.request import Request
from ottla.audit.runner import ThreadRunner
from ottla.protocol.acls import WILDCARD, AclOperation, ResourceType
from ottla.spark_jobs.command_lines import audit as audit_command
from ottla.wire.address import parse_kafka_address

BROKERS = ["ottla", pytest.param("apache", marks=[pytest.mark.conformance, pytest.mark.maven])]
TOPIC, COORDINATORS = "topic-long", "__transaction_state"
ALL = set(STATES)


class Row(NamedTuple):
    """Result for a user that lacks a right.

    `absent`: states whose topic is not in the report. `unread`: topics that the report lists as not checked.
    `unverifiable`: states without a verdict. `reduced`: checks that the report lists as made in part, but for `gaps`
    of topics that are compacted. `orphans`: the exit code of `ottla txn orphans`.
    """

    denied: tuple
    absent: set = frozenset()
    unread: set = frozenset()
    unverifiable: set = frozenset()
    reduced: set = frozenset()
    orphans: int = 1


def deny(kind, name, operation):
    return ((ResourceType[kind], name, AclOperation[operation]),)


ROWS = {
    "nothing": Row(()),
    "read": Row(deny("TOPIC", TOPIC, "READ"), {"long"}, {TOPIC}),
    "describe": Row(deny("TOPIC", TOPIC, "DESCRIBE"), {"long"}),
    "configs": Row(deny("TOPIC", TOPIC, "DESCRIBE_CONFIGS"), reduced={"gaps"}),
    "read-decisions": Row(deny("TOPIC", COORDINATORS, "READ"), unread={COORDINATORS}, reduced={"torn"}),
    "describe-decisions": Row(
        deny("TOPIC", COORDINATORS, "DESCRIBE"),
        unread={COORDINATORS},
        unverifiable=GONE,
        reduced={"torn", "hanging"},
        orphans=2,
    ),
    "ids": Row(deny("TRANSACTIONAL_ID", WILDCARD, "DESCRIBE"), unverifiable=ALL, reduced={"hanging"}, orphans=2),
    "id": Row(
        deny("TRANSACTIONAL_ID", DENIED_ID, "DESCRIBE"),
        unverifiable={*GONE, "long"},
        reduced={"hanging"},
        orphans=2,
    ),
    "cluster": Row(deny("CLUSTER", "kafka-cluster", "DESCRIBE"), unverifiable=GONE, reduced={"hanging"}, orphans=2),
}
NO_TOPIC = "no-topic"


@pytest.fixture(scope="module")
def states(request, tmp_path_factory):
    without = {name: row.denied for name, row in ROWS.items()} | {NO_TOPIC: deny("TOPIC", WILDCARD, "READ")}
    states = BrokerInEachState(request.param, tmp_path_factory.mktemp(request.param), denied=without)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ottla.verdict.OVERDUE_AFTER_MS", 0)
        patch.setattr("ottla.wire.cluster.OVERDUE_AFTER_MS", 0)
        states.begin()
        states.client.until(lambda: states.standing(SUPER, "overdue")[0] == "overdue")
        yield states
    states.close()


def verdict_of(row, name):
    if name in row.unverifiable:
        return "unverifiable"
    return {"overdue": "overdue", "ending": "ending"}.get(name, "forgotten" if name in GONE else "in time")


def audit_as(states, user, checks):
    address = parse_kafka_address(f"kafka://{states.sasl}")._replace(properties=str(states.properties_of(user)))
    now_ms = round(time.time() * 1000)
    return audit(ThreadRunner(1), Request((str(address),), (), now_ms, checks, address=address))


@pytest.mark.parametrize("checks", [("hanging",), ("hanging", "torn", "gaps")], ids=["asked", "read"])
@pytest.mark.parametrize("user", ROWS)
@pytest.mark.parametrize("states", BROKERS, indirect=True)
def test_an_audit_claims_no_more_than_the_rights_show(states, user, checks):
    row, found = ROWS[user], audit_as(states, user, checks)
    verdicts = {
        one.topic.removeprefix("topic-"): str(one.verdict) for one in found.open_transactions if one.partition == 0
    }
    assert verdicts == {name: verdict_of(row, name) for name in STATES if name not in row.absent}
    assert {one.reason.rpartition(":")[0].rpartition("-")[0] for one in found.source.not_checked} == row.unread
    limits = {one.check for one in found.source.reduced if not one.reason.startswith("__")}
    assert limits == {one for one in row.reduced if one in checks}
    for one in found.findings:
        assert "abort" not in one.action or one.topic.removeprefix("topic-") in GONE - row.unverifiable


@pytest.mark.parametrize("user", ROWS)
@pytest.mark.parametrize("states", BROKERS, indirect=True)
def test_orphans_of_a_user_without_a_right_are_forgotten_transactions(states, user):
    row = ROWS[user]
    code, document, said = states.ask(user, "orphans")
    assert code == row.orphans, said
    orphans = {one["topic"].removeprefix("topic-") for one in document.get("orphans", [])}
    assert orphans == (GONE - row.unverifiable)


@pytest.mark.parametrize("states", BROKERS, indirect=True)
def test_a_user_that_can_read_no_topic_gets_an_error(states):
    words = (f"kafka://{states.sasl}", "--command-config", str(states.properties_of(NO_TOPIC)), "--run-on", "here")
    result = CliRunner().invoke(audit_command, words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no partition can be read: topic-above-0: this user lacks READ on topic topic-above" in result.stderr


@pytest.mark.parametrize("states", BROKERS, indirect=True)
def test_the_verdict_counts_the_partitions_that_were_not_read(states):
    words = ("--topics", "topic-long,topic-in-time", "--command-config", str(states.properties_of("read")))
    result = CliRunner().invoke(audit_command, (f"kafka://{states.sasl}", *words, "--run-on", "here"))
    assert "Nothing is broken." in result.stdout and "2 partitions could not be read." in result.stdout
