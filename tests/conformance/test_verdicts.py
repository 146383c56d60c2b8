"""The table of verdicts, played on Ottla and on Apache Kafka with StandardAuthorizer, as users with different rights.

No run calls a transaction that its coordinator holds forgotten, or prints an abort for it.
"""

import json
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from authorization import Caller
from click.testing import CliRunner
from open_transactions import UNVERIFIED, Client
from targets import ApacheKafka, OttlaByOptions, free_port

from ottla.audit.pipeline import audit
from ottla.audit.request import Request
from ottla.audit.runner import ThreadRunner
from ottla.cli.main import main
from ottla.protocol.acls import WILDCARD, AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode
from ottla.testkit.in_memory.wire import message
from ottla.testkit.kit.admin import Admin
from ottla.testkit.kit.fault_registries import BrokerFaultRegistry, ProxyFaultRegistry
from ottla.testkit.kit.faults import Faults
from ottla.testkit.proxying import ProxyServer

BROKERS = ["ottla", pytest.param("apache", marks=[pytest.mark.conformance, pytest.mark.maven])]
CALM_MS = 600_000
LONG_MS = 86_400_000
AT_ONCE_MS = 1_000
PASSWORD = "secret"
ALL_RIGHTS, READ_ALONE, ONE_DENIED, SUPER = "alice", "bob", "carol", "root"
HELD, DENIED_ID = "in time", "long-1"
GONE = {"late", "unknown", "above", "empty", "below", "elsewhere"}
STATES = ("in-time", "long", "overdue", "ending", *sorted(GONE))

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = " ".join(f'user_{name}="{PASSWORD}"' for name in (ALL_RIGHTS, READ_ALONE, ONE_DENIED, SUPER))
SETTINGS = UNVERIFIED | {
    "listener.name.sasl.plain.sasl.jaas.config": f"{LOGIN} required {USERS};",
    "sasl.enabled.mechanisms": "PLAIN",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;User:{SUPER}",
    "transaction.max.timeout.ms": str(LONG_MS),
    # What is overdue stays so.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2147483647",
}


class SteeredOttla(OttlaByOptions):
    """Ours, with an admin port that plans faults."""

    def command(self):
        return [*super().command(), "--admin-listen", "127.0.0.1:0", "--test-control"]


class KafkaWithFaults:
    """Apache Kafka whose coordinator reaches its partitions through a proxy that refuses some markers."""

    def __init__(self, directory):
        port = free_port(span=4)
        self._open = ExitStack()
        self._proxy = self._open.enter_context(ProxyServer(f"127.0.0.1:{port + 3}"))
        self.plain, self.sasl = f"127.0.0.1:{port}", f"127.0.0.1:{port + 2}"
        reached = f"PLAINTEXT://{self.plain},SASL://{self.sasl}"
        own = {
            "listeners": f"{reached},CONTROLLER://127.0.0.1:{port + 1},MARKERS://127.0.0.1:{port + 3}",
            "advertised.listeners": f"{reached},MARKERS://{self._proxy.bootstrap}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,"
            "MARKERS:PLAINTEXT",
            "inter.broker.listener.name": "MARKERS",
        }
        self.broker = ApacheKafka(directory, SETTINGS | own, port=port).start()
        self._open.callback(self.broker.stop)

    def refuse_markers(self, topic):
        on_markers = Faults(ProxyFaultRegistry(self._proxy)).on("WriteTxnMarkers", times=None, topic=topic)
        return on_markers.reply("NOT_LEADER_OR_FOLLOWER")

    def close(self):
        self._open.close()


