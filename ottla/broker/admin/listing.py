"""Bounded lists in replies: the first rows of a walk in order, each written as JSON by itself. pure

A walk over a long list yields to other work, and only the first rows in order are kept.
"""

import json
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

from ottla.broker.admin.routes import AdminError, AdminRequest, AdminResponse
from ottla.broker.turns import Turns

DEFAULT_LIMIT: Final = 100
MOST_ROWS: Final = 1_000
LIMIT_MEANS: Final = f"The most rows: {DEFAULT_LIMIT} by default, {MOST_ROWS} at most."
ROW_JSON_US: Final = 15.0
"""Cost of making and writing a row."""
ITEM_US: Final = 2.0
"""Cost of an entry of a list in a row."""
MOST_MS: Final = 1 << 53

K = TypeVar("K", bound=tuple[Any, ...])
T = TypeVar("T")

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def encode_json(value: Mapping[str, Any]) -> bytes:
    """Return a small value as JSON, written in one step."""
    return _encode(value).encode()


class SmallestRows(Generic[K, T]):
    """The added rows with the smallest keys, and the number of all added rows. Keys must differ."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: list[tuple[K, T]] = []
        self._last: K | None = None
        self.total = 0

    def add(self, key: K, row: T) -> None:
        """Add a row."""
        self.total += 1
        if self._last is not None and key > self._last:
            return
        self._found.append((key, row))
        if len(self._found) >= 2 * self._most:
            self._cut()

    def rows(self) -> list[T]:
        """Return the rows with the smallest keys, in order."""
        self._cut()
        return [row for _, row in self._found]

    @property
    def left_out(self) -> int:
        """The number of added rows that are not kept."""
        return max(0, self.total - self._most)

    def _cut(self) -> None:
        self._found.sort(key=itemgetter(0))
        del self._found[self._most :]
        if len(self._found) == self._most:
            self._last = self._found[-1][0]


class JsonRows:
    """A reply `{"NAME": [row, ...], ...}` whose rows are written one by one, yielding to other work."""

    def __init__(self, name: str, turns: Turns) -> None:
        self._turns = turns
        self._pieces = [b'{"%b":[' % name.encode()]

    async def add(self, row: Mapping[str, Any], items: int = 0) -> None:
        """Add a row with this number of entries in its lists."""
        if len(self._pieces) > 1:
            self._pieces.append(b",")
        self._pieces.append(encode_json(row))
        await self._turns.spend(ROW_JSON_US + items * ITEM_US)

    def finish(self, **more: Any) -> AdminResponse:
        """Return the reply, with these fields after the rows."""
        return AdminResponse(body=b"".join([*self._pieces, _end(more)]))


def _end(more: Mapping[str, Any]) -> bytes:
    return b"]," + encode_json(more)[1:] + b"\n" if more else b"]}\n"


def limit_of(request: AdminRequest) -> int:
    """Return the number of rows that the request wants. AdminError 400."""
    return whole_number(request, "limit", DEFAULT_LIMIT, 1, MOST_ROWS)


def whole_number(request: AdminRequest, name: str, default: int, least: int = 0, most: int = MOST_MS) -> int:
    """Return a number in the query. AdminError 400 if it is not a number, or out of range."""
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and least <= int(text) <= most):
        raise AdminError(400, f"{name} must be a whole number from {least} to {most}")
    return int(text)
