"""Tokens of OAUTHBEARER: from a command, from a file, or without a signature. shell

Each login gets its token anew, so a renewed token is used without a restart. No error has a part of a token, or the
arguments of the command. Source: `OAuthBearerUnsecuredLoginCallbackHandler`, `FileJwtRetriever` of Kafka 4.3.1.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kafka.net.sasl.oauth import AbstractTokenProvider

from ottla import files
from ottla.wire.login import LoginRefused

COMMAND: Final = "sasl.oauthbearer.token.command"
"""The property of a command that prints a token. Java's clients ignore it, with a warning."""
URL: Final = "sasl.oauthbearer.token.endpoint.url"
COMMAND_TIMEOUT_S: Final = 30.0
LARGEST_BYTES: Final = 32_768

_UNSECURED: Final = "unsecuredLogin"
_EXTENSIONS: Final = ("extension_", f"{_UNSECURED}Extension_")
_TOKEN: Final = re.compile(r"[-_~+/.a-zA-Z0-9]+=*", re.ASCII)
_EXTENSION: Final = re.compile(r"(?!auth=)[A-Za-z]+=[\x21-\x7e \t\r\n]+", re.ASCII)
_CLAIM: Final = re.compile(rf"{_UNSECURED}(String|Number|List)Claim_(.+)", re.DOTALL)
_BY_BROKER: Final = ("iat", "exp")
_LONGEST_S: Final = 10**9


class TokenUnavailable(LoginRefused):
    """No token to log in with. The message names its source."""


class TokenProvider(AbstractTokenProvider):
    """Tokens for kafka-python's mechanism. `load` returns a token with blanks around it, or raises TokenUnavailable."""

    def __init__(self, source: str, load: Callable[[], str], extensions: Mapping[str, str]) -> None:
        super().__init__()
        self._source = source
        self._load = load
        self._extensions = extensions

    def token(self) -> str:
        """Return a token. Raises TokenUnavailable."""
        token = self._load().strip()
        if len(token) > LARGEST_BYTES or not _TOKEN.fullmatch(token):
            raise TokenUnavailable(f"{self._source} has no token: one line of at most {LARGEST_BYTES} bytes is needed")
        return token

    def extensions(self) -> Mapping[str, str]:
        return self._extensions


def token_provider(given: Mapping[str, str], module_options: Mapping[str, str]) -> TokenProvider:
    """Return the provider for a client's properties, and the options of its JAAS entry. Raises ValueError."""
    extensions = _extensions(module_options)
    if COMMAND in given:
        command = _parse_command(given[COMMAND])
        return TokenProvider(f"{COMMAND} ({command[0]})", lambda: _run(command), extensions)
    if URL in given:
        path = _parse_url(given[URL])
        return TokenProvider(path, lambda: _read(path), extensions)
    if any(name.startswith(_UNSECURED) for name in module_options):
        claims, lifetime_s = _unsecured_claims(module_options)
        return TokenProvider("sasl.jaas.config", lambda: _unsecured_token(claims, lifetime_s), extensions)
    raise ValueError(
        f"OAUTHBEARER needs a token: set {COMMAND} to a command that prints it, {URL} to file:///PATH, or "
        f"{_UNSECURED}StringClaim_sub in sasl.jaas.config"
    )


def _extensions(module_options: Mapping[str, str]) -> dict[str, str]:
    """Return the SASL extensions of a JAAS entry. Raises ValueError."""
    found = {
        name.removeprefix(prefix): text
        for prefix in _EXTENSIONS
        for name, text in module_options.items()
        if name.startswith(prefix)
    }
    for name, text in found.items():
        if not _EXTENSION.fullmatch(f"{name}={text}"):
            raise ValueError(
                f"sasl.jaas.config: the extension {name} must have a name of letters and a printable value"
            )
    return found


def _parse_command(text: str) -> list[str]:
    try:
        command = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{COMMAND}: {error}") from None
    if not command:
        raise ValueError(f"{COMMAND} must be a command that prints a token")
    return command


def _parse_url(url: str) -> str:
    """Return the path of a file URL. Raises ValueError, without the URL, which may have a secret."""
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc or not parts.path:
        raise ValueError(f"{URL} must be file:///PATH here; for an issuer, set {COMMAND} to a command that asks it")
    return unquote(parts.path)


def _read(path: str) -> str:
    try:
        return files.read(path).decode("ascii", "replace")
    except OSError as error:
        raise TokenUnavailable(f"{URL}: {path}: {error.strerror}") from None


def _run(command: list[str]) -> str:
    """Return the output of the command. It is stopped, with its children, if it prints too much or takes too long."""
    named = f"{COMMAND}: {command[0]}"
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise TokenUnavailable(f"{named}: {error.strerror}") from None
    assert process.stdout is not None
    timer = threading.Timer(COMMAND_TIMEOUT_S, _kill, (process,))
    with process:
        timer.start()
        try:
            output = process.stdout.read(LARGEST_BYTES + 1)
            code = None if len(output) > LARGEST_BYTES else process.wait()
        finally:
            timer.cancel()
            _kill(process)
    if code is None:
        raise TokenUnavailable(f"{named} prints more than {LARGEST_BYTES} bytes; it must print a token alone")
    if code:
        how = (
            f"did not end within {COMMAND_TIMEOUT_S:g} s, or was killed" if code < 0 else f"ended with exit code {code}"
        )
        raise TokenUnavailable(f"{named} {how}; run it by hand to see why")
    return output.decode("ascii", "replace")


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill the session of the command, as far as it still runs."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _unsecured_claims(module_options: Mapping[str, str]) -> tuple[dict[str, Any], int]:
    """Return the claims of an unsigned token, and its lifetime in seconds. Raises ValueError."""
    claims: dict[str, Any] = {}
    for name, text in module_options.items():
        if (match := _CLAIM.fullmatch(name)) is None or match[2] in _BY_BROKER:
            continue
        kind, claim = match.groups()
        claims[claim] = _number(name, text) if kind == "Number" else _items(text) if kind == "List" else text
    principal = module_options.get(f"{_UNSECURED}PrincipalClaimName", "").strip() or "sub"
    if not str(claims.get(principal, "")).strip():
        raise ValueError(f"sasl.jaas.config must have {_UNSECURED}StringClaim_{principal}, the name of the user")
    lifetime_s = module_options.get(f"{_UNSECURED}LifetimeSeconds", "3600")
    if not (lifetime_s.isascii() and lifetime_s.isdigit() and 0 < int(lifetime_s[:11]) <= _LONGEST_S):
        raise ValueError(f"sasl.jaas.config: {_UNSECURED}LifetimeSeconds must be a number from 1 to {_LONGEST_S}")
    return claims, int(lifetime_s)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"sasl.jaas.config: {name} must be a number") from None


def _items(text: str) -> list[str]:
    """Return the items of a list, whose first character separates them."""
    return text[1:].split(text[0]) if text else []


def _unsecured_token(claims: Mapping[str, Any], lifetime_s: int) -> str:
    now_s = int(time.time())
    parts = {"alg": "none"}, {"iat": now_s, "exp": now_s + lifetime_s, **claims}
    header, payload = (urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return f"{header}.{payload}."
