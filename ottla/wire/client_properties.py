"""Conversion of a Java client's properties to options of kafka-python. shell"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla import files
from ottla.protocol.errors import ProtocolError
from ottla.protocol.java.jaas import parse_jaas
from ottla.protocol.java.properties import read_properties

RACK: Final = "client_rack"
_OPTIONS: Final = {
    "client.rack": RACK,
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "ssl.truststore.location": "ssl_cafile",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.key.password": "ssl_password",
}
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_OAUTHBEARER: Final = "OAUTHBEARER"
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", _OAUTHBEARER)


def client_options(path: Path | None) -> dict[str, object]:
    """Return the TLS and SASL options and the rack of a `--command-config` file of Kafka's tools; none without a file.

    The ValueError names an option that is not supported.
    """
    if path is None:
        return {}
    try:
        given = read_properties(files.read_argument(str(path)))
    except OSError as error:
        raise ValueError(str(error)) from None
    except ProtocolError as broken:
        raise ValueError(f"{path}: {broken}") from None
    if given.get("security.protocol", _PROTOCOLS[0]) not in _PROTOCOLS:
        raise ValueError(f"{path}: security.protocol must be {', '.join(_PROTOCOLS[:-1])} or {_PROTOCOLS[-1]}")
    options: dict[str, object] = {_OPTIONS[key]: text for key, text in given.items() if key in _OPTIONS}
    for store in ("ssl.truststore", "ssl.keystore"):
        if f"{store}.location" in given and given.get(f"{store}.type", "JKS") != "PEM":
            raise ValueError(f"{path}: {store}.type must be PEM here")
        if given.get(f"{store}.location"):
            _check_readable(given[f"{store}.location"])
    if given.get("ssl.endpoint.identification.algorithm") == "":
        options["ssl_check_hostname"] = False
    if given.get("security.protocol", "").startswith("SASL_"):
        options |= _login(path, given)
    return options


def _check_readable(location: str) -> None:
    """Raise ValueError for a FIFO or a device: OpenSSL would wait for the FIFO, and read the device forever."""
    try:
        files.read(location)
    except FileNotFoundError:
        pass  # the connection names the option
    except OSError as error:
        raise ValueError(str(error)) from None


def _login(path: Path, given: Mapping[str, str]) -> dict[str, object]:
    """Return the login options of the JAAS entry, or the source of tokens."""
    if given.get("sasl.mechanism") not in _MECHANISMS:
        raise ValueError(f"{path}: sasl.mechanism must be {', '.join(_MECHANISMS[:-1])} or {_MECHANISMS[-1]} here")
    is_oauth = given["sasl.mechanism"] == _OAUTHBEARER
    entry = given.get("sasl.jaas.config", "")
    if is_oauth and not entry:
        return {"sasl_oauth_token_provider": _token_provider(path, given, {})}
    try:
        module = parse_jaas(entry)
    except ValueError as error:
        raise ValueError(f"{path}: sasl.jaas.config must be {error}") from None
    if is_oauth:
        return {"sasl_oauth_token_provider": _token_provider(path, given, module.options)}
    missing = [name for name in ("username", "password") if name not in module.options]
    if missing:
        raise ValueError(f"{path}: sasl.jaas.config must have {' and '.join(missing)} here")
    return {
        "sasl_plain_username": module.options["username"],
        "sasl_plain_password": module.options["password"],
    }


def _token_provider(path: Path, given: Mapping[str, str], module_options: Mapping[str, str]) -> object:
    from ottla.wire.tokens import token_provider  # and kafka-python's mechanisms, which other clients load at a login

    try:
        return token_provider(given, module_options)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
