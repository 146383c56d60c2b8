"""Bounds of the timeouts of groups of the consumer protocol. The texts are Kafka's."""

import pytest

from ottla.broker.config import Config, ConfigError, from_flags, load_config, out_of_bounds, timeouts_of
from ottla.broker.config.altered import Change, Operation, alter, broker_family, group_family
from ottla.broker.config.consumer_groups import group_config_problem
from ottla.broker.config.dynamic import in_force
from ottla.protocol.errors import ErrorCode as E

SESSION, HEARTBEAT, ASSIGNMENT = (
    f"consumer.{name}.ms" for name in ("session.timeout", "heartbeat.interval", "assignment.interval")
)
QUICK = Config(
    group_consumer_min_session_timeout_ms=500,
    group_consumer_session_timeout_ms=1_000,
    group_consumer_max_session_timeout_ms=9_000,
    group_consumer_min_heartbeat_interval_ms=50,
    group_consumer_heartbeat_interval_ms=100,
    group_consumer_max_heartbeat_interval_ms=3_000,
    group_consumer_min_assignment_interval_ms=10,
    group_consumer_max_assignment_interval_ms=1_000,
)


AT_LEAST, AT_MOST = "greater than or equal to", "less than or equal to"


def option(name):
    return f"group.consumer.{name}.ms"


@pytest.mark.parametrize(
    ("given", "refused", "relation", "other", "bound"),
    [
        ({"heartbeat.interval": 4_999}, "heartbeat.interval", AT_LEAST, "min.heartbeat.interval", 5_000),
        ({"heartbeat.interval": 15_001}, "heartbeat.interval", AT_MOST, "max.heartbeat.interval", 15_000),
        ({"max.heartbeat.interval": 4_000}, "max.heartbeat.interval", AT_LEAST, "min.heartbeat.interval", 5_000),
        ({"session.timeout": 44_999}, "session.timeout", AT_LEAST, "min.session.timeout", 45_000),
        ({"session.timeout": 60_001}, "session.timeout", AT_MOST, "max.session.timeout", 60_000),
        ({"min.session.timeout": 60_001}, "max.session.timeout", AT_LEAST, "min.session.timeout", 60_001),
        (
            {"heartbeat.interval": 45_000, "max.heartbeat.interval": 45_000},
            *("heartbeat.interval", "less than", "session.timeout", 45_000),
        ),
        ({"assignment.interval": 15_001}, "assignment.interval", AT_MOST, "max.assignment.interval", 15_000),
        ({"min.assignment.interval": 1_001}, "assignment.interval", AT_LEAST, "min.assignment.interval", 1_001),
        ({"min.assignment.interval": 15_001}, "max.assignment.interval", AT_LEAST, "min.assignment.interval", 15_001),
    ],
)
def test_options_out_of_bounds_are_refused_at_the_start(given, refused, relation, other, bound):
    flags = from_flags(f"{option(name)}={value}" for name, value in given.items())
    with pytest.raises(ConfigError) as raised:
        load_config(flags)
    assert str(raised.value).startswith(f"{option(refused)}=")
    assert str(raised.value).endswith(f": must be {relation} {option(other)} ({bound})")


def test_the_bounds_themselves_are_allowed():
    flags = from_flags(
        f"{option(name)}={value}"
        for name, value in {
            "min.heartbeat.interval": 100,
            "heartbeat.interval": 100,
            "max.heartbeat.interval": 100,
            "min.session.timeout": 101,
            "session.timeout": 101,
            "max.session.timeout": 101,
            "min.assignment.interval": 15_000,
            "assignment.interval": 15_000,
        }.items()
    )
    assert timeouts_of(load_config(flags).config, {}) == (101, 100, 15_000)


@pytest.mark.parametrize(
    ("own", "problem"),
    [
        ({SESSION: "500", HEARTBEAT: "499", ASSIGNMENT: "1000"}, ""),
        ({SESSION: "499"}, f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms"),
        ({SESSION: "9001"}, f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms"),
        ({HEARTBEAT: "49"}, f"{HEARTBEAT} must be greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        ({HEARTBEAT: "3001"}, f"{HEARTBEAT} must be less than or equal to group.consumer.max.heartbeat.interval.ms"),
        ({ASSIGNMENT: "9"}, f"{ASSIGNMENT} must be greater than or equal to group.consumer.min.assignment.interval.ms"),
        ({ASSIGNMENT: "1001"}, f"{ASSIGNMENT} must be less than or equal to group.consumer.max.assignment.interval.ms"),
        ({SESSION: "500", HEARTBEAT: "500"}, f"{SESSION} must be greater than {HEARTBEAT}"),
        ({HEARTBEAT: "1000"}, f"{SESSION} must be greater than {HEARTBEAT}"),
        (
            {SESSION: "1", HEARTBEAT: "1"},
            f"{HEARTBEAT} must be greater than or equal to group.consumer.min.heartbeat.interval.ms",
        ),
        ({SESSION: "1", "no.such.config": "1"}, "Unknown group config name: no.such.config"),
    ],
)
def test_configs_of_a_group_have_the_bounds_of_its_broker(own, problem):
    assert group_config_problem(own, QUICK) == problem
    changes = [Change(name, Operation.SET, value) for name, value in own.items()]
    altered = alter(group_family(QUICK), {}, changes)
    assert (altered.problem, altered.error) == (problem, E.INVALID_CONFIG if problem else E.NONE)


@pytest.mark.parametrize(("value", "relation", "bound"), [("9", "greater", "min"), ("1001", "less", "max")])
def test_an_interval_out_of_bounds_is_refused_while_the_broker_runs(value, relation, bound):
    key = option("assignment.interval")
    altered = alter(broker_family(QUICK), {}, [Change(key, Operation.SET, value)])
    text = f"{key} must be {relation} than or equal to {option(f'{bound}.assignment.interval')}"
    assert (altered.problem, altered.error) == (text, E.INVALID_REQUEST)
    fixed = alter(broker_family(QUICK), {}, [Change("group.consumer.max.session.timeout.ms", Operation.SET, "1")])
    assert fixed.problem == "Cannot update these configs dynamically: [group.consumer.max.session.timeout.ms]"


def test_stored_configs_that_are_out_of_bounds_are_used_as_the_nearest_bound():
    assert timeouts_of(QUICK, {}) == (1_000, 100, 1_000)
    assert timeouts_of(QUICK, {SESSION: "499", HEARTBEAT: "3001", ASSIGNMENT: "9"}) == (500, 3_000, 10)
    assert timeouts_of(QUICK, {SESSION: "9001", HEARTBEAT: "49", ASSIGNMENT: "1001"}) == (9_000, 50, 1_000)
    assert [*out_of_bounds(QUICK, {SESSION: "499", HEARTBEAT: "3000", ASSIGNMENT: "9"})] == [
        (SESSION, 499, 500),
        (ASSIGNMENT, 9, 10),
    ]


def test_a_stored_text_that_is_no_number_is_not_used():
    assert timeouts_of(QUICK, {SESSION: "soon", HEARTBEAT: "-5"}) == (1_000, 100, 1_000)
    assert [*out_of_bounds(QUICK, {SESSION: "soon"})] == []


@pytest.mark.parametrize(("stored", "used"), [("9", 10), ("500", 500), ("1001", 1_000)])
def test_a_stored_interval_of_the_broker_is_used_within_its_bounds(stored, used):
    config = in_force(QUICK, 1, {"": {option("assignment.interval"): stored}})
    assert config.group_consumer_assignment_interval_ms == used
