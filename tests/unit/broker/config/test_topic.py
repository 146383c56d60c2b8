from pathlib import Path

import pytest

from ottla.broker.config import (
    BROKER_OPTIONS,
    TOPIC_OPTIONS,
    Config,
    describe_broker,
    describe_topic,
    from_flags,
    load_config,
    topic_config_problem,
    topic_values,
)
from ottla.broker.config.broker import OPTION_OF_KEY
from ottla.broker.config.unknown import IGNORED_KEYS

KAFKA_NAMES = frozenset((Path(__file__).parent / "kafka_names.txt").read_text().split())
"""`KafkaConfig.configNames` of Apache Kafka 4.3.1."""

OURS = {
    "add.scram",
    "cluster.id",
    "log.dir.failure.exit",
    "group.member.max.metadata.bytes",
    "group.member.max.protocols",
    "admin.show.records",
    "max.decompressed.message.bytes",
    "max.request.body.bytes",
    "max.open.log.files",
    "producer.id.manager",
    "producer.sequence.reuse.refuse",
    "sasl.oauthbearer.allow.unverified.audience",
    "sasl.oauthbearer.allow.unverified.issuer",
    "transaction.markers.wait.ms",
    "transaction.sequence.reuse.refuse",
    "transaction.version",
}
OF_AUTHORIZER = {"allow.everyone.if.no.acl.found", "super.users"}
"""Kafka's, but of its StandardAuthorizer: the broker hands them over and knows none of them."""

OF_KAFKA_3 = {"zookeeper.connect"}
"""Kafka's, up to 3.9."""


def broker(*flags):
    return load_config(from_flags(flags)).config


def entry_of(entries, name):
    (entry,) = [entry for entry in entries if entry.name == name]
    return entry


def test_every_option_is_of_kafka_or_described_as_ottlas_own():
    keys = {option.key for option in BROKER_OPTIONS}
    assert keys - KAFKA_NAMES - OF_AUTHORIZER - OF_KAFKA_3 == OURS
    assert {option.key for option in BROKER_OPTIONS if option.meaning.startswith("Ottla's own")} == OURS


def test_every_option_of_kafka_is_either_a_field_or_ignored():
    assert IGNORED_KEYS | (OPTION_OF_KEY.keys() - OURS - OF_AUTHORIZER - OF_KAFKA_3) == KAFKA_NAMES
    assert not IGNORED_KEYS & OPTION_OF_KEY.keys()


def test_every_default_is_in_its_own_range():
    for option in (*BROKER_OPTIONS, *TOPIC_OPTIONS):
        if not isinstance(option.default, tuple):
            assert option.parse(str(option.default)) == option.default, option.key


def test_a_topic_takes_the_brokers_values_until_it_sets_its_own():
    config = broker("log.segment.bytes=2097152", "message.max.bytes=5000")
    in_force = topic_values(config, {"max.message.bytes": "6000", "cleanup.policy": "compact"})
    assert (in_force["segment_bytes"], in_force["max_message_bytes"]) == (2097152, 6000)
    assert (in_force["cleanup_policy"], in_force["retention_ms"]) == ("compact", 604800000)


def test_configs_of_features_that_are_not_here_do_not_stop_a_directory_from_loading():
    assert topic_values(Config(), {"remote.storage.enable": "true"}) == topic_values(Config(), {})


@pytest.mark.parametrize(
    ("own", "problem"),
    [
        ({}, ""),
        ({"segment.bytes": "1048576", "retention.ms": "-1", "cleanup.policy": "compact, delete"}, ""),
        ({"no.such": "1"}, "Unknown topic config name: no.such"),
        ({"segment.bytes": None}, "Null value not supported for topic configs: segment.bytes"),
        (
            {"segment.bytes": "100"},
            "Invalid value 100 for configuration segment.bytes: must be a whole number from 1048576 to 2147483647",
        ),
        (
            {"cleanup.policy": "burn"},
            "Invalid value burn for configuration cleanup.policy: must be a list of compact, delete",
        ),
        (
            {"min.cleanable.dirty.ratio": "nan"},
            "Invalid value nan for configuration min.cleanable.dirty.ratio: must be a number from 0 to 1",
        ),
        (
            {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"},
            "conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (4)",
        ),
    ],
)
def test_topic_configs_are_checked_and_the_problem_is_named(own, problem):
    assert topic_config_problem(own) == problem


@pytest.mark.parametrize(
    ("key", "text", "sound"),
    [
        ("cleanup.policy", "", True),
        ("cleanup.policy", "compact,compact", True),
        ("cleanup.policy", "delete,burn", False),
        ("segment.bytes", " 1048576 ", True),
        ("segment.bytes", "+1048576", True),
        ("segment.bytes", "1_048_576", False),
        ("segment.bytes", "x", False),
        ("segment.ms", "99999999999999999999", False),
        ("retention.ms", "-1", True),
        ("retention.ms", "-2", False),
        ("retention.bytes", "-5", True),
        ("compression.gzip.level", "0", False),
        ("compression.gzip.level", "-1", True),
        ("compression.type", "gzipp", False),
        ("preallocate", "yes", False),
        ("preallocate", "TRUE", True),
        ("message.timestamp.type", "createtime", False),
        ("min.cleanable.dirty.ratio", "1.5", False),
        ("leader.replication.throttled.replicas", "*", True),
    ],
)
def test_a_topic_config_is_accepted_where_kafka_accepts_it(key, text, sound):
    """The expected results are those of `LogConfig.validate` of Kafka 4.3.1."""
    assert (topic_config_problem({key: text}) == "") == sound


def test_a_config_without_effect_is_kept_and_described_as_such():
    entry = entry_of(describe_topic(Config(), {"flush.ms": "5"}), "flush.ms")
    assert (entry.value, entry.source) == ("5", 1)
    assert entry.meaning == "The time after which the log is synced. Kept and shown, not acted on."
    assert "not acted on" not in entry_of(describe_topic(Config(), {}), "segment.bytes").meaning
    assert entry.meaning.endswith("Kept and shown, not acted on.")


def test_a_topic_config_is_described_with_all_its_sources():
    config = broker("log.segment.bytes=2097152")
    own = entry_of(describe_topic(config, {"segment.bytes": "3000000"}), "segment.bytes")
    assert own.synonyms == (
        ("segment.bytes", "3000000", 1),
        ("log.segment.bytes", "2097152", 4),
        ("log.segment.bytes", "1073741824", 5),
    )
    assert value_and_source(describe_topic(config, {}), "segment.bytes") == ("2097152", 4)
    assert value_and_source(describe_topic(config, {}), "segment.ms") == ("604800000", 5)


def value_and_source(entries, name):
    entry = entry_of(entries, name)
    return entry.value, entry.source


def test_a_broker_option_is_described_with_its_origin():
    entries = [*describe_broker(broker("listeners=PLAINTEXT://127.0.0.1:0", "auto.create.topics.enable=FALSE"))]
    assert len(entries) == len(BROKER_OPTIONS)
    assert value_and_source(entries, "listeners") == ("PLAINTEXT://127.0.0.1:0", 4)
    assert value_and_source(entries, "auto.create.topics.enable") == ("false", 4)
    assert value_and_source(entries, "num.partitions") == ("1", 5)
