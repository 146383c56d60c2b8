"""The first users of a new data directory: the text of `add.scram`. pure

    SCRAM-SHA-512=[name=alice,password=alice-secret],SCRAM-SHA-256=[name=bob,iterations=8192,password="bob's"]

Source: `ScramParser` of Kafka 4.3.1, which reads this from `kafka-storage format --add-scram`. No message here holds a
part of the text, since all of it may be secret.
"""

import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Final, NamedTuple

MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
LEAST_ITERATIONS: Final = 4_096
MOST_ITERATIONS: Final = 16_384
_USER: Final = re.compile(r"\s*([^=,\[\]]*)=\[([^\]]*)\]\s*(?:,|$)")
_KEYS: Final = ("name", "password", "saltedpassword", "salt", "iterations")
_FORM: Final = "MECHANISM=[name=NAME,password=PASSWORD], comma separated"


class ScramUser(NamedTuple):
    """A user with the password, or the salted password. A salt of None is drawn at random."""

    mechanism: str
    name: str
    password: str | None
    salted_password: bytes | None
    salt: bytes | None
    iterations: int

    def __repr__(self) -> str:
        return f"ScramUser(mechanism={self.mechanism!r}, name={self.name!r})"


def parse_scram_users(text: str) -> tuple[ScramUser, ...]:
    """Return the users. The ValueError has the allowed form of the text."""
    users: dict[tuple[str, str], ScramUser] = {}
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _USER.match(text, position)
        if found is None:
            raise ValueError(_FORM)
        user = _user(found[1].strip(), found[2])
        if (user.mechanism, user.name) in users:
            raise ValueError("a list that names each user at most once for a mechanism")
        users[user.mechanism, user.name] = user
        position = found.end()
    return tuple(users.values())


def _user(mechanism: str, text: str) -> ScramUser:
    if mechanism not in MECHANISMS:
        raise ValueError(f"for one of {', '.join(MECHANISMS)}: {_FORM}")
    given: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals or key not in _KEYS:
            raise ValueError(f"{_FORM}; the keys are {', '.join(_KEYS)}, and a value contains no comma")
        quoted = len(value) >= 2 and value[0] == value[-1] == '"'
        given[key] = value[1:-1] if quoted else value
    name = given.get("name", "")
    if not name or not name.isascii() or "\0" in name:
        raise ValueError("a list of users with names of ASCII characters, which SCRAM needs")
    password = given.get("password") or None
    salted_password, salt = (_bytes(given, key) for key in ("saltedpassword", "salt"))
    if password is None and (salted_password is None or salt is None):
        raise ValueError("a list of users that each have a password, or saltedpassword and salt")
    iterations = given.get("iterations", str(LEAST_ITERATIONS))
    if not re.fullmatch("[0-9]{1,9}", iterations) or not LEAST_ITERATIONS <= int(iterations) <= MOST_ITERATIONS:
        raise ValueError(f"a list of users with iterations from {LEAST_ITERATIONS} to {MOST_ITERATIONS}")
    return ScramUser(mechanism, name, password, None if password else salted_password, salt, int(iterations))


def _bytes(given: Mapping[str, str], key: str) -> bytes | None:
    try:
        return b64decode(given[key], validate=True) if given.get(key) else None
    except ValueError:
        raise ValueError(f"a list of users whose {key} is base64") from None
