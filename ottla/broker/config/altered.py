"""Changes of the configs of a topic, a broker or a group, and their results. pure

Source: `ConfigurationControlManager.incrementalAlterConfigResource` and `legacyAlterConfigResource` of Kafka 4.3.1;
`ConfigAdminManager.prepareIncrementalConfigs`; KIP-339.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from itertools import islice
from typing import Final, NamedTuple

from ottla.broker.config.broker import Config
from ottla.broker.config.consumer_groups import dynamic_timeout_problem, group_config_problem
from ottla.broker.config.dynamic import DYNAMIC_OPTIONS, dynamic_problem
from ottla.broker.config.kept import GROUP_OPTIONS
from ottla.broker.config.option import Kind, Option
from ottla.broker.config.topic import TOPIC_OPTIONS, topic_config_problem
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests.frames import MAX_ENTRIES


class Operation(IntEnum):
    """The operation on a config (`AlterConfigOp.OpType`)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """A config and the operation on it. The value of DELETE is ignored."""

    name: str
    operation: Operation
    value: str | None


class Altered(NamedTuple):
    """The configs with a new value (None: the own value is removed), or the reason why none changes."""

    values: dict[str, str | None]
    problem: str = ""
    error: ErrorCode = ErrorCode.NONE


class Family(NamedTuple):
    """The configs of one kind of resource: the known options, the check of values with its error code, and whether the
    check refuses unknown names."""

    options: Mapping[str, Option]
    problem: Callable[[Mapping[str, str]], str]
    error: ErrorCode
    is_closed: bool = True


TOPIC_FAMILY: Final = Family(
    {option.key: option for option in TOPIC_OPTIONS}, topic_config_problem, ErrorCode.INVALID_CONFIG
)


def broker_family(config: Config) -> Family:
    """Return the configs of a broker with this configuration."""

    def problem(given: Mapping[str, str]) -> str:
        return dynamic_problem(given) or dynamic_timeout_problem(given, config)

    return Family(DYNAMIC_OPTIONS, problem, ErrorCode.INVALID_REQUEST, is_closed=False)


def group_family(config: Config) -> Family:
    """Return the configs of a group of a broker with this configuration."""
    return Family(GROUP_OPTIONS, lambda own: group_config_problem(own, config), ErrorCode.INVALID_CONFIG)


def alter(family: Family, own: Mapping[str, str], changes: Iterable[Change]) -> Altered:
    """Apply `changes` to a resource's `own` configs. The result has only configs whose value changes."""
    values: dict[str, str | None] = {}
    for name, operation, value in changes:
        if len(values) > _most(family, own):
            break
        if operation is Operation.SET:
            values[name] = value
        elif operation is Operation.DELETE:
            if name in own:
                values[name] = None
        else:
            option = family.options.get(name)
            if option is None or option.kind is not Kind.LIST:
                problem = f"Can't {operation.name} to key {name} because its type is not LIST."
                return Altered({}, problem, ErrorCode.INVALID_CONFIG)
            values[name] = _list_after(option, own.get(name), operation, value or "")
    return _check(family, own, values)


def replace(family: Family, own: Mapping[str, str], given: Mapping[str, str]) -> Altered:
    """Give a resource exactly the configs in `given`. Others get their inherited value."""
    some = dict(islice(given.items(), _most(family, own) + 1))
    return _check(family, own, {name: None for name in own if name not in given} | some)


def _most(family: Family, own: Mapping[str, str]) -> int:
    """Return the most configs that can be altered. Among more, one is unknown, so the rest is not checked."""
    return len(family.options) + len(own) if family.is_closed else MAX_ENTRIES


def _list_after(option: Option, own: str | None, operation: Operation, value: str) -> str:
    """Return a list with items appended or removed. Without an own value it starts from the option's default, not
    from the broker's value (`KafkaConfigSchema.getDefault`)."""
    items = [item for item in (option.default if own is None else own).split(",") if item]
    for item in value.split(","):
        if operation is Operation.SUBTRACT:
            if item in items:
                items.remove(item)
        elif item not in items:
            items.append(item)
    return ",".join(items)


def _check(family: Family, own: Mapping[str, str], values: dict[str, str | None]) -> Altered:
    altered = {name: value for name, value in values.items() if value != own.get(name)}
    # A log directory of Kafka's may hold configs of features that Ottla lacks: they must not prevent other changes.
    after = {name: value for name, value in own.items() if name in family.options} | altered
    problem = family.problem({name: value for name, value in after.items() if value is not None})
    return Altered({}, problem, family.error) if problem else Altered(altered)
