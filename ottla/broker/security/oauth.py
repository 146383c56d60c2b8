"""SASL/OAUTHBEARER: a token of another issuer authenticates the client. pure

Source: RFC 7628, `OAuthBearerSaslServer` and `OAuthBearerClientInitialResponse` of Kafka 4.3.1. The answer to a refused
token is an error as JSON; the client acknowledges it with one byte, and the login fails then. Stricter than Kafka: no
other token may follow an error, and no key may occur twice.
"""

import json
import re
from typing import Final, NamedTuple, Protocol

from ottla.broker.security.mechanism import SaslFailed, SaslServer
from ottla.broker.turns import Handler

NAME: Final = "OAUTHBEARER"
TOKEN_BYTES_MOST: Final = 32_768
"""Maximum size of a message; a token with the groups of a large company has a fifth of it."""

_SEPARATOR: Final = "\x01"
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_KEY: Final = "[A-Za-z]+"
_VALUE: Final = r"[\x21-\x7e \t\r\n]+"
_FIRST: Final = re.compile(f"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:{_KEY}={_VALUE}\x01)*)\x01")
_AUTH: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)


class Checked(NamedTuple):
    """The claims of a valid token."""

    name: str
    expires_at_ms: float


class TokenRefused(Exception):
    """Refused token. `reason` is for the log and contains nothing of the token. `scope` is the scope that it needs."""

    def __init__(self, reason: str, scope: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.scope = scope


class Tokens(Protocol):
    """Interface that checks the tokens of one listener."""

    def check(self, token: str) -> Handler[Checked]:
        """Return the claims of a token. May wait for keys. Raises TokenRefused."""


class OAuthServer(SaslServer):
    """The broker's side of one OAUTHBEARER login."""

    __slots__ = ("_refused", "_tokens")

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self._tokens = tokens
        self._refused: SaslFailed | None = None

    async def evaluate(self, token: bytes) -> bytes:
        """Return nothing for a valid token, or an error as JSON for a refused one. Raises SaslFailed."""
        if self._refused is not None:
            raise self._refused
        if len(token) > TOKEN_BYTES_MOST:
            raise SaslFailed(f"an OAUTHBEARER message of {len(token)} bytes; at most {TOKEN_BYTES_MOST} are allowed")
        authzid, bearer = _parse(token)
        try:
            checked = await self._tokens.check(bearer)
        except TokenRefused as refused:
            answer = _answer(refused)
            self._refused = SaslFailed(f"the token is refused: {refused.reason}", answer)
            return answer.encode()
        if authzid not in ("", checked.name):
            message = (
                f"Authentication failed: Client requested an authorization id ({authzid}) that is different from the "
                f"token's principal name ({checked.name})"
            )
            raise SaslFailed(message, message)
        self.name, self.expires_at_ms = checked
        self.complete = True
        return b""


def _parse(token: bytes) -> tuple[str, str]:
    """Return (authorization id that the client requests, bearer token). The error texts are Kafka's."""
    found = _FIRST.fullmatch(token.decode(errors="replace"))
    if found is None:
        raise SaslFailed("Invalid OAUTHBEARER client first message")
    pairs = [pair.partition("=") for pair in found["pairs"].split(_SEPARATOR)[:-1]]
    values = {key: value for key, _, value in pairs}
    if len(values) < len(pairs):
        raise SaslFailed("Invalid OAUTHBEARER client first message: a key occurs twice")
    if "auth" not in values:
        raise SaslFailed("Invalid OAUTHBEARER client first message: 'auth' not specified")
    auth = _AUTH.fullmatch(values["auth"])
    if auth is None:
        raise SaslFailed("Invalid OAUTHBEARER client first message: invalid 'auth' format")
    if auth["scheme"].lower() != "bearer":
        raise SaslFailed("Invalid scheme in OAUTHBEARER client first message")
    return found["authzid"] or "", auth["token"]


def _answer(refused: TokenRefused) -> str:
    if refused.scope:
        return json.dumps({"status": "insufficient_scope", "scope": refused.scope})
    return '{"status":"invalid_token"}'