class OttlaWithFaults:
    """Ottla whose partitions refuse some markers."""

    def __init__(self, directory):
        own = {
            "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        }
        self.broker = SteeredOttla(directory, SETTINGS | own).start()
        self.plain, self.sasl = self.broker.addresses["PLAINTEXT"], self.broker.addresses["SASL"]

    def refuse_markers(self, topic):
        admin = Admin(f"http://{self.broker.addresses['http']}")
        return Faults(BrokerFaultRegistry(lambda: admin)).on_marker(topic=topic).reply("NOT_LEADER_OR_FOLLOWER")

    def close(self):
        self.broker.stop()


class BrokerInEachState:
    """A broker with a transaction in each state, and users who ask about it."""

    def __init__(self, target, directory):
        self.directory = directory
        self.steered = (OttlaWithFaults if target == "ottla" else KafkaWithFaults)(directory / "broker")
        self.broker, self.plain, self.sasl = self.steered.broker, self.steered.plain, self.steered.sasl
        self.client = Client(self.plain)
        self.admin = Caller(int(self.plain.rpartition(":")[2]))
        self.identity = {name: getattr(self, f"_{name.replace('-', '_')}")(self._topic(name)) for name in STATES}
        self._allow()

    def close(self):
        self.client.close()
        self.admin.close()
        self.steered.close()

    def _topic(self, name):
        return self.client.create_topic(f"topic-{name}", 2)

    def _in_time(self, topic):
        return self.client.begin("in-time-1", [(topic, 0), (topic, 1)], CALM_MS)

    def _long(self, topic):
        return self.client.begin(DENIED_ID, [(topic, 0), (topic, 1)], LONG_MS)

    def _overdue(self, topic):
        return self.client.begin("overdue-1", [(topic, 0), (topic, 1)], AT_ONCE_MS)

    def _ending(self, topic):
        """Committed, while the leaders of its partitions refuse the markers."""
        self.refused_markers = self.steered.refuse_markers(topic)
        producer_id, epoch = self.client.begin("ending-1", [(topic, 0), (topic, 1)], CALM_MS)
        self.client.end("ending-1", producer_id, epoch, commit=True)
        self.refused_markers.wait_hit(2)
        return producer_id, epoch

    def _late(self, topic):
        """A batch that came after its transaction had been committed."""
        producer_id, epoch = self.client.begin("late-1", [(topic, 0)], CALM_MS)
        self.client.end("late-1", producer_id, epoch, commit=True)
        self.client.until(lambda: self.client.last_stable_offset(topic, 0) == 2)
        self.client.produce(topic, 0, "late-1", producer_id, epoch, sequence=1)
        return producer_id, epoch

    def _unknown(self, topic):
        return self.client.orphan(topic, 0), 0

    def _above(self, topic):
        """A batch of an epoch that its id has not come to: the marker of the coordinator is refused."""
        producer_id, epoch = self.client.begin("above-1", [(topic, 0)], CALM_MS)
        self.client.produce(topic, 0, "above-1", producer_id, epoch + 3)
        return producer_id, epoch + 3

    def _empty(self, topic):
        """A batch of an id that has begun no transaction."""
        producer_id, epoch = self.client.init_producer_id("empty-1", CALM_MS)
        self.client.produce(topic, 0, "empty-1", producer_id, epoch)
        return producer_id, epoch

    def _below(self, topic):
        """A batch of an epoch that was fenced, in a partition of the next transaction."""
        producer_id, fenced = self.client.init_producer_id("below-1", CALM_MS)
        _, epoch = self.client.init_producer_id("below-1", CALM_MS)
        self.client.add_partitions("below-1", producer_id, epoch, [(topic, 0)])
        self.client.produce(topic, 0, "below-1", producer_id, fenced)
        return producer_id, fenced

    def _elsewhere(self, topic):
        """A batch in a partition that its open transaction does not have."""
        producer_id, epoch = self.client.begin("elsewhere-1", [(topic, 1)], CALM_MS)
        self.client.produce(topic, 0, "elsewhere-1", producer_id, epoch)
        return producer_id, epoch

    def _allow(self):
        rights = [
            (ResourceType.TRANSACTIONAL_ID, WILDCARD, AclOperation.DESCRIBE),
            (ResourceType.CLUSTER, "kafka-cluster", AclOperation.DESCRIBE),
            (ResourceType.TOPIC, WILDCARD, AclOperation.READ),
        ]
        allow, deny = PermissionType.ALLOW, PermissionType.DENY
        entries = [(f"User:{name}", allow, *right) for name in (ALL_RIGHTS, ONE_DENIED) for right in rights]
        entries += [
            (f"User:{READ_ALONE}", allow, ResourceType.TOPIC, f"topic-{name}", AclOperation.READ) for name in STATES
        ]
        entries.append((f"User:{ONE_DENIED}", deny, ResourceType.TRANSACTIONAL_ID, DENIED_ID, AclOperation.DESCRIBE))
        rows = [
            {
                "principal": principal,
                "permission_type": permission,
                "host": WILDCARD,
                "resource_type": kind,
                "resource_name": name,
                "operation": operation,
                "resource_pattern_type": PatternType.LITERAL,
            }
            for principal, permission, kind, name, operation in entries
        ]
        reply = self.admin.call(K.CREATE_ACLS, 2, creations=rows)
        assert {row.error_code for row in reply.results} == {0}

    def ask(self, user, *words):
        """(exit code, the JSON, all that was said) of `ottla txn` as a user."""
        config = self.directory / f"{user}.properties"
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={LOGIN} required username="{user}" password="{PASSWORD}";\n'
        )
        told = ["-b", self.sasl, "--command-config", str(config), "--format", "json"]
        result = CliRunner().invoke(main, ["txn", *words, *told])
        assert result.exit_code in (0, 1, 2) and result.stdout, result.output
        return result.exit_code, json.loads(result.stdout), result.output

    def standing(self, user, name):
        """The verdict of `ottla txn why` on the transaction of a state, and what it prints."""
        _, document, said = self.ask(user, "why", f"topic-{name}", "0")
        (row,) = document["open transactions"]
        return row["standing"], said

    def execute(self, command):
        words = shlex.split(command)
        words[:2] = [sys.executable, "-m", "kafka.admin"] if words[0] == "kafka-python" else [sys.executable, "-c"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    started = {}

    def get(target):
        if target not in started:
            started[target] = BrokerInEachState(target, tmp_path_factory.mktemp(target))
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


def run_audit(directory):
    return audit(ThreadRunner(1), Request((str(directory),), (), round(time.time() * 1000), ("hanging",)))


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
        _, document, _ = states.ask(ALL_RIGHTS, "why", f"topic-{name}", "0")
        command = next(row["command"] for row in document["remedies"] if row["command"])
        states.execute(command.replace(states.sasl, states.plain))
        states.client.until(
            lambda name=name: (
                states.client.last_stable_offset(f"topic-{name}", 0) == states.client.end_offset(f"topic-{name}", 0)
            )
        )
    states.client.until(lambda: states.client.last_stable_offset("topic-overdue", 1) == 2)
    assert states.client.last_stable_offset("topic-in-time", 0) == 0
