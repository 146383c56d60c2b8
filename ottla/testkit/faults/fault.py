"""A fault: its point, its conditions, its count and its effect. pure

As JSON, in a fault plan (a YAML file is read the same way) and on the admin port:

    {"at": "request", "api": "EndTxn", "where": {"transactional_id": "tx-1"}, "nth": 2, "do": "reply",
     "error": "COORDINATOR_NOT_AVAILABLE"}

`at` is one of `POINTS`. `api` and `where` choose the requests; without them the fault applies to all. `nth` is the
first match that the fault fires on (default 1), and `times` the number of matches from then on (default 1; null for
all). `do` is the effect, one of those that `POINTS` lists for the point, with `error` or `ms` if it needs one.
"""

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode

__tracebackhide__ = True  # pytest then shows the line of the test and the message

POINTS: Final[Mapping[str, tuple[str, ...]]] = {
    "request": ("reply", "drop", "delay", "hold", "crash", "duplicate"),
    "reply": ("drop", "lose", "delay", "hold", "crash"),
    "marker": ("reply", "lose", "hold", "crash"),
    "marker_reply": ("lose", "crash"),
    "append": ("fail", "crash"),
    "sync": ("fail", "delay", "crash"),
}
"""Points at which a fault can fire, and its possible effects there.

    request       before the request is handled: answer with an error, close the connection, wait, handle it twice
    reply         after the request is handled, before its reply is sent: close the connection, drop the reply
    marker        before a transaction marker is written: answer with an error for the leader, or drop the marker
    marker_reply  after a marker is written: drop the answer
    append, sync  a disk call: fail with an errno (EIO, ENOSPC), or be slow
"""

CLUSTER: Final = "cluster"
"""Point of a change to several brokers of a process. It is no fault that can be planned: it is in force, and fires each
time that a client meets it."""

OF_THE_BROKER: Final = frozenset({"marker", "marker_reply", "append", "sync"})
"""Points that only an Ottla broker has. The effect `crash` needs an Ottla broker too."""

CONDITIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "request": ("client_id", "transactional_id", "producer_id", "group", "topic", "partition", "broker"),
    "reply": ("client_id", "transactional_id", "producer_id", "group", "topic", "partition", "broker"),
    "marker": ("transactional_id", "producer_id", "topic", "partition", "broker"),
    "marker_reply": ("transactional_id", "producer_id", "topic", "partition", "broker"),
    "append": ("topic", "partition"),
    "sync": ("topic", "partition"),
}
"""Conditions for `where` at each point. `producer_id` matches the field of a request, and batches in Produce. `broker`
is the id of the broker that gets the request or the marker."""

NUMBERS: Final = frozenset({"broker", "partition", "producer_id"})
"""Conditions whose value is a number; all others are strings."""

_FIELDS: Final = ("at", "api", "where", "nth", "times", "do", "error", "ms", "id", "hits")


class FaultError(ValueError):
    """An invalid fault. The message names the wrong value and the possible ones."""


@dataclass(slots=True)
class Fault:
    """A planned fault. `seen` counts the matches, `hits` those on which it has fired."""

    do: str
    at: str = "request"
    api: ApiKey | None = None
    where: Mapping[str, object] = field(default_factory=dict)
    nth: int = 1
    times: int | None = 1
    error: ErrorCode = ErrorCode.NONE
    errno: int = 0
    ms: float = 0.0
    id: int = 0
    seen: int = 0
    hits: int = 0
    released: bool = False
    """Return whether the fault was released: it holds nothing from then on."""

    @property
    def is_spent(self) -> bool:
        """Return whether the fault can no longer fire."""
        return self.released or (self.times is not None and self.hits >= self.times)

    def count_match(self) -> bool:
        """Count a match, and return whether the fault fires on it."""
        self.seen += 1
        if self.seen < self.nth or self.is_spent:
            return False
        self.hits += 1
        return True

    def describe(self) -> str:
        """Return a description in one line."""
        if self.at == CLUSTER:
            return " ".join([self.do, *(f"{name}={value}" for name, value in self.where.items())])
        whom = self.api.title if self.api is not None else "any"
        conditions = "".join(f" {name}={value}" for name, value in self.where.items())
        times = "always" if self.times is None else f"{self.times} time{'s' if self.times > 1 else ''}"
        what = (
            self.error.name
            if self.error
            else errno.errorcode.get(self.errno, "") or (f"{self.ms:g} ms" * bool(self.ms))
        )
        from_nth = f" from number {self.nth}" if self.nth > 1 else ""
        return f"{self.do}{' ' + what if what else ''} at {self.at} of {whom}{conditions}{from_nth}, {times}"

    def to_json(self) -> dict[str, object]:
        """Return the fault as JSON for `parse_fault`, with its counters."""
        shown: dict[str, object] = {"id": self.id, "at": self.at, "do": self.do}
        if self.api is not None:
            shown["api"] = self.api.title
        if self.where:
            shown["where"] = dict(self.where)
        if self.error:
            shown["error"] = self.error.name
        if self.errno:
            shown["error"] = errno.errorcode[self.errno]
        if self.ms:
            shown["ms"] = self.ms
        counters = {
            "nth": self.nth,
            "times": self.times,
            "seen": self.seen,
            "hits": self.hits,
            "released": self.released,
        }
        return shown | counters


