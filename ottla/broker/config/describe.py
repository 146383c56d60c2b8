"""Configs as other parts of the system show them: the rows of DescribeConfigs, and values in logs and traces. pure

Source: `DescribeConfigsResponse`, `KafkaConfig.loggableValue` and `Password.HIDDEN` of Kafka 4.3.1.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.broker.config.broker import BROKER_OPTIONS, OPTION_OF_KEY, Config
from ottla.broker.config.dynamic import CHANGEABLE, DYNAMIC_OPTIONS, dynamic_option
from ottla.broker.config.kept import GROUP_OPTIONS
from ottla.broker.config.option import (
    DEFAULT,
    DEFAULT_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    GROUP_CONFIG,
    HIDDEN,
    STATIC_BROKER_CONFIG,
    TOPIC_CONFIG,
    Kind,
    Option,
    value_text,
)
from ottla.broker.config.topic import TOPIC_OPTIONS
from ottla.protocol.hashing import java_hash

Synonym = tuple[str, str | None, int]
"""(name, value, source)."""

_BUCKETS: Final = 64
"""The size of Kafka's `HashMap` of the configs of a topic, which decides their order."""
_NOT_ACTED_ON: Final = {
    "preallocate": "log.preallocate",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""topic config -> broker option that Ottla does not have."""


def _bucket(option: Option) -> int:
    value = java_hash(option.key)
    return (value ^ (value >> 16)) & (_BUCKETS - 1)


_IN_KAFKAS_ORDER: Final = sorted(TOPIC_OPTIONS, key=_bucket)


class ConfigEntry(NamedTuple):
    """A config with its sources. The first of the `synonyms` is the one in force.

    A sensitive config has no value.
    """

    name: str
    kind: Kind
    read_only: bool
    meaning: str
    synonyms: tuple[Synonym, ...]
    sensitive: bool = False
    default: str | None = None
    """The value of a config without a source."""

    @property
    def value(self) -> str | None:
        """The value in force."""
        return self.synonyms[0][1] if self.synonyms else self.default

    @property
    def source(self) -> int:
        """The source of the value in force."""
        return self.synonyms[0][2] if self.synonyms else DEFAULT_CONFIG


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
        synonyms, read_only = broker_synonyms(config, option), option.key not in CHANGEABLE
        yield ConfigEntry(option.key, option.kind, read_only, option.meaning, synonyms, option.is_secret)
    others = {key for _, layer in config.dynamic for key in layer} - {option.key for option in BROKER_OPTIONS}
    for key in sorted(others):
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
    option = dynamic_option(key)
    if option is not None and not option.is_secret:
        return ConfigEntry(key, option.kind, False, option.described, synonyms)
    hidden = tuple((name, None, level) for name, _, level in synonyms)
    if option is None:  # a plugin's config may be a password
        return ConfigEntry(key, Kind.UNKNOWN, True, "Kept, not acted on.", hidden, sensitive=True)
    return ConfigEntry(key, option.kind, False, option.described, hidden, sensitive=True)


def describe_topic(config: Config, own: Mapping[str, str]) -> list[ConfigEntry]:
    """Return every topic config as DescribeConfigs shows it, in Kafka's order: the topic's own value, then the
    broker's, then the default."""
    entries = []
    for option in _IN_KAFKAS_ORDER:
        synonyms: list[Synonym] = [(option.key, own[option.key], TOPIC_CONFIG)] if option.key in own else []
        synonyms += _synonyms_of_topic(config, option)
        broker_option = OPTION_OF_KEY.get(option.broker)
        value = option.default if broker_option is None else getattr(config, broker_option.attribute)
        entries.append(
            ConfigEntry(*(option.key, option.kind, False, option.described, tuple(synonyms)), default=value_text(value))
        )
    return entries


def _synonyms_of_topic(config: Config, option: Option) -> Sequence[Synonym]:
    """Return the broker's sources of a topic config. The default of a time is one of hours: Kafka leaves it out unless
    a time in milliseconds is set (`ConfigHelper.configSynonyms`)."""
    broker_option = OPTION_OF_KEY.get(option.broker)
    if broker_option is None:
        name = _NOT_ACTED_ON.get(option.key)
        return [] if name is None else [(name, value_text(option.default), DEFAULT_CONFIG)]
    found = broker_synonyms(config, broker_option)
    if not broker_option.also:
        return found
    *set_ones, _ = found
    hours, hour_ms = [*broker_option.also.items()][-1]
    return set_ones and [*set_ones, (hours, value_text(broker_option.default // hour_ms), DEFAULT_CONFIG)]


def describe_group(config: Config, own: Mapping[str, str]) -> list[ConfigEntry]:
    """Return every config of a group as DescribeConfigs shows it: the group's own value, then the broker's, then the
    default."""
    entries = []
    for key, option in GROUP_OPTIONS.items():
        synonyms: list[Synonym] = [(key, own[key], GROUP_CONFIG)] if key in own else []
        if option.broker in OPTION_OF_KEY:
            synonyms += broker_synonyms(config, OPTION_OF_KEY[option.broker])
        else:
            synonyms.append((option.broker or key, value_text(option.default), DEFAULT_CONFIG))
        entries.append(ConfigEntry(key, option.kind, False, option.described, tuple(synonyms)))
    return entries


_PLAIN: Final = frozenset(
    option.key
    for option in (*BROKER_OPTIONS, *DYNAMIC_OPTIONS.values(), *TOPIC_OPTIONS, *GROUP_OPTIONS.values())
    if not option.is_secret
)


def loggable_value(name: str, value: str | None) -> str | None:
    """Return the value of a config of any resource, or `HIDDEN` in its place."""
    return value if value is None or name in _PLAIN else HIDDEN
