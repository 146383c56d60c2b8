"""Options of SASL: mechanisms of a listener, options of a single mechanism, and invalid options."""

import pytest

from ottla.broker.config import ConfigError, from_environment, from_flags, jaas_file_of, load_config
from ottla.broker.config.listener_options import listener_config
from ottla.broker.config.oauth import token_validator
from ottla.broker.config.sasl import sasl_settings

LISTENERS = "listeners=INSIDE://127.0.0.1:1,OUTSIDE://127.0.0.1:2"
MAP = "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = f'listener.name.outside.plain.sasl.jaas.config={MODULE} required user_alice="hush";'


def load(*flags, environment=()):
    return load_config(from_flags([LISTENERS, MAP, *flags]), from_environment(dict(environment)))


def settings(*flags, **more):
    return sasl_settings(load(*flags, **more).config, "OUTSIDE")


def test_a_listener_has_the_mechanisms_that_are_enabled_in_order():
    found = settings("sasl.enabled.mechanisms=SCRAM-SHA-512, PLAIN", USERS)
    assert found.mechanisms == ("SCRAM-SHA-512", "PLAIN")
    assert found.modules["PLAIN"].options == {"user_alice": "hush"}
    assert found.modules["SCRAM-SHA-512"].options == {}
    assert found.max_receive_bytes == 524_288


def test_a_listeners_own_mechanisms_go_before_those_of_all():
    own = "listener.name.outside.sasl.enabled.mechanisms=SCRAM-SHA-256"
    assert settings("sasl.enabled.mechanisms=PLAIN", own).mechanisms == ("SCRAM-SHA-256",)


def test_mechanism_options_override_listener_options_and_general_ones():
    config = load(
        "sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512",
        "connections.max.reauth.ms=1000",
        "listener.name.outside.connections.max.reauth.ms=2000",
        "listener.name.outside.scram-sha-512.connections.max.reauth.ms=3000",
        "sasl.oauthbearer.expected.issuer=all",
        "listener.name.outside.oauthbearer.sasl.oauthbearer.expected.issuer=own",
        "listener.name.outside.sasl.oauthbearer.clock.skew.seconds=7",
        "listener.name.outside.oauthbearer.sasl.server.callback.handler.class="
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    ).config
    found = sasl_settings(config, "OUTSIDE").configs
    sessions_ms = {mechanism: own.connections_max_reauth_ms for mechanism, own in found.items()}
    assert sessions_ms == {"SCRAM-SHA-256": 2000, "SCRAM-SHA-512": 3000}
    oauth = listener_config(config, "OUTSIDE", "OAUTHBEARER")
    assert (oauth.sasl_oauthbearer_expected_issuer, oauth.sasl_oauthbearer_clock_skew_seconds) == ("own", 7)
    assert token_validator(oauth) == "OAuthBearerValidatorCallbackHandler"


def test_variables_of_kafkas_image_are_read():
    environment = {
        "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN",
        "KAFKA_LISTENER_NAME_OUTSIDE_PLAIN_SASL_JAAS_CONFIG": f"{MODULE} required user_bob=hush;",
    }
    assert settings(environment=environment).modules["PLAIN"].options == {"user_bob": "hush"}
    assert load(environment=environment).notes() == []


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ([], "sasl.enabled.mechanisms: GSSAPI is not supported. Set listener.name.outside.sasl.enabled."),
        (["sasl.enabled.mechanisms=PLAIN,GSSAPI", USERS], "sasl.enabled.mechanisms: GSSAPI is not"),
        (["sasl.enabled.mechanisms=plain"], "sasl.enabled.mechanisms: plain is not"),
        (["sasl.enabled.mechanisms="], "sasl.enabled.mechanisms: nothing is not supported"),
        (["sasl.enabled.mechanisms=PLAIN"], "PLAIN has no users. Set listener.name.outside.plain.sasl.jaas.config"),
        ([USERS.removesuffix(";")], "plain.sasl.jaas.config=[hidden] (flag --override): must be a JAAS entry"),
        ([USERS.replace("Plain", "Scram")], "=[hidden] (flag --override): must be a JAAS entry of PlainLoginModule"),
    ],
)
def test_invalid_sasl_options_are_refused_by_name_without_secrets(flags, told):
    with pytest.raises(ConfigError) as refused:
        load(*flags)
    assert told in str(refused.value) and "hush" not in str(refused.value)


FILE = f"""KafkaServer {{ {MODULE} required username=broker password=hush user_carol="hush"; }};
outside.KafkaServer {{ {MODULE} required user_dave="hush"; }};
"""


@pytest.mark.parametrize(
    ("file", "users"),
    [(FILE, {"user_dave"}), (FILE.replace("outside", "other"), {"username", "password", "user_carol"})],
)
def test_plain_users_are_read_from_a_jaas_file(file, users):
    config = load_config(from_flags([LISTENERS, MAP, "sasl.enabled.mechanisms=PLAIN"]), jaas_file=file).config
    assert set(sasl_settings(config, "OUTSIDE").modules["PLAIN"].options) == users
    assert "hush" not in repr(config)


def test_a_jaas_option_overrides_the_jaas_file():
    flags = from_flags([LISTENERS, MAP, "sasl.enabled.mechanisms=PLAIN", USERS])
    config = load_config(flags, jaas_file=FILE).config
    assert set(sasl_settings(config, "OUTSIDE").modules["PLAIN"].options) == {"user_alice"}


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("KafkaServer { x.Other required user_a=hush; };", "PLAIN has no users"),
        ("{ hush", "the file must contain NAME {"),
    ],
)
def test_a_jaas_file_without_users_is_refused_without_its_secrets(file, told):
    with pytest.raises(ConfigError, match=told) as refused:
        load_config(from_flags([LISTENERS, MAP, "sasl.enabled.mechanisms=PLAIN"]), jaas_file=file)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("opts", "name"),
    [
        ("-Xmx1G -Djava.security.auth.login.config=/etc/kafka/jaas.conf -Dx=y", "/etc/kafka/jaas.conf"),
        ('-Djava.security.auth.login.config=="/etc/jaas.conf"', "/etc/jaas.conf"),
        ("-Xmx1G", ""),
    ],
)
def test_the_jaas_file_path_is_read_from_kafka_opts(opts, name):
    assert jaas_file_of({"KAFKA_OPTS": opts}) == name


def test_a_listener_without_sasl_needs_nothing_of_it():
    config = load_config(from_flags(["listeners=PLAINTEXT://127.0.0.1:1"])).config
    assert config.sasl_enabled_mechanisms == "GSSAPI"


def test_passwords_are_not_in_the_repr_of_sasl_settings():
    config = load("sasl.enabled.mechanisms=PLAIN", USERS).config
    assert "hush" not in repr(config) and "hush" not in repr(sasl_settings(config, "OUTSIDE"))
