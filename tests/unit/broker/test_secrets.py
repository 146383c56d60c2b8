"""Credentials of clients and secrets of the broker appear in no log and on no port."""

import json
import logging
from base64 import b64encode

import pytest

from ottla.admin.about import own_routes
from ottla.admin.metrics.page import MetricsPage
from ottla.admin.routes import Router
from ottla.admin.serving import picture_routes
from ottla.broker.config import describe_broker, describe_cluster
from ottla.broker.config.dynamic import in_force
from ottla.broker.config.load import from_flags, from_properties, load_config
from ottla.cli.logs import JsonFormatter, KafkaFormatter
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.internal_topics.metadata_records import BROKER_RESOURCE
from ottla.testkit.control.cluster import ClusterControl
from ottla.testkit.control.dispatch import Steering
from ottla.testkit.control.journal import Journal
from ottla.testkit.control.journal_routes import journal_routes
from ottla.testkit.faults.plan import Plan
from ottla.testkit.history.events import events
from ottla.testkit.in_memory.wire import message
from tests.api.login_clients import Guest, lone_with_logins
from tests.unit.admin.web import Web, request

SECRET = "hunter2-and-more"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
KEY = "listener.name.plaintext.ssl.keystore.password"
ASKED = (
    *("/v1/broker", "/v1/overview", "/v1/transactions", "/v1/partitions", "/v1/groups", "/v1/refusals", "/v1/history"),
    *("/v1/export", "/metrics", "/v1/journal", "/v1/loglevel"),
)
STREAMS = ("/v1/trace?verbose=true", "/v1/events")


def is_told(text):
    """Return whether the text contains a secret, plainly or as bytes are written in JSON."""
    data = text if isinstance(text, bytes) else text.encode()
    cut = (b64encode(SECRET.encode()[at:])[:-4] for at in range(3))
    return any(each in data for each in (SECRET.encode(), *cut))


class Watched(Web):
    """A broker in memory that is observed by every admin route, stream and journal."""

    def __init__(self):
        super().__init__()
        parts = self.broker.assembly.broker
        clock = self.broker.clock
        self.journal = Journal(clock)
        routes = [
            *own_routes(parts, clock, 0, "/data"),
            *picture_routes(parts, clock),
            MetricsPage(parts, clock, 0).route,
            *journal_routes(self.journal, self.broker.turns),
        ]
        self.router = Router(routes)
        plan = Plan()
        cluster = ClusterControl(self.broker.assembly, plan)
        Steering(self.broker.assembly.dispatchers[0], parts, cluster, plan, self.journal, clock)
        self.streams = []
        for path in STREAMS:
            self.streams.append(self.connect())
            self.streams[-1].send(request("GET", path))

    def read_outputs(self):
        """Yield the name and the content of each of these outputs."""
        self.broker.advance(3_000)
        for path in ASKED:
            visitor = self.connect()
            visitor.send(request("GET", path))
            self.broker.advance(1_000)
            assert visitor.transport.written.startswith(b"HTTP/1.1 200 "), path
            yield path, bytes(visitor.transport.written)
        for path, stream in zip(STREAMS, self.streams, strict=True):
            assert stream.transport.written
            yield path, bytes(stream.transport.written)
        yield "a history", "".join(json.dumps(each) for each in events(self.journal.since(0)))


def altering(key, version, *configs):
    how = {"config_operation": 0} if key is K.INCREMENTAL_ALTER_CONFIGS else {}
    rows = [{"name": name, "value": value} | how for name, value in configs]
    resource = {"resource_type": BROKER_RESOURCE, "resource_name": "1", "configs": rows}
    return key, version, {"resources": [resource], "validate_only": False}


SALTED = {"name": "alice", "mechanism": 1, "iterations": 4_096}
REQUESTS = [
    altering(K.INCREMENTAL_ALTER_CONFIGS, 1, (KEY, SECRET), ("plugin.password", SECRET)),
    altering(K.ALTER_CONFIGS, 2, (KEY, SECRET)),
    altering(K.INCREMENTAL_ALTER_CONFIGS, 1, ("ssl.keystore.password", SECRET)),
    altering(K.INCREMENTAL_ALTER_CONFIGS, 1, ("sasl.jaas.config", SECRET)),
    (
        K.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        {
            "deletions": [],
            "upsertions": [SALTED | {"salt": SECRET.encode(), "salted_password": SECRET.encode().ljust(32)}],
        },
    ),
    (K.SASL_AUTHENTICATE, 2, {"auth_bytes": f"\0alice\0{SECRET}".encode()}),
    (K.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None}),
    (K.DESCRIBE_CONFIGS, 4, {"resources": [], "include_synonyms": True}),
]


