"""SASL/PLAIN: a name with its password. pure

The passwords are in the JAAS entry, as in Kafka, or, only in Ottla, as hashes in the metadata (`hashed.py`). Source:
RFC 4616, `PlainSaslServer` and `PlainServerCallbackHandler` of Kafka 4.3.1.
"""

import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from ottla.broker.security.hashed import HashedPasswords
from ottla.broker.security.mechanism import SaslFailed, SaslServer

NAME: Final = "PLAIN"
_TOKEN_BYTES_MOST: Final = 4_096
"""Maximum size of a token. RFC 4616 allows three parts of 255 bytes; service keys used as passwords are longer."""
_FIELDS: Final = 3
_NOBODYS: Final = "\x00"
"""Password with which the password of an unknown user is compared: no token can contain it."""


class PlainServer(SaslServer):
    """The broker's side of one PLAIN login. `users` has passwords by name; `hashed` checks other users."""

    __slots__ = ("_hashed", "_users")

    def __init__(self, users: Mapping[str, str], hashed: HashedPasswords | None = None) -> None:
        super().__init__()
        self._users = users
        self._hashed = hashed

    async def evaluate(self, token: bytes) -> bytes:
        """Return an empty answer if the password is right. Raises SaslFailed otherwise."""
        if len(token) > _TOKEN_BYTES_MOST:
            raise SaslFailed(f"a PLAIN token of {len(token)} bytes; at most {_TOKEN_BYTES_MOST} are allowed")
        fields = token.decode(errors="replace").split("\0")
        if len(fields) != _FIELDS:
            # Kafka stops counting after the fourth.
            raise _failure(f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(fields), _FIELDS + 1)}")
        authzid, name, password = fields
        if not name:
            raise _failure("Authentication failed: username not specified")
        if not password:
            raise _failure("Authentication failed: password not specified")
        problem = await self._problem(name, password)
        if problem:
            raise SaslFailed(f"PLAIN as {name!r}: {problem}", "Authentication failed: Invalid username or password")
        if authzid not in ("", name):
            raise _failure(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.name = name
        self.complete = True
        return b""

    async def _problem(self, name: str, password: str) -> str:
        if _same(password, self._users.get(name, _NOBODYS)):
            return ""
        if self._hashed is not None and name not in self._users:
            return await self._hashed.problem(name, password)
        return "the password is wrong" if name in self._users else "no user has this name"


def _same(given: str, kept: str) -> bool:
    """Return whether the passwords are equal, in a time that does not depend on them or their lengths
    (CVE-2021-38153)."""
    return hmac.compare_digest(sha256(given.encode()).digest(), sha256(kept.encode()).digest())


def _failure(message: str) -> SaslFailed:
    return SaslFailed(message, message)
