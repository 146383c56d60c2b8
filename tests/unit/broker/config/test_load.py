import sys

import pytest

from ottla.broker.config import (
    Config,
    ConfigError,
    Listener,
    from_environment,
    from_flags,
    from_properties,
    load_config,
)
from ottla.broker.config.principals import parse_super_users

# What Kafka 4.3.1 ships as config/server.properties, without its comments.
KAFKA_SERVER_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
PROTOCOL_RANGE = "NAME:PROTOCOL, comma separated, with a protocol of PLAINTEXT, SASL_PLAINTEXT, SASL_SSL, SSL"


def load(flags=(), environment=None, properties=""):
    return load_config(
        from_flags(flags), from_environment(environment or {}), from_properties(properties, "server.properties")
    )


def refusal(*flags):
    with pytest.raises(ConfigError) as caught:
        load(flags)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_an_empty_configuration_has_the_defaults_and_no_notes():
    assert load().config == Config()
    assert load().notes() == []
    assert str(load().config.origin("num.partitions")) == "default"


def test_a_flag_overrides_the_environment_which_overrides_the_file():
    properties = "\n\nnum.partitions=2\nmessage.max.bytes=2000\ngroup.max.size=20"
    environment = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_MESSAGE_MAX_BYTES": "3000"}
    config = load(["num.partitions=4"], environment, properties).config
    assert (config.num_partitions, config.message_max_bytes, config.group_max_size) == (4, 3000, 20)
    assert str(config.origin("num.partitions")) == "flag --override"
    assert str(config.origin("message.max.bytes")) == "environment KAFKA_MESSAGE_MAX_BYTES"
    assert str(config.origin("group.max.size")) == "file server.properties:5"


def test_the_last_of_two_equal_flags_counts():
    assert load(["num.partitions=4", "num.partitions=5"]).config.num_partitions == 5


def test_hours_count_as_milliseconds_and_yield_to_them_in_one_source():
    assert load(["log.roll.hours=2"]).config.log_roll_ms == 7_200_000
    assert load(["log.roll.ms=5", "log.roll.hours=2"]).config.log_roll_ms == 5


def test_a_stronger_source_decides_under_any_of_an_options_names():
    assert load(["log.dir=mine"], properties="log.dirs=theirs").config.log_dirs == "mine"
    assert load(["broker.id=7"], properties="node.id=1").config.node_id == 7


def test_an_environment_of_kafkas_container_image_is_read_as_it_reads_it():
    environment = {
        "KAFKA_NODE_ID": "3",
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://localhost:9093",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:9092",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_AUTO_LEADER_REBALANCE_ENABLE": "true",
        "KAFKA_LOG_SEGMENT_BYTES": "2097152",
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "KAFKA_OPTS": "-Da=b",
        "KAFKA_JVM_PERFORMANCE_OPTS": "-XX:+UseG1GC",
        "KAFKA_LOG4J_LOGGERS": "kafka=WARN",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL": "WARN",
        "KAFKA_JMX_PORT": "9999",
        "KAFKA_HOME": "/opt/kafka",
        "KAFKA_VERSION": "4.3.1",
        "KAFKA_LISTENER_NAME_SASL__SSL_OAUTH___X": "1",
        "PATH": "/bin",
    }
    result = load(environment=environment)
    assert result.config.node_id == 3
    assert result.config.log_segment_bytes == 2097152
    assert result.config.listeners == (Listener("PLAINTEXT", "0.0.0.0", 9092),)
    assert result.config.advertised_listeners == (Listener("PLAINTEXT", "broker", 9092),)
    assert result.config.offsets_topic_replication_factor == 1 and result.ignored == ("auto.leader.rebalance.enable",)
    assert result.unknown == ("listener.name.sasl_ssl.oauth-x",)


