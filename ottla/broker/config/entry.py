"""One row of a DescribeConfigs answer, as a value. pure"""

from typing import Final, NamedTuple

from ottla.broker.config.option import Kind

# `DescribeConfigsResponse.ConfigSource`.
TOPIC_CONFIG: Final = 1
STATIC_BROKER_CONFIG: Final = 4
DEFAULT_CONFIG: Final = 5


class ConfigEntry(NamedTuple):
    """A config with where it comes from; `synonyms` are (name, value, source), the one in force first."""

    name: str
    value: str
    source: int
    kind: Kind
    read_only: bool
    meaning: str
    synonyms: tuple[tuple[str, str, int], ...]
