"""Configs of a topic after a client changes some of them, or replaces all."""

import pytest

from ottla.broker.config import Config
from ottla.broker.config.altered import TOPIC_FAMILY, Change, Operation, alter, broker_family, replace
from ottla.protocol.errors import ErrorCode

SET, DELETE, APPEND, SUBTRACT = Operation


def alter_topic(own, *changes):
    return alter(TOPIC_FAMILY, own, [Change(*change) for change in changes])


def put(own, given):
    return replace(TOPIC_FAMILY, own, given)


def test_set_and_delete_name_only_what_gets_another_value():
    own = {"retention.ms": "1000", "segment.ms": "5", "flush.messages": "9"}
    found = alter_topic(
        own,
        ("retention.ms", SET, "2000"),
        ("segment.ms", DELETE, None),
        ("flush.messages", SET, "9"),
        ("x.y", DELETE, ""),
    )
    assert found[:2] == ({"retention.ms": "2000", "segment.ms": None}, "")


def test_append_begins_with_the_default_and_adds_nothing_twice():
    assert alter_topic({}, ("cleanup.policy", APPEND, "compact,delete")).values == {"cleanup.policy": "delete,compact"}
    own = {"cleanup.policy": "compact"}
    assert alter_topic(own, ("cleanup.policy", APPEND, "compact")).values == {}


def test_subtract_takes_what_is_there_and_may_leave_nothing():
    own = {"cleanup.policy": "compact,delete"}
    assert alter_topic(own, ("cleanup.policy", SUBTRACT, "delete")).values == {"cleanup.policy": "compact"}
    assert alter_topic(own, ("cleanup.policy", SUBTRACT, "delete,compact")).values == {"cleanup.policy": ""}
    assert alter_topic({"cleanup.policy": "compact"}, ("cleanup.policy", SUBTRACT, "delete")).values == {}


@pytest.mark.parametrize("name", ["retention.ms", "no.such.config"])
@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_only_lists_are_appended_to(name, operation):
    problem = f"Can't {operation.name} to key {name} because its type is not LIST."
    assert alter_topic({}, ("segment.ms", SET, "7"), (name, operation, "5")) == ({}, problem, ErrorCode.INVALID_CONFIG)


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("no.such.config", "1", "Unknown topic config name"),
        ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms"),
        ("compression.type", "brotli", "Invalid value brotli"),
        ("cleanup.policy", "vanish", "Invalid value vanish"),
        ("min.compaction.lag.ms", "10", "conflict topic config setting"),
    ],
)
def test_one_bad_value_changes_nothing(name, value, word):
    found = alter_topic({"max.compaction.lag.ms": "5"}, ("segment.ms", SET, "7"), (name, SET, value))
    assert found.values == {}
    assert found.problem.startswith(word)


def test_stored_configs_known_only_to_kafka_are_kept_and_can_be_deleted():
    own = {"remote.storage.enable": "false", "retention.ms": "1"}
    assert alter_topic(own, ("retention.ms", SET, "2")).values == {"retention.ms": "2"}
    assert alter_topic(own, ("remote.storage.enable", DELETE, None)).values == {"remote.storage.enable": None}
    assert alter_topic(own, ("remote.storage.enable", SET, "true")).problem.startswith("Unknown topic config name")


def test_replacement_takes_back_what_it_does_not_name():
    own = {"retention.ms": "1000", "segment.ms": "5"}
    found = put(own, {"segment.ms": "5", "flush.messages": "1"})
    assert found.values == {"retention.ms": None, "flush.messages": "1"}
    assert put(own, {}).values == {"retention.ms": None, "segment.ms": None}
    assert put(own, {"segment.ms": "x"}).values == {}


def test_the_first_of_many_unknown_config_names_is_reported():
    names = ["retention.ms", *(f"x{number}" for number in range(1_000))]
    assert "x0" in alter_topic({}, *((name, SET, "1") for name in names)).problem
    assert "x0" in put({}, dict.fromkeys(names, "1")).problem


def test_configs_that_are_not_there_are_deleted_however_many_they_are():
    changes = [(f"x{number}", DELETE, None) for number in range(1_000)]
    assert alter_topic({}, *changes, ("retention.ms", SET, "1"))[:2] == ({"retention.ms": "1"}, "")


def test_a_broker_keeps_any_number_of_configs_of_plugins():
    given = {f"plugin.{number}": "1" for number in range(1_000)}
    assert replace(broker_family(Config()), {}, given)[:2] == (given, "")
    changes = [Change(name, SET, value) for name, value in given.items()]
    assert alter(broker_family(Config()), {}, changes)[:2] == (given, "")