@pytest.mark.parametrize(("key", "version", "fields"), REQUESTS, ids=lambda value: getattr(value, "name", None))
def test_admin_routes_journal_and_log_contain_no_secret(key, version, fields, caplog):
    caplog.set_level(logging.DEBUG, logger="ottla")
    watched = Watched()
    watched.broker.serve(message(key, version, **fields), version)
    for where, shown in watched.read_outputs():
        assert not is_told(shown), where
    for formatter in (JsonFormatter(), KafkaFormatter()):
        assert not any(is_told(formatter.format(record)) for record in caplog.records)
    assert [entry.request[1] for entry in watched.journal.since(0)] == [key]


def test_a_sasl_login_without_headers_is_left_out_of_the_journal():
    """This login looks like a request: the first bytes of the password are where a header has a length."""
    password = "!" + 4 * SECRET
    broker = lone_with_logins({"plain.sasl.jaas.config": f'{MODULE} user_charlie="{password}";'})
    journal = Journal(broker.clock)
    parts = broker.assembly.broker
    plan = Plan()
    cluster = ClusterControl(broker.assembly, plan)
    Steering(broker.assembly.dispatchers[0], parts, cluster, plan, journal, broker.clock)
    guest = Guest(broker)
    guest.handshake(version=0)
    guest.frame(f"\0charlie\0{password}".encode())
    assert guest.principal == "User:charlie"
    assert [entry.request[1] for entry in journal.since(0)] == [K.SASL_HANDSHAKE]


def test_the_journal_keeps_a_config_value_that_is_not_secret():
    watched = Watched()
    key, version, fields = altering(K.INCREMENTAL_ALTER_CONFIGS, 1, ("log.retention.ms", "60000"))
    watched.broker.call(key, version, **fields)
    (entry,) = watched.journal.since(0)
    assert b"60000" in entry.request


def test_describe_configs_returns_no_secret_that_was_set():
    watched = Watched()
    parts = watched.broker.assembly.broker
    parts.tls_problem = lambda config: ""
    key, version, fields = altering(K.INCREMENTAL_ALTER_CONFIGS, 1, (KEY, SECRET), ("plugin.password", SECRET))
    (row,) = watched.broker.call(key, version, **fields).responses
    assert row.error_code == E.NONE
    asked = [{"resource_type": BROKER_RESOURCE, "resource_name": "1", "configuration_keys": None}]
    frame = watched.broker.serve(message(K.DESCRIBE_CONFIGS, 4, resources=asked, include_synonyms=True), 4)
    assert KEY.encode() in frame and not is_told(bytes(frame))


def test_secrets_set_in_a_kafka_directory_are_hidden_in_descriptions():
    """Kafka sets these for a listener only. They stay hidden also where they are set without one."""
    config = in_force(load_config().config, 1, {"": {"ssl.key.password": SECRET}, "1": {"ssl.keystore.key": SECRET}})
    told = [*describe_broker(config), *describe_cluster(config)]
    assert {"ssl.key.password", "ssl.keystore.key"} <= {entry.name for entry in told}
    assert not is_told(repr(told)) and not is_told(repr(config))


def test_configuration_repr_notes_and_description_hide_secrets():
    text = "\n".join(
        f"{key}={SECRET}"
        for key in (
            "ssl.keystore.password",
            "ssl.key.password",
            "ssl.truststore.password",
            "listener.name.outside.ssl.key.password",
            "delegation.token.secret.key",
            "plugin.password",
        )
    )
    jaas = f'{MODULE} user_alice="{SECRET}";'
    text += f"\nlistener.name.outside.plain.sasl.jaas.config={jaas}\nsasl.jaas.config={jaas}"
    loaded = load_config(from_properties(text, "server.properties"))
    assert not is_told(repr(loaded) + "".join(loaded.notes()) + repr([*describe_broker(loaded.config)]))


@pytest.mark.parametrize("key", ["listener.name.outside.plain.sasl.jaas.config", "add.scram"])
def test_a_value_with_a_secret_that_cannot_be_is_refused_without_it(key):
    with pytest.raises(ValueError, match="hidden") as refused:
        load_config(from_properties(f"{key}={SECRET}", "server.properties"))
    assert not is_told(str(refused.value))


@pytest.mark.parametrize(
    "key", ["ssl.keystore.pasword", "ssl.keystore.keys", "listener.name.outside.ssl.key.passwrd", "my.secret"]
)
def test_a_flag_that_may_have_meant_a_secret_is_refused_without_its_value(key):
    with pytest.raises(ValueError, match="there is no such option") as refused:
        load_config(from_flags([f"{key}={SECRET}"]))
    assert key in str(refused.value) and not is_told(str(refused.value))
