"""TLS handshake and login of a connection, before its first request. shell

The options are kafka-python's: `security_protocol`, `ssl_cafile`, `ssl_certfile`, `ssl_password`, `ssl_check_hostname`,
`sasl_mechanism`, `sasl_plain_username`, `sasl_plain_password`. The mechanisms are kafka-python's, too.
"""

import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec

SecurityOptions = Mapping[str, Any]
PLAINTEXT: Final[SecurityOptions] = {}
_HANDSHAKE: Final = 1
"""Version of SaslHandshake with tokens in SaslAuthenticate requests. After version 0, tokens have no header."""


class LoginRefused(ConnectionError):
    """The broker refuses this user or this mechanism."""


def wrap_in_tls(plain: socket.socket, host: str, options: SecurityOptions) -> socket.socket:
    """Wrap a connection in TLS, if `security_protocol` has TLS. Raises OSError with the reason."""
    if not options.get("security_protocol", "PLAINTEXT").endswith("SSL"):
        return plain
    context = ssl.create_default_context(cafile=options.get("ssl_cafile"))
    context.check_hostname = options.get("ssl_check_hostname", True)
    if options.get("ssl_certfile"):
        context.load_cert_chain(options["ssl_certfile"], password=options.get("ssl_password"))
    return context.wrap_socket(plain, server_hostname=host)


def log_in(send: Callable[[Any, int], Any], options: SecurityOptions) -> None:
    """Log in by SASL, if `security_protocol` has it. `send` takes a request and its version. Raises LoginRefused."""
    if not options.get("security_protocol", "PLAINTEXT").startswith("SASL"):
        return
    from kafka.net.sasl import get_sasl_mechanism

    name = options["sasl_mechanism"]
    answer = send(codec.request_class(ApiKey.SASL_HANDSHAKE)(mechanism=name), _HANDSHAKE)
    if answer.error_code:
        raise LoginRefused(
            f"{name} is refused: {error_name(answer.error_code)}; the broker has {', '.join(answer.mechanisms)}"
        )
    mechanism = get_sasl_mechanism(name)(**options)
    while not mechanism.is_done():
        answer = send(codec.request_class(ApiKey.SASL_AUTHENTICATE)(auth_bytes=mechanism.auth_bytes()), 0)
        if answer.error_code:
            raise LoginRefused(answer.error_message or error_name(answer.error_code))
        try:
            mechanism.receive(bytes(answer.auth_bytes))
        except ValueError as error:  # an invalid proof, or no token
            raise LoginRefused(f"{name}: the broker's answer is wrong: {error}") from None


def error_name(error_code: int) -> str:
    """Return Kafka's name of an error code, or its number: `error 9999`."""
    try:
        return ErrorCode(error_code).name
    except ValueError:
        return f"error {error_code}"