def parse_fault(given: object) -> Fault:
    """Return the fault that a JSON value describes. Raises FaultError."""
    if not isinstance(given, dict):
        raise FaultError(f"a fault must be an object, not {given!r}")
    for name in given:
        _known(str(name), _FIELDS, "field of a fault")
    at = _known(str(given.get("at", "request")), tuple(POINTS), "point")
    do = _known(str(given.get("do", "")), POINTS[at], f"action at {at!r}")
    fault = Fault(do, at, _api(given.get("api"), at), _where(given.get("where", {}), at))
    fault.nth = _whole("nth", given.get("nth", 1))
    times = given.get("times", 1)
    fault.times = None if times is None else _whole("times", times)
    _what(fault, given)
    return fault


def find_api(name: str) -> ApiKey:
    """Return the API of this Kafka name (`EndTxn`), in upper or lower case. Raises FaultError."""
    titles = {key.title: key for key in ApiKey}
    folded = {title.lower(): key for title, key in titles.items()}
    found = folded.get(name.lower())
    if found is None:
        _known(name, tuple(titles), "API")
        raise FaultError(f"{name!r} is an unknown API")
    return found


def _api(given: Any, at: str) -> ApiKey | None:
    if given is None:
        return None
    if at not in ("request", "reply"):
        raise FaultError(f"the point {at!r} has no API: omit 'api'")
    return find_api(str(given))


def _where(given: Any, at: str) -> dict[str, object]:
    if not isinstance(given, dict):
        raise FaultError(f"'where' must be an object, not {given!r}")
    where: dict[str, object] = {}
    for name, value in given.items():
        _known(str(name), CONDITIONS[at], f"condition at {at!r}")
        if name in NUMBERS:
            value = _whole(str(name), value, least=0)
        elif not isinstance(value, str):
            raise FaultError(f"{name} must be a string, not {value!r}")
        where[str(name)] = value
    return where


def _what(fault: Fault, given: Mapping[str, Any]) -> None:
    """Read `error` or `ms` if the effect needs it, and refuse it otherwise."""
    needed = {"reply": "error", "fail": "error", "delay": "ms"}.get(fault.do)
    for name in ("error", "ms"):
        if (name in given) != (name == needed):
            word = "needs" if name == needed else "takes no"
            raise FaultError(f"{fault.do!r} {word} {name!r}")
    if fault.do == "reply":
        name = str(given["error"]).upper()
        _known(name, tuple(error.name for error in ErrorCode if error), "error code of Kafka")
        fault.error = ErrorCode[name]
    elif fault.do == "fail":
        name = str(given["error"]).upper()
        _known(name, tuple(errno.errorcode.values()), "errno")
        fault.errno = getattr(errno, name)
    elif fault.do == "delay":
        ms = given["ms"]
        if isinstance(ms, bool) or not isinstance(ms, int | float) or not 0 < ms <= 86_400_000:
            raise FaultError(f"ms must be a number above 0 and at most a day, not {ms!r}")
        fault.ms = float(ms)


def _whole(name: str, given: Any, least: int = 1) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < least:
        raise FaultError(f"{name} must be a whole number from {least}, not {given!r}")
    return given


def _known(name: str, names: tuple[str, ...], what: str) -> str:
    if name in names:
        return name
    close = get_close_matches(name.lower(), [each.lower() for each in names], 1)
    meant = next((each for each in names if close and each.lower() == close[0]), None)
    hint = f": did you mean {meant}?" if meant else f": it is one of {', '.join(names)}" if len(names) < 20 else ""
    raise FaultError(f"{name!r} is an unknown {what}{hint}" if name else f"the {what} is missing{hint}")
