"""Unsigned tokens, for tests: any client may claim any name. pure

Only for listeners that name `OAuthBearerUnsecuredValidatorCallbackHandler`; Kafka takes such tokens by default. Source:
that class, `OAuthBearerUnsecuredJws` and `OAuthBearerValidationUtils` of Kafka 4.3.1.
"""

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.broker.config.oauth import UnsecuredSettings
from ottla.broker.security.oauth import Checked, TokenRefused

_LATEST_S: Final = 253_402_300_799.0
"""The end of the year 9999: no session needs to last longer."""


class UnsecuredTokens:
    """Checker of unsigned tokens, which accepts their claims until they expire."""

    def __init__(self, settings: UnsecuredSettings, now_ms: Callable[[], float]) -> None:
        self._settings = settings
        self._now_ms = now_ms

    async def check(self, token: str) -> Checked:
        header, _, rest = token.partition(".")
        payload, dot, signature = rest.partition(".")
        if not dot or signature:
            raise TokenRefused("it is not a token without a signature")
        if _object(header).get("alg") != "none":
            raise TokenRefused("its algorithm is not none")
        claims = _object(payload)
        settings, now_ms = self._settings, self._now_ms()
        skew_ms = settings.allowable_clock_skew_ms
        name = user_name(claims, settings.principal_claim_name)
        expires_s, issued_s = seconds(claims, "exp"), seconds(claims, "iat")
        if expires_s is None:
            raise TokenRefused("it has no exp")
        if now_ms - skew_ms >= expires_s * 1000:
            raise TokenRefused("it has expired")
        if issued_s is not None and issued_s * 1000 > now_ms + skew_ms:
            raise TokenRefused("it was issued in the future")
        if issued_s is not None and expires_s <= issued_s:
            raise TokenRefused("it expired before it was issued")
        if not scopes(claims.get(settings.scope_claim_name)).issuperset(settings.required_scope):
            raise TokenRefused("it lacks a scope", f"[{', '.join(settings.required_scope)}]")
        return Checked(name, expires_s * 1000)


def user_name(claims: Mapping[str, Any], claim: str) -> str:
    """Return the user name of a claim, without blanks around it. Raises TokenRefused.

    JSON can escape one half of a surrogate pair. Such a name has no UTF-8 form, so no log and no reply can contain it.
    """
    name = claims.get(claim)
    if not isinstance(name, str) or not name.strip():
        raise TokenRefused(f"it has no {claim}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise TokenRefused(f"its {claim} is not valid Unicode") from None
    return name.strip()


def seconds(claims: Mapping[str, Any], name: str) -> float | None:
    """Return the time of a claim in seconds since 1970, None without it. Raises TokenRefused if it is not a time."""
    given = claims.get(name)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or given < 0 or given != given:
        raise TokenRefused(f"its {name} is not a time")
    return float(min(given, _LATEST_S))


def scopes(given: object) -> frozenset[str]:
    """Return the scopes of a claim, which is a text with blanks between them, or a list."""
    if isinstance(given, str):
        return frozenset(given.split())
    if isinstance(given, list):
        return frozenset(each.strip() for each in given if isinstance(each, str))
    return frozenset()


def _object(part: str) -> dict[str, Any]:
    try:
        value = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise TokenRefused("it is not JSON")
    return value
