"""Keys that name no option: recognition of Kafka's own, and suggestions for the others. pure"""

import re
from difflib import get_close_matches
from typing import Final

from ottla.broker.config.broker import BROKER_OPTIONS
from ottla.broker.config.kafka_names import KAFKA_NAMES
from ottla.broker.config.tls import of_listener
from ottla.broker.config.topic import TOPIC_OPTIONS

OPTION_KEYS: Final = frozenset(key for option in BROKER_OPTIONS for key in (option.key, *option.also))
_OF_BROKER: Final = {option.key: option.broker for option in TOPIC_OPTIONS if option.broker}
"""The broker's name of each topic config."""
_NEAR: Final = 0.75
_SECRET_WORDS: Final = re.compile(r"passw|secret|jaas|token|credential")
_SECRET: Final = sorted(
    {option.key for option in BROKER_OPTIONS if option.is_secret} | set(filter(_SECRET_WORDS.search, KAFKA_NAMES))
)


def known_to_kafka(key: str) -> bool:
    """Return whether Kafka has an option of this name, also for one listener
    (`listener.name.NAME.[MECHANISM.]OPTION`)."""
    if key in KAFKA_NAMES:
        return True
    named = of_listener(key)
    if named is None:
        return False
    return any(name in KAFKA_NAMES or name in OPTION_KEYS for name in (named[1], named[1].partition(".")[2]))


def may_be_secret(key: str) -> bool:
    """Return whether an unknown key resembles that of a password."""
    named = of_listener(key)
    tidy = _tidy(key if named is None else named[1])
    return bool(get_close_matches(tidy, _SECRET, 1, _NEAR)) or _SECRET_WORDS.search(tidy) is not None


def _tidy(key: str) -> str:
    return key.strip().lower().replace("_", ".").replace("-", ".")


def suggestion(key: str) -> str:
    """Return `did you mean KEY?`, or an empty string if no option has a similar name."""
    tidy = _tidy(key)
    meant = tidy if tidy in OPTION_KEYS else _OF_BROKER.get(tidy)
    if meant is None:
        # Options of Ottla take precedence over Kafka's others.
        near = get_close_matches(tidy, sorted(OPTION_KEYS), 1, _NEAR) or get_close_matches(
            tidy, sorted(KAFKA_NAMES), 1, _NEAR
        )
        meant = near[0] if near else None
    return f"did you mean {meant}?" if meant else ""
