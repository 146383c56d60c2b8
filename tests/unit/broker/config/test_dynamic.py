"""Configs of a running broker: the ones that can change, their values, and the ones that are shown."""

import pytest

from ottla.broker.config import (
    BROKER_OPTIONS,
    Config,
    describe_broker,
    describe_cluster,
    describe_group,
    describe_topic,
)
from ottla.broker.config.altered import Change, Operation, alter, broker_family, group_family
from ottla.broker.config.consumer_groups import group_config_problem
from ottla.broker.config.dynamic import CHANGEABLE, DYNAMIC_OPTIONS, ConfigInForce, dynamic_problem, in_force
from ottla.broker.config.kept import GROUP_OPTIONS, KEPT_OPTIONS
from ottla.broker.config.option import Origin, value_text
from ottla.protocol.errors import ErrorCode as E

CONFIGS = {"1": {"log.retention.ms": "5000"}, "": {"log.retention.ms": "6000", "message.max.bytes": "70"}}


def test_broker_configs_override_cluster_configs_and_static_ones():
    static = Config(message_max_bytes=80, num_partitions=3)
    config = in_force(static, 1, CONFIGS)
    assert (config.log_retention_ms, config.message_max_bytes, config.num_partitions) == (5000, 70, 3)
    assert in_force(static, 2, CONFIGS).log_retention_ms == 6000
    assert in_force(static, 1, {}) == static


def test_an_unsupported_dynamic_value_is_described_but_not_in_force():
    config = in_force(Config(), 1, {"1": {"log.retention.ms": "-5", "listeners": "PLAINTEXT://:1", "x.y": "z"}})
    assert (config.log_retention_ms, config.listeners) == (Config().log_retention_ms, Config().listeners)
    shown = {entry.name: entry.value for entry in describe_broker(config)}
    assert shown["log.retention.ms"] == "-5"


def test_the_value_of_an_unknown_config_is_hidden_as_sensitive():
    config = in_force(Config(), 1, {"1": {"my.password": "secret"}, "": {"my.password": "other"}})
    (entry,) = (entry for entry in describe_broker(config) if entry.name == "my.password")
    assert (entry.value, entry.sensitive, entry.source) == (None, True, 2)
    assert "secret" not in repr((entry, describe_cluster(config))) and "other" not in repr(describe_cluster(config))


def test_the_config_in_force_is_made_once_for_the_same_configs():
    known = ConfigInForce(Config())
    configs = {"1": {"log.retention.ms": "5000"}}
    first = known.of(1, configs)
    assert known.of(1, {"1": {"log.retention.ms": "5000"}}) is first
    configs["1"]["log.retention.ms"] = "6000"
    assert known.of(1, configs).log_retention_ms == 6000


