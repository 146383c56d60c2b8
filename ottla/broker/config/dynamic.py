"""Dynamic configs of the broker: their names, their allowed values, and the values in force. pure

`__cluster_metadata` holds them, for one broker (by its node id) or for all of the cluster (""). The broker's own values
take precedence over the cluster's, and these over the values that the broker was started with. Source:
`DynamicBrokerConfig` of Kafka 4.3.1.
"""

import dataclasses
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Final

from ottla.broker.config.broker import BROKER_OPTIONS, OPTION_OF_KEY, Config
from ottla.broker.config.consumer_groups import bounded_timeouts
from ottla.broker.config.kept import KEPT_OPTIONS, LOGIN_OPTIONS, THROTTLE_OPTIONS
from ottla.broker.config.listener_options import LISTENER_OPTIONS, LISTENER_PREFIX, of_listener
from ottla.broker.config.listeners import parse_connections_per_ip
from ottla.broker.config.option import DYNAMIC, DYNAMIC_BROKER_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG, LISTENER, Option
from ottla.broker.config.unknown import IGNORED_KEYS

CLUSTER_RESOURCE: Final = ""
"""The name of the resource whose configs are for every broker."""

# Kafka's listeners, SASL, plugins and log directories are dynamic too.
CHANGEABLE: Final = {option.key: option for option in BROKER_OPTIONS if option.scope == DYNAMIC}
DYNAMIC_OPTIONS: Final = {option.key: option for option in (*KEPT_OPTIONS, *THROTTLE_OPTIONS)} | CHANGEABLE
_SECURITY: Final = frozenset(option.key for option in BROKER_OPTIONS if option.scope == DYNAMIC | LISTENER)
_OF_ONE_BROKER: Final = frozenset(option.key for option in LOGIN_OPTIONS)
_OVERRIDES: Final = "max.connections.per.ip.overrides"


def dynamic_problem(given: Mapping[str, str]) -> str:
    """Return the reason why these cannot be configs of a running broker (INVALID_REQUEST), or an empty string.

    An unknown name is accepted, because it may be a plugin's config.
    """
    fixed = [key for key in given if _is_fixed(key)]
    if fixed:
        return f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
    without_listener = [key for key in given if key in _SECURITY]
    if without_listener:
        return (
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"[{', '.join(without_listener)}]"
        )
    for key, text in given.items():
        option = dynamic_option(key)
        if option is not None:
            problem = _overrides_problem(text) if key == _OVERRIDES else option.detect_invalid(text, key)
            if problem:
                return problem
    return ""


def cluster_problem(given: Mapping[str, str | None]) -> str:
    """Return the reason why these cannot be configs of all brokers (INVALID_REQUEST), or an empty string."""
    named = [key for key, value in given.items() if value is not None and key in _OF_ONE_BROKER]
    if not named:
        return ""
    return f"Cannot update these configs at default cluster level, broker id must be specified: [{', '.join(named)}]"


def dynamic_option(key: str) -> Option | None:
    """Return the dynamic option of a key."""
    named = of_listener(key)
    option = DYNAMIC_OPTIONS.get(key) if named is None else LISTENER_OPTIONS.get(named[1])
    return option if option is not None and DYNAMIC in option.scope else None


def has_effect(key: str) -> bool:
    """Return whether a change of this config of a running broker changes what the broker does."""
    option = dynamic_option(key)
    return option is not None and option.acted_on


def _overrides_problem(text: str) -> str:
    """Return the reason why the text is invalid. Hosts must be IP addresses: a serving broker does not wait for a
    name lookup."""
    try:
        for host in parse_connections_per_ip(text):
            ip_address(host)
    except ValueError as error:
        return f"Error parsing configuration property 'max.connections.per.ip.overrides': {error}"
    return ""


def _is_fixed(key: str) -> bool:
    if dynamic_option(key) is not None or key in _SECURITY:
        return False
    return key in IGNORED_KEYS or key in OPTION_OF_KEY or key.startswith(LISTENER_PREFIX)


def in_force(static: Config, node_id: int, configs: Mapping[str, Mapping[str, str]]) -> Config:
    """Return the broker's static configuration with the dynamic `configs` (by resource) applied.

    An invalid value, which a log directory of Kafka's may hold, is shown but not applied. The nearest bound is applied
    in place of an assignment interval that is out of bounds.
    """
    layers = (
        (DYNAMIC_BROKER_CONFIG, dict(configs.get(str(node_id), {}))),
        (DYNAMIC_DEFAULT_BROKER_CONFIG, dict(configs.get(CLUSTER_RESOURCE, {}))),
    )
    values: dict[str, Any] = {}
    for _, layer in reversed(layers):
        for key, text in layer.items():
            option = CHANGEABLE.get(key)
            if option is not None and not dynamic_problem({key: text}):
                values[option.attribute] = option.parse(text)
    config = dataclasses.replace(static, **values, static=static, dynamic=layers)
    assignment = bounded_timeouts(config)[2]
    interval_ms = assignment.clamp(assignment.value)
    return dataclasses.replace(config, group_consumer_assignment_interval_ms=interval_ms)


class ConfigInForce:
    """Cached result of `in_force`, computed again only when the configs have changed: every opened log reads it."""

    def __init__(self, static: Config) -> None:
        self._static = static
        self._seen: dict[str, dict[str, str]] = {}
        self._config = static

    def of(self, node_id: int, configs: Mapping[str, Mapping[str, str]]) -> Config:
        if configs != self._seen:
            self._seen = {name: dict(own) for name, own in configs.items()}
            self._config = in_force(self._static, node_id, self._seen)
        return self._config
