"""What a change asks of a topic's configs, and what becomes of them. pure

Source: `ConfigurationControlManager.incrementalAlterConfigResource` and `legacyAlterConfigResource` of Kafka 4.3.1;
KIP-339.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.broker.config.option import Kind, Option
from ottla.broker.config.topic import TOPIC_OPTIONS, topic_config_problem


class Operation(IntEnum):
    """What to do with one config (`AlterConfigOp.OpType`)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One config and what is asked of it; DELETE has no value, whatever the client sent."""

    name: str
    operation: Operation
    value: str | None


class Altered(NamedTuple):
    """The configs that get another value (None: no value of their own any more), or why none does."""

    values: dict[str, str | None]
    problem: str = ""


_BY_KEY = {option.key: option for option in TOPIC_OPTIONS}


def alter_topic(own: Mapping[str, str], changes: Iterable[Change]) -> Altered:
    """Apply `changes` to a topic's `own` configs; what keeps its value is not among the altered."""
    values: dict[str, str | None] = {}
    for name, operation, value in changes:
        if operation is Operation.SET:
            values[name] = value
        elif operation is Operation.DELETE:
            values[name] = None
        else:
            option = _BY_KEY.get(name)
            if option is None or option.kind is not Kind.LIST:
                return Altered({}, f"Can't {operation.name} to key {name} because its type is not LIST.")
            values[name] = _list_after(option, own.get(name), operation, value or "")
    return _checked(own, values)


def replace_topic(own: Mapping[str, str], given: Mapping[str, str]) -> Altered:
    """Give a topic exactly the configs in `given`: others go back to what it inherits."""
    return _checked(own, {name: None for name in own if name not in given} | dict(given))


def _list_after(option: Option, own: str | None, operation: Operation, value: str) -> str:
    """A list with items appended, or without them. It begins as the default where the topic has none of its own: what
    the broker sets is not looked at (`KafkaConfigSchema.getDefault`)."""
    items = [item for item in (option.default if own is None else own).split(",") if item]
    for item in value.split(","):
        if operation is Operation.SUBTRACT:
            if item in items:
                items.remove(item)
        elif item not in items:
            items.append(item)
    return ",".join(items)


def _checked(own: Mapping[str, str], values: dict[str, str | None]) -> Altered:
    altered = {name: value for name, value in values.items() if value != own.get(name)}
    # Configs of features that are not here may stand in a log directory of Kafka's: no reason to refuse others.
    after = {name: value for name, value in own.items() if name in _BY_KEY} | altered
    problem = topic_config_problem({name: value for name, value in after.items() if value is not None})
    return Altered({}, problem) if problem else Altered(altered)
