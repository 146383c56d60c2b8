"""The key set (JWKS) that checks the tokens of a listener: fetched in a thread, cached, fetched again. pure

Source: `RefreshingHttpsJwks` of Kafka 4.3.1. In Kafka a token with an unknown key starts a fetch, once a minute for
each key, and is refused meanwhile. Here its client waits for the fetch, and all unknown keys together start one fetch
in `MISSED_AGAIN_MS`. A file is read again in the same way. Without keys every token is refused.
"""

import logging
import re
from typing import Any, Final, NamedTuple

from ottla.broker.config import Config
from ottla.broker.ports.clock import Clock, Timer
from ottla.broker.ports.web import Web, fetch
from ottla.broker.security.keys import Head, VerificationKey, parse_keys
from ottla.broker.security.oauth import TokenRefused
from ottla.broker.turns import Turns, Wait

log = logging.getLogger(__name__)

MOST_BYTES: Final = 256 * 1024
TIMEOUT_S: Final = 10.0
MISSED_AGAIN_MS: Final = 10_000.0
_KEY_ID_CHARS_MOST: Final = 1_000
_MOST_CHARS: Final = 200
_AGAIN_MS_LEAST: Final = 10.0


class KeyFetchContext(NamedTuple):
    """The parts of the broker that fetching keys needs."""

    clock: Clock
    turns: Turns
    web: Web


class Jwks:
    """Key set of a URL."""

    def __init__(self, listener_name: str, config: Config, around: KeyFetchContext) -> None:
        self.listener_name = listener_name
        self._config = config
        self._around = around
        self._keys: tuple[VerificationKey, ...] = ()
        self._waits: dict[Wait[None], None] = {}
        self._under_way = False
        self._stopped = False
        self._fetched_ms = -MISSED_AGAIN_MS
        self._backoff_ms = float(config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms)
        self._timer: Timer | None = None

    def start(self) -> None:
        """Fetch the keys now, and again regularly until `stop`."""
        if self._under_way or self._stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._under_way = True
        self._fetched_ms = self._around.clock.monotonic_ms()
        url = self._config.sasl_oauthbearer_jwks_endpoint_url
        self._around.web.start(lambda: parse_keys(fetch(url, MOST_BYTES, TIMEOUT_S)), self._take_keys)

    def stop(self) -> None:
        """Stop fetching."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    async def key_for(self, head: Head) -> VerificationKey:
        """Return the key that a token names, fetching the keys if it is unknown. Raises TokenRefused."""
        found = self._find(head)
        if found is None and len(head.key_id) <= _KEY_ID_CHARS_MOST:
            if self._around.clock.monotonic_ms() - self._fetched_ms >= MISSED_AGAIN_MS:
                self.start()
            if self._under_way:
                await self._next_keys()
                found = self._find(head)
        if found is not None:
            return found
        if not self._keys:
            raise TokenRefused("the broker has no keys to check it with")
        raise TokenRefused(f"the broker has no key for its signature: {head.algorithm} {head.key_id!r}"[:_MOST_CHARS])

    def _find(self, head: Head) -> VerificationKey | None:
        """Return the key that a token names. Without a name, return the key only if exactly one is suitable."""
        able = [key for key in self._keys if head.algorithm in key.algorithms]
        if head.key_id:
            return next((key for key in able if key.key_id == head.key_id), None)
        return able[0] if len(able) == 1 else None

    async def _next_keys(self) -> None:
        wait: Wait[None] = Wait(self._around.turns)
        give_up = self._around.clock.call_later(TIMEOUT_S * 1000, lambda: wait.wake(None))

        def forget() -> None:
            give_up.cancel()
            self._waits.pop(wait, None)

        wait.on_discard = forget
        self._waits[wait] = None
        await wait
        forget()

    def _take_keys(self, keys: Any, failure: Exception | None) -> None:
        self._under_way = False
        where = f"the keys of OAUTHBEARER on listener {self.listener_name}"
        if failure is None:
            if keys != self._keys:
                names = ", ".join(repr(key.key_id) for key in keys)
                log.info("Fetched %s: %s", where, names[:_MOST_CHARS])
            self._keys = keys
            self._backoff_ms = float(self._config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms)
            again_ms = float(self._config.sasl_oauthbearer_jwks_endpoint_refresh_ms)
        else:
            stays = "; the previous keys stay in use" if self._keys else "; no client can log in with a token"
            log.warning(
                "Cannot fetch %s from %s: %s%s",
                where,
                _redact_url(self._config.sasl_oauthbearer_jwks_endpoint_url),
                failure,
                stays,
            )
            again_ms = self._backoff_ms
            self._backoff_ms = min(
                2 * self._backoff_ms, float(self._config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms)
            )
        for wait in self._waits:
            wait.wake(None)
        if not self._stopped:
            self._timer = self._around.clock.call_later(max(again_ms, _AGAIN_MS_LEAST), self.start)


def _redact_url(url: str) -> str:
    """Return the URL without its user, password and query, which may be secrets."""
    return re.sub("//[^/@]*@", "//", url.partition("?")[0])
