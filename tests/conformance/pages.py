"""A broker whose pages in kafka-ui and Redpanda Console have something to show, and the calls that these make.

The applications themselves do not run. Their calls were read from their sources and are made by the client libraries
that they use (KafkaUiPages.java, go/console/main.go). Record what Apache Kafka 4.3.1 answers:

    PYTHONPATH=.:tests/conformance python tests/conformance/pages.py
"""

import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

from clients import HERE, eventually, java_command, start_client
from open_transactions import Client
from targets import ApacheKafka, Ottla

from ottla.protocol.acls import AclOperation as Op
from ottla.protocol.acls import PatternType, PermissionType, ResourceType
from ottla.protocol.api_keys import ApiKey as K
from ottla.testkit.in_memory.wire import message
from tests.logins import make_user

RECORDED = HERE.parent / "data" / "pages"
TOPIC = "orders"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class WithoutEligibleReplicas(ApacheKafka):
    """A Kafka that does not set `min.insync.replicas` of the cluster by itself, as Ottla."""

    features = ("eligible.leader.replicas.version=0",)


TARGETS = {"ottla": Ottla, "apache": WithoutEligibleReplicas}


class BrokerWithContent:
    """A broker with topics, groups with and without a lag, an aborted and an open transaction, an entry, quotas, and a
    user."""

    def __init__(self, target, folder):
        self.broker = TARGETS[target](folder / target, SETTINGS).start()
        self._open = ExitStack()
        self._open.callback(self.broker.stop)
        self._client = start_client("confluent-kafka", self.broker.bootstrap, folder)
        self._open.callback(self._client.close)
        try:
            self._write()
            self._secure()
        except BaseException:
            self.close()
            raise

    def close(self):
        self._open.close()

    def _write(self):
        client = self._client
        client.create_topics([TOPIC], 2)
        client.create_topics(["balances"], 1, **{"cleanup.policy": "compact", "retention.ms": "1000000"})
        with client.producer() as producer:
            producer.send(TOPIC, "one", "two", key="account", headers=[("source", b"test")])
            self._consume("billing", "classic").close()
            producer.send(TOPIC, "three")
        with client.producer("settled") as producer:
            producer.begin()
            producer.send(TOPIC, "aborted", partition=1)
            producer.abort()
            producer.begin()
            producer.send(TOPIC, "committed", partition=1)
            producer.commit()
        opened = self._open.enter_context(client.producer("opened"))
        opened.begin()
        opened.send(TOPIC, "open", partition=1)
        for group, protocol in (("auditors", "classic"), ("reporters", "consumer")):
            self._open.callback(self._consume(group, protocol).close)

    def _consume(self, group, protocol):
        """Return a member that has both partitions. It has committed all that a reader of committed records sees."""
        member = self._client.member(group, [TOPIC], protocol=protocol)
        eventually(lambda: len(member.assignment()) == 2, f"the member of {group} is assigned")
        read = self._client.read([TOPIC])
        ends = [max((each.offset + 1 for each in read if each.partition == index), default=None) for index in (0, 1)]

        def is_committed():
            offsets = self._client.fetch_offsets(group, TOPIC, (0, 1))
            return all(end is None or (offset or 0) >= end for offset, end in zip(offsets, ends, strict=True))

        eventually(is_committed, f"{group} has committed {ends}")
        return member

    def _secure(self):
        admin = Client(self.broker.bootstrap)
        who = {"principal": "User:alice", "host": "*", "operation": Op.READ, "permission_type": PermissionType.ALLOW}
        what = {
            "resource_type": ResourceType.TOPIC,
            "resource_name": TOPIC,
            "resource_pattern_type": PatternType.LITERAL,
        }
        made = admin.connection.send(message(K.CREATE_ACLS, 3, creations=[who | what]), version=3)
        assert [row.error_code for row in made.results] == [0]
        ops = [{"key": "producer_byte_rate", "value": 1e6, "remove": False}]
        entities = (
            [{"entity_type": "user", "entity_name": "alice"}],
            [{"entity_type": "client-id", "entity_name": None}],
        )
        entries = [{"entity": entity, "ops": ops} for entity in entities]
        made = admin.connection.send(message(K.ALTER_CLIENT_QUOTAS, 1, entries=entries, validate_only=False), version=1)
        assert [row.error_code for row in made.entries] == [0, 0]
        admin.close()
        make_user(self.broker.bootstrap)


def play_kafka_ui(broker, _folder):
    """Return the lines of the program that makes the calls of kafka-ui."""
    return _lines(java_command("KafkaUiPages", broker.bootstrap, TOPIC))


def play_console(broker, folder):
    """Return the lines of the program that makes the calls of Redpanda Console."""
    program = str(folder / "console")
    subprocess.run(["go", "build", "-o", program, "./console"], cwd=HERE / "drivers" / "go", check=True, timeout=600)
    return _lines([program, broker.bootstrap, TOPIC])


def _lines(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


PLAYS = {"kafka-ui": play_kafka_ui, "console": play_console}


def main():
    with tempfile.TemporaryDirectory() as name:
        content = BrokerWithContent("apache", Path(name))
        try:
            for application, play in PLAYS.items():
                lines = play(content.broker, Path(name))
                (RECORDED / f"{application}.txt").write_text("".join(f"{line}\n" for line in lines))
        finally:
            content.close()


if __name__ == "__main__":
    main()
