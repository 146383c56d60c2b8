"""Options of TLS: for all listeners, for one, changed while the broker runs. Secrets are never shown."""

import pytest

from ottla.broker.config import Config, ConfigError, Kind, describe_broker, from_environment, from_flags, load_config
from ottla.broker.config.altered import Change, Operation, alter, broker_family
from ottla.broker.config.dynamic import in_force
from ottla.broker.config.listener_options import TLS_OPTIONS, listener_config, of_listener

SSL = "listeners=INSIDE://127.0.0.1:1,OUTSIDE://127.0.0.1:2"
MAP = "listener.security.protocol.map=INSIDE:SSL,OUTSIDE:SSL"


def load(*flags, environment=()):
    return load_config(from_flags([SSL, MAP, *flags]), from_environment(dict(environment)))


def test_listener_options_override_general_tls_options():
    config = load("ssl.keystore.location=/all", "listener.name.outside.ssl.keystore.location=/own").config
    assert listener_config(config, "OUTSIDE").ssl_keystore_location == "/own"
    assert listener_config(config, "INSIDE").ssl_keystore_location == "/all"
    assert listener_config(config, "INSIDE").ssl_enabled_protocols == "TLSv1.2,TLSv1.3"


def test_a_tls_flag_overrides_an_environment_variable():
    environment = {
        "KAFKA_LISTENER_NAME_OUTSIDE_SSL_KEYSTORE_LOCATION": "/variable",
        "KAFKA_LISTENER_NAME_OUTSIDE_SSL_CLIENT_AUTH": "required",
    }
    found = load("listener.name.outside.ssl.keystore.location=/flag", environment=environment)
    settings = listener_config(found.config, "OUTSIDE")
    assert (settings.ssl_keystore_location, settings.ssl_client_auth) == ("/flag", "required")
    assert found.notes() == []


def test_dynamic_tls_changes_override_static_options():
    static = load("listener.name.outside.ssl.keystore.location=/own").config
    changed = {
        "": {"listener.name.outside.ssl.keystore.location": "/cluster", "listener.name.outside.ssl.keystore.type": "?"},
        "1": {"listener.name.outside.ssl.keystore.location": "/broker"},
    }
    settings = listener_config(in_force(static, 1, changed), "OUTSIDE")
    assert (settings.ssl_keystore_location, settings.ssl_keystore_type) == ("/broker", "JKS")
    assert listener_config(in_force(static, 1, {"": changed[""]}), "OUTSIDE").ssl_keystore_location == "/cluster"


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        ("ssl.client.auth=maybe", "must be one of none, requested, required"),
        ("listener.name.inside.ssl.client.auth=maybe", "must be one of none, requested, required"),
        (
            "ssl.principal.mapping.rules=RULE:(/x/",
            "must be RULE:PATTERN/REPLACEMENT/[L|U], comma separated, or DEFAULT",
        ),
        ("listener.name.inside.ssl.principal.mapping.rules=default", "must be RULE:PATTERN/REPLACEMENT/[L|U]"),
        ("ssl.enabled.protocols=TLSv1.1", "must be a list of TLSv1.2, TLSv1.3"),
        ("listener.name.inside.ssl.keystore.type=BKS", "must be one of JKS, PKCS12, PEM"),
    ],
)
def test_an_invalid_tls_value_is_refused_with_its_key(flag, told):
    with pytest.raises(ConfigError) as refused:
        load(flag)
    assert str(refused.value).startswith(f"{flag.partition('=')[0]}=") and told in str(refused.value)


def test_tls_secrets_are_hidden_in_descriptions_and_repr():
    secret = "do not look"
    keys = [key for key, option in TLS_OPTIONS.items() if option.is_secret]
    assert len(keys) == 6
    flags = [f"{key}={secret}" for key in keys] + [f"listener.name.inside.{key}={secret}" for key in keys]
    config = in_force(load(*flags).config, 1, {"1": {f"listener.name.inside.{key}": secret for key in keys}})
    assert secret not in repr(config) and secret not in repr(listener_config(config, "INSIDE"))
    entries = {entry.name: entry for entry in describe_broker(config)}
    for name in (*keys, *(f"listener.name.inside.{key}" for key in keys)):
        entry = entries[name]
        assert (entry.value, entry.sensitive, entry.kind) == (None, True, Kind.PASSWORD)
        assert {value for _, value, _ in entry.synonyms} == {None}
    assert listener_config(config, "INSIDE").ssl_key_password == secret


def test_a_secret_of_a_plugin_is_none_of_ours():
    assert of_listener("listener.name.inside.ssl.key.password") == ("INSIDE", "ssl.key.password")
    assert of_listener("ssl.key.password") is None


def test_a_keystore_is_changed_for_one_listener_only():
    def alter_values(**values):
        changes = [Change(name, Operation.SET, value) for name, value in values.items()]
        return alter(broker_family(Config()), {}, changes)

    given = {"listener.name.inside.ssl.keystore.location": "/new", "listener.name.inside.ssl.key.password": "x"}
    assert alter_values(**given).values == given
    assert "only per-listener" in alter_values(**{"ssl.keystore.location": "/new"}).problem
    assert "Cannot update" in alter_values(**{"listener.name.inside.ssl.client.auth": "none"}).problem
    assert "must be one of" in alter_values(**{"listener.name.inside.ssl.keystore.type": "?"}).problem


@pytest.mark.parametrize(
    ("flags", "asked"),
    [([], "none"), (["listener.name.outside.ssl.client.auth=requested"], "requested")],
)
def test_sasl_ssl_listeners_ignore_the_general_ssl_client_auth(flags, asked):
    """KIP-684."""
    logins = ["sasl.enabled.mechanisms=SCRAM-SHA-256", "ssl.client.auth=required", *flags]
    map_ = "listener.security.protocol.map=INSIDE:SSL,OUTSIDE:SASL_SSL"
    config = load_config(from_flags([SSL, map_, *logins])).config
    assert listener_config(config, "OUTSIDE").ssl_client_auth == asked
    assert listener_config(config, "INSIDE").ssl_client_auth == "required"