def test_kafkas_own_server_properties_starts_it():
    result = load(properties=KAFKA_SERVER_PROPERTIES)
    assert result.config.listeners == (Listener("PLAINTEXT", "", 9092),)
    assert result.config.advertised_listeners == (Listener("PLAINTEXT", "localhost", 9092),)
    assert result.config.log_dirs == "/tmp/kraft-combined-logs"
    assert result.unknown == ()
    (note,) = result.notes()
    assert note.startswith("Known to Kafka, ignored by Ottla: controller.quorum.bootstrap.servers, ")
    assert "num.io.threads" in note and "listeners" not in result.ignored


@pytest.mark.parametrize(
    ("flags", "retention_ms"),
    [
        (["log.retention.hours=2"], 7_200_000),
        (["log.retention.minutes=3", "log.retention.hours=2"], 180_000),
        (["log.retention.hours=2", "log.retention.ms=5", "log.retention.minutes=3"], 5),
        (["log.retention.hours=-1"], -1),
        (["log.retention.minutes=-1"], -1),
        (["log.retention.ms=-1", "log.retention.hours=2"], -1),
    ],
)
def test_retention_ms_overrides_minutes_and_minutes_override_hours(flags, retention_ms):
    assert load(flags).config.log_retention_ms == retention_ms


def test_unknown_options_are_listed_in_a_note_of_their_own():
    environment = {"KAFKA_RETENTION_MS": "5", "KAFKA_LISTENER_NAME_INSIDE_SSL_PROTOCOL": "TLSv1.3"}
    properties = "no.such.option=1\nnum.io.threads=8\nlog.segment.byte=5"
    assert load(environment=environment, properties=properties).notes() == [
        "Known to Kafka, ignored by Ottla: listener.name.inside.ssl.protocol, num.io.threads",
        "Unknown options, ignored: log.segment.byte (did you mean log.segment.bytes?), no.such.option, "
        "retention.ms (did you mean log.retention.ms?)",
    ]


@pytest.mark.parametrize(
    ("flag", "advice"),
    [
        ("num.partition=4", "did you mean num.partitions?"),
        ("NUM_PARTITIONS=4", "did you mean num.partitions?"),
        ("advertised.listener=PLAINTEXT://a:1", "did you mean advertised.listeners?"),
        ("log.retention.hour=4", "did you mean log.retention.hours?"),
        ("cleanup.policy=compact", "did you mean log.cleanup.policy?"),
        ("num.io.thread=4", "did you mean num.io.threads?"),
        ("colour=blue", "`ottla configs` lists them"),
        ("listener.name.inside.colour=blue", "`ottla configs` lists them"),
    ],
)
def test_a_flag_that_names_no_option_is_refused_with_what_was_meant(flag, advice):
    assert refusal(flag) == f"--override {flag}: there is no such option; {advice}"


@pytest.mark.parametrize(
    "key",
    [
        "num.io.threads",
        "listener.name.inside.gssapi.sasl.jaas.config",
        "listener.name.inside.max.connections",
    ],
)
def test_a_flag_known_only_to_kafka_is_ignored(key):
    assert load([f"{key}=1"]).ignored == (key,)


