"""Values of configs that a log or a trace may show. pure

Source: `KafkaConfig.loggableValue`, `Password.HIDDEN` of Kafka 4.3.1: values that may be passwords are hidden, and so
are those of unknown configs, because a plugin's may be a password.
"""

from typing import Final

from ottla.broker.config.broker import BROKER_OPTIONS
from ottla.broker.config.dynamic import DYNAMIC_OPTIONS
from ottla.broker.config.group import GROUP_OPTIONS
from ottla.broker.config.option import HIDDEN
from ottla.broker.config.topic import TOPIC_OPTIONS

_PLAIN: Final = frozenset(
    option.key
    for option in (*BROKER_OPTIONS, *DYNAMIC_OPTIONS.values(), *TOPIC_OPTIONS, *GROUP_OPTIONS.values())
    if not option.is_secret
)


def loggable_value(name: str, value: str | None) -> str | None:
    """Return the value of a config of any resource, or `HIDDEN` in its place."""
    return value if value is None or name in _PLAIN else HIDDEN
