"""One row of a DescribeConfigs answer, as a value. pure"""

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
    """A config with where it comes from; of the `synonyms` the one in force is the first.

    What is sensitive has no value for whoever asks.
    """

    name: str
    value: str | None
    source: int
    kind: Kind
    read_only: bool
    meaning: str
    synonyms: tuple[Synonym, ...]
    sensitive: bool = False
