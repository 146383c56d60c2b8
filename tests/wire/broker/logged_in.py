"""Logins by kafka-python's mechanisms, and the broker's answer. free"""

from collections.abc import Callable
from typing import NamedTuple

from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.oauth import AbstractTokenProvider

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.wire.connection import BlockingConnection
from tests.timeout import EVENT_TIMEOUT_S


class Login(NamedTuple):
    """A login by name and password or with tokens."""

    mechanism: str
    name: str = ""
    password: str = ""
    token: Callable[[], str] | None = None


class _Provider(AbstractTokenProvider):
    def __init__(self, token):
        self._token = token

    def token(self):
        return self._token()


def mechanism_of(address, login):
    """Return kafka-python's part of the login."""
    config = {"bootstrap_servers": address, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": login.mechanism}
    if login.token is not None:
        config["sasl_oauth_token_provider"] = _Provider(login.token)
    else:
        config |= {"sasl_plain_username": login.name, "sasl_plain_password": login.password}
    return get_sasl_mechanism(login.mechanism)(**config)


def refusal(address, login):
    """Log in. Return the broker's error message, or an empty string after a login."""
    host, _, port = address.rpartition(":")
    client = mechanism_of(address, login)
    with BlockingConnection(host, int(port), timeout_s=EVENT_TIMEOUT_S) as connection:
        connection.send(codec.request_class(ApiKey.SASL_HANDSHAKE)(mechanism=login.mechanism), version=1)
        while not client.is_done():
            asked = codec.request_class(ApiKey.SASL_AUTHENTICATE)(auth_bytes=client.auth_bytes())
            reply = connection.send(asked, version=2)
            if reply.error_code:
                assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
                return reply.error_message
            client.receive(bytes(reply.auth_bytes))
    return ""
