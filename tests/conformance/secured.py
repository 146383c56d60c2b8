"""Brokers with TLS, logins and an authorizer, and the client of their administrator."""

import time

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ACL, ACLOperation, ACLPermissionType, NewTopic, ResourcePattern, ResourceType
from kafka.admin import ACLResourcePatternType as PatternType
from targets import ApacheKafka, OttlaByOptions, free_port

from tests.logins import PASSWORD, USER, make_user
from tests.timeout import EVENT_TIMEOUT_S

HOST = "localhost"
MECHANISM = "SCRAM-SHA-512"
ALLOWED = {
    ResourceType.TOPIC: (ACLOperation.READ, ACLOperation.WRITE, ACLOperation.DESCRIBE),
    ResourceType.TRANSACTIONAL_ID: (ACLOperation.WRITE, ACLOperation.DESCRIBE),
}


def properties(certificates):
    """Return what both brokers have: a client without a login is a super user, and alice has what entries allow."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.broker),
        "sasl.enabled.mechanisms": MECHANISM,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


class SecuredOttla(OttlaByOptions):
    """Ottla with a listener for each protocol; `addresses` has the address of each."""

    def __init__(self, directory, certificates):
        listeners = ",".join(f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", "SSL", "SASL_SSL"))
        super().__init__(directory, {"listeners": listeners, **properties(certificates)})


class SecuredKafka(ApacheKafka):
    """Apache Kafka with a listener for each protocol; `addresses` has the address of each."""

    def __init__(self, directory, certificates):
        port = free_port(span=4)
        ports = {"PLAINTEXT": port, "SASL_SSL": port + 2, "SSL": port + 3}
        self.addresses = {name: f"{HOST}:{number}" for name, number in ports.items()}
        own = ",".join(f"{name}://{address}" for name, address in self.addresses.items())
        kinds = ",".join(f"{name}:{name}" for name in ports)
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        of_listeners = {
            "listeners": f"{own},CONTROLLER://{HOST}:{port + 1}",
            "advertised.listeners": own,
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{kinds}",
            f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": scram,
        }
        super().__init__(directory, of_listeners | properties(certificates), port=port)


SECURED = {"ottla": SecuredOttla, "apache": SecuredKafka}


def security_of(protocol, certificates):
    """Return what a driver takes to connect with this protocol."""
    user = {"mechanism": MECHANISM, "username": USER, "password": PASSWORD} if protocol == "SASL_SSL" else {}
    return {"mechanism": None, "username": None, "password": None, "ca": str(certificates.ca)} | user


class Administrator:
    """A client with all rights. It makes the user, topics and entries."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        make_user(bootstrap)
        self._client = KafkaAdminClient(bootstrap_servers=bootstrap)

    def create_topic(self, name):
        self._client.create_topics([NewTopic(name, 1, 1)])
        until = time.monotonic() + EVENT_TIMEOUT_S
        while name not in self._client.list_topics():
            assert time.monotonic() < until
            time.sleep(0.05)

    def allow(self, user, prefix):
        """Allow a user to read and write topics and to have transactional ids of a prefix, and to read in any group."""
        rows = [
            (operation, ResourcePattern(kind, prefix, PatternType.PREFIXED))
            for kind, operations in ALLOWED.items()
            for operation in operations
        ]
        rows.append((ACLOperation.READ, ResourcePattern(ResourceType.GROUP, "*", PatternType.LITERAL)))
        self._client.create_acls(
            [ACL(f"User:{user}", "*", operation, ACLPermissionType.ALLOW, pattern) for operation, pattern in rows]
        )

    def read(self, topic):
        """Return the values of a topic of one partition."""
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest")
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        values, end = [], consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            values += [record.value for rows in consumer.poll(500).values() for record in rows]
        consumer.close()
        return values

    def close(self):
        self._client.close()
