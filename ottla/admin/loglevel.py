"""`/v1/loglevel`: the log levels of this process, and changing one for some minutes. free"""

import logging
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ottla.admin.fields import NUMBER, NUMBER_OR_NULL, TEXT, TEXT_OR_NULL, a_list, an_object
from ottla.admin.routes import AdminError, AdminRequest, AdminResponse, Route
from ottla.broker.loggers import LEVELS, ROOT, check_logger, level_name
from ottla.broker.ports.clock import Clock, Timer
from ottla.suggestion import did_you_mean

log = logging.getLogger(__name__)

DEFAULT_FOR_MS: Final = 300_000
MOST_FOR_MS: Final = 86_400_000
MOST_LOGGERS: Final = 1_000
"""Loggers with a level of their own. A request must name an existing logger, and there are as many as modules."""

_UNTIL: Final = "The end of the level in milliseconds since 1970; null if it has no end."
_LEVEL: Final = an_object(
    {
        "logger": TEXT,
        "level": TEXT,
        "until_ms": {**NUMBER_OR_NULL, "description": _UNTIL},
        "then": {**TEXT_OR_NULL, "description": "The level after that time; null for the level of its parent."},
    }
)
_CHANGE: Final = an_object(
    {
        "level": {**TEXT, "enum": list(LEVELS)},
        "for_ms": {**NUMBER, "minimum": 1, "maximum": MOST_FOR_MS},
    },
    required=["level"],
)
_LEVELS: Final = a_list(_LEVEL, description="The root logger, and all loggers with a level of their own.")


class _Change(NamedTuple):
    """A temporary change of a level."""

    before: int
    until_ms: int
    timer: Timer


class LogLevels:
    """The log levels of a process, and the times when changed levels are restored. `clock` is the machine's."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changes: dict[str, _Change] = {}

    @property
    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        named = "/v1/loglevel/{logger}"
        return (
            Route("GET", "/v1/loglevel", self.show, "List the levels of loggers", response_schema=_LEVELS),
            Route("PUT", named, self.change, "Change a logger's level for `for_ms`", _CHANGE, response_schema=_LEVEL),
            Route("DELETE", named, self.restore, "Restore the previous level of a logger", response_schema=_LEVEL),
        )

    async def show(self, request: AdminRequest) -> AdminResponse:
        """List the root, and all loggers that have a level of their own."""
        known = sorted(logging.root.manager.loggerDict.items())[:MOST_LOGGERS]
        own = [name for name, each in known if isinstance(each, logging.Logger) and each.level]
        return AdminResponse(body=[self._to_json(name) for name in (ROOT, *own)])

    async def change(self, request: AdminRequest) -> AdminResponse:
        """Set a level now, and restore the previous one after `for_ms`."""
        name = _check_logger_name(request.parameters["logger"])
        for_ms = int(request.body.get("for_ms", DEFAULT_FOR_MS))
        before = self._forget(name)
        timer = self._clock.call_later(for_ms, lambda: self._restore(name))
        self._changes[name] = _Change(before, self._clock.now_ms() + for_ms, timer)
        log.info("Logger %s has level %s for %d s, set at the admin port", name, request.body["level"], for_ms / 1000)
        _logger(name).setLevel(LEVELS[request.body["level"]])
        return AdminResponse(body=self._to_json(name))

    async def restore(self, request: AdminRequest) -> AdminResponse:
        """Restore the previous level at once."""
        name = _check_logger_name(request.parameters["logger"])
        if name not in self._changes:
            raise AdminError(404, f"The level of {name} is not changed: GET /v1/loglevel lists the levels")
        self._restore(name)
        return AdminResponse(body=self._to_json(name))

    def _restore(self, name: str) -> None:
        _logger(name).setLevel(self._forget(name))
        log.info("Logger %s has level %s again", name, level_name(_logger(name).getEffectiveLevel()))

    def _forget(self, name: str) -> int:
        """Cancel the change of a logger, and return its lasting level."""
        change = self._changes.pop(name, None)
        if change is None:
            return _logger(name).level
        change.timer.cancel()
        return change.before

    def _to_json(self, name: str) -> dict[str, Any]:
        change = self._changes.get(name)
        return {
            "logger": name,
            "level": level_name(_logger(name).getEffectiveLevel()),
            "until_ms": None if change is None else change.until_ms,
            "then": level_name(change.before) if change is not None and change.before else None,
        }


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _check_logger_name(name: str) -> str:
    """Return the name if the logger exists. AdminError 404 otherwise: requests must not create loggers."""
    known = logging.root.manager.loggerDict
    if name in known or name == ROOT:
        return name
    if name.partition(".")[0] != "ottla" or not all(part.isidentifier() for part in name.split(".")):
        near = did_you_mean(name, [ROOT, "ottla", *(each for each in known if "." not in each)][:MOST_LOGGERS])
        raise AdminError(404, f"There is no logger {name:.100}: {near}")
    try:
        check_logger(name)
    except ValueError as error:
        raise AdminError(404, f"{str(error).capitalize():.300}") from None
    return name