@pytest.mark.parametrize(
    ("flag", "must_be"),
    [
        ("log.segment.bytes=1048575", "a whole number from 1048576 to 2147483647"),
        ("log.flush.interval.messages=0", "a whole number from 1 to 9223372036854775807"),
        ("log.segment.bytes=2147483648", "a whole number from 1048576 to 2147483647"),
        ("num.partitions=0", "a whole number from 1 to 2147483647"),
        ("num.partitions=many", "a whole number from 1 to 2147483647"),
        ("num.partitions=1_0", "a whole number from 1 to 2147483647"),
        ("num.partitions=", "a whole number from 1 to 2147483647"),
        ("log.roll.hours=0", "a whole number from 1 to 9223372036854775807"),
        ("auto.create.topics.enable=yes", "true or false"),
        ("log.message.timestamp.type=Never", "one of CreateTime, LogAppendTime"),
        ("listeners=127.0.0.1:9092", "NAME://HOST:PORT with a port from 0 to 65535, comma separated"),
        ("listeners=PLAINTEXT://127.0.0.1:65536", "NAME://HOST:PORT with a port from 0 to 65535, comma separated"),
        ("listeners=PLAINTEXT://a:1,PLAINTEXT://b:2", "listeners with different names"),
        ("listeners=INSIDE://a:1", "listeners with a protocol in listener.security.protocol.map, and INSIDE has none"),
        (
            "listeners=PLAINTEXT://a:1,INSIDE://b:2",
            "listeners with a protocol in listener.security.protocol.map, and INSIDE has none",
        ),
        ("listeners=", "at least one listener besides those of the controller"),
        (
            "listeners=PLAINTEXT://a:1,SSL://b:1",
            "listeners with different ports, or an IPv4 and an IPv6 address on one (1 occurs twice)",
        ),
        ("listener.security.protocol.map=PLAINTEXT:TLS", PROTOCOL_RANGE),
        ("listener.security.protocol.map=PLAINTEXT", PROTOCOL_RANGE),
        ("inter.broker.listener.name=INSIDE", "an advertised listener (PLAINTEXT)"),
        ("cluster.id=not an id", "up to 64 letters, digits, - and _ (or +, / and =)"),
        ("log.dirs=a,b", "one directory"),
        ("log.dirs=", "one directory"),
        ("process.roles=controller", "broker, or broker,controller"),
        ("advertised.listeners=OUTSIDE://a:1", "listeners named in `listeners` (PLAINTEXT)"),
        (
            "advertised.listeners=PLAINTEXT://0.0.0.0:1",
            "NAME://HOST:PORT with a port from 0 to 65535, comma separated, with a host that clients can reach",
        ),
        ("group.min.session.timeout.ms=1800001", "at most 1800000 (group.max.session.timeout.ms)"),
    ],
)
def test_an_impossible_value_is_one_line_with_key_value_and_range(flag, must_be):
    assert refusal(flag) == f"{flag} (flag --override): must be {must_be}"


def test_a_refusal_names_the_place_that_decided():
    with pytest.raises(ConfigError, match=r"^num\.partitions=x \(environment KAFKA_NUM_PARTITIONS\): must be "):
        load(environment={"KAFKA_NUM_PARTITIONS": "x"})


def test_an_overridden_value_is_not_checked():
    assert load(["num.partitions=2"], properties="num.partitions=x").config.num_partitions == 2


def test_a_listener_by_any_name_is_served_when_the_map_makes_it_plaintext():
    flags = ["listeners=INSIDE://[::1]:2", "listener.security.protocol.map=inside:plaintext,OUTSIDE:SSL"]
    config = load(flags).config
    assert config.listeners == (Listener("INSIDE", "::1", 2),)
    assert str(config.listeners[0]) == "INSIDE://[::1]:2"


INSIDE_AND_OUTSIDE = "listener.security.protocol.map=inside:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:SASL_SSL"


