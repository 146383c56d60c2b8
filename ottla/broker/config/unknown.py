"""Keys that name no option: which ones Kafka knows all the same, and what was probably meant by the others. pure"""

from difflib import get_close_matches
from typing import Final

from ottla.broker.config.broker import BROKER_OPTIONS
from ottla.broker.config.kafka_names import KAFKA_NAMES
from ottla.broker.config.topic import TOPIC_OPTIONS

OPTION_KEYS: Final = frozenset(key for option in BROKER_OPTIONS for key in (option.key, *option.also))
_LISTENER_PREFIX: Final = "listener.name."
_OF_BROKER: Final = {option.key: option.broker for option in TOPIC_OPTIONS if option.broker}
"""What a topic's config is called where it is the broker's."""
_NEAR: Final = 0.75


def known_to_kafka(key: str) -> bool:
    """Whether Kafka has an option of this name, also for one listener (`listener.name.NAME.[MECHANISM.]OPTION`)."""
    if key in KAFKA_NAMES:
        return True
    if not key.startswith(_LISTENER_PREFIX):
        return False
    of_listener = key.removeprefix(_LISTENER_PREFIX).partition(".")[2]
    return any(name in KAFKA_NAMES or name in OPTION_KEYS for name in (of_listener, of_listener.partition(".")[2]))


def suggestion(key: str) -> str:
    """`did you mean KEY?`, or nothing if no option has a name like it."""
    tidy = key.strip().lower().replace("_", ".").replace("-", ".")
    meant = tidy if tidy in OPTION_KEYS else _OF_BROKER.get(tidy)
    if meant is None:
        # What acts here goes before what Kafka has besides.
        near = get_close_matches(tidy, sorted(OPTION_KEYS), 1, _NEAR) or get_close_matches(
            tidy, sorted(KAFKA_NAMES), 1, _NEAR
        )
        meant = near[0] if near else None
    return f"did you mean {meant}?" if meant else ""
