"""The options of OAUTHBEARER of one listener, and the check that they are safe. pure

Source: `SaslConfigs`, `OAuthBearerValidatorCallbackHandler`, `OAuthBearerUnsecuredValidatorCallbackHandler` of Kafka
4.3.1. Kafka accepts unsigned tokens by default, and signed ones of any issuer and audience.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final, NamedTuple

from ottla.broker.config.broker import Config

SIGNED: Final = "OAuthBearerValidatorCallbackHandler"
UNSECURED: Final = "OAuthBearerUnsecuredValidatorCallbackHandler"
_UNSECURED_OPTION: Final = "unsecuredValidator"
_PREFIX: Final = "sasl.oauthbearer."
_SCHEMES: Final = ("file://", "http://", "https://")


class OAuthSettings(NamedTuple):
    """Settings of the check of OAUTHBEARER tokens. Empty means not given; an audience is a list, comma separated."""

    validator: str
    """The class with which a Kafka broker checks tokens, without its package."""
    jwks_endpoint_url: str
    jwks_endpoint_refresh_ms: int
    jwks_endpoint_retry_backoff_ms: int
    jwks_endpoint_retry_backoff_max_ms: int
    clock_skew_seconds: int
    expected_audience: str
    allow_unverified_audience: bool
    expected_issuer: str
    allow_unverified_issuer: bool
    scope_claim_name: str
    sub_claim_name: str


class UnsecuredSettings(NamedTuple):
    """Settings of the check of unsigned tokens: options of the JAAS entry, which begin with `unsecuredValidator`."""

    principal_claim_name: str
    scope_claim_name: str
    required_scope: tuple[str, ...]
    allowable_clock_skew_ms: int


def oauth_settings(config: Config) -> OAuthSettings:
    """Return the settings of a configuration that has the listener's own options applied."""
    return OAuthSettings(
        validator=config.sasl_server_callback_handler_class.rpartition(".")[2],
        jwks_endpoint_url=config.sasl_oauthbearer_jwks_endpoint_url,
        jwks_endpoint_refresh_ms=config.sasl_oauthbearer_jwks_endpoint_refresh_ms,
        jwks_endpoint_retry_backoff_ms=config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
        jwks_endpoint_retry_backoff_max_ms=config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
        clock_skew_seconds=config.sasl_oauthbearer_clock_skew_seconds,
        expected_audience=config.sasl_oauthbearer_expected_audience,
        allow_unverified_audience=config.sasl_oauthbearer_allow_unverified_audience,
        expected_issuer=config.sasl_oauthbearer_expected_issuer,
        allow_unverified_issuer=config.sasl_oauthbearer_allow_unverified_issuer,
        scope_claim_name=config.sasl_oauthbearer_scope_claim_name,
        sub_claim_name=config.sasl_oauthbearer_sub_claim_name,
    )


def unsecured_settings(options: Mapping[str, str]) -> UnsecuredSettings:
    """Return the settings of a JAAS entry. The ValueError names the invalid option."""

    def option(name: str, default: str) -> str:
        return options.get(_UNSECURED_OPTION + name, "").strip() or default

    skew_ms = option("AllowableClockSkewMs", "0")
    if not (skew_ms.isascii() and skew_ms.isdigit() and len(skew_ms) < 10):
        raise ValueError(f"{_UNSECURED_OPTION}AllowableClockSkewMs must be a number of milliseconds")
    required = tuple(option("RequiredScope", "").split())
    return UnsecuredSettings(
        option("PrincipalClaimName", "sub"), option("ScopeClaimName", "scope"), required, int(skew_ms)
    )


def oauth_problem(settings: OAuthSettings, options: Mapping[str, str]) -> str:
    """Return the settings or packages that are missing to check tokens, or an empty string; `options` are the JAAS
    entry's."""
    if settings.validator == UNSECURED:
        try:
            unsecured_settings(options)
        except ValueError as error:
            return str(error)
        return ""
    if settings.validator not in ("", SIGNED):
        return f"{settings.validator} of sasl.server.callback.handler.class is unknown. Set {SIGNED} or {UNSECURED}"
    if not settings.jwks_endpoint_url.startswith(_SCHEMES):
        return f"OAUTHBEARER needs keys. Set {_PREFIX}jwks.endpoint.url to a file://, http:// or https:// URL"
    for what, value, is_waived in (
        ("audience", settings.expected_audience, settings.allow_unverified_audience),
        ("issuer", settings.expected_issuer, settings.allow_unverified_issuer),
    ):
        if not value and not is_waived:
            return (
                f"OAUTHBEARER would accept tokens of any {what}. Set {_PREFIX}expected.{what}, or "
                f"{_PREFIX}allow.unverified.{what}=true"
            )
    if find_spec("joserfc") is None:
        return "OAUTHBEARER needs a library for signed tokens: pip install 'ottla[oauth]'"
    return ""
