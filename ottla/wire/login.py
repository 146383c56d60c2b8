"""TLS handshake and login of a connection, before its first request. shell

The options are kafka-python's: `security_protocol`, `ssl_cafile`, `ssl_certfile`, `ssl_password`, `ssl_check_hostname`,
`sasl_mechanism`, `sasl_plain_username`, `sasl_plain_password`, `sasl_oauth_token_provider`. The mechanisms are
kafka-python's, too.
"""

import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec

SecurityOptions = Mapping[str, Any]
PLAINTEXT: Final[SecurityOptions] = {}

_log = logging.getLogger(__name__)
_READABLE: Final = {"PLAIN": "the password", "OAUTHBEARER": "the token"}

_MOST_TOKENS: Final = 8
"""Maximum number of messages of a login. SCRAM, the longest, has two."""


class LoginRefused(ConnectionError):
    """The broker refuses this user or this mechanism, or there is nothing to log in with."""


def wrap_in_tls(plain: socket.socket, host: str, options: SecurityOptions) -> socket.socket:
    """Wrap a connection in TLS, if `security_protocol` has TLS. Raises OSError with the reason."""
    if not options.get("security_protocol", "PLAINTEXT").endswith("SSL"):
        return plain
    context = ssl.create_default_context(cafile=options.get("ssl_cafile"))
    context.check_hostname = options.get("ssl_check_hostname", True)
    if options.get("ssl_certfile"):
        context.load_cert_chain(options["ssl_certfile"], password=options.get("ssl_password"))
    return context.wrap_socket(plain, server_hostname=host)


def log_in(send: Callable[[Any], Any], options: SecurityOptions) -> int:
    """Log in by SASL, if `security_protocol` has it. Return the lifetime of the session in ms, 0 without a limit.

    `send` takes a request. It sends the highest version of both sides, and asks for the versions before the login,
    because brokers do not answer that during it. Raises LoginRefused.
    """
    protocol, name = options.get("security_protocol", "PLAINTEXT"), options.get("sasl_mechanism", "")
    if not protocol.startswith("SASL"):
        return 0
    from kafka.net.sasl import get_sasl_mechanism

    if protocol == "SASL_PLAINTEXT":
        _warn_of_readable_login(name)
    answer = send(codec.request_class(ApiKey.SASL_HANDSHAKE)(mechanism=name))
    if answer.error_code:
        raise LoginRefused(
            f"{name} is refused: {error_name(answer.error_code)}; the broker has {', '.join(answer.mechanisms)}"
        )
    # Without the protocol, by which kafka-python would warn at each login.
    mechanism = get_sasl_mechanism(name)(**{key: given for key, given in options.items() if key != "security_protocol"})
    for _ in range(_MOST_TOKENS):
        answer = send(codec.request_class(ApiKey.SASL_AUTHENTICATE)(auth_bytes=mechanism.auth_bytes()))
        if answer.error_code:
            raise LoginRefused(answer.error_message or error_name(answer.error_code))
        try:
            mechanism.receive(bytes(answer.auth_bytes))
        except ValueError as error:  # an invalid proof, or no token
            raise LoginRefused(f"{name}: the broker's answer is wrong: {error}") from None
        if mechanism.is_done():
            return max(answer.session_lifetime_ms or 0, 0)
    raise LoginRefused(f"{name}: the broker asks for more than {_MOST_TOKENS} messages of a login")


@cache
def _warn_of_readable_login(mechanism: str) -> None:
    """Log a line, once a process: all commands log in here."""
    seen = _READABLE.get(mechanism, "a proof of the password, with which a weak one can be guessed")
    text = "ottla: SASL_PLAINTEXT does not encrypt: the network sees %s (%s) and all records; use SASL_SSL"
    _log.warning(text, seen, mechanism)


def error_name(error_code: int) -> str:
    """Return Kafka's name of an error code, or its number: `error 9999`."""
    try:
        return ErrorCode(error_code).name
    except ValueError:
        return f"error {error_code}"
