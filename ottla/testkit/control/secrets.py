"""Redaction of requests and replies for the journal: those with credentials keep only their header. pure"""

from collections.abc import Sequence
from typing import Final

from ottla.broker.config.describe import loggable_value
from ottla.broker.outbox import Part
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ProtocolError
from ottla.protocol.requests.frames import parse_request_header
from ottla.testkit.faults.exchange import Exchange

_CREATE_DELEGATION_TOKEN: Final = 38
_SECRET: Final = frozenset({ApiKey.SASL_AUTHENTICATE, _CREATE_DELEGATION_TOKEN, ApiKey.ALTER_USER_SCRAM_CREDENTIALS})
_OF_CONFIGS: Final = frozenset({ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS})
_CORRELATION_ID_BYTES: Final = 4
_SIZE_BYTES: Final = 4


def kept_request(exchange: Exchange) -> bytes:
    """Return the request frame for the journal, without its size; only the header if the body has a secret."""
    if exchange.api_key not in _SECRET and not _changes_a_secret(exchange):
        return exchange.frame
    _, body = parse_request_header(memoryview(exchange.frame))
    return exchange.frame[: len(exchange.frame) - len(body)]


def kept_reply(exchange: Exchange, reply: bytes) -> bytes:
    """Return the reply frame for the journal, with its size; `reply` is without."""
    kept = reply[:_CORRELATION_ID_BYTES] if has_secret_reply(exchange) else reply
    return len(kept).to_bytes(_SIZE_BYTES, "big") + kept


def kept_parts(exchange: Exchange, parts: Sequence[Part]) -> Sequence[Part]:
    """Return the redacted frame of a secret reply given in parts; such a reply has no file slices."""
    reply = b"".join(part for part in parts if isinstance(part, (bytes, bytearray, memoryview)))
    return (kept_reply(exchange, reply[_SIZE_BYTES:]),) if reply else ()


def has_secret_reply(exchange: Exchange) -> bool:
    """Return whether the journal keeps only the header of the reply."""
    return exchange.api_key in _SECRET


def _changes_a_secret(exchange: Exchange) -> bool:
    """Return whether it sets a config value that Kafka would not log (`loggable_value`), or cannot be read."""
    if exchange.api_key not in _OF_CONFIGS:
        return False
    try:
        configs = [config for resource in exchange.decode().resources for config in resource.configs]
    except ProtocolError:
        return True
    return any(loggable_value(config.name, config.value) != config.value for config in configs)
