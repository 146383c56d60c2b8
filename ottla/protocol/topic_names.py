"""Topic names that Kafka accepts (`org.apache.kafka.common.internals.Topic`). pure"""

import re

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def detect_invalid_topic(name: str | None) -> str | None:
    """Why `name` cannot be a topic's, or None when it can."""
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
    """Names with equal keys collide in metric names, so Kafka refuses the second ('a.b' and 'a_b')."""
    return name.replace(".", "_")
