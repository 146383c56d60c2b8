"""A row of a DescribeConfigs response, as a value. pure"""

from typing import Final, NamedTuple

from ottla.broker.config.option import Kind

# `DescribeConfigsResponse.ConfigSource`.
TOPIC_CONFIG: Final = 1
DYNAMIC_BROKER_CONFIG: Final = 2
DYNAMIC_DEFAULT_BROKER_CONFIG: Final = 3
STATIC_BROKER_CONFIG: Final = 4
DEFAULT_CONFIG: Final = 5
GROUP_CONFIG: Final = 8

Synonym = tuple[str, str | None, int]
"""(name, value, source)."""


class ConfigEntry(NamedTuple):
    """A config with its source. The first of the `synonyms` is the one in force.

    A sensitive config has no value.
    """

    name: str
    value: str | None
    source: int
    kind: Kind
    read_only: bool
    meaning: str
    synonyms: tuple[Synonym, ...]
    sensitive: bool = False