@pytest.mark.parametrize(
    ("flags", "listeners", "told"),
    [
        ("listeners=PLAINTEXT://a:1", ["PLAINTEXT://a:1"], ["PLAINTEXT://a:1"]),
        (
            "listeners=PLAINTEXT://0.0.0.0:1 advertised.listeners=PLAINTEXT://b:2",
            ["PLAINTEXT://0.0.0.0:1"],
            ["PLAINTEXT://b:2"],
        ),
        (
            "listeners=INSIDE://a:1,outside://[::1]:2 advertised.listeners=OUTSIDE://c:4,INSIDE://b:3",
            ["INSIDE://a:1", "OUTSIDE://[::1]:2"],
            ["INSIDE://b:3", "OUTSIDE://c:4"],
        ),
        # A listener may advertise the address of another, or none: its clients may know its address from elsewhere.
        (
            "listeners=INSIDE://a:1,OUTSIDE://:2 advertised.listeners=INSIDE://c:4,OUTSIDE://c:4",
            ["INSIDE://a:1", "OUTSIDE://:2"],
            ["INSIDE://c:4", "OUTSIDE://c:4"],
        ),
        (
            "listeners=INSIDE://a:1,OUTSIDE://0.0.0.0:2 advertised.listeners=INSIDE://:0",
            ["INSIDE://a:1", "OUTSIDE://0.0.0.0:2"],
            ["INSIDE://:0", None],
        ),
        (
            "listeners=INSIDE://a:1,CONTROLLER://:3 controller.listener.names=controller "
            "advertised.listeners=INSIDE://b:1,CONTROLLER://b:3 inter.broker.listener.name=inside",
            ["INSIDE://a:1"],
            ["INSIDE://b:1"],
        ),
        # IPv4 and IPv6 listeners may share a port. The system chooses each port 0 on its own.
        (
            "listeners=INSIDE://127.0.0.1:9092,OUTSIDE://[::1]:9092",
            ["INSIDE://127.0.0.1:9092", "OUTSIDE://[::1]:9092"],
            ["INSIDE://127.0.0.1:9092", "OUTSIDE://[::1]:9092"],
        ),
        (
            "listeners=INSIDE://a:0,OUTSIDE://a:0",
            ["INSIDE://a:0", "OUTSIDE://a:0"],
            ["INSIDE://a:0", "OUTSIDE://a:0"],
        ),
    ],
)
def test_a_listener_advertises_its_own_address_unless_configured(flags, listeners, told):
    more = [INSIDE_AND_OUTSIDE] if "INSIDE" in flags else []
    config = load([*flags.split(), *more]).config
    assert [str(listener) for listener in config.listeners] == listeners
    answers = [config.advertised_address(listener) for listener in config.listeners]
    assert [str(answer) if answer else None for answer in answers] == told


@pytest.mark.parametrize(
    ("flags", "refused"),
    [
        ("listeners=INSIDE://127.0.0.1:1,OUTSIDE://127.0.0.2:1", "listeners=.* must be listeners with different ports"),
        ("listeners=INSIDE://localhost:1,OUTSIDE://[::1]:1", "listeners=.* must be listeners with different ports"),
        ("listeners=INSIDE://a:1,CONTROLLER://b:1", "listeners=.* must be listeners with different ports"),
        ("listeners=INSIDE://a:1,inside://b:2", "listeners=.* must be listeners with different names"),
        (
            "listeners=INSIDE://a:1,PLAINTEXT://b:2",
            "listeners=.* must be listeners with a protocol in .*, and PLAINTEXT has none",
        ),
        (
            "listeners=INSIDE://a:1,CONTROLLER://b:2",
            "Listener CONTROLLER: sasl.enabled.mechanisms: GSSAPI is not supported.",
        ),
        (
            "listeners=INSIDE://a:1 controller.listener.names=INSIDE",
            "listeners=.* must be at least one listener besides those of the controller",
        ),
        (
            "listeners=INSIDE://a:1,CONTROLLER://b:2 controller.listener.names=CONTROLLER "
            "advertised.listeners=CONTROLLER://b:2",
            "advertised.listeners=.* must be at least one listener besides those of the controller",
        ),
        (
            "listeners=INSIDE://a:1,OUTSIDE://0.0.0.0:2",
            r"advertised.listeners= \(default\): must be .* a host that clients can reach, because a listener at 0",
        ),
        (
            "listeners=INSIDE://a:1,OUTSIDE://b:2 advertised.listeners=INSIDE://a:1 inter.broker.listener.name=OUTSIDE",
            r"inter.broker.listener.name=OUTSIDE .* must be an advertised listener \(INSIDE\)",
        ),
    ],
)
def test_listeners_are_held_to_kafkas_rules(flags, refused):
    with pytest.raises(ConfigError, match=f"^{refused}"):
        load([*flags.split(), INSIDE_AND_OUTSIDE])


# What an image of Kafka is started with for clients on the host and in other containers (docker/examples of Kafka).
FOR_TWO_NETWORKS = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
    "KAFKA_LISTENERS": "CONTROLLER://:29093,PLAINTEXT_HOST://:9092,PLAINTEXT://:19092",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LOG_DIRS": "/tmp/kraft-combined-logs",
}


