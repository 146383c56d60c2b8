"""The cells of tests/authorization, played over the wire: who asks logs in, and entries are made for each."""

import time
import uuid

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from ottla.testkit.in_memory.wire import message
from ottla.wire.connection import BlockingConnection
from tests.authorization.grants import SUPER_USERS, entries_of
from tests.authorization.guarded_broker import fill_ids, furnish
from tests.timeout import EVENT_TIMEOUT_S

HOST = "127.0.0.1"
PASSWORD = "secret"
MAX_TIMEOUT_MS = 900_000
ANSWER_S = 20.0
NO_ANSWER = "no answer"
NAMES = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission_type")
ANY = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
ANY |= {"resource_name_filter": None, "principal_filter": None, "host_filter": None}


def properties(port, everyone):
    """Return the properties of an Apache Kafka with two listeners: one without a login, for a super user, and one with
    PLAIN."""
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in ("alice", "bob", "root"))
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{port + 1},SASL://{HOST}:{port + 2}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port},SASL://{HOST}:{port + 2}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f"{login} required {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": ";".join(("User:ANONYMOUS", *SUPER_USERS)),
        "log.retention.ms": "-1",  # what is furnished is from another year
        "unstable.api.versions.enable": "true",
        "transaction.two.phase.commit.enable": "true",
        "allow.everyone.if.no.acl.found": str(everyone).lower(),
    }


class Caller:
    """A connection with the methods that `furnish` calls on a broker in memory. A user logs in with PLAIN."""

    def __init__(self, port, user=None, timeout_s=EVENT_TIMEOUT_S):
        self._connection = BlockingConnection(HOST, port, timeout_s=timeout_s)
        if user is not None:
            self.call(K.SASL_HANDSHAKE, 1, mechanism="PLAIN")
            token = f"\0{user}\0{PASSWORD}".encode()
            reply = self.call(K.SASL_AUTHENTICATE, 1, auth_bytes=token)
            assert reply.error_code == 0, reply.error_message

    def call(self, api_key, version, **fields):
        return self._connection.send(message(api_key, version, **fields), version=version)

    def call_when_ready(self, api_key, version, **fields):
        until = time.monotonic() + EVENT_TIMEOUT_S
        while (reply := self.call(api_key, version, **fields)).error_code:
            assert E(reply.error_code).retriable and time.monotonic() < until, E(reply.error_code)
            time.sleep(0.1)
        return reply

    def create_topic(self, name, partitions=1):
        row = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
        reply = self.call(K.CREATE_TOPICS, 5, topics=[row], timeout_ms=30_000, validate_only=False)
        assert reply.topics[0].error_code == 0, reply.topics[0].error_message
        until = time.monotonic() + EVENT_TIMEOUT_S
        while E(self.topic(name).error_code) is not E.NONE:
            assert time.monotonic() < until
            time.sleep(0.05)

    def topic(self, name):
        fields = {"topics": [{"name": name, "topic_id": None}], "allow_auto_topic_creation": False}
        return self.call(K.METADATA, 12, **fields, include_topic_authorized_operations=False).topics[0]

    def close(self):
        self._connection.close()


class RemoteBroker:
    """As `tests.authorization.guarded_broker.GuardedBroker`, on a broker at these ports."""

    def __init__(self, plaintext_port, sasl_port):
        self.port, self._port = plaintext_port, sasl_port
        self.admin = Caller(plaintext_port)
        self._callers = {}
        self._entries = set()
        furnish(self.admin, MAX_TIMEOUT_MS)

    def play(self, cell, way):
        """Return the part of the answer that shows whether the caller had the right, or None if the broker closed the
        connection."""
        if cell.before is not None:
            key, version, fields = cell.before
            self.admin.call(key, version, **fields)
        self._enforce({_key_of(entry) for entry in entries_of(cell, way, HOST)})
        try:
            caller = self._caller(way.principal)
            reply = caller.call(cell.api_key, cell.version, **fill_ids(cell.fields, self.id_of))
        except (ConnectionError, TimeoutError) as error:
            self._callers.pop(way.principal).close()
            return NO_ANSWER if isinstance(error, TimeoutError) else None
        return cell.read(reply)

    def ask(self, question, principal, entries):
        """Return the reply to the question of this client under these entries."""
        self._enforce({_key_of(entry) for entry in entries})
        return self._caller(principal).call(question.api_key, question.version, **fill_ids(question.fields, self.id_of))

    def close(self):
        for caller in (self.admin, *self._callers.values()):
            caller.close()

    def _enforce(self, wanted):
        """Let there be these entries, and wait until the broker decides by them."""
        gone, new = self._entries - wanted, wanted - self._entries
        if gone:
            filters = [dict(zip(_FILTERED, entry, strict=True)) for entry in gone]
            reply = self.admin.call(K.DELETE_ACLS, 2, filters=filters)
            assert {row.error_code for row in reply.filter_results} == {0}
        if new:
            rows = [dict(zip(_CREATED, entry, strict=True)) for entry in new]
            reply = self.admin.call(K.CREATE_ACLS, 2, creations=rows)
            assert {row.error_code for row in reply.results} == {0}, [row.error_message for row in reply.results]
        self._entries = wanted
        until = time.monotonic() + EVENT_TIMEOUT_S
        while (gone or new) and self._there() != wanted:
            assert time.monotonic() < until, (wanted, self._there())

    def _there(self):
        reply = self.admin.call(K.DESCRIBE_ACLS, 2, **ANY)
        return {
            (*(each.resource_type, each.resource_name, each.pattern_type), acl.principal, acl.host, *_says(acl))
            for each in reply.resources
            for acl in each.acls
        }

    def id_of(self, topic):
        """Return the id of the topic."""
        found = self.admin.topic(topic).topic_id
        return found if isinstance(found, uuid.UUID) else uuid.UUID(bytes=found)

    def _caller(self, principal):
        if principal not in self._callers:
            self._callers[principal] = Caller(self._port, principal.partition(":")[2], ANSWER_S)
        return self._callers[principal]


_CREATED = ("resource_type", "resource_name", "resource_pattern_type", *NAMES[3:])
_FILTERED = (
    *("resource_type_filter", "resource_name_filter", "pattern_type_filter", "principal_filter", "host_filter"),
    *("operation", "permission_type"),
)


def _key_of(entry):
    where = int(entry.resource_type), entry.name, int(entry.pattern)
    return (*where, entry.principal, entry.host, int(entry.operation), int(entry.permission))


def plain(answer):
    """Without the difference between no words and none."""
    if isinstance(answer, tuple | list):
        return type(answer)(map(plain, answer))
    return answer or None if isinstance(answer, str) else answer


def _says(acl):
    return acl.operation, acl.permission_type
