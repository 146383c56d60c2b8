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


class UnsecuredSettings(NamedTuple):
    """Settings of the check of unsigned tokens: options of the JAAS entry, which begin with `unsecuredValidator`."""

    principal_claim_name: str
    scope_claim_name: str
    required_scope: tuple[str, ...]
    allowable_clock_skew_ms: int


def token_validator(config: Config) -> str:
    """Return the class with which a Kafka broker checks tokens, without its package."""
    return config.sasl_server_callback_handler_class.rpartition(".")[2]


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


def oauth_problem(config: Config, options: Mapping[str, str]) -> str:
    """Return the values or packages that are missing to check tokens, or an empty string. `config` has the values of
    OAUTHBEARER of a listener, `options` those of its JAAS entry."""
    validator = token_validator(config)
    if validator == UNSECURED:
        try:
            unsecured_settings(options)
        except ValueError as error:
            return str(error)
        return ""
    if validator not in ("", SIGNED):
        return f"{validator} of sasl.server.callback.handler.class is unknown. Set {SIGNED} or {UNSECURED}"
    if not config.sasl_oauthbearer_jwks_endpoint_url.startswith(_SCHEMES):
        return f"OAUTHBEARER needs keys. Set {_PREFIX}jwks.endpoint.url to a file://, http:// or https:// URL"
    for what, value, is_waived in (
        ("audience", config.sasl_oauthbearer_expected_audience, config.sasl_oauthbearer_allow_unverified_audience),
        ("issuer", config.sasl_oauthbearer_expected_issuer, config.sasl_oauthbearer_allow_unverified_issuer),
    ):
        if not value and not is_waived:
            return (
                f"OAUTHBEARER would accept tokens of any {what}. Set {_PREFIX}expected.{what}, or "
                f"{_PREFIX}allow.unverified.{what}=true"
            )
    if find_spec("joserfc") is None:
        return "OAUTHBEARER needs a library for signed tokens: pip install 'ottla[oauth]'"
    return ""
