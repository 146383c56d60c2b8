"""Options that OAUTHBEARER requires before a broker starts."""

import pytest

from ottla.broker.config import ConfigError, from_flags, load_config

LISTENER = ("listeners=SASL_PLAINTEXT://127.0.0.1:1", "sasl.enabled.mechanisms=OAUTHBEARER")
OAUTH = "org.apache.kafka.common.security.oauthbearer"
VALIDATOR = "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class"
UNSECURED = f"{VALIDATOR}={OAUTH}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
JAAS = f"listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config={OAUTH}.OAuthBearerLoginModule required"
URL, ISSUER, AUDIENCE = (
    f"sasl.oauthbearer.{text}"
    for text in ("jwks.endpoint.url=https://issuer.example/keys", "expected.issuer=us", "expected.audience=kafka")
)


@pytest.mark.parametrize(
    "flags",
    [
        (URL, ISSUER, AUDIENCE),
        (URL, ISSUER, AUDIENCE, f"{VALIDATOR}={OAUTH}.OAuthBearerValidatorCallbackHandler"),
        (URL, "sasl.oauthbearer.allow.unverified.issuer=true", "sasl.oauthbearer.allow.unverified.audience=true"),
        ("sasl.oauthbearer.jwks.endpoint.url=file:///keys.json", ISSUER, AUDIENCE),
        (UNSECURED,),
        (UNSECURED, f'{JAAS} unsecuredValidatorAllowableClockSkewMs="3000";'),
    ],
)
def test_sufficient_oauthbearer_options_are_accepted(flags):
    load_config(from_flags([*LISTENER, *flags]))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "OAUTHBEARER needs keys. Set sasl.oauthbearer.jwks.endpoint.url"),
        ((ISSUER, AUDIENCE), "OAUTHBEARER needs keys"),
        ((ISSUER, AUDIENCE, "sasl.oauthbearer.jwks.endpoint.url=ftp://x/y"), "OAUTHBEARER needs keys"),
        ((URL,), "tokens of any audience. Set sasl.oauthbearer.expected.audience, or "),
        ((URL, AUDIENCE), "tokens of any issuer. Set sasl.oauthbearer.expected.issuer, or "),
        ((URL, ISSUER), "sasl.oauthbearer.allow.unverified.audience=true"),
        (
            (URL, ISSUER, AUDIENCE, f"{VALIDATOR}=com.example.Mine"),
            "Mine of sasl.server.callback.handler.class is unknown",
        ),
        ((UNSECURED, f'{JAAS} unsecuredValidatorAllowableClockSkewMs="-1";'), "AllowableClockSkewMs must be a number"),
        ((UNSECURED, f'{JAAS} unsecuredValidatorAllowableClockSkewMs="²";'), "AllowableClockSkewMs must be a number"),
    ],
)
def test_missing_or_invalid_oauthbearer_options_are_refused_with_advice(flags, said):
    with pytest.raises(ConfigError) as refused:
        load_config(from_flags([*LISTENER, *flags]))
    assert str(refused.value).startswith("Listener SASL_PLAINTEXT: ") and said in str(refused.value)


def test_the_library_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr("ottla.broker.config.oauth.find_spec", lambda name: None)
    load_config(from_flags([*LISTENER, UNSECURED]))
    with pytest.raises(ConfigError, match=r"pip install 'ottla\[oauth\]'"):
        load_config(from_flags([*LISTENER, URL, ISSUER, AUDIENCE]))