def test_every_level_is_described_the_one_in_force_first():
    static = Config(log_retention_ms=9, origins={"log.retention.ms": Origin("file")})
    config = in_force(static, 1, CONFIGS | {"1": {"log.retention.ms": "5000", "num.io.threads": "4"}})
    default = value_text(CHANGEABLE["log.retention.ms"].default)
    levels = (("5000", 2), ("6000", 3), ("9", 4), (default, 5))
    shown = {entry.name: entry for entry in describe_broker(config)}
    found = shown["log.retention.ms"]
    assert (found.value, found.source, found.read_only) == ("5000", 2, False)
    assert found.synonyms == tuple(("log.retention.ms", value, source) for value, source in levels)
    assert (shown["num.io.threads"].value, shown["num.io.threads"].source) == ("4", 2)
    assert shown["node.id"].read_only and shown["listeners"].read_only
    topic = {entry.name: entry for entry in describe_topic(config, {"retention.ms": "3"})}
    in_hours = ("log.retention.hours", "168", 5)
    assert topic["retention.ms"].synonyms == (("retention.ms", "3", 1), *found.synonyms[:-1], in_hours)
    assert (topic["segment.ms"].value, topic["segment.ms"].source, topic["segment.ms"].synonyms) == (default, 5, ())
    assert topic["preallocate"].synonyms == (("log.preallocate", "false", 5),)
    assert (topic["max.message.bytes"].value, topic["max.message.bytes"].source) == ("70", 3)
    assert [(one.name, one.value, one.source) for one in describe_cluster(config)] == [
        ("log.retention.ms", "6000", 3),
        ("message.max.bytes", "70", 3),
    ]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"log.dirs": "/x", "node.id": "7"}, "Cannot update these configs dynamically: [log.dirs, node.id]"),
        ({"log.retention.hours": "7"}, "Cannot update these configs dynamically: [log.retention.hours]"),
        ({"max.request.body.bytes": "7000"}, "Cannot update these configs dynamically: [max.request.body.bytes]"),
        ({"listeners": "PLAINTEXT://:9"}, "Cannot update these configs dynamically: [listeners]"),
        ({"listener.name.plaintext.ssl.client.auth": "required"}, "Cannot update these configs dynamically"),
        ({"ssl.keystore.location": "/x"}, "only per-listener using the listener prefix: [ssl.keystore.location]"),
        ({"log.retention.ms": "abc"}, "Invalid value abc for configuration log.retention.ms: must be a whole number"),
        ({"max.connections.per.ip.overrides": "here"}, "'max.connections.per.ip.overrides': HOST:NUMBER"),
        ({"max.connections.per.ip.overrides": "localhost:3"}, "does not appear to be an IPv4 or IPv6 address"),
        ({"num.io.threads": "0"}, "Invalid value 0 for configuration num.io.threads: must be a whole number from 1"),
    ],
)
def test_an_invalid_dynamic_change_gets_invalid_request(given, words):
    assert words in dynamic_problem(given)
    altered = alter(broker_family(Config()), {}, [Change(name, Operation.SET, value) for name, value in given.items()])
    assert (altered.values, altered.error) == ({}, E.INVALID_REQUEST)


def test_configs_that_kafka_can_change_dynamically_are_accepted():
    given = {"log.retention.ms": "1", "num.io.threads": "9", "remote.log.reader.threads": "3", "my.plugin.speed": "x"}
    assert dynamic_problem(given) == ""
    change = [Change("log.cleanup.policy", Operation.APPEND, "compact")]
    assert alter(broker_family(Config()), {}, change).values == {"log.cleanup.policy": "delete,compact"}
    number = alter(broker_family(Config()), {}, [Change("message.max.bytes", Operation.APPEND, "7")])
    assert (number.values, number.error) == ({}, E.INVALID_CONFIG)


def test_every_dynamic_config_takes_its_own_default():
    for key, option in (DYNAMIC_OPTIONS | GROUP_OPTIONS).items():
        assert value_text(option.parse(value_text(option.default))) == value_text(option.default), key
    assert not {option.key for option in BROKER_OPTIONS} & {option.key for option in KEPT_OPTIONS}


@pytest.mark.parametrize(
    ("name", "value", "is_one"),
    [
        ("consumer.session.timeout.ms", "45000", True),
        ("consumer.session.timeout.ms", "44999", False),
        ("consumer.heartbeat.interval.ms", "15001", False),
        ("share.auto.offset.reset", "by_duration:PT1H30M", True),
        ("share.auto.offset.reset", "by_duration:P", False),
        ("share.auto.offset.reset", "sometimes", False),
        ("streams.num.standby.replicas", "2", True),
        ("retention.ms", "2", False),
    ],
)
def test_configs_of_groups_have_kafkas_ranges(name, value, is_one):
    assert (group_config_problem({name: value}, Config()) == "") is is_one
    altered = alter(group_family(Config()), {}, [Change(name, Operation.SET, value)])
    assert altered.error == (E.NONE if is_one else E.INVALID_CONFIG)


def test_configs_of_a_group_are_described_above_the_brokers():
    shown = {entry.name: entry for entry in describe_group(Config(), {"consumer.session.timeout.ms": "50000"})}
    assert len(shown) == 17
    assert shown["consumer.session.timeout.ms"].synonyms == (
        ("consumer.session.timeout.ms", "50000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    )
    assert shown["consumer.heartbeat.interval.ms"].source == 5
