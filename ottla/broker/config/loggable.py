"""Which values of configs may stand in a log or a trace. pure

Source: `KafkaConfig.loggableValue`, `Password.HIDDEN` of Kafka 4.3.1: what may be a password is hidden, and so is what
nobody knows, as it may be one of a plugin's.
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
    """The value of a config, of whatever resource, or what stands for it."""
    return value if value is None or name in _PLAIN else HIDDEN
