"""Bounds of the timeouts of groups of the consumer protocol, and the values in force for a group. pure

The broker's options `group.consumer.min...` and `.max...` bound its own values and the configs of its groups. They may
have changed since a group's config was set: then the nearest bound is used in its place.

Source: `GroupCoordinatorConfig`, `GroupConfig.validateValues` and `evaluateValues` of Kafka 4.3.1.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ottla.broker.config.broker import Config
from ottla.broker.config.kept import GROUP_OPTIONS

_AT_LEAST: Final = "greater than or equal to"
_AT_MOST: Final = "less than or equal to"


class Bounded(NamedTuple):
    """A timeout of groups: the name of its config, the broker's value, and the bounds."""

    name: str
    value: int
    least: int
    most: int

    @property
    def option(self) -> str:
        """The broker's option."""
        return f"group.{self.name}"

    @property
    def min_option(self) -> str:
        return self.option.replace("group.consumer.", "group.consumer.min.")

    @property
    def max_option(self) -> str:
        return self.option.replace("group.consumer.", "group.consumer.max.")

    def find_violation(self, value: int) -> tuple[str, str, int] | None:
        """Return the relation that a value must have, to which option, and the value of that option; None if the value
        is within the bounds."""
        if value < self.least:
            return _AT_LEAST, self.min_option, self.least
        if value > self.most:
            return _AT_MOST, self.max_option, self.most
        return None

    def clamp(self, value: int) -> int:
        """Return the nearest value within the bounds."""
        return min(max(value, self.least), self.most)


class ConsumerGroupTimeouts(NamedTuple):
    """The values in force for one group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


def bounded_timeouts(config: Config) -> tuple[Bounded, Bounded, Bounded]:
    """Return session timeout, heartbeat interval and assignment interval."""
    return (
        Bounded(
            "consumer.session.timeout.ms",
            config.group_consumer_session_timeout_ms,
            config.group_consumer_min_session_timeout_ms,
            config.group_consumer_max_session_timeout_ms,
        ),
        Bounded(
            "consumer.heartbeat.interval.ms",
            config.group_consumer_heartbeat_interval_ms,
            config.group_consumer_min_heartbeat_interval_ms,
            config.group_consumer_max_heartbeat_interval_ms,
        ),
        Bounded(
            "consumer.assignment.interval.ms",
            config.group_consumer_assignment_interval_ms,
            config.group_consumer_min_assignment_interval_ms,
            config.group_consumer_max_assignment_interval_ms,
        ),
    )


def timeout_problem(config: Config) -> tuple[str, str] | None:
    """Return the first option whose value the other options do not allow, and what it must be."""
    session, heartbeat, assignment = bounded_timeouts(config)
    for timeout in (heartbeat, session, assignment):
        if timeout is assignment and heartbeat.value >= session.value:
            return heartbeat.option, f"less than {session.option} ({session.value})"
        if timeout.most < timeout.least:
            return timeout.max_option, f"{_AT_LEAST} {timeout.min_option} ({timeout.least})"
        problem = timeout.find_violation(timeout.value)
        if problem is not None:
            relation, option, bound = problem
            return timeout.option, f"{relation} {option} ({bound})"
    return None


def dynamic_timeout_problem(given: Mapping[str, str], config: Config) -> str:
    """Return the reason why a running broker cannot have these valid configs, or an empty string."""
    assignment = bounded_timeouts(config)[2]
    text = given.get(assignment.option)
    problem = None if text is None else assignment.find_violation(int(text))
    return "" if problem is None else f"{assignment.option} must be {problem[0]} {problem[1]}"


def group_config_problem(own: Mapping[str, str], config: Config) -> str:
    """Return the reason why these cannot be a group's configs (INVALID_CONFIG), or an empty string."""
    for key, given in own.items():
        option = GROUP_OPTIONS.get(key)
        problem = f"Unknown group config name: {key}" if option is None else option.detect_invalid(given)
        if problem:
            return problem
    session, heartbeat, assignment = bounded_timeouts(config)
    for timeout in (heartbeat, session, assignment):
        out = timeout.find_violation(int(own[timeout.name])) if timeout.name in own else None
        if out is not None:
            return f"{timeout.name} must be {out[0]} {out[1]}"
    if int(own.get(session.name, session.value)) <= int(own.get(heartbeat.name, heartbeat.value)):
        return f"{session.name} must be greater than {heartbeat.name}"
    return ""


def timeouts_of(config: Config, own: Mapping[str, str]) -> ConsumerGroupTimeouts:
    """Return the values in force for a group with these configs."""
    return ConsumerGroupTimeouts(*(_in_force(timeout, own) for timeout in bounded_timeouts(config)))


def out_of_bounds(config: Config, own: Mapping[str, str]) -> Iterator[tuple[str, int, int]]:
    """Yield (config, its value, the value in force) of each config of a group that is out of bounds."""
    for timeout in bounded_timeouts(config):
        value = _own_value(timeout, own)
        if value is not None and timeout.clamp(value) != value:
            yield timeout.name, value, timeout.clamp(value)


def _in_force(timeout: Bounded, own: Mapping[str, str]) -> int:
    value = _own_value(timeout, own)
    return timeout.value if value is None else timeout.clamp(value)


def _own_value(timeout: Bounded, own: Mapping[str, str]) -> int | None:
    """Return the number in a group's config; None without one, and for a text that a log directory may hold."""
    text = own.get(timeout.name)
    if text is None or GROUP_OPTIONS[timeout.name].detect_invalid(text):
        return None
    return int(text)
