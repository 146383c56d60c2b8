"""Tokens of OAUTHBEARER from a command, a file or a JAAS entry: valid ones, and sources that have none."""

import json
import shlex
import sys
from base64 import urlsafe_b64decode

import pytest

from ottla.wire import tokens
from ottla.wire.client_properties import client_options
from ottla.wire.tokens import COMMAND, LARGEST_BYTES, URL, TokenUnavailable

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
SECRET = "c2VjcmV0.dG9rZW4."


def provider_of(tmp_path, *lines):
    """Return the provider of tokens of client properties with these lines."""
    path = tmp_path / "client.properties"
    path.write_text("\n".join(["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=OAUTHBEARER", *lines]))
    return client_options(path)["sasl_oauth_token_provider"]


def printing(code):
    return f"{COMMAND}={shlex.join([sys.executable, '-c', code])}"


def claims_of(token):
    return [json.loads(urlsafe_b64decode(part + "==")) for part in token.split(".")[:2]]


def test_each_login_runs_the_command(tmp_path):
    counter = tmp_path / "count"
    provider = provider_of(
        tmp_path, printing(f"f = open('{counter}', 'a+'); f.write('x'); f.seek(0); print('a.' + f.read() + '.')")
    )
    assert [provider.token(), provider.token()] == ["a.x.", "a.xx."]


def test_each_login_reads_the_file(tmp_path):
    file = tmp_path / "my token"
    provider = provider_of(tmp_path, f"{URL}={file.as_uri()}", f"sasl.jaas.config={MODULE} ;")
    file.write_text(f"{SECRET}\n")
    assert provider.token() == SECRET
    file.write_text("another\n")
    assert provider.token() == "another"


def test_an_unsigned_token_has_the_claims_of_java(tmp_path, monkeypatch):
    monkeypatch.setattr(tokens.time, "time", lambda: 1_000.7)
    options = (
        'unsecuredLoginStringClaim_sub="alice" unsecuredLoginNumberClaim_level="2" unsecuredLoginLifetimeSeconds=60'
    )
    entry = f'sasl.jaas.config={MODULE} {options} unsecuredLoginListClaim_scope="|read|write" extension_cluster="c-1";'
    provider = provider_of(tmp_path, entry)
    header, claims = claims_of(provider.token())
    assert header == {"alg": "none"}
    assert claims == {"iat": 1_000, "exp": 1_060, "sub": "alice", "level": 2.0, "scope": ["read", "write"]}
    assert provider.extensions() == {"cluster": "c-1"}


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], "set sasl.oauthbearer.token.command to a command"),
        ([f"sasl.jaas.config={MODULE} ;"], "OAUTHBEARER needs a token"),
        ([f"{URL}=https://user:{SECRET}@issuer.example/token"], f"{URL} must be file:///PATH here"),
        ([f"{URL}=file://host/path"], "must be file:///PATH"),
        ([f"{COMMAND}="], "must be a command"),
        ([f'{COMMAND}=sign "{SECRET}'], "No closing quotation"),
        ([f"sasl.jaas.config={MODULE} unsecuredLoginStringClaim_name=alice;"], "unsecuredLoginStringClaim_sub"),
        ([f"sasl.jaas.config={MODULE} unsecuredLoginNumberClaim_sub=alice;"], "must be a number"),
        (
            [f"sasl.jaas.config={MODULE} unsecuredLoginStringClaim_sub=a unsecuredLoginLifetimeSeconds=0;"],
            "must be a number from 1",
        ),
        ([f"{COMMAND}=sign", f"sasl.jaas.config={MODULE} extension_auth=x;"], "the extension auth must"),
        ([f"sasl.jaas.config={SECRET}"], "sasl.jaas.config must be a JAAS entry"),
    ],
)
def test_properties_without_a_source_are_one_line(tmp_path, lines, told):
    with pytest.raises(ValueError) as refused:
        provider_of(tmp_path, *lines)
    message = str(refused.value)
    assert told in message and str(tmp_path) in message
    assert SECRET not in message and "\n" not in message


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("print()", "has no token"),
        (f"print('{SECRET} {SECRET}')", "has no token"),
        (f"print('{SECRET}'); exit(3)", "ended with exit code 3; run it by hand"),
        (f"while True: print('{SECRET}')", f"prints more than {LARGEST_BYTES} bytes"),
    ],
)
def test_a_command_without_a_token_is_named_without_its_arguments(tmp_path, code, told):
    with pytest.raises(TokenUnavailable) as refused:
        provider_of(tmp_path, printing(code)).token()
    message = str(refused.value)
    assert told in message and COMMAND in message and sys.executable in message
    assert SECRET not in message and "\n" not in message


def test_a_command_that_does_not_end_is_stopped_with_its_children(tmp_path, monkeypatch):
    monkeypatch.setattr(tokens, "COMMAND_TIMEOUT_S", 0.01)
    child = shlex.join(["sh", "-c", "sleep 3600 & wait"])
    with pytest.raises(TokenUnavailable, match="did not end within"):
        provider_of(tmp_path, f"{COMMAND}={child}").token()


@pytest.mark.parametrize(
    ("make", "told"), [(lambda path: None, "No such file"), (lambda path: path.mkdir(), "director")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, make, told):
    path = tmp_path / "token"
    make(path)
    with pytest.raises(TokenUnavailable, match=told) as refused:
        provider_of(tmp_path, f"{URL}={path.as_uri()}").token()
    assert str(path) in str(refused.value)


@pytest.mark.slow
def test_a_command_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(TokenUnavailable, match="/no/such/signer: No such file"):
        provider_of(tmp_path, f"{COMMAND}=/no/such/signer --secret {SECRET}").token()
