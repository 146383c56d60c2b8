"""Check of tokens that an issuer has signed: the key, the audience, and the expiration. pure

Source: `BrokerJwtValidator` and `ClaimValidationUtils` of Kafka 4.3.1. Stricter: a token from the future is refused,
and `ottla/broker/config/oauth.py` refuses incomplete configurations that Kafka accepts.
"""

from collections.abc import Mapping
from typing import Any

from ottla.broker.config import Config
from ottla.broker.costs import TOKEN_US
from ottla.broker.security.jwks import Jwks, KeyFetchContext
from ottla.broker.security.keys import read_head, verified_claims
from ottla.broker.security.oauth import Checked, TokenRefused
from ottla.broker.security.unsecured import seconds, user_name


class SignedTokens:
    """Checker of the tokens of one listener, with the keys of `jwks`."""

    def __init__(self, config: Config, jwks: Jwks, around: KeyFetchContext) -> None:
        self._config = config
        self._jwks = jwks
        self._around = around

    async def check(self, token: str) -> Checked:
        turns = self._around.turns
        await turns.spend(TOKEN_US)
        head = read_head(token)
        key = await self._jwks.key_for(head)
        claims = verified_claims(token, head, key)
        self._check_times(claims)
        self._check_origin(claims)
        name = user_name(claims, self._config.sasl_oauthbearer_sub_claim_name)
        _check_scopes(claims.get(self._config.sasl_oauthbearer_scope_claim_name))
        return Checked(name, (seconds(claims, "exp") or 0.0) * 1000)

    def _check_times(self, claims: Mapping[str, Any]) -> None:
        expires_s, issued_s, begins_s = (seconds(claims, name) for name in ("exp", "iat", "nbf"))
        now_s, skew_s = self._around.clock.now_ms() / 1000, self._config.sasl_oauthbearer_clock_skew_seconds
        if expires_s is None or issued_s is None:
            raise TokenRefused("it has no exp or no iat")
        if expires_s <= now_s - skew_s:
            raise TokenRefused("it has expired")
        if issued_s > now_s + skew_s:
            raise TokenRefused("it was issued in the future")
        if begins_s is not None and begins_s > now_s + skew_s:
            raise TokenRefused("it is not valid yet")
        if issued_s > expires_s:
            raise TokenRefused("it expired before it was issued")

    def _check_origin(self, claims: Mapping[str, Any]) -> None:
        config = self._config
        if config.sasl_oauthbearer_expected_issuer and claims.get("iss") != config.sasl_oauthbearer_expected_issuer:
            raise TokenRefused("it is from another issuer")
        if config.sasl_oauthbearer_expected_audience:
            given = claims.get("aud")
            audience = given if isinstance(given, list) else [given]
            expected = [each.strip() for each in config.sasl_oauthbearer_expected_audience.split(",")]
            if not any(each in expected for each in audience if isinstance(each, str)):
                raise TokenRefused("it is for another audience")


def _check_scopes(given: object) -> None:
    """Check that the scopes are texts and each occurs once, as Kafka does."""
    scopes = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    texts = [each.strip() for each in scopes if isinstance(each, str)]
    if not all(texts) or len(texts) < len(scopes) or len(set(texts)) < len(texts):
        raise TokenRefused("its scopes are not texts, or occur twice")
