"""Dynamic configs of the broker: their names, their allowed values, and the values in force. pure

`__cluster_metadata` holds them, for one broker (by its node id) or for all of the cluster (""). The broker's own values
take precedence over the cluster's, and these over the values that the broker was started with. Source:
`DynamicBrokerConfig` of Kafka 4.3.1.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Any, Final

from ottla.broker.config.broker import BROKER_OPTIONS, Config
from ottla.broker.config.entry import (
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    STATIC_BROKER_CONFIG,
    ConfigEntry,
    Synonym,
)
from ottla.broker.config.kafka_names import KAFKA_NAMES
from ottla.broker.config.kept import KEPT_OPTIONS
from ottla.broker.config.listeners import parse_connections_per_ip
from ottla.broker.config.option import DEFAULT, Kind, Option, value_text
from ottla.broker.config.tls import LISTENER_PREFIX, TLS_OPTIONS, of_listener

CLUSTER_RESOURCE: Final = ""
"""The name of the resource whose configs are for every broker."""

# The options of Ottla that are dynamic in Kafka. Kafka's listeners, SASL, plugins and log directories are dynamic too.
_DYNAMIC: Final = """
compression.gzip.level compression.lz4.level compression.type compression.zstd.level log.cleaner.backoff.ms
log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms log.cleaner.max.compaction.lag.ms
log.cleaner.min.cleanable.ratio log.cleaner.min.compaction.lag.ms log.cleanup.policy log.flush.interval.messages
log.index.interval.bytes log.index.size.max.bytes log.message.timestamp.after.max.ms
log.message.timestamp.before.max.ms log.message.timestamp.type log.retention.bytes log.retention.ms
log.roll.jitter.ms log.roll.ms log.segment.bytes log.segment.delete.delay.ms max.connection.creation.rate
max.connections max.connections.per.ip max.connections.per.ip.overrides message.max.bytes producer.id.expiration.ms
transaction.partition.verification.enable
"""
_OF_LISTENERS: Final = """
ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
ssl.keystore.type ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type
"""

CHANGEABLE: Final = {option.key: option for option in BROKER_OPTIONS if option.key in _DYNAMIC.split()}
DYNAMIC_OPTIONS: Final = {option.key: option for option in KEPT_OPTIONS} | CHANGEABLE
_SECURITY: Final = frozenset(_OF_LISTENERS.split())
_KNOWN: Final = KAFKA_NAMES | {option.key for option in BROKER_OPTIONS}


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
        option = _option(key)
        if option is not None and not _fits(option, text):
            return f"Invalid value {text} for configuration {key}: must be {option.range}"
    return _overrides_problem(given.get("max.connections.per.ip.overrides", ""))


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
    if _option(key) is not None or key in _SECURITY:
        return False
    return key in _KNOWN or key.startswith(LISTENER_PREFIX)


def _option(key: str) -> Option | None:
    """Return the dynamic option of a key."""
    named = of_listener(key)
    if named is None:
        return DYNAMIC_OPTIONS.get(key)
    return TLS_OPTIONS[named[1]] if named[1] in _SECURITY else None


def _fits(option: Option, text: str) -> bool:
    try:
        option.parse(text)
    except ValueError:
        return False
    return True


def in_force(static: Config, node_id: int, configs: Mapping[str, Mapping[str, str]]) -> Config:
    """Return the broker's static configuration with the dynamic `configs` (by resource) applied.

    An invalid value, which a log directory of Kafka's may hold, is shown but not applied.
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
    return dataclasses.replace(static, **values, static=static, dynamic=layers)


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


def broker_synonyms(config: Config, option: Option) -> tuple[Synonym, ...]:
    """Return the sources of an option's value: (name, value, source), the one in force first; secrets have no value."""
    key, static = option.key, config.static or config
    found: list[Synonym] = [(key, layer[key], source) for source, layer in config.dynamic if key in layer]
    if static.origin(key) != DEFAULT:
        found.append((key, value_text(getattr(static, option.attribute)), STATIC_BROKER_CONFIG))
    found.append((key, value_text(option.default), DEFAULT_CONFIG))
    return tuple((key, None if option.is_secret else value, source) for _, value, source in found)


def describe_broker(config: Config) -> Iterator[ConfigEntry]:
    """Yield every option as DescribeConfigs shows it for a broker, and the other dynamic configs. This is a generator,
    because there may be many thousands."""
    for option in BROKER_OPTIONS:
        synonyms = broker_synonyms(config, option)
        _, value, source = synonyms[0]
        read_only = option.key not in CHANGEABLE
        yield ConfigEntry(
            option.key, value, source, option.kind, read_only, option.meaning, synonyms, sensitive=option.is_secret
        )
    layers = [layer for _, layer in config.dynamic]
    others = sorted({key for layer in layers for key in layer} - {option.key for option in BROKER_OPTIONS})
    for key in others:
        found = tuple((key, layer[key], source) for source, layer in config.dynamic if key in layer)
        kept = DYNAMIC_OPTIONS.get(key)
        default = () if kept is None else ((key, value_text(kept.default), DEFAULT_CONFIG),)
        yield _of_dynamic(key, (*found, *default))


def describe_cluster(config: Config) -> Iterator[ConfigEntry]:
    """Yield the configs set for every broker of the cluster."""
    for source, layer in config.dynamic:
        if source == DYNAMIC_DEFAULT_BROKER_CONFIG:
            for key, text in sorted(layer.items()):
                yield _of_dynamic(key, ((key, text, source),))


def _of_dynamic(key: str, synonyms: tuple[Synonym, ...]) -> ConfigEntry:
    option = _option(key)
    _, value, source = synonyms[0]
    if option is None or option.is_secret:  # a plugin's config may be a password
        hidden = tuple((name, None, level) for name, _, level in synonyms)
        kind, meaning = (Kind.UNKNOWN, "Kept, not acted on.") if option is None else (option.kind, option.described)
        return ConfigEntry(key, None, source, kind, option is None, meaning, hidden, sensitive=True)
    return ConfigEntry(key, value, source, option.kind, False, option.described, synonyms)
