"""Topic names that Kafka accepts (`org.apache.kafka.common.internals.Topic`). pure"""

import re
from typing import Final

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def detect_invalid_topic(name: str | None) -> str | None:
    """Return the reason why `name` is not a valid topic name, or None if it is valid."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > 249:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length 249"
    if _LEGAL.fullmatch(name) is None:
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    return None


def unify_collision_chars(name: str) -> str:
    """Return the key of a name. Names with equal keys ('a.b', 'a_b') collide in metrics: Kafka refuses the second."""
    return name.replace(".", "_")
