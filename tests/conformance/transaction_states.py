"""A broker with a transaction in each state, Ottla or Apache Kafka, and users with different rights who ask."""

import json
import shlex
from contextlib import ExitStack
from functools import partial

from authorization import Caller
from click.testing import CliRunner
from open_transactions import UNVERIFIED, Client
from targets import ApacheKafka, ApacheKafkaV1, OttlaByOptions, free_port

from ottla.cli.main import main
from ottla.protocol.acls import WILDCARD, AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.api_keys import ApiKey as K
from ottla.testkit.kit.admin import Admin
from ottla.testkit.kit.fault_registries import BrokerFaultRegistry, ProxyFaultRegistry
from ottla.testkit.kit.faults import Faults
from ottla.testkit.proxying import ProxyServer

CALM_MS = 600_000
DENIED_ID = "long-1"
LONG_MS = 86_400_000
AT_ONCE_MS = 1_000
PASSWORD = "secret"
ALL_RIGHTS, READ_ALONE, ONE_DENIED, SUPER = "alice", "bob", "carol", "root"
GONE = {"late", "unknown", "above", "empty", "below", "elsewhere"}
STATES = ("in-time", "long", "overdue", "ending", *sorted(GONE))

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
RIGHTS = (
    (ResourceType.TRANSACTIONAL_ID, WILDCARD, AclOperation.DESCRIBE),
    (ResourceType.CLUSTER, "kafka-cluster", AclOperation.DESCRIBE),
    (ResourceType.TOPIC, WILDCARD, AclOperation.READ),
    (ResourceType.TOPIC, WILDCARD, AclOperation.DESCRIBE_CONFIGS),
)
"""The rights (type, name, operation) of an audit."""
SETTINGS = UNVERIFIED | {
    "sasl.enabled.mechanisms": "PLAIN",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;User:{SUPER}",
    "transaction.max.timeout.ms": str(LONG_MS),
    # What is overdue stays so.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2147483647",
}


def settings_for(users):
    """Return the settings of a broker on which these users, and those above, log in with PLAIN."""
    known = " ".join(f'user_{name}="{PASSWORD}"' for name in (ALL_RIGHTS, READ_ALONE, ONE_DENIED, SUPER, *users))
    return SETTINGS | {"listener.name.sasl.plain.sasl.jaas.config": f"{LOGIN} required {known};"}


class SteeredOttla(OttlaByOptions):
    """Ours, with an admin port that plans faults."""

    def command(self):
        return [*super().command(), "--admin-listen", "127.0.0.1:0", "--test-control"]


class KafkaWithFaults:
    """Apache Kafka whose coordinator reaches its partitions through a proxy that refuses some markers."""

    def __init__(self, directory, settings, kind=ApacheKafka):
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
        self.broker = kind(directory, settings | own, port=port).start()
        self._open.callback(self.broker.stop)

    def refuse_markers(self, topic):
        on_markers = Faults(ProxyFaultRegistry(self._proxy)).on("WriteTxnMarkers", times=None, topic=topic)
        return on_markers.reply("NOT_LEADER_OR_FOLLOWER")

    def close(self):
        self._open.close()


class OttlaWithFaults:
    """Ottla whose partitions refuse some markers."""

    def __init__(self, directory, settings):
        own = {
            "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        }
        self.broker = SteeredOttla(directory, settings | own).start()
        self.plain, self.sasl = self.broker.addresses["PLAINTEXT"], self.broker.addresses["SASL"]

    def refuse_markers(self, topic):
        admin = Admin(f"http://{self.broker.addresses['http']}")
        return Faults(BrokerFaultRegistry(lambda: admin)).on_marker(topic=topic).reply("NOT_LEADER_OR_FOLLOWER")

    def close(self):
        self.broker.stop()


BROKERS_WITH_FAULTS = {
    "ottla": OttlaWithFaults,
    "apache": KafkaWithFaults,
    "apache-v1": partial(KafkaWithFaults, kind=ApacheKafkaV1),
}


class BrokerInEachState:
    """A broker with a transaction in each state after `begin`, and users who ask about it.

    `denied`: for each further user, rights (type, name, operation) that are denied to it of all `RIGHTS`.
    """

    def __init__(self, target, directory, overrides=None, denied=None):
        self.directory = directory
        denied = denied or {}
        settings = settings_for(denied) | (overrides or {})
        self.steered = BROKERS_WITH_FAULTS[target](directory / "broker", settings)
        self.broker, self.plain, self.sasl = self.steered.broker, self.steered.plain, self.steered.sasl
        self.client = Client(self.plain)
        self.admin = Caller(int(self.plain.rpartition(":")[2]))
        self._allow(denied)

    def begin(self):
        """Begin the transactions. Return this."""
        self.identity = {name: getattr(self, f"_{name.replace('-', '_')}")(self._topic(name)) for name in STATES}
        return self

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

    def _allow(self, denied):
        allow, deny = PermissionType.ALLOW, PermissionType.DENY
        entries = [(f"User:{name}", allow, *right) for name in (ALL_RIGHTS, ONE_DENIED, *denied) for right in RIGHTS]
        entries += [
            (f"User:{READ_ALONE}", allow, ResourceType.TOPIC, f"topic-{name}", AclOperation.READ) for name in STATES
        ]
        entries.append((f"User:{ONE_DENIED}", deny, ResourceType.TRANSACTIONAL_ID, DENIED_ID, AclOperation.DESCRIBE))
        entries += [(f"User:{name}", deny, *right) for name, rights in denied.items() for right in rights]
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

    def properties_of(self, user):
        """Return the path of a user's properties for `--command-config`."""
        config = self.directory / f"{user}.properties"
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={LOGIN} required username="{user}" password="{PASSWORD}";\n'
        )
        return config

    def ask(self, user, *words):
        """(exit code, the JSON, all that was said) of `ottla txn` as a user."""
        told = ["-b", self.sasl, "--command-config", str(self.properties_of(user)), "--format", "json"]
        result = CliRunner().invoke(main, ["txn", *words, *told])
        assert result.exit_code in (0, 1, 2) and result.stdout, result.output
        return result.exit_code, json.loads(result.stdout), result.output

    def standing(self, user, name):
        """The verdict of `ottla txn why` on the transaction of a state, and what it prints."""
        _, document, said = self.ask(user, "why", f"topic-{name}", "0")
        (row,) = document["open transactions"]
        return row["standing"], said


def run_remedy(command):
    """Run `ottla txn abort` or `ottla txn fence`, and agree to it."""
    program, *words = shlex.split(command)
    assert program == "ottla"
    result = CliRunner().invoke(main, [*words[:2], "--yes", *words[2:]])
    assert (result.exit_code, result.stderr) == (0, ""), result.output