def test_kafkas_example_for_the_host_and_other_containers_starts_it():
    result = load(environment=FOR_TWO_NETWORKS)
    assert result.config.listeners == (Listener("PLAINTEXT_HOST", "", 9092), Listener("PLAINTEXT", "", 19092))
    told = [result.config.advertised_address(listener) for listener in result.config.listeners]
    assert told == [Listener("PLAINTEXT_HOST", "localhost", 9092), Listener("PLAINTEXT", "broker", 19092)]
    assert result.unknown == ()


def test_an_address_that_no_client_can_reach_is_not_advertised():
    with pytest.raises(
        ConfigError, match=r"^advertised\.listeners= \(default\): must be .* a host that clients can reach"
    ):
        load(["listeners=PLAINTEXT://0.0.0.0:9092"])


@pytest.mark.parametrize("pair", ["num.partitions", "=3", ""])
def test_an_override_that_is_no_pair_is_refused(pair):
    assert refusal(pair) == f"--override {pair}: must be key=value"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", [("a", "1")]),
        ("  a : 1  ", [("a", "1  ")]),
        ("a 1", [("a", "1")]),
        ("a", [("a", "")]),
        ("# a=1\n! b=2\n\n \nc=3", [("c", "3")]),
        ("a=1,\\\n   2,\\\n   3\nb=4", [("a", "1,2,3"), ("b", "4")]),
        ("a=1\\\\\nb=2", [("a", "1\\"), ("b", "2")]),
        ("a\\=b=\\u00e9\\t.", [("a=b", "é\t.")]),
        ("a=1\r\nb=2\rc=3", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("a=1\\", [("a", "1")]),
        ("a==1", [("a", "=1")]),
    ],
)
def test_a_properties_file_is_read_as_java_reads_it(text, expected):
    assert [(setting.key, setting.text) for setting in from_properties(text, "f")] == expected


def test_a_continued_line_has_the_number_of_its_first_line():
    settings = from_properties("a=1\\\n2\n#\nb=3", "f")
    assert [str(setting.origin) for setting in settings] == ["file f:1", "file f:4"]


@pytest.mark.parametrize(
    ("flag", "must_be"),
    [
        (
            "authorizer.class.name=com.example.Mine",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer, or empty",
        ),
        ("super.users=alice", "TYPE:NAME (usually User:NAME), semicolon separated"),
        ("super.users=User:a;User:", "TYPE:NAME (usually User:NAME), semicolon separated"),
    ],
)
def test_an_invalid_authorizer_or_super_user_is_refused_in_one_line(flag, must_be):
    assert refusal(flag) == f"{flag} (flag --override): must be {must_be}"


def test_super_users_may_have_commas_and_colons_in_their_names():
    text = " User:CN=a,O=b:c ; User:b;; "
    config = load([f"super.users={text}"]).config
    assert parse_super_users(config.super_users) == {"User:CN=a,O=b:c", "User:b"}
    assert config.authorizer_class_name == "" and config.allow_everyone_if_no_acl_found is False


@pytest.mark.parametrize("address", ["", "/ottla", "zk:0", "zk:2181,", "zk:port", "zk:2181//ottla", "zk:2181/a/../b"])
def test_producer_ids_from_zookeeper_need_its_address(address):
    with pytest.raises(ConfigError, match=r"must be host:port,host:port/root \("):
        load(flags=["producer.id.manager=zookeeper", f"zookeeper.connect={address}"])


def test_the_address_of_zookeeper_alone_changes_nothing():
    found = load(flags=["zookeeper.connect=zk:2181"])
    assert found.config.producer_id_manager == "metadata"
    assert found.notes() == ["zookeeper.connect has no effect without producer.id.manager=zookeeper"]


def test_producer_ids_from_zookeeper_need_its_client(monkeypatch):
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(ConfigError, match=r"must be metadata, or pip install 'ottla\[zookeeper\]' before"):
        load(flags=["producer.id.manager=zookeeper", "zookeeper.connect=zk:2181/ottla"])
